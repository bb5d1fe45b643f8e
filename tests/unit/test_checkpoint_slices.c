/* Tensors stored in slices of several ranks: set algebra of boxes, digests that add up, an index
 * that shows the whole, loads by ranks of another layout. Ranks are played by one process. */
#include "base/alloc.h"
#include "checkpoint_model.h"
#include "checkpoints/digest.h"
#include "checkpoints/folder.h"
#include "checkpoints/index.h"
#include "checkpoints/source.h"

/* Element i of every tensor below: a value that says where it is. */
static float value_at(int tensor, int64_t i) { return (float)(tensor * 100000 + i) + 0.5f; }

struct shape {
  const char *name;
  int32_t dims;
  int64_t dim[4];
};
static const struct shape shapes[] = {
    {"rows", 2, {7, 70}}, /* fewer rows than 8 ranks */
    {"line", 1, {1000}},
    {"experts", 4, {4, 2, 5, 64}},
    {"cube", 3, {5, 6, 33}},
};
enum { SHAPES = 4 };

static int64_t flat(const struct shape *s, const struct moe_box *box, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = s->dims - 1; d >= 0; d--) {
    at += (box->start[d] + i % box->count[d]) * stride;
    i /= box->count[d];
    stride *= s->dim[d];
  }
  return at;
}

struct fill {
  int tensor;
  struct moe_box box;
};

static moe_status fetch(void *arg, int64_t offset, int64_t n, float *values) {
  const struct fill *f = arg;
  for (int64_t i = 0; i < n; i++)
    values[i] = value_at(f->tensor, flat(&shapes[f->tensor], &f->box, offset + i));
  return MOE_OK;
}

/* Part r of n of the box along dim d, as even as it goes. */
static struct moe_box part(struct moe_box box, int d, int r, int n) {
  int64_t begin = box.count[d] * r / n, end = box.count[d] * (r + 1) / n;
  box.start[d] += begin;
  box.count[d] = end - begin;
  return box;
}

static struct moe_box whole(int tensor) {
  return moe_box_whole(shapes[tensor].dims, shapes[tensor].dim);
}

/* Which box of a tensor a rank stores. */
typedef struct moe_box (*cut_fn)(int tensor, int rank, int world);

static struct moe_box by_rows(int t, int rank, int world) { return part(whole(t), 0, rank, world); }
static struct moe_box by_columns(int t, int rank, int world) {
  return part(whole(t), shapes[t].dims - 1, rank, world); /* cuts segments */
}
static struct moe_box by_both(int t, int rank, int world) {
  int last = shapes[t].dims - 1;
  if (last == 0 || world % 2) return by_rows(t, rank, world);
  return part(part(whole(t), last, rank % 2, 2), 0, rank / 2, world / 2);
}

static moe_status put(struct moe_writer *w, int t, struct moe_box box) {
  struct fill f = {t, box};
  return moe_writer_put(w, MOE_STORE_WEIGHT, shapes[t].name, shapes[t].dim, &box, fetch, &f);
}

static moe_status make_index(const char *path, int world) {
  struct moe_catalog catalog;
  moe_catalog_init(ctx, &catalog);
  catalog.header = (struct moe_header){
      .step = 1, .tp = 1, .cp = 1, .dp = 1, .pp = 1, .etp = 1, .ep = 1, .edp = 1, .chunks = 1};
  catalog.header.order = moe_strdup(ctx, "tp-cp-ep-dp-pp");
  catalog.header.dtype = moe_strdup(ctx, "f32");
  catalog.header.model = moe_strdup(ctx, "{}");
  catalog.header.writer = moe_strdup(ctx, "test");
  moe_status status = moe_index_make(path, world, &catalog);
  moe_catalog_destroy(&catalog);
  return status;
}

static moe_checkpoint *store(const char *name, int world, cut_fn cut) {
  char *path = in_folder(name);
  moe_checkpoint *c;
  OK(moe_folder_create(ctx, path));
  for (int rank = 0; rank < world; rank++) {
    struct moe_writer *w;
    OK(moe_writer_create(ctx, path, rank, world, 1, &w));
    for (int t = 0; t < SHAPES; t++) OK(put(w, t, cut(t, rank, world)));
    OK(moe_writer_destroy(w, MOE_OK));
  }
  OK(make_index(path, world));
  OK(moe_checkpoint_open(ctx, path, &c));
  OK(moe_checkpoint_verify(c));
  return c;
}

static int64_t index_of(moe_checkpoint *c, int t, moe_checkpoint_tensor *x) {
  for (int64_t i = 0; i < SHAPES; i++) {
    *x = (moe_checkpoint_tensor){.size = sizeof *x};
    OK(moe_checkpoint_tensor_info(c, i, x));
    if (strcmp(x->name, shapes[t].name) == 0) return i;
  }
  fail_msg("%s is not there", shapes[t].name);
  return -1;
}

static void read_box(moe_checkpoint *c, int t, const struct moe_box *box) {
  moe_checkpoint_tensor x;
  int64_t index = index_of(c, t, &x), n = moe_box_elements(box);
  float *values = malloc((size_t)n * sizeof *values + 1);
  OK(moe_checkpoint_read(c, index, box->start, box->count, values, n));
  for (int64_t i = 0; i < n; i++) assert_true(values[i] == value_at(t, flat(&shapes[t], box, i)));
  free(values);
}

/* Any cut shows the same tensors with the same digests; any box of them can be read. */
static void test_cuts(void **state) {
  (void)state;
  static const cut_fn cuts[] = {by_rows, by_columns, by_both};
  uint64_t digest[SHAPES] = {0};
  unsigned seed = 1;
  for (int world = 1; world <= 8; world++)
    for (int k = 0; k < 3; k++) {
      char name[32];
      snprintf(name, sizeof name, "c-%d-%d", world, k);
      moe_checkpoint *c = store(name, world, cuts[k]);
      for (int t = 0; t < SHAPES; t++) {
        moe_checkpoint_tensor x;
        struct moe_box box = whole(t);
        index_of(c, t, &x);
        assert_true(x.slices >= 1 && x.slices <= world);
        if (digest[t] == 0) digest[t] = x.digest;
        assert_true(digest[t] == x.digest);
        read_box(c, t, &box);
        for (int d = 0; d < box.dims; d++) {
          box.start[d] = rand_r(&seed) % shapes[t].dim[d];
          box.count[d] = rand_r(&seed) % (shapes[t].dim[d] - box.start[d] + 1);
        }
        read_box(c, t, &box);
      }
      moe_checkpoint_close(c);
    }
}

/* Walks and runs against counting. */
static void test_boxes(void **state) {
  (void)state;
  unsigned seed = 7;
  for (int n = 0; n < 2000; n++) {
    struct moe_box a = {.dims = 1 + n % 4}, b, both;
    for (int d = 0; d < a.dims; d++) {
      a.start[d] = rand_r(&seed) % 5, a.count[d] = rand_r(&seed) % (d == a.dims - 1 ? 90 : 6);
    }
    b = a;
    for (int d = 0; d < a.dims; d++) {
      b.start[d] = rand_r(&seed) % 7, b.count[d] = 1 + rand_r(&seed) % 7;
    }
    struct moe_box_walk walk;
    int64_t done = 0;
    moe_box_walk_init(&walk, &a, 32 + rand_r(&seed) % 200);
    while (moe_box_walk_next(&walk)) {
      assert_int_equal(walk.offset, done);
      done += moe_box_elements(&walk.piece);
    }
    assert_int_equal(done, moe_box_elements(&a));
    if (!moe_box_intersect(&a, &b, &both)) continue;
    struct moe_box_runs runs;
    done = 0;
    moe_box_runs_init(&runs, &a, &b, &both);
    while (moe_box_runs_next(&runs)) {
      assert_true(runs.offset_a >= 0 && runs.offset_a + runs.length <= moe_box_elements(&a));
      assert_true(runs.offset_b >= 0 && runs.offset_b + runs.length <= moe_box_elements(&b));
      done += runs.length;
    }
    assert_int_equal(done, moe_box_elements(&both));
  }
}

static void test_digest(void **state) {
  (void)state;
  enum { R = 6, C = 100 };
  float values[R * C], left[R * 64], right[R * 36];
  const int64_t dim[] = {R, C};
  for (int i = 0; i < R * C; i++) values[i] = (float)i;
  struct moe_box all = moe_box_whole(2, dim), l = all, r = all;
  l.count[1] = 64, r.start[1] = 64, r.count[1] = 36;
  for (int i = 0; i < R; i++) {
    memcpy(left + i * 64, values + i * C, 64 * sizeof(float));
    memcpy(right + i * 36, values + i * C + 64, 36 * sizeof(float));
  }
  uint64_t want = moe_digest_box(dim, &all, values);
  assert_true(moe_digest_adds(dim, &l) && moe_digest_adds(dim, &r));
  assert_true(want == moe_digest_box(dim, &l, left) + moe_digest_box(dim, &r, right));
  l.count[1] = 60;
  assert_false(moe_digest_adds(dim, &l));
  for (int i = 0; i < R * C; i++) { /* values that change places show */
    float keep = values[i];
    int j = (i * 7 + 32) % (R * C);
    if (i == j) continue;
    values[i] = values[j], values[j] = keep;
    assert_true(want != moe_digest_box(dim, &all, values));
    values[j] = values[i], values[i] = keep;
  }
}

/* Slices that leave a hole, overlap or disagree are an error of the save. */
static void refused(const char *name, struct moe_box a, struct moe_box b, const char *why) {
  char *path = in_folder(name);
  OK(moe_folder_create(ctx, path));
  for (int rank = 0; rank < 2; rank++) {
    struct moe_writer *w;
    OK(moe_writer_create(ctx, path, rank, 2, 1, &w));
    OK(put(w, 0, rank ? b : a));
    OK(moe_writer_destroy(w, MOE_OK));
  }
  assert_int_equal(make_index(path, 2), MOE_FORMAT);
  has("weights/rows: ");
  has(why);
}

static void test_wrong_slices(void **state) {
  (void)state;
  struct moe_box half = part(whole(0), 0, 0, 2), rest = part(whole(0), 0, 1, 2), more = rest;
  more.start[0]--, more.count[0]++;
  refused("hole", half, half, "is stored twice, in rank-00000.h5 and in rank-00001.h5");
  refused("overlap", half, more, "(2:3, 0:70) is stored twice");
  rest.start[0]++, rest.count[0]--;
  refused("missing", half, rest, "70 of 490 elements are missing");
  rest.count[0]++;
  refused("outside", half, rest, "lies outside of the tensor");
  assert_int_equal(make_index(in_folder("hole"), 3), MOE_FORMAT);
  has("rank-00000.h5: version 1, rank 0 of 2 at step 1");
}

/* Every run of a box's memory is boxes that follow each other in it, few of them. */
static void test_runs_of_a_box(void **state) {
  (void)state;
  const struct moe_box box = {3, {2, 0, 5}, {3, 4, 5}};
  for (int64_t from = 0; from < 60; from++)
    for (int64_t last = from; last <= 60; last++) {
      struct moe_box piece;
      int64_t first = from;
      int boxes = 0;
      for (int64_t at = first; moe_box_of_run(&box, &first, last, &piece); at = first, boxes++) {
        int64_t place = 0;
        for (int d = 0; d < 3; d++)
          place = place * box.count[d] + piece.start[d] - box.start[d];
        assert_int_equal(place, at);
        assert_int_equal(first, at + moe_box_elements(&piece));
        for (int d = 1; d < 3; d++) /* contiguous: dims behind one that is cut short are whole */
          assert_true(piece.count[d] == box.count[d] || piece.count[d - 1] == 1);
      }
      assert_int_equal(first, last);
      assert_true(boxes <= 5);
    }
}

/* Three ranks by rows load what two stored by columns, each its own part. */
static void test_load_other_layout(void **state) {
  (void)state;
  const struct moe_kernels *k;
  struct moe_stream *stream;
  struct moe_catalog catalog;
  moe_checkpoint_close(store("two", 2, by_columns));
  OK(moe_kernels_cpu(ctx, moe_ctx_isa(ctx), &k));
  OK(k->stream_create(ctx, &stream));
  moe_catalog_init(ctx, &catalog);
  OK(moe_format_read_index(in_folder("two"), &catalog));
  for (int rank = 0; rank < 3; rank++) {
    struct moe_params params;
    struct moe_param_memory memory = {0};
    moe_params_init(ctx, &params);
    for (int t = 0; t < SHAPES; t++) {
      struct moe_slot slot = {.dims = shapes[t].dims, .buffer = true};
      struct moe_box box = by_rows(t, rank, 3);
      strcpy(slot.name, shapes[t].name);
      memcpy(slot.dim, shapes[t].dim, sizeof slot.dim);
      memcpy(slot.start, box.start, sizeof slot.start);
      memcpy(slot.count, box.count, sizeof slot.count);
      OK(moe_pack_add(&params.pack[t % MOE_FAMILIES], &slot, NULL));
    }
    for (int f = 0; f < MOE_FAMILIES; f++)
      memory.weight[f] = calloc((size_t)params.pack[f].elements, sizeof(float));
    struct moe_source source = {ctx, &params, &memory, k, stream, NULL};
    OK(moe_source_read(&source, in_folder("two"), &catalog, true));
    for (int t = 0; t < SHAPES; t++) {
      const struct moe_slot *slot = moe_pack_find(&params.pack[t % MOE_FAMILIES], shapes[t].name);
      struct moe_box box = moe_box_of_slot(slot);
      const float *values = moe_source_values(&source, slot, MOE_STORE_WEIGHT);
      for (int64_t i = 0; i < slot->elements; i++)
        assert_true(values[i] == value_at(t, flat(&shapes[t], &box, i)));
    }
    for (int f = 0; f < MOE_FAMILIES; f++) free(memory.weight[f]);
    moe_params_destroy(&params);
  }
  moe_catalog_destroy(&catalog);
  k->stream_destroy(stream);
}

/* What h5dump prints of the index, run from elsewhere: whole tensors, the right values. */
static void test_h5dump(void **state) {
  (void)state;
  static const cut_fn cuts[] = {by_rows, by_columns, by_both};
  for (int k = 0; k < 3; k++) {
    char name[16], command[1024], text[128];
    snprintf(name, sizeof name, "d-%d", k);
    moe_checkpoint_close(store(name, 4, cuts[k]));
    for (int t = 0; t < SHAPES; t++) {
      int64_t i = 0, n;
      struct moe_box box = whole(t);
      n = moe_box_elements(&box);
      snprintf(command, sizeof command,
               "cd / && h5dump -y -w 1 -m %%.1f -d /weights/%s %s/index.h5", shapes[t].name,
               in_folder(name));
      FILE *dump = popen(command, "r");
      assert_non_null(dump);
      while (fgets(text, sizeof text, dump) && !strstr(text, "DATA {")) continue;
      for (float x; i < n && fscanf(dump, " %f ,", &x) == 1; i++)
        if (x != value_at(t, i)) fail_msg("%s[%d]: %g", shapes[t].name, (int)i, x);
      assert_int_equal(i, n);
      while (fgets(text, sizeof text, dump)) continue;
      assert_int_equal(pclose(dump), 0);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_boxes, setup, teardown),
      cmocka_unit_test_setup_teardown(test_runs_of_a_box, setup, teardown),
      cmocka_unit_test_setup_teardown(test_digest, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cuts, setup, teardown),
      cmocka_unit_test_setup_teardown(test_wrong_slices, setup, teardown),
      cmocka_unit_test_setup_teardown(test_load_other_layout, setup, teardown),
      cmocka_unit_test_setup_teardown(test_h5dump, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
