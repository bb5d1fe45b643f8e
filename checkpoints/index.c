#include "checkpoints/index.h"

#include "checkpoints/format.h"
#include "checkpoints/scan.h"

moe_status moe_index_make(const char *folder, int32_t world, struct moe_catalog *catalog) {
  struct moe_text errors;
  MOE_TRY(moe_format_collect(folder, world, catalog->header.step, catalog));
  moe_text_init(catalog->ctx, &errors);
  moe_catalog_check(catalog, &errors);
  moe_status status =
      moe_catalog_verdict(catalog->ctx, &errors, "the slices of the ranks do not fit", folder);
  moe_text_destroy(&errors);
  for (int64_t i = 0; status == MOE_OK && i < catalog->tensors; i++)
    status = moe_scan_digest(folder, catalog, &catalog->tensor[i], &catalog->tensor[i].digest);
  return status == MOE_OK ? moe_format_write_index(folder, catalog) : status;
}
