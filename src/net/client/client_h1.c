/* HTTP/1.1 of the client: one request out, one response in.
 *
 * The response parser takes bytes as they come. The head and the lines of the chunked coding are
 * gathered in `line`; body bytes go straight into the call's block, large ones with known length even
 * by the read itself (mr_client_h1_direct). It is strict where leniency is how responses get mixed up:
 * both length and chunked coding, unequal lengths, bad chunk sizes, line folding are errors. */
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
    uv_write_t req;
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
    mr_buf_printf(out, "%s %s HTTP/1.1\r\nhost: %.*s\r\nuser-agent: millrace/%s\r\n",
                  call->method.ptr, call->path.ptr, MR_STR_ARG(mr_client_host(call)), MR_VERSION);
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
        mr_buf_printf(out, "content-length: %llu\r\n", (unsigned long long)call->body_bytes);
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

static void on_written(uv_write_t *req, int status);

/* TLS: send what is in `head` and as much of the body as goes with it. */
static int write_sealed(struct upload *u)
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
    if (u->head.failed || !mr_client_tls_seal(u->conn, &u->head)) {
        return UV_EPROTO;
    }
    uv_buf_t buf = uv_buf_init(u->head.ptr, (unsigned)u->head.len);
    return uv_write(&u->req, &u->conn->uv.stream, &buf, 1, on_written);
}

static int write_plain(struct upload *u)
{
    uv_buf_t *bufs = MR_NEW_ARRAY(uv_buf_t, u->piece_count + 1);

    bufs[0] = uv_buf_init(u->head.ptr, (unsigned)u->head.len);
    for (size_t i = 0; i < u->piece_count; i++) {
        bufs[i + 1].base = (char *)u->pieces[i].ptr;
        bufs[i + 1].len = u->pieces[i].len;
    }
    int rc = uv_write(&u->req, &u->conn->uv.stream, bufs, (unsigned)u->piece_count + 1, on_written);
    mr_free(bufs);
    return rc;
}

static void on_written(uv_write_t *req, int status)
{
    struct upload *u = MR_CONTAINER_OF(req, struct upload, req);
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

void mr_client_h1_start(struct mr_client_conn *conn, struct mr_client_call *call)
{
    struct upload *u = mr_alloc(sizeof *u + call->piece_count * sizeof *u->pieces);

    mr_buf_init(&u->head, 0);
    put_head(call, &u->head);
    u->conn = conn;
    u->next = u->offset = 0;
    u->piece_count = call->piece_count;
    for (size_t i = 0; i < call->piece_count; i++) {
        u->pieces[i] = call->pieces[i];
        mr_block_ref(u->pieces[i].block);
    }
    conn->h1.state = MR_H1_HEAD;
    mr_buf_reset(&conn->h1.line);
    conn->is_writing = true;
    int rc = conn->ssl ? write_sealed(u) : write_plain(u);
    if (rc < 0) {
        conn->is_writing = false;
        upload_free(u);
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
    return MR_FAIL(err, MR_E_INVALID, "%s does not speak HTTP/1.1: %s", conn->client->address,
                   what);
}

/* "HTTP/1.1 200 OK" */
static int parse_status_line(struct mr_client_conn *conn, mr_str line, struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    uint64_t status;

    bool known =
        mr_str_starts(line, MR_STR("HTTP/1.1 ")) || mr_str_starts(line, MR_STR("HTTP/1.0 "));
    if (!known || line.len < 12 || !mr_str_to_u64(mr_str_sub(line, 9, 12), &status) ||
        status < 100 || (line.len > 12 && line.ptr[12] != ' ')) {
        return bad(conn, err, "bad status line");
    }
    call->answer.status = (int)status;
    conn->h1.keep_alive = line.ptr[7] == '1';
    return MR_OK;
}

static int parse_field(struct mr_client_conn *conn, mr_str line, bool trailer, struct mr_err *err)
{
    ptrdiff_t colon = mr_str_find(line, ':');

    if (colon <= 0 || line.ptr[0] == ' ' || line.ptr[0] == '\t' || line.ptr[colon - 1] == ' ' ||
        line.ptr[colon - 1] == '\t' || mr_str_find(line, '\r') >= 0 ||
        mr_str_find(line, '\0') >= 0) {
        return bad(conn, err, "bad header line");
    }
    return mr_client_add_header(TAILQ_FIRST(&conn->calls), trailer,
                                mr_str_sub(line, 0, (size_t)colon),
                                mr_str_trim(mr_str_sub(line, (size_t)colon + 1, line.len)), err);
}

static bool has_token(mr_str list, const char *token)
{
    mr_str item;

    while (mr_str_split(&list, ',', &item)) {
        if (mr_str_ieq(mr_str_trim(item), mr_str_c(token))) {
            return true;
        }
    }
    return false;
}

/* *length: -1 without one. */
static int read_framing(struct mr_client_conn *conn, const struct mr_client_answer *a,
                        int64_t *length, bool *chunked, struct mr_err *err)
{
    *length = -1;
    *chunked = false;

    for (size_t i = 0; i < a->header_count; i++) {
        mr_str name = a->headers[i].name;
        mr_str value = a->headers[i].value;
        int64_t n;
        if (mr_str_eq_c(name, "content-length")) {
            if (!mr_str_to_i64(value, &n) || n < 0 || value.ptr[0] == '-' ||
                (*length >= 0 && *length != n)) {
                return bad(conn, err, "bad content-length");
            }
            *length = n;
        } else if (mr_str_eq_c(name, "transfer-encoding")) {
            if (*chunked || !mr_str_ieq(value, MR_STR("chunked"))) {
                return bad(conn, err, "unknown transfer coding");
            }
            *chunked = true;
        } else if (mr_str_eq_c(name, "connection")) {
            conn->h1.keep_alive &= !has_token(value, "close");
        }
    }
    return *chunked && *length >= 0 ? bad(conn, err, "both content-length and chunked") : MR_OK;
}

/* How the body is delimited: RFC 9112 section 6.3. */
static int choose_framing(struct mr_client_conn *conn, struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    const struct mr_client_answer *a = &call->answer;
    int64_t length;
    bool chunked;
    int rc = read_framing(conn, a, &length, &chunked, err);

    if (rc < 0) {
        return rc;
    }
    if (call->is_head || a->status == 204 || a->status == 304) {
        conn->h1.state = MR_H1_DONE;
        return MR_OK;
    }
    if (length > call->client->options.max_response_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "the answer of %s has %lld bytes, more than the %lld allowed",
                       call->client->address, (long long)length,
                       (long long)call->client->options.max_response_bytes);
    }
    call->answer.body_told = length > 0 ? (size_t)length : 0;
    conn->h1.remaining = length;
    conn->h1.keep_alive &= chunked || length >= 0;
    conn->h1.state = chunked       ? MR_H1_CHUNK_SIZE
                     : length == 0 ? MR_H1_DONE
                     : length > 0  ? MR_H1_BODY_LENGTH
                                   : MR_H1_BODY_TO_END;
    return MR_OK;
}

static mr_str without_cr(mr_str line)
{
    return line.len && line.ptr[line.len - 1] == '\r' ? mr_str_sub(line, 0, line.len - 1) : line;
}

/* The head is complete in `line`, empty line included. */
static int parse_head(struct mr_client_conn *conn, struct mr_err *err)
{
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    mr_str rest = mr_buf_view(&conn->h1.line);
    mr_str line;
    int rc;

    mr_str_split(&rest, '\n', &line);
    rc = parse_status_line(conn, without_cr(line), err);
    while (rc == MR_OK && mr_str_split(&rest, '\n', &line) && without_cr(line).len) {
        rc = parse_field(conn, without_cr(line), false, err);
    }
    if (rc == MR_OK && call->answer.status < 200) {
        if (call->answer.status == 101) {
            return bad(conn, err, "switches protocols unasked");
        }
        /* 100 Continue and the like: the real one follows. */
        call->answer.status = 0;
        call->answer.header_count = 0;
        mr_buf_reset(&conn->h1.line);
        return MR_OK;
    }
    mr_buf_reset(&conn->h1.line);
    return rc == MR_OK ? choose_framing(conn, err) : rc;
}

/* Move bytes up to and including '\n' into `line`. True when the line is complete. */
static bool gather_line(struct mr_client_conn *conn, mr_bytes *io)
{
    const uint8_t *end = memchr(io->ptr, '\n', io->len);
    size_t n = end ? (size_t)(end - io->ptr) + 1 : io->len;

    mr_buf_append(&conn->h1.line, io->ptr, n);
    io->ptr += n;
    io->len -= n;
    return end != NULL;
}

static int too_long(const struct mr_client_conn *conn, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_TOO_LARGE, "the response headers of %s are larger than %zu bytes",
                   conn->client->address, MR_CLIENT_HEAD_MAX);
}

static int step_head(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    char text[128];

    if (conn->h1.line.len == 0 && io->ptr[0] != 'H') {
        return bad(conn, err, mr_client_stranger(*io, text, sizeof text));
    }
    bool complete = gather_line(conn, io);
    mr_str head = mr_buf_view(&conn->h1.line);

    if (conn->h1.line.failed) {
        return too_long(conn, err);
    }
    if (complete && (mr_str_ends(head, MR_STR("\r\n\r\n")) || mr_str_ends(head, MR_STR("\n\n")))) {
        return parse_head(conn, err);
    }
    return MR_OK;
}

/* "1a2b;extension\r\n" */
static bool parse_chunk_size(mr_str line, int64_t *out)
{
    uint64_t size = 0;
    size_t i = 0;

    for (; i < line.len; i++) {
        char c = line.ptr[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) {
            break;
        }
        if (i >= 15) {
            return false;
        }
        size = size << 4 | digit;
    }
    mr_str rest = mr_str_trim(mr_str_sub(line, i, line.len));
    if (i == 0 || (rest.len && rest.ptr[0] != ';')) {
        return false;
    }
    *out = (int64_t)size;
    return true;
}

static int step_line(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    struct mr_h1_parser *p = &conn->h1;
    int rc = MR_OK;

    if (!gather_line(conn, io)) {
        return p->line.failed ? too_long(conn, err) : MR_OK;
    }
    mr_str line = without_cr(mr_str_sub(mr_buf_view(&p->line), 0, p->line.len - 1));
    if (p->line.failed) {
        rc = too_long(conn, err);
    } else if (p->state == MR_H1_CHUNK_SIZE) {
        if (!parse_chunk_size(line, &p->remaining)) {
            return bad(conn, err, "bad chunk size");
        }
        p->state = p->remaining ? MR_H1_CHUNK_DATA : MR_H1_TRAILERS;
    } else if (p->state == MR_H1_CHUNK_END) {
        rc = line.len ? bad(conn, err, "bad chunk end") : MR_OK;
        p->state = MR_H1_CHUNK_SIZE;
    } else if (line.len == 0) {
        p->state = MR_H1_DONE;
    } else {
        rc = parse_field(conn, line, true, err);
    }
    mr_buf_reset(&p->line);
    return rc;
}

static int step_data(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    struct mr_h1_parser *p = &conn->h1;
    bool to_end = p->state == MR_H1_BODY_TO_END;
    size_t n = to_end ? io->len : MR_MIN(io->len, (size_t)p->remaining);
    struct mr_client_call *call = TAILQ_FIRST(&conn->calls);
    int rc = MR_OK;

    if (p->state == MR_H1_BODY_LENGTH) {
        rc = mr_client_body_reserve(call, (size_t)p->remaining, err);
    }
    if (rc == MR_OK) {
        rc = mr_client_body_append(call, io->ptr, n, err);
    }
    io->ptr += n;
    io->len -= n;
    if (!to_end) {
        p->remaining -= (int64_t)n;
        if (p->remaining == 0) {
            p->state = p->state == MR_H1_CHUNK_DATA ? MR_H1_CHUNK_END : MR_H1_DONE;
        }
    }
    return rc;
}

static int feed(struct mr_client_conn *conn, mr_bytes *io, struct mr_err *err)
{
    int rc = MR_OK;

    while (rc == MR_OK && io->len > 0 && conn->h1.state != MR_H1_DONE) {
        switch (conn->h1.state) {
        case MR_H1_HEAD: rc = step_head(conn, io, err); break;
        case MR_H1_BODY_LENGTH:
        case MR_H1_BODY_TO_END:
        case MR_H1_CHUNK_DATA: rc = step_data(conn, io, err); break;
        case MR_H1_CHUNK_SIZE:
        case MR_H1_CHUNK_END:
        case MR_H1_TRAILERS: rc = step_line(conn, io, err); break;
        case MR_H1_DONE: break;
        }
    }
    return rc;
}

/* The response is whole: the connection is free again, or goes, before its owner hears of it. */
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
        /* Bytes that nobody asked for: a server that says 408 before it closes an idle connection. */
        mr_client_conn_close(conn);
        return;
    }
    call->got_bytes = true;
    if (call->answer.body && data.ptr == call->answer.body->data + call->answer.body_len) {
        /* Read in place by mr_client_h1_direct. */
        call->answer.body_len += data.len;
        conn->h1.remaining -= (int64_t)data.len;
        conn->h1.state = conn->h1.remaining ? MR_H1_BODY_LENGTH : MR_H1_DONE;
        data.len = 0;
    }
    int rc = feed(conn, &data, &err);
    if (rc < 0) {
        mr_client_conn_fail(conn, rc, &err);
    } else if (conn->h1.state == MR_H1_DONE) {
        /* Bytes behind the response belong to nothing; is_writing: it answered before reading all. */
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
    if (conn->h1.state == MR_H1_BODY_TO_END) {
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

    if (!call || conn->h1.state != MR_H1_BODY_LENGTH || conn->h1.remaining < DIRECT_MIN ||
        mr_client_body_reserve(call, (size_t)conn->h1.remaining, &ignored) < 0) {
        return false;
    }
    struct mr_client_answer *a = &call->answer;
    size_t room = MR_MIN(a->body->cap - a->body_len, (size_t)conn->h1.remaining);
    *out =
        uv_buf_init((char *)a->body->data + a->body_len, (unsigned)MR_MIN(room, (size_t)1 << 30));
    return true;
}
