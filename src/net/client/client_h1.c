/* HTTP/1.1 of the client: one request out, one response in.
 *
 * The syntax is http1_parse.c's, as strict as for requests. A head that arrives in parts, and trailers, are gathered in
 * `lines`; body bytes go straight into the call's block, large ones of known length even by the read itself
 * (mr_client_h1_direct). */
#include <stdio.h>

#include "client_priv.h"

#ifndef MR_VERSION
#    define MR_VERSION "0"
#endif

/* A read of less than this is not worth its own system call beside the shared buffer. */
#define DIRECT_MIN 4096
/* Of a request, encrypted at once. */
#define SEAL_BYTES ((size_t)256 * 1024)

/* ---- request ---- */

struct upload {
    struct mr_client_write write;
    struct mr_client_conn *conn;
    struct mr_buf head; /* with TLS then each portion of the body */
    size_t next;        /* piece that is not yet in `head`, with TLS */
    size_t offset;
    size_t piece_count;
    struct mr_piece pieces[]; /* with references of its own */
};

static bool needs_length(const struct mr_client_call *call)
{
    return call->body_bytes > 0 || mr_str_eq_c(call->method, "POST") ||
           mr_str_eq_c(call->method, "PUT");
}

static void put_head(const struct mr_client_call *call, struct mr_buf *out)
{
    mr_buf_str(out, call->method);
    mr_buf_char(out, ' ');
    mr_buf_str(out, call->path);
    MR_BUF_LIT(out, " HTTP/1.1\r\nhost: ");
    mr_buf_str(out, mr_client_host(call));
    MR_BUF_LIT(out, "\r\nuser-agent: millrace/" MR_VERSION "\r\n");
    for (size_t i = 0; i < call->header_count; i++) {
        if (mr_str_eq_c(call->headers[i].name, "host")) {
            continue;
        }
        mr_buf_str(out, call->headers[i].name);
        MR_BUF_LIT(out, ": ");
        mr_buf_str(out, call->headers[i].value);
        MR_BUF_LIT(out, "\r\n");
    }
    if (needs_length(call)) {
        MR_BUF_LIT(out, "content-length: ");
        mr_buf_u64(out, call->body_bytes);
        MR_BUF_LIT(out, "\r\n");
    }
    MR_BUF_LIT(out, "\r\n");
}

static void upload_free(struct upload *u)
{
    for (size_t i = 0; i < u->piece_count; i++) {
        mr_block_unref(&u->pieces[i].block);
    }
    mr_buf_fini(&u->head);
    mr_free(u);
}

static void on_written(struct mr_client_write *w, int status);

/* TLS: encrypts what is in `head` and as much of the body as goes with it. */
static bool seal(struct upload *u)
{
    while (u->next < u->piece_count && u->head.len < SEAL_BYTES) {
        const struct mr_piece *p = &u->pieces[u->next];
        size_t part = MR_MIN(p->len - u->offset, SEAL_BYTES - u->head.len);
        mr_buf_append(&u->head, (const char *)p->ptr + u->offset, part);
        u->offset += part;
        if (u->offset == p->len) {
            u->next++;
            u->offset = 0;
        }
    }
    return !u->head.failed && mr_client_tls_seal(u->conn, &u->head);
}

/* As mr_client_conn_write. */
static int write_sealed(struct upload *u)
{
    int rc;

    do {
        if (!seal(u)) {
            return UV_EPROTO;
        }
        uv_buf_t buf = uv_buf_init(u->head.ptr, (unsigned)u->head.len);
        rc = mr_client_conn_write(u->conn, &u->write, &buf, 1, on_written);
        if (rc == 1) {
            mr_buf_reset(&u->head);
        }
    } while (rc == 1 && u->next < u->piece_count);
    return rc;
}

static int write_plain(struct upload *u)
{
    uv_buf_t *bufs = MR_NEW_ARRAY(uv_buf_t, u->piece_count + 1);

    bufs[0] = uv_buf_init(u->head.ptr, (unsigned)u->head.len);
    for (size_t i = 0; i < u->piece_count; i++) {
        bufs[i + 1].base = (char *)u->pieces[i].ptr;
        bufs[i + 1].len = u->pieces[i].len;
    }
    int rc = mr_client_conn_write(u->conn, &u->write, bufs, u->piece_count + 1, on_written);
    mr_free(bufs);
    return rc;
}

static void on_written(struct mr_client_write *w, int status)
{
    struct upload *u = MR_CONTAINER_OF(w, struct upload, write);
    struct mr_client_conn *conn = u->conn;

    mr_loop_resume(conn->client->loop);
    if (status == 0 && conn->state == MR_CONN_OPEN && conn->ssl && u->next < u->piece_count) {
        mr_buf_reset(&u->head);
        status = write_sealed(u);
        if (status == 0) {
            return;
        }
    }
    upload_free(u);
    conn->is_writing = false;
    if (conn->state != MR_CONN_OPEN) {
        return;
    }
    if (status < 0) {
        /* A server may answer and close before it has read everything: the answer counts, and reading
         * goes on until its end shows. */
        if (TAILQ_EMPTY(&conn->calls)) {
            mr_client_conn_close(conn);
        }
        return;
    }
    mr_client_pump(conn->client);
}

static void response_begin(struct mr_client_conn *conn)
{
    conn->h1.state = MR_CLIENT_H1_HEAD;
    conn->h1.scan = (struct mr_http1_scan){0};
    mr_buf_reset(&conn->h1.lines);
}

void mr_client_h1_start(struct mr_client_conn *conn, struct mr_client_call *call)
{
    struct upload *u = mr_alloc(sizeof *u + call->piece_count * sizeof *u->pieces);

    mr_buf_init(&u->head, 0);
    put_head(call, &u->head);
    u->conn = conn;
    u->next = u->offset = 0;
    u->write.pass_fd = -1;
    if (call->memory.id && call->memory.id != conn->memory_id) {
        u->write.pass_fd = call->memory.fd;
        conn->memory_id = call->memory.id;
    }
    u->piece_count = call->piece_count;
    for (size_t i = 0; i < call->piece_count; i++) {
        u->pieces[i] = call->pieces[i];
        mr_block_ref(u->pieces[i].block);
    }
    response_begin(conn);
    int rc = conn->ssl ? write_sealed(u) : write_plain(u);
    conn->is_writing = rc == 0;
    if (rc != 0) {
        upload_free(u);
    }
    if (rc < 0 && rc != UV_EPIPE && rc != UV_ECONNRESET) { /* reading says that, and more */
        mr_client_conn_fail_later(conn, MR_E_UNAVAILABLE, uv_strerror(rc));
    }
}

bool mr_client_h1_is_idle(const struct mr_client_conn *conn)
{
    return TAILQ_EMPTY(&conn->calls) && !conn->is_writing && conn->fail_rc == 0;
}

/* ---- response ---- */

static int bad(const struct mr_client_conn *conn, struct mr_err *err, const char *what)
{
    MR_FAIL(err, MR_E_INVALID, "%s does not speak HTTP/1.1: %s", conn->client->address, what);
    return mr_client_blame(err);
}

static int too_long(const struct mr_client_conn *conn, struct mr_err *err)
{
    MR_FAIL(err, MR_E_TOO_LARGE, "the response headers of %s are larger than %zu bytes",
            conn->client->address, MR_CLIENT_HEAD_MAX);
    return mr_client_blame(err);
}

/* status: of mr_http1_parse_response or mr_http1_parse_trailers. */
static int refused(const struct mr_client_conn *conn, int status, const char *what,
                   struct mr_err *err)
{
    if (status != 431) {
        return bad(conn, err, what);
    }
    MR_FAIL(err, MR_E_TOO_LARGE, "%s answers with too many headers", conn->client->address);
    return mr_client_blame(err);
}

/* How the body is delimited. */
static int begin_body(struct mr_client_conn *conn, const struct mr_http1_head *head,
                      struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_client_h1 *h = &conn->h1;

    h->keep_alive = head->keep_alive;
    if (!head->has_body) {
        h->state = MR_CLIENT_H1_DONE;
        return MR_OK;
    }
    if (head->content_length > call->client->options.max_response_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "the answer of %s has %lld bytes, more than the %lld allowed",
                       call->client->address, (long long)head->content_length,
                       (long long)call->client->options.max_response_bytes);
    }
    call->answer.body_declared = head->content_length > 0 ? (size_t)head->content_length : 0;
    h->remaining = head->content_length;
    /* A chunk has at least a byte: the limit of the body bounds their number. */
    h->chunked = (struct mr_http1_chunked){
        .max_overhead = MR_CLIENT_HEAD_MAX, .max_chunks = UINT32_MAX, .trailers = &h->lines};
    h->state = head->is_chunked  ? MR_CLIENT_H1_CHUNKED
               : head->is_to_end ? MR_CLIENT_H1_TO_END
                                 : MR_CLIENT_H1_SIZED;
    return MR_OK;
}

/* bytes: a complete head. */
static int parse_head(struct mr_client_conn *conn, mr_str bytes, struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_client_answer *a = &call->answer;
    mr_str own = mr_arena_str(&call->arena, bytes);
    struct mr_http1_head head;

    if (!own.ptr) {
        return refused(conn, 431, NULL, err);
    }
    int rc = mr_http1_parse_response((char *)own.ptr, own.len, call->is_head, a->headers,
                                     MR_CLIENT_HEADERS_MAX, &head);
    response_begin(conn);
    if (rc) {
        return refused(conn, rc, head.error, err);
    }
    if (head.status == 101) {
        return bad(conn, err, "switches protocols unasked");
    }
    if (head.status < 200) {
        /* 100 Continue and the like: the real one follows. */
        return MR_OK;
    }
    a->status = head.status;
    a->header_count = head.header_count;
    return begin_body(conn, &head, err);
}

static int step_head(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    struct mr_client_h1 *h = &conn->h1;
    size_t had = h->lines.len;
    char text[128];

    if (had == 0 && io->ptr[0] != 'H') {
        return bad(conn, err, mr_client_stranger(*io, text, sizeof text));
    }
    mr_str head = {(const char *)io->ptr, MR_MIN(io->len, MR_CLIENT_HEAD_MAX - had)};
    if (had > 0) {
        mr_buf_str(&h->lines, head);
        head = mr_buf_view(&h->lines);
    }
    enum mr_http1_found found = mr_http1_scan(&h->scan, head.ptr, head.len);
    if (found == MR_HTTP1_BAD) {
        return bad(conn, err, "a header line does not end in CR LF");
    }
    if (found == MR_HTTP1_MORE && had == 0) {
        mr_buf_str(&h->lines, head);
    }
    if (h->lines.failed || (found == MR_HTTP1_MORE && head.len == MR_CLIENT_HEAD_MAX)) {
        return too_long(conn, err);
    }
    io->ptr += h->scan.at - had;
    io->len -= h->scan.at - had;
    return found == MR_HTTP1_FOUND ? parse_head(conn, mr_str_sub(head, 0, h->scan.at), err) : MR_OK;
}

static int step_data(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    struct mr_client_h1 *h = &conn->h1;
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    bool is_sized = h->state == MR_CLIENT_H1_SIZED;
    size_t n = is_sized ? MR_MIN(io->len, (size_t)h->remaining) : io->len;
    int rc = is_sized ? mr_client_body_reserve(call, (size_t)h->remaining, err) : MR_OK;

    if (rc == MR_OK) {
        rc = mr_client_body_append(call, io->ptr, n, err);
    }
    io->ptr += n;
    io->len -= n;
    if (is_sized) {
        h->remaining -= (int64_t)n;
        h->state = h->remaining ? MR_CLIENT_H1_SIZED : MR_CLIENT_H1_DONE;
    }
    return rc;
}

/* The slices of trailers point into the call's own copy. */
static int parse_trailers(struct mr_client_conn *conn, struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_client_answer *a = &call->answer;
    mr_str own = mr_arena_str(&call->arena, mr_buf_view(&conn->h1.lines));
    struct mr_http1_head head;

    if (!own.ptr || conn->h1.lines.failed) {
        return too_long(conn, err);
    }
    int rc = mr_http1_parse_trailers((char *)own.ptr, own.len, a->trailers, MR_CLIENT_TRAILERS_MAX,
                                     &head);
    if (rc) {
        return refused(conn, rc, head.error, err);
    }
    a->trailer_count = head.header_count;
    conn->h1.state = MR_CLIENT_H1_DONE;
    return MR_OK;
}

static int step_chunked(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    struct mr_http1_chunked *c = &conn->h1.chunked;
    size_t used = 0;
    mr_bytes data = {0};
    enum mr_http1_chunk got = mr_http1_chunk_next(c, (const char *)io->ptr, io->len, &used, &data);

    if (got == MR_CHUNK_BAD) {
        return c->overhead > c->max_overhead ? too_long(conn, err)
                                             : bad(conn, err, "invalid chunked coding");
    }
    io->ptr += used;
    io->len -= used;
    if (got == MR_CHUNK_DATA) {
        return mr_client_body_append(TAILQ_FIRST(&conn->calls), data.ptr, data.len, err);
    }
    return got == MR_CHUNK_END ? parse_trailers(conn, err) : MR_OK;
}

static int feed(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    int rc = MR_OK;

    while (rc == MR_OK && io->len > 0 && conn->h1.state != MR_CLIENT_H1_DONE) {
        switch (conn->h1.state) {
        case MR_CLIENT_H1_HEAD: rc = step_head(conn, io, err); break;
        case MR_CLIENT_H1_SIZED:
        case MR_CLIENT_H1_TO_END: rc = step_data(conn, io, err); break;
        case MR_CLIENT_H1_CHUNKED: rc = step_chunked(conn, io, err); break;
        case MR_CLIENT_H1_DONE: break;
        }
    }
    return rc;
}

/* The response is whole: the connection is free again, or closed, before done is called. */
static void finish(struct mr_client_conn *conn, bool reusable)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_client *c = conn->client;

    conn->has_served = true;
    /* call_end takes it off a list; this keeps the connection out of it. */
    mr_client_call_unlink(call);
    mr_client_call_wait(call);
    if (!reusable) {
        mr_client_conn_close(conn);
    }
    mr_client_call_end(call, MR_OK, NULL);
    if (!c->is_closing) {
        mr_client_pump(c);
    }
}

void mr_client_h1_read(struct mr_client_conn *conn, mr_bytes data)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_err err;

    if (!call) {
        /* Unexpected bytes: a server that sends 408 before it closes an idle connection. */
        mr_client_conn_close(conn);
        return;
    }
    call->got_bytes = true;
    if (call->answer.body && data.ptr == call->answer.body->data + call->answer.body_len) {
        /* Read in place by mr_client_h1_direct. */
        call->answer.body_len += data.len;
        conn->h1.remaining -= (int64_t)data.len;
        conn->h1.state = conn->h1.remaining ? MR_CLIENT_H1_SIZED : MR_CLIENT_H1_DONE;
        data.len = 0;
    }
    int rc = feed(conn, &data, &err);
    if (rc < 0) {
        mr_client_conn_fail(conn, rc, &err);
    } else if (conn->h1.state == MR_CLIENT_H1_DONE) {
        /* Bytes after the response are unexpected; is_writing: it answered before reading all. */
        finish(conn, conn->h1.keep_alive && data.len == 0 && !conn->is_writing);
    }
}

void mr_client_h1_eof(struct mr_client_conn *conn)
{
    struct mr_err err;

    if (TAILQ_EMPTY(&conn->calls)) {
        mr_client_conn_close(conn);
        return;
    }
    if (conn->h1.state == MR_CLIENT_H1_TO_END) {
        finish(conn, false);
        return;
    }
    mr_err_set(
        &err, MR_E_UNAVAILABLE, MR_HERE, "%s closed the connection %s", conn->client->address,
        TAILQ_FIRST(&conn->calls)->got_bytes ? "in the middle of its answer" : "without an answer");
    mr_client_conn_fail(conn, MR_E_UNAVAILABLE, &err);
}

bool mr_client_h1_direct(struct mr_client_conn *conn, uv_buf_t *out)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    struct mr_err ignored;

    if (!call || conn->h1.state != MR_CLIENT_H1_SIZED || conn->h1.remaining < DIRECT_MIN ||
        mr_client_body_reserve(call, (size_t)conn->h1.remaining, &ignored) < 0) {
        return false;
    }
    struct mr_client_answer *a = &call->answer;
    size_t room = MR_MIN(a->body->cap - a->body_len, (size_t)conn->h1.remaining);
    *out =
        uv_buf_init((char *)a->body->data + a->body_len, (unsigned)MR_MIN(room, (size_t)1 << 30));
    return true;
}
