/* Models that take messages (mr_version.has_messages): the request goes to the model as the client sent it, and the answer
 * to the client as the model made it.
 *
 * The message is the one element of the model's input; the headers are its parameters, beside ":kind", what is asked,
 * ":version", the one that the request names, and ":method", ":path" and ":query" where the model has a handler for them. The output's first element is the message of the answer, followed by names
 * and values of headers in turn; ":status" is the status of HTTP. On the network thread of the call. */
#include "message.h"

#include "infer.h"
#include "restrict.h"
#include "tensor/tensor.h"

#define INPUT      "request"
#define COPY_BYTES 4096u

/* ---- requests ---- */

static int headers_read(struct serve_infer *si, mr_str version, struct mr_infer_args *out,
                        struct mr_err *err)
{
    const struct mr_call *call = si->call;
    struct mr_arena *a = si->infer.arena;
    struct mr_setting *s = MR_ARENA_ARRAY(a, struct mr_setting, call->header_count + 5);
    const mr_str own[] = {version, call->method, call->path, call->query};
    static const char *const names[] = {":version", ":method", ":path", ":query"};
    const bool is_custom = strcmp(si->message_kind, MESSAGE_CUSTOM) == 0;
    const uint32_t count = is_custom ? 4 : 1;
    uint32_t n = 0;

    if (!s) {
        return MR_ARENA_FAIL(err);
    }
    s[n++] = (struct mr_setting){":kind", si->message_kind};
    for (uint32_t i = 0; i < count; i++) {
        s[n] = (struct mr_setting){names[i], mr_arena_str(a, own[i]).ptr};
        if (!s[n++].value) {
            return MR_ARENA_FAIL(err);
        }
    }
    for (size_t i = 0; i < call->header_count; i++) {
        const struct mr_header *h = &call->headers[i];
        if (serve_is_secret_header(si->loop->server, h->name) ||
            (is_custom && mr_str_eq_c(h->name, "content-encoding"))) { /* the body is unpacked */
            continue;
        }
        s[n] = (struct mr_setting){mr_arena_str(a, h->name).ptr, mr_arena_str(a, h->value).ptr};
        if (!s[n].key || !s[n].value) {
            return MR_ARENA_FAIL(err);
        }
        n++;
    }
    out->parameters = s;
    out->parameter_count = n;
    return MR_OK;
}

static void on_response(struct mr_infer *r, struct mr_response *q)
{
    struct serve_infer *si = MR_CONTAINER_OF(r, struct serve_infer, infer);

    if (si->response || !q->outputs.list) {
        mr_infer_response_end(r, &q);
    } else {
        si->response = q;
    }
}

int message_args(struct serve_infer *si, mr_str version, struct mr_infer_args *out)
{
    static const mr_str name = MR_STR_INIT(INPUT);
    struct mr_infer *r = &si->infer;
    int64_t *shape = MR_ARENA_ARRAY(r->arena, int64_t, 2);
    struct mr_tensor *t = MR_ARENA_NEW(r->arena, struct mr_tensor);
    int rc;

    if (!r->version->has_messages) {
        return MR_FAIL(&r->err, MR_E_UNAVAILABLE,
                       "model '%.*s' has just been replaced by one of another kind, try again",
                       MR_STR_ARG(r->version->model_name));
    }
    if (!si->message_kind) {
        return MR_FAIL(
            &r->err, MR_E_UNSUPPORTED,
            "model '%.*s' is an MLServer model, which does not take requests of this kind",
            MR_STR_ARG(r->version->model_name));
    }
    if (!shape || !t) {
        return MR_ARENA_FAIL(&r->err);
    }
    shape[0] = shape[1] = 1;
    *t = (struct mr_tensor){.dtype = MR_DTYPE_BYTES,
                            .rank = r->version->max_batch_size > 0 ? 2 : 1,
                            .shape = shape,
                            .data = (void *)(uintptr_t)si->message.ptr,
                            .bytes = si->message.len};
    *out = (struct mr_infer_args){
        .id = si->request.id, .input_names = &name, .input_tensors = t, .input_count = 1};
    r->on_response = r->on_response ? r->on_response : on_response;
    r->is_lone = strcmp(si->message_kind, "infer") != 0 && strcmp(si->message_kind, "grpc") != 0;
    MR_TRY(mr_wire_element(t, r->arena, &r->err));
    rc = headers_read(si, version, out, &r->err);
out:
    return rc;
}

/* ---- answers ---- */

void message_take(struct serve_infer *si)
{
    struct mr_infer *r = &si->infer;

    if (r->status != MR_OK || !mr_version_is_streaming(r->version) ||
        r->on_response != on_response) {
        return;
    }
    if (si->response) {
        r->outputs = si->response->outputs.list;
    } else {
        r->status = MR_FAIL(&r->err, MR_E_INTERNAL, "the model gave no answer");
    }
}

void message_end(struct serve_infer *si)
{
    if (si->response) {
        si->infer.outputs = NULL; /* they are the response's */
        mr_infer_response_end(&si->infer, &si->response);
    }
}

static bool is_token(mr_str name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

    for (size_t i = 0; i < name.len; i++) {
        if (!name.ptr[i] || !strchr(letters, name.ptr[i])) {
            return false;
        }
    }
    return name.len > 0;
}

/* HTTP/2 knows lower case only. */
static mr_str lower(struct mr_arena *a, mr_str name)
{
    mr_str out = mr_arena_str(a, name);
    char *to = (char *)(uintptr_t)out.ptr;

    for (size_t i = 0; to && i < out.len; i++) {
        to[i] = (char)(to[i] >= 'A' && to[i] <= 'Z' ? to[i] + ('a' - 'A') : to[i]);
    }
    return out;
}

static int headers_take(mr_bytes rest, struct mr_arena *a, struct message_answer *out,
                        struct mr_err *err)
{
    bool has_type = false;
    mr_str name, value;

    out->headers = MR_ARENA_ARRAY(a, struct mr_header, MESSAGE_HEADERS_MAX);
    if (!out->headers) {
        return MR_ARENA_FAIL(err);
    }
    while (mr_bytes_tensor_next(&rest, &name) && mr_bytes_tensor_next(&rest, &value)) {
        int64_t status;
        if (mr_str_eq_c(name, ":status")) {
            if (mr_str_to_i64(value, &status) && status >= 200 && status <= 599) {
                out->http_status = (int)status;
            }
        } else if (is_token(name) && !mr_str_starts(name, MR_STR("mr-mesh-")) &&
                   out->header_count < MESSAGE_HEADERS_MAX - 1) {
            struct mr_header *h = &out->headers[out->header_count++];
            *h = (struct mr_header){lower(a, name), mr_arena_str(a, value)};
            has_type |= mr_str_eq_c(h->name, "content-type");
            if (!h->name.ptr || !h->value.ptr) {
                return MR_ARENA_FAIL(err);
            }
        }
    }
    if (!has_type) {
        out->headers[out->header_count++] =
            (struct mr_header){MR_STR("content-type"), MR_STR("application/json")};
    }
    return MR_OK;
}

/* Large ones are sent from where they are. */
static int body_take(struct serve_infer *si, mr_str text, struct mr_block *block,
                     struct message_answer *out, struct mr_err *err)
{
    struct mr_buf *b = infer_buf(si);
    struct mr_piece *piece = MR_ARENA_NEW(si->infer.arena, struct mr_piece);
    bool is_copied = !block || text.len <= COPY_BYTES;

    mr_buf_reset(b);
    if (is_copied) {
        mr_buf_append(b, text.ptr, text.len);
    }
    if (!piece || b->failed) {
        return MR_ARENA_FAIL(err);
    }
    *piece = is_copied ? (struct mr_piece){b->ptr, b->len, NULL}
                       : (struct mr_piece){text.ptr, text.len, mr_block_ref(block)};
    out->body = (struct mr_oip_encoded){
        .pieces = piece, .piece_count = text.len > 0, .bytes = text.len, .header_length = -1};
    return MR_OK;
}

int message_answer(struct serve_infer *si, struct message_answer *out, struct mr_err *err)
{
    const struct mr_exec_output *o = mr_infer_output(&si->infer, 0);
    mr_bytes rest = {o->tensor.data, o->tensor.bytes};
    mr_str text;
    int rc;

    *out = (struct message_answer){.http_status = 200};
    if (!mr_bytes_tensor_next(&rest, &text)) {
        return MR_FAIL(err, MR_E_INTERNAL, "the model gave an answer without a message");
    }
    MR_TRY(headers_take(rest, si->infer.arena, out, err));
    rc = body_take(si, text, o->block, out, err);
out:
    return rc;
}

static bool is_printable(mr_str value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < ' ' || value.ptr[i] > '~') {
            return false;
        }
    }
    return true;
}

size_t message_trailers(struct message_answer *a)
{
    size_t n = 0;

    for (size_t i = 0; i < a->header_count; i++) {
        const struct mr_header h = a->headers[i];
        const bool is_of_grpc =
            mr_str_eq_c(h.name, "content-type") || mr_str_starts(h.name, MR_STR("grpc-"));
        if (!is_of_grpc && is_printable(h.value)) {
            a->headers[n++] = h;
        }
    }
    a->header_count = n;
    return n;
}

void message_judge(struct serve_infer *si, const struct message_answer *a)
{
    struct mr_infer *r = &si->infer;

    if (a->http_status >= 400 && r->status == MR_OK) {
        r->status = MR_FAIL(&r->err, a->http_status < 500 ? MR_E_INVALID : MR_E_INTERNAL,
                            "the model answers with status %d", a->http_status);
        infer_log_failure(si);
    }
}
