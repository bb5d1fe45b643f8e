/* From text files to a token file: read a document, tokenise it, append it to the writer.
 * Invariant: one document is in memory at a time. */
#include "moelua/prepare.h"

#include <jansson.h>
#include <string.h>

#include "base/ctx.h"
#include "data/ids.h"
#include "data/reader.h"
#include "data/utf8.h"
#include "moelua/data.h"
#include "moelua/tokenizer.h"

static const size_t DOCUMENT_MAX = (size_t)1 << 30;
static const int64_t PROGRESS_BYTES = 4 << 20;

struct job {
  moe_ctx *ctx;
  const moe_prepare_config *config;
  moe_tokenizer *tokenizer;
  moe_tokens_writer *writer;
  struct moe_reader reader;
  struct moe_text line, document;
  struct moe_ids ids;
  int64_t first_line;   /* of the document */
  int64_t bytes_before; /* of the files that are done */
  int64_t next_progress;
  moe_prepare_report report;
};

void moe_prepare_config_init(moe_prepare_config *config) {
  *config = (moe_prepare_config){.size = sizeof *config,
                                 .format = MOE_PREPARE_LINES,
                                 .separator = "",
                                 .json_key = "text",
                                 .append_eod = 1};
}

static moe_status check(moe_ctx *ctx, const moe_prepare_config *c,
                        const moe_prepare_report *report) {
  MOE_CHECK_SIZE(ctx, c);
  if (report) MOE_CHECK_SIZE(ctx, report);
  if (c->n_inputs < 1 || c->inputs == NULL)
    return moe_fail(ctx, MOE_INVALID, "inputs: no file given");
  for (int32_t i = 0; i < c->n_inputs; i++)
    if (c->inputs[i] == NULL) return moe_fail(ctx, MOE_INVALID, "inputs[%d]: no name", i);
  if (c->output == NULL || c->output[0] == 0)
    return moe_fail(ctx, MOE_INVALID, "output: no prefix given");
  if (c->format < MOE_PREPARE_FILE || c->format > MOE_PREPARE_JSONL)
    return moe_fail(ctx, MOE_INVALID, "format is %d, must be file (0), lines (1) or jsonl (2)",
                    c->format);
  if (c->format == MOE_PREPARE_LINES && (c->separator == NULL || strchr(c->separator, '\n')))
    return moe_fail(ctx, MOE_INVALID, "separator: must be the text of one line");
  if (c->format == MOE_PREPARE_JSONL && c->json_key == NULL)
    return moe_fail(ctx, MOE_INVALID, "json_key: no name given");
  return MOE_OK;
}

static moe_status fail_at(const struct job *job, moe_status status, int64_t line,
                          const char *text) {
  return moe_fail(job->ctx, status, "%s:%lld: %s", job->reader.path, (long long)line, text);
}

static moe_status progress(struct job *job, bool always) {
  job->report.bytes = job->bytes_before + job->reader.bytes;
  if (job->config->progress == NULL || (!always && job->report.bytes < job->next_progress))
    return MOE_OK;
  job->next_progress = job->report.bytes + PROGRESS_BYTES;
  if (job->config->progress(job->config->progress_user, &job->report) == 0) return MOE_OK;
  return moe_fail(job->ctx, MOE_STATE, "stopped after %lld of %lld bytes, nothing written",
                  (long long)job->report.bytes, (long long)job->report.bytes_total);
}

static moe_status add_document(struct job *job, const char *text, size_t n) {
  if (n == 0) {
    job->report.empty++;
    return MOE_OK;
  }
  const int32_t *ids;
  int64_t count;
  moe_status status = moe_tokenizer_encode(job->tokenizer, text, n, 0, &ids, &count);
  if (status != MOE_OK) {
    char why[512];
    strncpy(why, moe_ctx_error(job->ctx), sizeof why - 1);
    why[sizeof why - 1] = 0;
    return fail_at(job, status, job->first_line, why);
  }
  int32_t eod = job->config->append_eod ? moe_tokenizer_eod(job->tokenizer) : -1;
  job->ids.n = 0;
  MOE_TRY(moe_ids_append(&job->ids, ids, (size_t)count));
  if (eod >= 0) MOE_TRY(moe_ids_append(&job->ids, &eod, 1));
  if (job->ids.n == 0) {
    job->report.empty++;
    return MOE_OK;
  }
  MOE_TRY(moe_tokens_writer_add(job->writer, job->ids.v, (int64_t)job->ids.n));
  job->report.documents++;
  job->report.tokens += (int64_t)job->ids.n;
  job->report.repaired += moe_utf8_valid(text, n) < n;
  return progress(job, false);
}

static moe_status read_file(struct job *job) {
  bool more = true;
  job->document.len = 0;
  job->first_line = 1;
  while (more) MOE_TRY(moe_reader_block(&job->reader, DOCUMENT_MAX, &job->document, &more));
  return add_document(job, job->document.s, job->document.len);
}

/* Without "\n" or "\r\n". */
static size_t without_end(const char *s, size_t n) {
  if (n && s[n - 1] == '\n') n--;
  return n && s[n - 1] == '\r' ? n - 1 : n;
}

/* Separators next to each other have no document between them. */
static moe_status read_lines(struct job *job) {
  size_t k = strlen(job->config->separator);
  struct moe_text *document = &job->document;
  document->len = 0;
  for (;;) {
    bool more;
    size_t start = document->len;
    MOE_TRY(moe_reader_line(&job->reader, DOCUMENT_MAX, document, &more));
    const char *line = document->s + start;
    bool ends = !more || (without_end(line, document->len - start) == k &&
                          memcmp(line, job->config->separator, k) == 0);
    if (start == 0) job->first_line = job->reader.line;
    if (ends) document->len = start;
    if (ends && start > 0) MOE_TRY(add_document(job, document->s, start));
    if (ends) document->len = 0;
    if (!more) return MOE_OK;
  }
}

static moe_status json_document(struct job *job) {
  json_error_t error;
  job->first_line = job->reader.line;
  json_t *object = json_loadb(job->line.s, job->line.len, JSON_ALLOW_NUL, &error);
  if (object == NULL) return fail_at(job, MOE_FORMAT, job->reader.line, error.text);
  const json_t *text = json_object_get(object, job->config->json_key);
  moe_status status;
  if (json_is_string(text))
    status = add_document(job, json_string_value(text), json_string_length(text));
  else
    status = moe_fail(job->ctx, MOE_FORMAT, "%s:%lld: %s with a string \"%s\"", job->reader.path,
                      (long long)job->reader.line,
                      json_is_object(object) ? "must be an object" : "must be a JSON object",
                      job->config->json_key);
  json_decref(object);
  return status;
}

static moe_status read_jsonl(struct job *job) {
  for (;;) {
    bool more;
    job->line.len = 0;
    MOE_TRY(moe_reader_line(&job->reader, DOCUMENT_MAX, &job->line, &more));
    if (!more) return MOE_OK;
    if (strspn(job->line.s, " \t\r\n") < job->line.len) MOE_TRY(json_document(job));
  }
}

static moe_status read_input(struct job *job, const char *path) {
  MOE_TRY(moe_reader_open(job->ctx, path, &job->reader));
  moe_status status = job->config->format == MOE_PREPARE_FILE    ? read_file(job)
                      : job->config->format == MOE_PREPARE_LINES ? read_lines(job)
                                                                 : read_jsonl(job);
  moe_reader_close(&job->reader);
  MOE_TRY(status);
  MOE_TRY(progress(job, true));
  job->bytes_before += job->reader.bytes;
  return MOE_OK;
}

static moe_status run(struct job *job) {
  const moe_prepare_config *c = job->config;
  for (int32_t i = 0; i < c->n_inputs; i++) {
    int64_t bytes;
    MOE_TRY(moe_reader_stat(job->ctx, c->inputs[i], &bytes));
    job->report.bytes_total += bytes;
  }
  MOE_TRY(moe_tokenizer_open(job->ctx, c->tokenizer, &job->tokenizer));
  MOE_TRY(moe_tokens_writer_create(job->ctx, c->output, moe_tokenizer_vocab(job->tokenizer),
                                   &job->writer));
  for (int32_t i = 0; i < c->n_inputs; i++) MOE_TRY(read_input(job, c->inputs[i]));
  if (job->report.tokens == 0)
    return moe_fail(job->ctx, MOE_INVALID, "%s%s: no text in %d file%s, nothing to write",
                    c->inputs[0], c->n_inputs > 1 ? ", .." : "", c->n_inputs,
                    c->n_inputs > 1 ? "s" : "");
  return moe_tokens_writer_finish(job->writer);
}

moe_status moe_data_prepare(moe_ctx *ctx, const moe_prepare_config *config,
                            moe_prepare_report *report) {
  MOE_TRY(check(ctx, config, report));
  struct job *job = moe_alloc(ctx, sizeof *job);
  if (job == NULL) return MOE_MEMORY;
  job->ctx = job->ids.ctx = ctx;
  job->config = config;
  job->next_progress = PROGRESS_BYTES;
  job->report.size = sizeof job->report;
  moe_text_init(ctx, &job->line);
  moe_text_init(ctx, &job->document);
  moe_status status = run(job);
  if (report) *report = job->report;
  if (job->writer) moe_tokens_writer_destroy(job->writer);
  moe_tokenizer_close(job->tokenizer);
  moe_text_destroy(&job->line);
  moe_text_destroy(&job->document);
  moe_ids_destroy(&job->ids);
  moe_release(ctx, job);
  return status;
}
