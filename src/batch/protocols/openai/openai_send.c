/* Requests. A call of chat is one row; completions and embeddings take a list of texts. */
#include "openai_send.h"

#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "codec/json.h"
#include "openai.h"

#define KEY_PART 4 /* bytes of the key that are worth hiding */

const char *openai_path(enum mr_batch_api api)
{
    switch (api) {
    case MR_BATCH_API_COMPLETIONS: return "/completions";
    case MR_BATCH_API_EMBEDDINGS: return "/embeddings";
    default: return "/chat/completions";
    }
}

size_t openai_headers(const struct openai *a, struct mr_header *out)
{
    out[0] = (struct mr_header){MR_STR("content-type"), MR_STR("application/json")};
    if (a->authorization) {
        out[1] = (struct mr_header){MR_STR("authorization"), mr_str_c(a->authorization)};
    }
    return a->authorization ? 2 : 1;
}

/* What a call is made of. */
struct making {
    const struct openai *a;
    const struct mr_rows *rows;
    struct mr_buf *body;
    struct mr_buf text; /* of one value */
};

static void put_text(struct making *m, const struct template *t, uint64_t row)
{
    mr_buf_reset(&m->text);
    template_put(t, &m->text, m->rows, row, mr_str_c(m->a->o->null_text));
    m->body->failed = m->body->failed || m->text.failed;
    mr_json_put_string(m->body, mr_buf_view(&m->text));
}

static void put_message(struct making *m, const char *role, const struct template *t, uint64_t row)
{
    mr_buf_printf(m->body, "{\"role\":\"%s\",\"content\":", role);
    put_text(m, t, row);
    mr_buf_char(m->body, '}');
}

static void put_messages(struct making *m, const struct work *w)
{
    const struct openai *a = m->a;
    const uint64_t row = w->ranges[0].first;

    MR_BUF_LIT(m->body, "\"messages\":[");
    if (a->system) {
        put_message(m, "system", a->system, row);
        mr_buf_char(m->body, ',');
    }
    if (a->prompt) {
        put_message(m, "user", a->prompt, row);
    } else {
        /* Looked at before: a list with something in it. */
        mr_buf_reset(&m->text);
        mr_value_put_text(&m->text, &m->rows->schema->fields[a->messages],
                          &m->rows->columns[a->messages], row);
        const mr_str list = mr_str_trim(mr_buf_view(&m->text));
        mr_buf_str(m->body, mr_str_sub(list, 1, list.len - 1));
    }
    mr_buf_c(m->body, w->note ? w->note : "");
    mr_buf_char(m->body, ']');
}

static void put_list(struct making *m, const char *name, const struct work *w)
{
    mr_buf_printf(m->body, "\"%s\":[", name);
    for (size_t i = 0; i < w->range_count; i++) {
        const struct row_range *s = &w->ranges[i];
        m->rows = s->extent->rows;
        for (uint64_t k = 0; k < s->count; k++) {
            mr_buf_c(m->body, i + k ? "," : "");
            put_text(m, m->a->prompt, s->first + k);
        }
    }
    mr_buf_char(m->body, ']');
}

static void put_body(const struct call *k, struct making *m)
{
    const struct openai *a = m->a;

    MR_BUF_LIT(m->body, "{\"model\":");
    mr_json_put_string(m->body, mr_str_c(k->model->o->model.name));
    mr_buf_char(m->body, ',');
    switch (a->o->api) {
    case MR_BATCH_API_COMPLETIONS: put_list(m, "prompt", k->work); break;
    case MR_BATCH_API_EMBEDDINGS: put_list(m, "input", k->work); break;
    default: put_messages(m, k->work); break;
    }
    mr_buf_str(m->body, mr_buf_view(&a->tail));
    if (a->max_tokens > 0) {
        mr_buf_printf(m->body, ",\"%s\":%llu", a->max_tokens_name,
                      (unsigned long long)a->max_tokens << k->work->doublings);
    }
    if (a->o->api == MR_BATCH_API_EMBEDDINGS && !k->host->sends_floats) {
        MR_BUF_LIT(m->body, ",\"encoding_format\":\"base64\"");
    }
    mr_buf_char(m->body, '}');
}

int openai_post(struct call *k, mr_str path, int64_t timeout_ns, struct mr_err *err)
{
    struct mr_header headers[2];
    const mr_str whole =
        mr_arena_printf(&k->arena, "%s%.*s", k->host->transport.prefix, MR_STR_ARG(path));

    if (k->head.failed || !whole.ptr) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call");
    }
    const struct mr_piece piece = {.ptr = k->head.ptr, .len = k->head.len};
    const struct mr_client_request request = {.method = "POST",
                                              .path = whole,
                                              .headers = headers,
                                              .header_count =
                                                  openai_headers(k->model->openai, headers),
                                              .pieces = &piece,
                                              .piece_count = 1,
                                              .timeout_ns = timeout_ns};
    transport_post(&k->host->transport, &k->transport, &request);
    return MR_OK;
}

int openai_send(struct call *k, int64_t timeout_ns, struct mr_err *err)
{
    const struct openai *a = k->model->openai;
    struct making m = {.a = a, .rows = k->work->ranges[0].extent->rows, .body = &k->head};

    mr_buf_init(&m.text, 0);
    put_body(k, &m);
    mr_buf_fini(&m.text);
    return openai_post(k, mr_str_c(openai_path(a->o->api)), timeout_ns, err);
}

void openai_hide(const struct openai *a, char *text, size_t len)
{
    const mr_str key = mr_str_c(a->o->key ? a->o->key : "");
    ptrdiff_t found;

    if (key.len == 0) {
        return;
    }
    for (size_t at = 0; (found = mr_str_find_str(mr_str_n(text + at, len - at), key)) >= 0;) {
        at += (size_t)found;
        memset(text + at, '*', key.len);
        at += key.len;
    }
    for (size_t n = MR_MIN(key.len - 1, len); n >= KEY_PART; n--) {
        if (memcmp(text + len - n, key.ptr, n) == 0) {
            memset(text + len - n, '*', n);
            return;
        }
    }
}
