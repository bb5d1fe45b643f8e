/* Checkpoints that were damaged, cut, or belong to another model; disks that are full. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "checkpoint_model.h"

static char *read_all(const char *name, size_t *n) {
  FILE *file = fopen(in_folder(name), "rb");
  assert_non_null(file);
  fseek(file, 0, SEEK_END);
  *n = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*n);
  assert_int_equal(fread(bytes, 1, *n, file), *n);
  fclose(file);
  return bytes;
}

static void write_all(const char *name, const char *bytes, size_t n) {
  FILE *file = fopen(in_folder(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, n, file), n);
  assert_int_equal(fclose(file), 0);
}

#define DATA "run/step-00000001/rank-00000.h5"
#define INDEX "run/step-00000001/index.h5"

/* A trainer with one step done, saved in run. */
static moe_trainer *saved(void) {
  moe_trainer *t = trainer_new(MOE_F32);
  train(t, 1, NULL);
  OK(moe_trainer_save(t, in_folder("run"), 0, "{}"));
  return t;
}

static moe_status verify(void) {
  moe_checkpoint *c;
  moe_status status = moe_checkpoint_open(ctx, in_folder("run"), &c);
  if (status != MOE_OK) return status;
  status = moe_checkpoint_verify(c);
  moe_checkpoint_close(c);
  return status;
}

/* One bit in the values of each tensor in turn: found, and the right tensor is named. */
static void test_flipped_bit(void **state) {
  (void)state;
  size_t n;
  moe_trainer *t = saved(), *u = trainer_new(MOE_F32);
  char *bytes = read_all(DATA, &n);
  int64_t count = moe_trainer_param_count(t);
  for (int64_t i = 0; i < count; i++) {
    moe_param_info info = {.size = sizeof info};
    int64_t m;
    char name[160];
    OK(moe_trainer_param_info(t, i, &info));
    int32_t kind = is_buffer(&info) ? MOE_TENSOR_WEIGHT : MOE_TENSOR_EXP_AVG;
    float *values = values_of(t, i, kind, &m);
    char *at = memmem(bytes, n, values, (size_t)m * sizeof *values);
    assert_non_null(at);
    at += (size_t)(m - 1) * 4 + 3; /* the last value's last byte */
    *at ^= 1;
    write_all(DATA, bytes, n);
    snprintf(name, sizeof name, "rank-00000.h5: /%s/%s@0",
             kind == MOE_TENSOR_WEIGHT ? "weights" : "exp_avg", info.name);
    assert_int_equal(verify(), MOE_FORMAT);
    has(name);
    assert_int_equal(moe_trainer_load(u, in_folder("run")), MOE_FORMAT);
    has(name);
    has("damaged");
    *at ^= 1;
    free(values);
  }
  moe_trainer_state s = {.size = sizeof s};
  OK(moe_trainer_get_state(u, &s));
  assert_int_equal(s.step, 0);
  write_all(DATA, bytes, n);
  OK(verify());
  OK(moe_trainer_load(u, in_folder("run")));
  assert_same_tensors(t, u);
  free(bytes);
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

static void test_cut_and_missing_files(void **state) {
  (void)state;
  size_t n;
  moe_trainer *t = saved();
  char *bytes = read_all(DATA, &n);
  const size_t lengths[] = {0, 1, 500, n / 2, n - 1};
  for (size_t i = 0; i < 5; i++) {
    write_all(DATA, bytes, lengths[i]);
    assert_int_equal(moe_trainer_load(t, in_folder("run")), MOE_FORMAT);
    has("rank-00000.h5: has");
  }
  assert_int_equal(unlink(in_folder(DATA)), 0);
  assert_int_equal(moe_trainer_load(t, in_folder("run")), MOE_FORMAT);
  has("rank-00000.h5: No such file");
  write_all(DATA, bytes, n);
  OK(moe_trainer_load(t, in_folder("run")));
  free(bytes);
  bytes = read_all(INDEX, &n);
  for (size_t i = 0; i < 5; i++) {
    size_t length = i < 4 ? lengths[i] % n : n - 1;
    write_all(INDEX, bytes, length);
    assert_int_equal(moe_trainer_load(t, in_folder("run")), MOE_FORMAT);
    has("index.h5");
  }
  free(bytes);
  moe_trainer_destroy(t);
}

/* Any bit of the index. */
static void test_index_bits(void **state) {
  (void)state;
  size_t n;
  moe_trainer *t = saved();
  char *bytes = read_all(INDEX, &n);
  for (size_t at = n - 1; at < n; at -= n / 150 + 1) {
    bytes[at] ^= (char)(1 << at % 8);
    write_all(INDEX, bytes, n);
    assert_int_equal(moe_trainer_load(t, in_folder("run")), MOE_FORMAT);
    has("index.h5");
    bytes[at] ^= (char)(1 << at % 8);
  }
  free(bytes);
  moe_trainer_destroy(t);
}

/* Bits anywhere in a data file: an error, or one that matters to nobody (unused space). */
static void test_data_file_bits(void **state) {
  (void)state;
  size_t n;
  int refused = 0, tried = 0;
  moe_trainer *t = saved(), *u = trainer_new(MOE_F32);
  char *bytes = read_all(DATA, &n);
  for (size_t at = n - 1; at < n; at -= n / 150 + 1, tried++) {
    bytes[at] ^= (char)(1 << at % 8);
    write_all(DATA, bytes, n);
    moe_status status = moe_trainer_load(u, in_folder("run"));
    bytes[at] ^= (char)(1 << at % 8);
    refused += status == MOE_FORMAT;
    if (status == MOE_OK)
      assert_same_tensors(t, u);
    else
      assert_int_equal(status, MOE_FORMAT);
  }
  assert_true(refused > tried / 2);
  free(bytes);
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

/* Another model: nothing is loaded, every tensor is named. */
static void test_wrong_model(void **state) {
  (void)state;
  struct model m;
  moe_trainer *t = saved();
  int64_t n;
  model_init(&m, MOE_F32);
  m.block[1].ffn = 48;
  moe_trainer *u = trainer_of(&m);
  float *before = values_of(u, 0, MOE_TENSOR_WEIGHT, &n);
  assert_int_equal(moe_trainer_load(u, in_folder("run")), MOE_FORMAT);
  has("does not fit the model");
  has("weights/blocks.1.moe.experts.in: is 6 x 2 x 40 x 36 in the checkpoint, "
      "6 x 2 x 48 x 36 in the model");
  has("exp_avg_sq/blocks.1.moe.experts.out: is 6 x 36 x 40");
  assert_null(strstr(moe_ctx_error(ctx), "blocks.2"));
  float *after = values_of(u, 0, MOE_TENSOR_WEIGHT, &n);
  assert_memory_equal(before, after, (size_t)n * sizeof *after);
  free(before), free(after);
  moe_trainer_destroy(u);

  model_init(&m, MOE_F32);
  m.config.model.n_blocks = BLOCKS + 1;
  u = trainer_of(&m);
  assert_int_equal(moe_trainer_load(u, in_folder("run")), MOE_FORMAT);
  has("weights/blocks.3.moe.experts.in: is missing in the checkpoint");
  has("exp_avg/blocks.3.moe.experts.in: is missing in the checkpoint");
  moe_trainer_destroy(u);

  m.config.model.n_blocks = BLOCKS - 1;
  u = trainer_of(&m);
  assert_int_equal(moe_trainer_load(u, in_folder("run")), MOE_FORMAT);
  has("weights/blocks.2.moe.router_bias: is not a tensor of the model");
  moe_trainer_destroy(u);

  /* what no shape shows is a warning */
  model_init(&m, MOE_F32);
  m.block[0].rope_theta = 5e5;
  u = trainer_of(&m);
  OK(moe_trainer_load(u, in_folder("run")));
  assert_non_null(strstr(last_log, "other settings"));
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

/* ---- disks ---- */

static void assert_trains(moe_trainer *t) {
  double loss;
  train(t, 1, &loss);
  assert_true(loss > 0);
}

static void test_unwritable(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32);
  write_file("file", "");
  assert_int_equal(moe_trainer_save(t, in_folder("file/run"), 0, NULL), MOE_IO);
  has("file/run");
  has("Not a directory");
  assert_int_equal(moe_trainer_save(t, in_folder("file"), 0, NULL), MOE_IO);
  assert_int_equal(moe_trainer_save(t, "/proc/moelua", 0, NULL), MOE_IO);
  has("/proc/moelua");
  assert_trains(t);
  moe_trainer_destroy(t);
}

static int descriptors(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) != -1;
  return n;
}

/* A limit on the size of files is what a full disk looks like: at every point of a save. */
static void test_full_disk(void **state) {
  (void)state;
  size_t n, index;
  moe_trainer *t = saved(), *u = trainer_new(MOE_F32);
  free(read_all(DATA, &n));
  free(read_all(INDEX, &index));
  const rlim_t limits[] = {0,         1,     100,   2000,     5000,     index / 2,
                           index - 1, n / 7, n / 2, n - 5000, n - 1000, n - 1};
  assert_true(index < n);
  signal(SIGXFSZ, SIG_IGN);
  train(t, 1, NULL);
  int open_before = descriptors();
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    struct rlimit all, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    small = (struct rlimit){limits[i], all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    moe_status status = moe_trainer_save(t, in_folder("run"), 1, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(status, MOE_IO);
    has(".tmp-step-00000002/");
    has("File too large");
    assert_false(exists("run/.tmp-step-00000002") || exists("run/step-00000002"));
    OK(moe_trainer_load(u, in_folder("run"))); /* the one before is whole */
    assert_int_equal(descriptors(), open_before);
  }
  assert_trains(t);
  OK(moe_trainer_save(t, in_folder("run"), 1, NULL));
  OK(moe_trainer_load(u, in_folder("run")));
  assert_same_tensors(t, u);
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_flipped_bit, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cut_and_missing_files, setup, teardown),
      cmocka_unit_test_setup_teardown(test_index_bits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_data_file_bits, setup, teardown),
      cmocka_unit_test_setup_teardown(test_wrong_model, setup, teardown),
      cmocka_unit_test_setup_teardown(test_unwritable, setup, teardown),
      cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
