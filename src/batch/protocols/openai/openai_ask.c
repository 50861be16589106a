/* Can a host serve the job? Three questions, one after the other:
 *
 *   GET PREFIX/models    the model must be in the list; a server without one is taken at its word
 *   GET /health          anything below 500 will do, as many servers have none
 *   POST PREFIX/embeddings   one text, for vectors only: as base64, which takes a third of the bytes, or if the server
 *                        does not know that as a list; all hosts must make vectors of one length
 *
 * The answer to the last one is the answer of the host. */
#include "openai_ask.h"

#include <stdio.h>

#include "batch/common/dialect.h"
#include "codec/json.h"
#include "openai.h"
#include "openai_send.h"

static void get(struct host *h, const char *prefix, const char *path, mr_client_done_fn *done)
{
    struct mr_header headers[2];
    char text[300];
    const int n = snprintf(text, sizeof text, "%s%s", prefix, path);
    const struct mr_client_request request = {.method = "GET",
                                              .path = {text, (size_t)n},
                                              .headers = headers,
                                              .header_count =
                                                  openai_headers(h->model->openai, headers),
                                              .timeout_ns = h->ask_timeout_ns};
    mr_client_send(h->transport.client, &request, done, h);
}

static void report(struct host *h, int rc, const struct mr_err *err)
{
    struct mr_err clean;

    h->model->has_metadata = h->model->has_metadata || rc == MR_OK;
    mr_err_clear(&clean);
    if (rc < 0) {
        clean = *err;
        openai_hide(h->model->openai, clean.msg, strlen(clean.msg));
    }
    h->reported(h, rc, &clean);
}

static int status_fail(const char *what, const struct mr_client_response *r, struct mr_err *err)
{
    return MR_FAIL(err, transport_status_lasts(r->status) ? MR_E_NOT_FOUND : MR_E_UNKNOWN,
                   "%s: HTTP status %d: %.*s", what, r->status,
                   (int)MR_MIN(r->body.len, (size_t)120), (const char *)r->body.ptr);
}

static mr_str body_of(const struct mr_client_response *r)
{
    return mr_str_n((const char *)r->body.ptr, r->body.len);
}

/* ---- the length of vectors ---- */

static void vector_ask(struct host *h);

static int vector_read(struct host *h, const struct mr_client_response *r, struct mr_err *err)
{
    struct openai *a = h->model->openai;
    struct openai_answer answer = {.width = a->width};
    struct mr_arena arena;

    if (r->status != 200) {
        return status_fail("embeddings", r, err);
    }
    mr_arena_init(&arena, 4096, SIZE_MAX);
    int rc = openai_answer_vectors(body_of(r), 1, true, &arena, &answer, err);
    if (rc == MR_OK && a->width == 0) {
        a->width = answer.width; /* before there is a reader, who looks at it */
    }
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "embeddings") : MR_OK;
}

static void on_vector(void *ctx, int rc, const struct mr_err *cause,
                      const struct mr_client_response *response)
{
    struct host *h = ctx;
    struct mr_err err;

    if (rc == MR_OK && (response->status == 400 || response->status == 422) && !h->sends_floats) {
        h->sends_floats = true;
        vector_ask(h);
        return;
    }
    if (rc < 0) {
        report(h, rc, cause);
        return;
    }
    rc = vector_read(h, response, &err);
    report(h, rc, &err);
}

static void vector_ask(struct host *h)
{
    const struct openai *a = h->model->openai;
    struct mr_header headers[2];
    char path[300];
    struct mr_buf body;

    mr_buf_init(&body, 0);
    MR_BUF_LIT(&body, "{\"model\":");
    mr_json_put_string(&body, mr_str_c(h->model->o->model.name));
    MR_BUF_LIT(&body, ",\"input\":[\"one\"]");
    mr_buf_str(&body, mr_buf_view(&a->tail));
    mr_buf_c(&body, h->sends_floats ? "}" : ",\"encoding_format\":\"base64\"}");
    const int n = snprintf(path, sizeof path, "%s%s", h->transport.prefix, openai_path(a->o->api));
    const struct mr_piece piece = {.ptr = body.ptr, .len = body.len};
    const struct mr_client_request request = {.method = "POST",
                                              .path = {path, (size_t)n},
                                              .headers = headers,
                                              .header_count = openai_headers(a, headers),
                                              .pieces = &piece,
                                              .piece_count = 1,
                                              .timeout_ns = h->ask_timeout_ns};
    mr_client_send(h->transport.client, &request, on_vector, h);
    mr_buf_fini(&body);
}

/* ---- the model and its server ---- */

static bool is_unknown(int status)
{
    return status == 404 || status == 405 || status == 501;
}

static void on_health(void *ctx, int rc, const struct mr_err *cause,
                      const struct mr_client_response *response)
{
    struct host *h = ctx;
    struct mr_err err;

    if (rc == MR_OK && response->status >= 500 && !is_unknown(response->status)) {
        rc = status_fail("GET /health", response, &err);
        cause = &err;
    }
    if (rc < 0 || h->model->openai->o->api != MR_BATCH_API_EMBEDDINGS) {
        report(h, rc, cause);
        return;
    }
    vector_ask(h);
}

static void on_models(void *ctx, int rc, const struct mr_err *cause,
                      const struct mr_client_response *response)
{
    struct host *h = ctx;
    struct mr_err err;

    if (rc == MR_OK && !is_unknown(response->status)) {
        rc = response->status == 200
                 ? openai_answer_models(body_of(response), h->model->o->model.name, &err)
                 : status_fail("GET /models", response, &err);
        cause = &err;
    }
    if (rc < 0) {
        report(h, rc, cause);
        return;
    }
    get(h, "", "/health", on_health);
}

void openai_ask(struct host *h, int64_t timeout_ns)
{
    h->ask_timeout_ns = timeout_ns;
    get(h, h->transport.prefix, "/models", on_models);
}
