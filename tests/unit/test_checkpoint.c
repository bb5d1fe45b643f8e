/* Saving and loading a trainer; what the run folder looks like after saves, kills and moves. */
#include <signal.h>
#include <sys/wait.h>

#include "base/base.h"
#include "checkpoint_model.h"

/* ---- a resumed run is the run that was not interrupted ---- */

static void resume_same_bits(int32_t dtype) {
  double straight[20], halves[20];
  moe_trainer *whole = trainer_new(dtype), *first = trainer_new(dtype);
  train(whole, 20, straight);
  train(first, 10, halves);
  OK(moe_trainer_save(first, in_folder("run"), 0, NULL));
  moe_trainer_destroy(first);

  struct model m;
  model_init(&m, dtype);
  m.config.seed = 1; /* other initial weights: all must come from the checkpoint */
  moe_trainer *second = trainer_of(&m);
  train(second, 1, NULL); /* prepared weights and moments of its own */
  OK(moe_trainer_load(second, in_folder("run")));
  moe_trainer_state state = {.size = sizeof state};
  OK(moe_trainer_get_state(second, &state));
  assert_int_equal(state.step, 10);
  assert_int_equal(state.cursor, 10 * BATCH);
  assert_true(state.seed == 0xfedcba9876543210u);
  train(second, 10, halves + 10);
  for (int i = 0; i < 20; i++) {
    char a[64], b[64];
    snprintf(a, sizeof a, "%a", straight[i]);
    snprintf(b, sizeof b, "%a", halves[i]);
    assert_string_equal(a, b);
  }
  assert_true(straight[19] < straight[0] - 0.1); /* it did train */
  assert_same_tensors(whole, second);
  moe_trainer_destroy(second);
  moe_trainer_destroy(whole);
}

static void test_resume_f32(void **state) {
  (void)state;
  resume_same_bits(MOE_F32);
}

static void test_resume_bf16(void **state) {
  (void)state;
  resume_same_bits(MOE_BF16);
}

/* Moments that follow from the weights by a rule show a mix-up of tensors that training hides. */
static void test_moments_keep_their_tensor(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32), *u;
  train(t, 2, NULL);
  int64_t count = moe_trainer_param_count(t), n;
  for (int64_t i = 0; i < count; i++) {
    moe_param_info info = {.size = sizeof info};
    OK(moe_trainer_param_info(t, i, &info));
    if (is_buffer(&info)) continue;
    float *w = values_of(t, i, MOE_TENSOR_WEIGHT, &n);
    for (int64_t j = 0; j < n; j++) w[j] *= 3;
    OK(moe_trainer_param_write(t, i, MOE_TENSOR_EXP_AVG, w, n));
    for (int64_t j = 0; j < n; j++) w[j] = w[j] * w[j] + (float)i;
    OK(moe_trainer_param_write(t, i, MOE_TENSOR_EXP_AVG_SQ, w, n));
    free(w);
  }
  OK(moe_trainer_save(t, in_folder("run"), 0, NULL));
  u = trainer_new(MOE_F32);
  OK(moe_trainer_load(u, in_folder("run")));
  int buffers = 0;
  for (int64_t i = 0; i < count; i++) {
    moe_param_info info = {.size = sizeof info};
    OK(moe_trainer_param_info(u, i, &info));
    float *w = values_of(u, i, MOE_TENSOR_WEIGHT, &n);
    if (is_buffer(&info)) {
      float moved = 0;
      for (int64_t j = 0; j < n; j++) moved += w[j] * w[j];
      assert_true(moved > 0); /* the bias moved, and came along */
      buffers++;
      free(w);
      continue;
    }
    float *m = values_of(u, i, MOE_TENSOR_EXP_AVG, &n);
    float *v = values_of(u, i, MOE_TENSOR_EXP_AVG_SQ, &n);
    for (int64_t j = 0; j < n; j++) {
      if (m[j] != 3 * w[j])
        fail_msg("%s[%lld]: %g is not 3 * %g", info.name, (long long)j, m[j], w[j]);
      assert_true(v[j] == m[j] * m[j] + (float)i);
    }
    free(v), free(m), free(w);
  }
  assert_int_equal(buffers, BLOCKS - 1);
  assert_same_tensors(t, u);
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

/* ---- what a checkpoint says about itself ---- */

static void test_info(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_BF16);
  char *meta = malloc(100001); /* longer than an HDF5 attribute may be */
  memset(meta, 'x', 100000), meta[100000] = 0;
  memcpy(meta, "{\"n\": \"\xc3\xa9\xe4\xb8\xad\"}", 15);
  train(t, 3, NULL);
  OK(moe_trainer_save(t, in_folder("a/b/run"), 0, meta));
  moe_checkpoint *c;
  moe_checkpoint_summary info = {.size = sizeof info};
  OK(moe_checkpoint_open(ctx, in_folder("a/b/run"), &c));
  OK(moe_checkpoint_info(c, &info));
  assert_string_equal(info.path, in_folder("a/b/run/step-00000003"));
  assert_int_equal(info.step, 3);
  assert_int_equal(info.cursor, 3 * BATCH);
  assert_true(info.seed == 0xfedcba9876543210u);
  assert_int_equal(info.files, 1);
  assert_int_equal(info.tp * info.cp * info.dp * info.pp * info.etp * info.ep * info.edp, 1);
  assert_string_equal(info.order, "tp-cp-ep-dp-pp");
  assert_string_equal(info.dtype, "bf16");
  assert_string_equal(info.meta_json, meta);
  assert_string_equal(info.writer, moe_version());
  assert_non_null(strstr(info.model_json, "\"hidden\":36"));
  assert_non_null(strstr(info.model_json, "\"count\":2")); /* two equal MoE blocks */
  int64_t count = moe_trainer_param_count(t), params = 0, stored = 0;
  for (int64_t i = 0; i < count; i++) {
    moe_param_info p = {.size = sizeof p};
    OK(moe_trainer_param_info(t, i, &p));
    params += elements_of(&p);
    stored += is_buffer(&p) ? 1 : 3;
  }
  assert_int_equal(info.params, params);
  assert_int_equal(info.tensors, stored);
  assert_true(info.bytes > (uint64_t)params * 4 && info.bytes < (uint64_t)params * 12 + 400000);
  OK(moe_checkpoint_verify(c));

  /* every tensor, read back without a trainer */
  for (int64_t i = 0; i < info.tensors; i++) {
    moe_checkpoint_tensor x = {.size = sizeof x};
    int64_t index, n;
    OK(moe_checkpoint_tensor_info(c, i, &x));
    OK(moe_trainer_param_find(t, x.name, &index));
    int32_t kind = strcmp(x.group, "weights") == 0   ? MOE_TENSOR_WEIGHT
                   : strcmp(x.group, "exp_avg") == 0 ? MOE_TENSOR_EXP_AVG
                                                     : MOE_TENSOR_EXP_AVG_SQ;
    float *want = values_of(t, index, kind, &n), *got = malloc((size_t)n * sizeof *got);
    OK(moe_checkpoint_read(c, i, NULL, NULL, got, n));
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    free(got), free(want);
  }
  moe_checkpoint_tensor x = {.size = sizeof x};
  assert_int_equal(moe_checkpoint_tensor_info(c, info.tensors, &x), MOE_INVALID);
  moe_checkpoint_close(c);
  moe_trainer_destroy(t);
  free(meta);
}

/* ---- the run folder ---- */

static void test_latest_and_paths(void **state) {
  (void)state;
  char path[512];
  moe_trainer *t = trainer_new(MOE_F32), *u = trainer_new(MOE_F32);
  assert_int_equal(moe_checkpoint_latest(ctx, in_folder("run"), path, sizeof path), MOE_NOTFOUND);
  assert_int_equal(moe_trainer_load(t, in_folder("run")), MOE_NOTFOUND);
  has("neither a checkpoint");
  train(t, 1, NULL);
  OK(moe_trainer_save(t, in_folder("run/"), 0, NULL));
  train(t, 1, NULL);
  OK(moe_trainer_save(t, in_folder("run"), 0, NULL));
  OK(moe_checkpoint_latest(ctx, in_folder("run"), path, sizeof path));
  assert_string_equal(path, in_folder("run/step-00000002"));
  assert_int_equal(moe_checkpoint_latest(ctx, in_folder("run"), path, 10), MOE_INVALID);
  OK(moe_trainer_load(u, in_folder("run/step-00000001")));
  moe_trainer_state s = {.size = sizeof s};
  OK(moe_trainer_get_state(u, &s));
  assert_int_equal(s.step, 1);
  /* the folder may be moved, and its parent too */
  assert_int_equal(rename(in_folder("run/step-00000002"), in_folder("elsewhere")), 0);
  OK(moe_trainer_load(u, in_folder("elsewhere")));
  assert_same_tensors(t, u);
  /* a `latest` that names what is not there is no fresh start */
  assert_int_equal(moe_checkpoint_latest(ctx, in_folder("run"), path, sizeof path), MOE_IO);
  has("step-00000002");
  write_file("run/latest", "../step-00000001\n");
  assert_int_equal(moe_trainer_load(u, in_folder("run")), MOE_FORMAT);
  has("latest");
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

static void save_at(moe_trainer *t, int64_t step, int32_t keep) {
  moe_trainer_state s = {.size = sizeof s};
  OK(moe_trainer_get_state(t, &s));
  s.step = step;
  OK(moe_trainer_set_state(t, &s));
  OK(moe_trainer_save(t, in_folder("run"), keep, NULL));
}

static void test_keep(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32);
  for (int64_t step = 1; step <= 3; step++) save_at(t, step, 0);
  assert_true(exists("run/step-00000001") && exists("run/step-00000002"));
  write_file("run/notes", "mine\n");
  write_file("run/step-00000001x", "mine\n");
  write_file("run/step-00000002/notes", "mine\n");
  save_at(t, 4, 2);
  assert_false(exists("run/step-00000001"));
  assert_true(exists("run/step-00000002/index.h5")); /* whole, for the sake of what is in it */
  assert_non_null(strstr(last_log, "step-00000002"));
  assert_true(exists("run/step-00000003") && exists("run/step-00000004"));
  assert_true(exists("run/notes") && exists("run/step-00000001x"));
  /* after going back to an older step, the newest save stays whatever its number is */
  save_at(t, 1, 1);
  assert_true(exists("run/step-00000001/index.h5") && exists("run/step-00000004"));
  assert_false(exists("run/step-00000003"));
  OK(moe_trainer_load(t, in_folder("run")));
  assert_int_equal(moe_trainer_save(t, in_folder("run"), -1, NULL), MOE_INVALID);
  assert_int_equal(moe_trainer_save(t, "", 0, NULL), MOE_INVALID);
  moe_trainer_destroy(t);
}

static void test_same_step_again(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32), *u = trainer_new(MOE_F32);
  save_at(t, 5, 0);
  train(t, 2, NULL);
  save_at(t, 5, 0);
  OK(moe_trainer_load(u, in_folder("run")));
  assert_same_tensors(t, u);
  assert_false(exists("run/.tmp-step-00000005"));
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

/* What a kill may leave: temporary folders, and by a careless copy a step without its index. */
static void test_after_a_kill(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32), *u = trainer_new(MOE_F32);
  train(t, 1, NULL);
  save_at(t, 1, 0);
  assert_int_equal(mkdir(in_folder("run/.tmp-step-00000002"), 0777), 0);
  write_file("run/.tmp-step-00000002/rank-00000.h5", "half of a file");
  assert_int_equal(mkdir(in_folder("run/.tmp-step-old-00000000"), 0777), 0);
  assert_int_equal(mkdir(in_folder("run/step-00000003"), 0777), 0);
  write_file("run/step-00000003/rank-00000.h5", "half of a file");
  write_file("run/.tmp-latest", "step-0000");
  OK(moe_trainer_load(u, in_folder("run")));
  assert_same_tensors(t, u);
  assert_int_equal(moe_trainer_load(u, in_folder("run/step-00000003")), MOE_NOTFOUND);
  save_at(t, 2, 0);
  assert_false(exists("run/.tmp-step-00000002") || exists("run/.tmp-step-old-00000000"));
  assert_false(exists("run/.tmp-latest"));
  save_at(t, 3, 0); /* takes the place of the half */
  OK(moe_trainer_load(u, in_folder("run")));
  moe_trainer_destroy(u);
  moe_trainer_destroy(t);
}

static void save_forever(moe_trainer *t, int64_t step) {
  for (;; step++) {
    moe_trainer_state s = {.size = sizeof s, .step = step};
    if (moe_trainer_set_state(t, &s) != MOE_OK) _exit(1);
    if (moe_trainer_save(t, in_folder("run"), 2, NULL) != MOE_OK) _exit(2);
  }
}

/* What `latest` names is whole: its step. */
static int64_t whole_step(void) {
  moe_checkpoint *c;
  moe_checkpoint_summary info = {.size = sizeof info};
  OK(moe_checkpoint_open(ctx, in_folder("run"), &c));
  OK(moe_checkpoint_verify(c));
  OK(moe_checkpoint_info(c, &info));
  moe_checkpoint_close(c);
  return info.step;
}

/* A process that saves again and again is killed at any time: what `latest` names is whole, and
 * never older than what it named before. */
static void test_kills(void **state) {
  (void)state;
  unsigned seed = 3;
  moe_trainer *t = trainer_new(MOE_F32);
  double begin = moe_now();
  save_at(t, 1, 2);
  double one = moe_now() - begin; /* kills come within the first three saves */
  int64_t last = 1;
  for (int i = 0; i < 12; i++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) save_forever(t, last + 1);
    int result;
    usleep((useconds_t)(one * 3e6 * rand_r(&seed) / RAND_MAX));
    /* However slow the machine is, the first one gets to save. */
    for (int ms = 0; i == 0 && ms < 60000 && !exists("run/step-00000003"); ms++) usleep(1000);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result));
    int64_t step = whole_step();
    assert_true(step >= last && (i > 0 || step > 1));
    last = step;
  }
  OK(moe_trainer_load(t, in_folder("run")));
  moe_trainer_destroy(t);
}

/* Two saves of the same state are the same bytes. */
static void test_files_are_reproducible(void **state) {
  (void)state;
  moe_trainer *t = trainer_new(MOE_F32);
  char command[2048];
  train(t, 1, NULL);
  OK(moe_trainer_save(t, in_folder("a"), 0, "{}"));
  sleep(1); /* whole seconds are what a recorded time would have */
  OK(moe_trainer_save(t, in_folder("b"), 0, "{}"));
  snprintf(command, sizeof command, "diff -r %s %s >&2", in_folder("a"), in_folder("b"));
  assert_int_equal(system(command), 0);
  moe_trainer_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_resume_f32, setup, teardown),
      cmocka_unit_test_setup_teardown(test_resume_bf16, setup, teardown),
      cmocka_unit_test_setup_teardown(test_moments_keep_their_tensor, setup, teardown),
      cmocka_unit_test_setup_teardown(test_info, setup, teardown),
      cmocka_unit_test_setup_teardown(test_latest_and_paths, setup, teardown),
      cmocka_unit_test_setup_teardown(test_keep, setup, teardown),
      cmocka_unit_test_setup_teardown(test_same_step_again, setup, teardown),
      cmocka_unit_test_setup_teardown(test_after_a_kill, setup, teardown),
      cmocka_unit_test_setup_teardown(test_kills, setup, teardown),
      cmocka_unit_test_setup_teardown(test_files_are_reproducible, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
