/* Calls of the HTTP client: their copies of the request, the memory of their responses, their end.
 *
 * A call owns what it sends, because it may have to be sent twice and because a caller's borrowed bytes
 * are gone when mr_client_send returns: borrowed pieces are joined into one block, pieces with a block
 * are referenced. Everything small is in the call's arena. */
#include <stdio.h>

#include "client_priv.h"

#define ARENA_LIMIT ((size_t)1024 * 1024)
/* A body grows from this, so that a peer's claim of a size costs nothing. */
#define BODY_FIRST_MAX ((size_t)16 * 1024 * 1024)
#define BELIEF         ((size_t)8)

/* ---- lists ---- */

void mr_client_call_wait(struct mr_client_call *call)
{
    TAILQ_INSERT_TAIL(&call->client->waiting, call, link);
    call->client->waiting_count++;
}

void mr_client_call_unlink(struct mr_client_call *call)
{
    struct mr_client *c = call->client;

    if (call->conn) {
        TAILQ_REMOVE(&call->conn->calls, call, link);
    } else if (call->failed_rc < 0) {
        TAILQ_REMOVE(&c->failed, call, link);
    } else {
        TAILQ_REMOVE(&c->waiting, call, link);
        c->waiting_count--;
    }
    call->conn = NULL;
}

/* ---- the end of a call ---- */

static void call_free(struct mr_client_call *call)
{
    for (size_t i = 0; i < call->piece_count; i++) {
        mr_block_unref(&call->pieces[i].block);
    }
    mr_block_unref(&call->answer.body);
    mr_timer_stop(&call->timer);
    mr_arena_fini(&call->arena);
    mr_free(call);
}

void mr_client_call_end(struct mr_client_call *call, int rc, const struct mr_err *err)
{
    const struct mr_client_answer *a = &call->answer;
    struct mr_client_response response = {
        .status = a->status,
        .headers = a->headers,
        .header_count = a->header_count,
        .trailers = a->trailers,
        .trailer_count = a->trailer_count,
        .body = {a->body ? a->body->data : NULL, a->body_len},
        .body_block = a->body,
    };
    static const struct mr_err none;

    mr_client_call_unlink(call);
    call->done(call->ctx, rc, rc < 0 ? err : &none, rc < 0 ? NULL : &response);
    call_free(call);
}

/* Ends the call, or sends it once more. is_harmless: the server has done nothing for it, or it may be done twice. */
static void end_or_repeat(struct mr_client_call *call, bool is_harmless, int rc,
                          const struct mr_err *err)
{
    struct mr_client *c = call->client;

    if (!is_harmless || call->got_bytes || call->was_retried || call->stream ||
        c->options.never_repeat || c->is_closing) {
        mr_client_call_end(call, rc, err);
        return;
    }
    mr_client_call_unlink(call);
    call->was_retried = true;
    call->stream_id = 0;
    call->sent_piece = call->sent_offset = 0;
    TAILQ_INSERT_HEAD(&c->waiting, call, link);
    c->waiting_count++;
}

void mr_client_call_broken(struct mr_client_call *call, int rc, const struct mr_err *err)
{
    const bool is_harmless =
        rc == MR_E_UNAVAILABLE && call->conn && call->conn->has_served && !call->never_repeat;

    end_or_repeat(call, is_harmless, rc, err);
}

void mr_client_call_refused(struct mr_client_call *call, const struct mr_err *err)
{
    end_or_repeat(call, true, MR_E_UNAVAILABLE, err);
}

/* ---- response memory ---- */

int mr_client_body_reserve(struct mr_client_call *call, size_t want, struct mr_err *err)
{
    struct mr_client_answer *a = &call->answer;
    size_t cap = a->body ? a->body->cap : 0;
    size_t max = (size_t)call->client->options.max_response_bytes;

    if (a->body_len < cap) {
        return MR_OK;
    }
    if (a->body_len >= max) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "the answer of %s is larger than %zu bytes",
                       call->client->address, max);
    }
    size_t target = cap ? cap * 2 : MR_MIN(want, BODY_FIRST_MAX);
    target = MR_MAX(target, (size_t)4096);
    /* A length of which a part has arrived is trusted at once. */
    if (a->body_declared > cap && a->body_declared / BELIEF < cap) {
        target = a->body_declared;
    }
    if (!mr_block_grow(&a->body, a->body_len, MR_MIN(target, max))) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer of %zu bytes", target);
    }
    return MR_OK;
}

int mr_client_body_append(struct mr_client_call *call, const void *data, size_t len,
                          struct mr_err *err)
{
    struct mr_client_answer *a = &call->answer;
    const char *p = data;

    const size_t max = (size_t)call->client->options.max_response_bytes;
    if (a->body_len > max || len > max - a->body_len) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "the answer of %s is larger than %lld bytes",
                       call->client->address, (long long)call->client->options.max_response_bytes);
    }
    while (len > 0) {
        int rc = mr_client_body_reserve(call, len, err);
        if (rc < 0) {
            return rc;
        }
        size_t n = MR_MIN(len, a->body->cap - a->body_len);
        memcpy(a->body->data + a->body_len, p, n);
        a->body_len += n;
        p += n;
        len -= n;
    }
    return MR_OK;
}

int mr_client_add_header(struct mr_client_call *call, bool trailer, mr_str name, mr_str value,
                         struct mr_err *err)
{
    struct mr_client_answer *a = &call->answer;
    size_t *count = trailer ? &a->trailer_count : &a->header_count;
    struct mr_header *list = trailer ? a->trailers : a->headers;
    size_t max = trailer ? MR_CLIENT_TRAILERS_MAX : MR_CLIENT_HEADERS_MAX;
    mr_str n = mr_arena_str(&call->arena, name);
    mr_str v = mr_arena_str(&call->arena, value);

    if (!n.ptr || !v.ptr || *count == max) {
        MR_FAIL(err, MR_E_TOO_LARGE, "%s answers with too many headers", call->client->address);
        return mr_client_blame(err);
    }
    char *lower = (char *)n.ptr; /* our own copy */
    for (size_t i = 0; i < n.len; i++) {
        lower[i] = (char)(lower[i] >= 'A' && lower[i] <= 'Z' ? lower[i] - 'A' + 'a' : lower[i]);
    }
    list[(*count)++] = (struct mr_header){n, v};
    return MR_OK;
}

/* ---- the request ---- */

bool mr_client_is_clean(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\r' || s.ptr[i] == '\n' || s.ptr[i] == '\0') {
            return false;
        }
    }
    return true;
}

mr_str mr_client_host(const struct mr_client_call *call)
{
    const mr_str host = mr_header_find(call->headers, call->header_count, MR_STR("host"));

    return host.ptr ? host : mr_str_c(call->client->authority);
}

static bool has_header(const struct mr_header *list, size_t count, mr_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq(list[i].name, name)) {
            return true;
        }
    }
    return false;
}

static int copy_headers(struct mr_client_call *call, const struct mr_client_request *r)
{
    struct mr_err *err = &call->failed_err;
    const struct mr_client *c = call->client;
    const bool are_defaults = c->options.headers_are_defaults;

    call->headers =
        MR_ARENA_ARRAY(&call->arena, struct mr_header, c->header_count + r->header_count + 1);
    if (!call->headers) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "too many request headers");
    }
    for (size_t i = 0; i < c->header_count; i++) {
        if (!are_defaults || !has_header(r->headers, r->header_count, c->headers[i].name)) {
            call->headers[call->header_count++] = c->headers[i]; /* the client outlives its calls */
        }
    }
    for (size_t i = 0; i < r->header_count; i++) {
        if (!are_defaults && has_header(c->headers, c->header_count, r->headers[i].name)) {
            continue;
        }
        struct mr_header h = {mr_arena_str(&call->arena, r->headers[i].name),
                              mr_arena_str(&call->arena, r->headers[i].value)};
        if (!h.name.ptr || !h.value.ptr) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "request headers are too large");
        }
        if (!mr_client_is_clean(h.name) || !mr_client_is_clean(h.value)) {
            return MR_FAIL(err, MR_E_INVALID, "a request header holds a line end");
        }
        call->headers[call->header_count++] = h;
    }
    return MR_OK;
}

/* Pieces without a block are borrowed: join them into one of ours. */
static int copy_pieces(struct mr_client_call *call, const struct mr_client_request *r)
{
    struct mr_block *own = NULL;
    size_t borrowed = 0;
    size_t at = 0;
    size_t count = 0;

    for (size_t i = 0; i < r->piece_count; i++) {
        borrowed += r->pieces[i].block ? 0 : r->pieces[i].len;
    }
    call->pieces = MR_ARENA_ARRAY(&call->arena, struct mr_piece, r->piece_count + 1);
    own = borrowed ? mr_block_new(borrowed) : NULL;
    if (!call->pieces || (borrowed && !own)) {
        mr_block_unref(&own);
        return MR_FAIL(&call->failed_err, MR_E_EXHAUSTED, "no memory for the request");
    }
    for (size_t i = 0; i < r->piece_count; i++) {
        struct mr_piece p = r->pieces[i];
        if (p.len == 0) {
            continue;
        }
        if (!p.block) {
            memcpy(own->data + at, p.ptr, p.len);
            p.ptr = own->data + at;
            p.block = mr_block_ref(own);
            at += p.len;
        } else {
            p.block = mr_block_ref(p.block);
        }
        call->pieces[count++] = p;
        call->body_bytes += p.len;
    }
    call->piece_count = count;
    mr_block_unref(&own);
    return MR_OK;
}

static int fill_call(struct mr_client_call *call, const struct mr_client_request *r)
{
    call->method = mr_arena_str(&call->arena, mr_str_c(r->method));
    call->path = mr_arena_str(&call->arena, r->path);
    call->is_head = strcmp(r->method, "HEAD") == 0;
    if (!call->method.ptr || !call->path.ptr) {
        return MR_FAIL(&call->failed_err, MR_E_TOO_LARGE, "the request path is too long");
    }
    if (!mr_client_is_clean(call->path) || mr_str_find(call->path, ' ') >= 0 ||
        call->path.len == 0 || call->path.ptr[0] != '/') {
        return MR_FAIL(&call->failed_err, MR_E_INVALID, "'%.*s' is not a request path",
                       MR_STR_ARG(mr_str_sub(call->path, 0, 100)));
    }
    int rc = copy_headers(call, r);
    return rc < 0 ? rc : copy_pieces(call, r);
}

/* The callee takes over the references of the pieces, whatever happens; the copies hold their own. */
static void drop_pieces(const struct mr_client_request *r)
{
    for (size_t i = 0; i < r->piece_count; i++) {
        struct mr_block *b = r->pieces[i].block;
        mr_block_unref(&b);
    }
}

struct mr_client_call *mr_client_call_new(struct mr_client *c, const struct mr_client_request *r,
                                          mr_client_done_fn *done, void *ctx)
{
    /* The headers of the answer, more than four kilobytes, are not cleared. */
    struct mr_client_call *call = mr_realloc_array(NULL, 1, sizeof *call);

    memset(call, 0, offsetof(struct mr_client_call, answer.headers));
    call->client = c;
    call->done = done;
    call->ctx = ctx;
    call->timeout_ns = r->timeout_ns;
    call->memory = r->memory;
    call->never_repeat = r->never_repeat;
    mr_arena_init(&call->arena, 2048, ARENA_LIMIT);
    call->failed_rc = fill_call(call, r);
    drop_pieces(r);
    return call;
}
