/* OpenAI's batch files: a line of the input is a whole request, a line of the result its whole answer.
 *
 *   {"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{…}}
 *   {"id":"batch_req_0_17","custom_id":"a","response":{"status_code":200,"request_id":"…","body":{…}},"error":null}
 *
 * Bodies go both ways as they are. Their model is their own affair, and so are their addresses below /v1. */
#include <stdio.h>

#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "batch/protocols/oip/answer.h"
#include "codec/json.h"
#include "openai.h"
#include "openai_ask.h"
#include "openai_send.h"
#include "openai_tokens.h"

#define EXTENT_ROWS  16
#define ANSWER_BYTES 2048

enum { CUSTOM_ID, METHOD, URL, BODY };

static const char *const names[] = {
    [CUSTOM_ID] = "custom_id", [METHOD] = "method", [URL] = "url", [BODY] = "body"};

static int want(struct dialect_model *model, struct mr_err *err)
{
    (void)err;
    for (int i = CUSTOM_ID; i <= BODY; i++) {
        mr_schema_add(&model->wanted, &(struct mr_field){.name = (char *)(uintptr_t)names[i],
                                                         .type = MR_COLUMN_STRING,
                                                         .is_json = i == BODY,
                                                         .is_nullable = true});
    }
    return MR_OK;
}

static int bind(struct dialect_model *model, const struct mr_schema *table,
                const struct mr_schema *all, struct mr_err *err)
{
    static struct mr_field fields[] = {
        {.name = (char *)(uintptr_t) "id", .type = MR_COLUMN_STRING},
        {.name = (char *)(uintptr_t) "custom_id", .type = MR_COLUMN_STRING},
        {.name = (char *)(uintptr_t) "response", .type = MR_COLUMN_STRING, .is_json = true},
        {.name = (char *)(uintptr_t) "error",
         .type = MR_COLUMN_STRING,
         .is_json = true,
         .is_nullable = true},
    };
    const size_t count = sizeof fields / sizeof *fields;
    const struct batch_outputs_options options = {0};
    struct openai *a = model->openai;
    char text[128];

    (void)all;
    for (int i = CUSTOM_ID; i <= BODY; i++) {
        a->file_columns[i] = mr_schema_find(table, mr_str_c(names[i]));
        if (a->file_columns[i] < 0 && i != METHOD) {
            return MR_FAIL(err, MR_E_INVALID,
                           "the input is no batch file: its lines have no '%s', as in "
                           "{\"custom_id\":\"1\",\"method\":\"POST\",\"url\":\"/v1/chat/"
                           "completions\",\"body\":{…}}",
                           names[i]);
        }
        if (a->file_columns[i] < 0) {
            continue;
        }
        const struct mr_field *f = &table->fields[a->file_columns[i]];
        if (f->type != MR_COLUMN_STRING) {
            return MR_FAIL(err, MR_E_INVALID, "'%s' of a batch file is text, and this column is %s",
                           names[i], mr_field_text(f, text, sizeof text));
        }
    }
    a->outputs = MR_NEW_ARRAY(struct openai_output, count);
    int rc =
        batch_outputs_of(&model->outputs, &(struct mr_schema){fields, count}, table, &options, err);
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        mr_column_builder_init(&a->outputs[i].builder,
                               &batch_outputs_schema(model->outputs)->fields[i]);
        a->output_count++;
    }
    return rc;
}

/* ---- rows ---- */

static mr_str cell(const struct openai *a, const struct mr_rows *rows, uint64_t row, int i)
{
    const int column = a->file_columns[i];

    if (column < 0 || mr_column_is_null(&rows->columns[column], row)) {
        return (mr_str){NULL, 0};
    }
    const mr_bytes b = mr_column_bytes(&rows->columns[column], row);
    return mr_str_n((const char *)b.ptr, b.len);
}

/* Below /v1, and nothing that would be more than a path. */
static bool url_is_good(mr_str url)
{
    bool is_good = mr_str_starts(url, MR_STR("/v1/")) && url.len < 200 &&
                   mr_str_find_str(url, MR_STR("..")) < 0;

    for (size_t i = 0; i < url.len && is_good; i++) {
        const char c = url.ptr[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '/' || c == '_' || c == '-' || c == '.';
    }
    return is_good;
}

/* An object, whose answer does not come in pieces. */
static const char *body_fault(mr_str body)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    bool streams = false;
    mr_str key;

    mr_arena_init(&arena, 1024, SIZE_MAX);
    mr_json_init(&j, body, &arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("stream")) && mr_json_peek(&j) == MR_JSON_BOOL) {
            mr_json_bool(&j, &streams);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    const bool is_object = mr_json_finish(&j) == MR_OK;
    mr_arena_fini(&arena);
    return !is_object ? "'body' is no JSON object"
           : streams  ? "'stream' is for conversations"
                      : NULL;
}

static bool is_bad(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                   char *why)
{
    const struct openai *a = model->openai;
    const mr_str method = cell(a, rows, row, METHOD);
    const char *fault = NULL;

    if (cell(a, rows, row, CUSTOM_ID).len == 0) {
        fault = "there is no 'custom_id'";
    } else if (method.ptr && !mr_str_eq(method, MR_STR("POST"))) {
        fault = "'method' is not POST";
    } else if (!url_is_good(cell(a, rows, row, URL))) {
        fault = "'url' is no path below /v1/";
    } else {
        fault = body_fault(cell(a, rows, row, BODY));
    }
    snprintf(why, 256, "%s", fault ? fault : "");
    return fault;
}

static bool are_good(const struct dialect_model *model, const struct mr_rows *rows)
{
    (void)model;
    (void)rows;
    return false;
}

static bool takes_rows(const struct dialect_model *model)
{
    (void)model;
    return false;
}

static uint64_t together(const struct dialect_model *model, const struct mr_rows *rows,
                         uint64_t first, uint64_t most)
{
    (void)model;
    (void)rows;
    (void)first;
    return MR_MIN(most, (uint64_t)1);
}

static uint64_t extent_rows(const struct dialect_model *model)
{
    (void)model;
    return EXTENT_ROWS;
}

static uint64_t answer_bytes(const struct dialect_model *model)
{
    (void)model;
    return ANSWER_BYTES;
}

static size_t identity(const struct dialect_model *model, const char **keys, struct mr_buf *texts)
{
    (void)model;
    keys[0] = "api";
    MR_BUF_LIT(&texts[0], "\"batch file\"");
    return 1;
}

/* ---- calls ---- */

static int send(struct call *k, int64_t timeout_ns, struct mr_err *err)
{
    const struct openai *a = k->model->openai;
    const struct row_range *s = &k->work->ranges[0];
    const mr_str url = cell(a, s->extent->rows, s->first, URL);

    mr_buf_str(&k->head, cell(a, s->extent->rows, s->first, BODY));
    return openai_post(k, mr_str_sub(url, strlen("/v1"), url.len), timeout_ns, err);
}

static void judge(struct call *k, const struct transport_reply *reply, struct transport_answer *a)
{
    struct mr_err err;

    if (!transport_judge_status(reply, a)) {
        openai_hide(k->model->openai, a->cause, strlen(a->cause));
        if (reply->rc >= 0 && (reply->response->status == 404 || reply->response->status == 405)) {
            /* The line's address or model, which others need not share. */
            a->outcome = MR_BALANCE_REJECTED;
            a->is_for_good = false;
        }
        return;
    }
    mr_arena_reset(&k->arena);
    struct openai_answer *answer = MR_ARENA_NEW(&k->arena, struct openai_answer);
    const mr_bytes body = reply->response->body;
    int rc = answer ? openai_answer_any(mr_str_n((const char *)body.ptr, body.len), &k->arena,
                                        answer, &err)
                    : MR_FAIL(&err, MR_E_EXHAUSTED, "no memory");
    if (rc < 0) {
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
        return;
    }
    a->openai = answer;
    a->size = openai_count(k, answer);
}

static int rows(struct call *k, const struct transport_answer *answer, uint64_t first,
                const struct row_range *of, struct mr_rows **out, struct mr_err *err)
{
    struct openai *a = k->model->openai;
    struct mr_column_builder *builders[4];
    struct mr_buf b;

    (void)first;
    mr_buf_init(&b, 0);
    for (size_t i = 0; i < 4; i++) {
        builders[i] = &a->outputs[i].builder;
    }
    mr_buf_printf(&b, "batch_req_%u_%llu", of->extent->file,
                  (unsigned long long)(of->extent->first + of->first));
    mr_column_add_bytes(builders[0], mr_buf_view(&b));
    mr_column_add_bytes(builders[1], cell(a, of->extent->rows, of->first, CUSTOM_ID));
    mr_buf_reset(&b);
    MR_BUF_LIT(&b, "{\"status_code\":200,\"request_id\":");
    mr_json_put_string(&b, answer->openai->id);
    MR_BUF_LIT(&b, ",\"body\":");
    mr_buf_str(&b, answer->openai->body);
    mr_buf_char(&b, '}');
    builders[2]->has_failed |= b.failed;
    mr_column_add_bytes(builders[2], mr_buf_view(&b));
    mr_column_add_null(builders[3]);
    mr_buf_fini(&b);
    return batch_answer_built(k->model->outputs, of->extent->rows, of->first, of->count, builders,
                              4, out, err);
}

const struct dialect openai_file_dialect = {
    .ask = openai_ask,
    .want = want,
    .bind = bind,
    .identity = identity,
    .extent_rows = extent_rows,
    .answer_bytes = answer_bytes,
    .takes_rows = takes_rows,
    .are_good = are_good,
    .is_bad = is_bad,
    .together = together,
    .size = openai_size,
    .send = send,
    .judge = judge,
    .rows = rows,
    .free = openai_drop,
};
