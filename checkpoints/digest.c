#include "checkpoints/digest.h"

#include <xxhash.h>

/* One row: `n` elements, the first of which has index `first` in the tensor and `col` in its row.
 */
static uint64_t digest_row(const float *values, int64_t n, int64_t first, int64_t col) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < n;) {
    int64_t run = moe_min64(MOE_DIGEST_SEGMENT - (col + i) % MOE_DIGEST_SEGMENT, n - i);
    sum += XXH3_64bits_withSeed(values + i, (size_t)run * sizeof *values, (uint64_t)(first + i));
    i += run;
  }
  return sum;
}

uint64_t moe_digest_box(const int64_t *dim, const struct moe_box *box, const float *values) {
  int32_t last = box->dims - 1;
  int64_t width = box->count[last], elements = moe_box_elements(box);
  uint64_t sum = 0;
  if (elements == 0) return 0;
  for (int64_t row = 0; row < elements / width; row++) {
    int64_t rest = row, first = box->start[last], stride = dim[last];
    for (int32_t d = last - 1; d >= 0; d--) {
      first += (box->start[d] + rest % box->count[d]) * stride;
      rest /= box->count[d];
      stride *= dim[d];
    }
    sum += digest_row(values + row * width, width, first, box->start[last]);
  }
  return sum;
}

bool moe_digest_adds(const int64_t *dim, const struct moe_box *box) {
  int32_t last = box->dims - 1;
  int64_t end = box->start[last] + box->count[last];
  return box->start[last] % MOE_DIGEST_SEGMENT == 0 &&
         (end % MOE_DIGEST_SEGMENT == 0 || end == dim[last]);
}
