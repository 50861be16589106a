/* A real server on a loop in a thread of its own, whose handler acts by the path, and a
 * plain blocking client. */
#ifndef SERVER_FIXTURE_H
#define SERVER_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "../memfd_provider.h"
#include "base/clock.h"
#include "base/thread.h"
#include "net/grpc.h"
#include "net_test.h"

/* What comes at all comes sooner, on a machine that has much else to do as well. */
#define PATIENCE_NS (300 * MR_NS_PER_S)

/* ---- the handler ---------------------------------------------------------------------------- */

struct pending {
    struct mr_call *call; /* loop */
    struct pending *next;
};

struct server {
    struct mr_loop *loops[2];
    pthread_t threads[2];
    int loop_count;
    struct mr_http_server *http;
    struct mr_http_options options;
    uint16_t port;
    char unix_path[64];
    struct pending *pending; /* loop 0: calls of /later */
    _Atomic int pending_count;
    _Atomic int bodies;
    _Atomic int cancels;
    _Atomic int refusals;
    _Atomic int closed;
    _Atomic int64_t last_body_len;
    struct mr_mail release_mail;
    _Atomic int released;
    struct memfd_provider *_Atomic provider; /* of the bodies of /shared */
    _Atomic int bad_starts;
    pthread_mutex_t bad_start_lock;
    char bad_start[256]; /* of the last of them */
};

static inline void reply_text(struct mr_call *call, int status, const char *text, bool close)
{
    struct mr_header type = {MR_STR("content-type"), MR_STR("text/plain")};
    struct mr_piece piece = {text, strlen(text), NULL};
    struct mr_reply reply = {.status = status,
                             .headers = &type,
                             .header_count = 1,
                             .pieces = &piece,
                             .piece_count = 1,
                             .close = close};

    mr_call_reply(call, &reply);
}

static inline bool path_is(const struct mr_call *call, const char *path)
{
    return mr_str_eq_c(call->path, path);
}

static inline int64_t number_header(const struct mr_call *call, const char *name, int64_t otherwise)
{
    int64_t n;
    mr_str v = mr_call_header(call, name);

    return v.ptr && mr_str_to_i64(v, &n) ? n : otherwise;
}

/* A gRPC method that sends every message back, and ends with RESOURCE_EXHAUSTED after "enough". */
#define GRPC_STREAM "/a.B/Stream"

static inline void fixture_on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;

    call->body_limit = number_header(call, "x-limit", call->body_limit);
    call->body_align_at = number_header(call, "x-align", -1);
    call->streaming =
        path_is(call, "/streamin") || path_is(call, "/pause") || path_is(call, GRPC_STREAM);
    if (path_is(call, "/early")) {
        reply_text(call, 403, "early", false);
    } else if (path_is(call, "/abort")) {
        mr_call_abort(call, 11);
    }
}

static inline void fixture_body_place(void *ctx, struct mr_call *call, mr_bytes have)
{
    struct server *s = ctx;

    (void)have;
    if (path_is(call, "/shared")) {
        call->body_provider = &atomic_load(&s->provider)->provider;
    }
}

static inline void reply_echo(struct mr_call *call)
{
    struct mr_piece piece = {call->body.ptr, call->body.len, NULL};

    if (call->body_block) {
        piece.block = mr_block_ref(call->body_block);
    }
    struct mr_reply reply = {.status = 200, .pieces = &piece, .piece_count = 1};
    mr_call_reply(call, &reply);
}

/* The body as its file has it, if it lies in one. */
static inline void reply_shared(struct mr_call *call)
{
    uint64_t at;
    int fd;

    if (!mr_block_in_file(call->body_block, call->body.ptr, &fd, &at)) {
        reply_echo(call);
        return;
    }
    struct mr_block *copy = mr_block_new(call->body.len + 1);
    struct mr_piece piece = {copy->data, call->body.len, copy};
    struct mr_reply reply = {.status = 500, .pieces = &piece, .piece_count = 1};

    if (pread(fd, copy->data, call->body.len, (off_t)at) == (ssize_t)call->body.len) {
        reply.status = 200;
    }
    mr_call_reply(call, &reply);
}

/* Fills n bytes with what the first of them are. A copy costs a sanitizer little, a byte as much as a copy. */
static inline void repeat(void *bytes, size_t n, size_t first)
{
    char *p = bytes;

    for (size_t have = first; have < n; have *= 2) {
        memcpy(p + have, p, have < n - have ? have : n - have);
    }
}

/* x-bytes bytes: in x-parts parts by copy, in one block (0), or in one copy (-1). x-open: parts without an end. */
static inline void reply_bytes(struct mr_call *call)
{
    size_t n = (size_t)number_header(call, "x-bytes", 10);
    int64_t parts = number_header(call, "x-parts", 0);
    struct mr_block *block = mr_block_new(n + 1);

    for (size_t i = 0; i < n && i < 26; i++) {
        block->data[i] = (uint8_t)('a' + i);
    }
    repeat(block->data, n, 26);
    if (parts <= 0) {
        struct mr_piece piece = {block->data, n, parts == 0 ? mr_block_ref(block) : NULL};
        struct mr_reply reply = {.status = 200, .pieces = &piece, .piece_count = 1};
        mr_call_reply(call, &reply);
        memset(block->data, 0, parts == 0 ? 0 : n); /* what was not sent must have been copied */
        mr_block_unref(&block);
        return;
    }
    mr_call_begin(call, 200, NULL, 0);
    for (int64_t i = 0; i < parts; i++) {
        size_t from = n * (size_t)i / (size_t)parts;
        size_t to = n * ((size_t)i + 1) / (size_t)parts;
        struct mr_piece piece = {block->data + from, to - from, NULL};
        mr_call_write(call, &piece, 1);
    }
    struct mr_header trailers[MR_GRPC_TRAILERS_MAX + 2]; /* a gRPC answer's have a status as well */
    for (size_t i = 0; i < COUNT(trailers); i++) {
        trailers[i] = (struct mr_header){MR_STR("x-trailer"), MR_STR("end")};
    }
    if (number_header(call, "x-open", 0) == 0) {
        mr_call_end(call, trailers, COUNT(trailers));
    }
    mr_block_unref(&block);
}

/* The sum of what was summed up before and n bytes more. */
static inline size_t sum_on(size_t sum, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n; i++) {
        sum = sum * 31 + p[i];
    }
    return sum;
}

static inline void reply_report(struct mr_call *call, int64_t align_at)
{
    char text[256];
    size_t sum = sum_on(0, call->body.ptr, call->body.len);

    snprintf(text, sizeof text, "len=%zu aligned=%d block=%d sum=%zx", call->body.len,
             align_at < 0 || ((uintptr_t)call->body.ptr + (uintptr_t)align_at) % 64 == 0,
             call->body_block != NULL, sum);
    reply_text(call, 200, text, false);
}

static inline void answer_grpc(struct mr_call *call)
{
    struct mr_grpc_call g;
    mr_bytes message = {0};
    struct mr_err err;

    if (mr_grpc_begin(&g, call, 1 << 20) < 0) {
        return;
    }
    int rc = mr_grpc_message(&g, &message, &err);
    if (number_header(call, "x-status", 0) > 0) {
        char text[600] = "as asked";
        for (int64_t i = 0; i < number_header(call, "x-long", 0); i++) {
            snprintf(text + 2 * i, sizeof text - (size_t)(2 * i), "\u00e9");
        }
        mr_grpc_fail(&g, (int)number_header(call, "x-status", 0), mr_str_c(text));
        return;
    }
    if (rc < 0) {
        mr_grpc_fail(&g, mr_status_grpc(rc), mr_str_c(err.msg));
        return;
    }
    struct mr_piece piece = {message.ptr, message.len, NULL};
    mr_grpc_reply(&g, &piece, 1, g.encoding);
}

static inline void fixture_on_body(void *ctx, struct mr_call *call)
{
    struct server *s = ctx;

    atomic_fetch_add(&s->bodies, 1);
    atomic_store(&s->last_body_len, (int64_t)call->body.len);
    if (call->is_grpc) {
        answer_grpc(call);
    } else if (path_is(call, "/echo")) {
        reply_echo(call);
    } else if (path_is(call, "/shared")) {
        reply_shared(call);
    } else if (path_is(call, "/bytes")) {
        reply_bytes(call);
    } else if (path_is(call, "/report")) {
        reply_report(call, number_header(call, "x-align", -1));
    } else if (path_is(call, "/later")) {
        struct pending *p = malloc(sizeof *p);
        *p = (struct pending){.call = call, .next = s->pending};
        s->pending = p;
        call->user = p;
        atomic_fetch_add(&s->pending_count, 1);
    } else if (path_is(call, "/close")) {
        reply_text(call, 200, "bye", true);
    } else {
        char text[256];
        snprintf(text, sizeof text, "%.*s %.*s?%.*s", MR_STR_ARG(call->method),
                 MR_STR_ARG(call->path), MR_STR_ARG(call->query));
        reply_text(call, 200, text, false);
    }
}

static inline void resume(struct mr_timer *t)
{
    struct mr_call *call = *(struct mr_call **)(t + 1);

    mr_call_pause(call, false);
}

struct stream_state {
    struct mr_timer timer;
    struct mr_call *call; /* after the timer, see resume */
    size_t bytes;
    size_t sum;
    int pieces;
};

static inline void stream_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct mr_grpc_call *g = ctx;
    struct mr_piece piece = {message.ptr, message.len, NULL};

    (void)block;
    mr_grpc_send(g, &piece, 1, MR_GRPC_IDENTITY);
    if (message.len == 6 && memcmp(message.ptr, "enough", 6) == 0) {
        mr_grpc_finish(g, 8, MR_STR("no more"));
    }
}

static inline void echo_stream(struct mr_call *call, mr_bytes data, bool last)
{
    struct mr_grpc_call *g = call->user;
    struct mr_err err;

    if (!g) {
        g = call->user = MR_ARENA_NEW(call->arena, struct mr_grpc_call);
        if (mr_grpc_begin(g, call, 1 << 20) < 0) {
            return;
        }
    }
    int rc = mr_grpc_feed(g, data, stream_message, g, &err);
    if (rc == MR_E_CLOSED) {
        return;
    }
    if (rc < 0 || last) {
        mr_grpc_finish(g, mr_status_grpc(rc), mr_str_c(rc < 0 ? err.msg : ""));
    }
}

static inline void fixture_on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct stream_state *st = call->user;
    char text[128];

    (void)ctx;
    if (path_is(call, GRPC_STREAM)) {
        echo_stream(call, data, last);
        return;
    }
    if (!st) {
        st = call->user = MR_ARENA_NEW(call->arena, struct stream_state);
        st->call = call;
    }
    st->sum = sum_on(st->sum, data.ptr, data.len);
    st->bytes += data.len;
    st->pieces++;
    if (last) {
        mr_timer_stop(&st->timer);
        snprintf(text, sizeof text, "bytes=%zu sum=%zx", st->bytes, st->sum);
        reply_text(call, 200, text, false);
    } else if (path_is(call, "/pause")) {
        mr_call_pause(call, true);
        mr_timer_start(call->loop, &st->timer, 200000, 0, resume);
    }
}

static inline void fixture_on_cancel(void *ctx, struct mr_call *call)
{
    struct server *s = ctx;

    atomic_fetch_add(&s->cancels, 1);
    assert_true(call->cancelled);
    if (call->streaming) {
        struct stream_state *st = call->user;
        if (st && !path_is(call, GRPC_STREAM)) {
            mr_timer_stop(&st->timer);
        }
        mr_call_abort(call, 8);
    } else if (!call->user) {
        reply_text(call, 499, "gone", false);
    }
}

static inline void fixture_on_refused(void *ctx, struct mr_call *call, int status)
{
    struct server *s = ctx;

    struct mr_grpc_call g;

    atomic_fetch_add(&s->refusals, 1);
    if (call->is_grpc) {
        if (mr_grpc_begin(&g, call, 1) == MR_OK) {
            mr_grpc_fail(&g, mr_status_grpc(status), MR_STR("refused"));
        }
        return;
    }
    reply_text(call, status == MR_E_TOO_LARGE ? 413 : 503, "refused", false);
}

static inline void fixture_on_bad_start(void *ctx, int tag, const char *peer, const char *why)
{
    struct server *s = ctx;

    (void)tag;
    (void)peer;
    pthread_mutex_lock(&s->bad_start_lock);
    snprintf(s->bad_start, sizeof s->bad_start, "%s", why);
    pthread_mutex_unlock(&s->bad_start_lock);
    atomic_fetch_add(&s->bad_starts, 1);
}

static inline void expect_bad_start(struct server *s, const char *why)
{
    pthread_mutex_lock(&s->bad_start_lock);
    bool is_said = strstr(s->bad_start, why) != NULL;
    pthread_mutex_unlock(&s->bad_start_lock);
    assert_true(is_said);
}

/* Answers all calls of /later. Thread: loop 0. */
static inline void release_now(struct mr_mail *mail)
{
    struct server *s = MR_CONTAINER_OF(mail, struct server, release_mail);

    while (s->pending) {
        struct pending *p = s->pending;
        s->pending = p->next;
        atomic_fetch_sub(&s->pending_count, 1);
        reply_text(p->call, 200, "late", false);
        free(p);
    }
    atomic_fetch_add(&s->released, 1);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* The bounds here and below are those of a broken run, not of a slow machine. */
static inline bool wait_until(_Atomic int *value, int at_least)
{
    for (int i = 0; i < 300000 && atomic_load(value) < at_least; i++) {
        usleep(1000);
    }
    return atomic_load(value) >= at_least;
}

static inline bool wait_connections(struct server *s, int64_t at_most)
{
    for (int i = 0; i < 300000 && mr_http_server_connections(s->http) > at_most; i++) {
        usleep(1000);
    }
    return mr_http_server_connections(s->http) <= at_most;
}

static inline void release_later(struct server *s)
{
    int before = atomic_load(&s->released);

    s->release_mail.run = release_now;
    mr_loop_post(s->loops[0], &s->release_mail);
    assert_true(wait_until(&s->released, before + 1));
}

static inline void *loop_thread(void *arg)
{
    mr_loop_run(arg);
    return NULL;
}

static inline void server_start_tls(struct server *s, const struct mr_http_options *options,
                                    int loops, const char *address, struct mr_tls *tls)
{
    struct mr_http_handler handler = {.on_head = fixture_on_head,
                                      .on_body = fixture_on_body,
                                      .on_data = fixture_on_data,
                                      .on_cancel = fixture_on_cancel,
                                      .on_body_refused = fixture_on_refused,
                                      .body_place = fixture_body_place,
                                      .on_bad_start = fixture_on_bad_start,
                                      .ctx = s};
    struct mr_err err;

    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->bad_start_lock, NULL);
    s->loop_count = loops;
    for (int i = 0; i < loops; i++) {
        assert_int_equal(mr_loop_new(&s->loops[i], NULL, &err), MR_OK);
    }
    assert_int_equal(mr_http_server_new(&s->http, options, &handler, &err), MR_OK);
    if (mr_http_listen_tls(s->http, s->loops, (size_t)loops, address, options->relay_tag, false,
                           tls, &s->port, &err) < 0) {
        fail_msg("listen: %s", err.msg);
    }
    for (int i = 0; i < loops; i++) {
        pthread_create(&s->threads[i], NULL, loop_thread, s->loops[i]);
    }
}

static inline void server_start_with(struct server *s, const struct mr_http_options *options,
                                     int loops, const char *address)
{
    server_start_tls(s, options, loops, address, NULL);
}

static inline void server_start(struct server *s)
{
    struct mr_http_options o;

    mr_http_options_init(&o);
    server_start_with(s, &o, 1, "127.0.0.1:0");
}

static inline void fixture_on_closed(void *ctx)
{
    atomic_store(&((struct server *)ctx)->closed, 1);
}

static inline void server_stop(struct server *s)
{
    mr_http_server_close(s->http, fixture_on_closed, s);
    assert_true(wait_until(&s->closed, 1));
    if (atomic_load(&s->pending_count) > 0) {
        release_later(s); /* answers that go nowhere */
    }
    assert_int_equal(mr_http_server_connections(s->http), 0);
    for (int i = 0; i < s->loop_count; i++) {
        mr_loop_stop(s->loops[i]);
        pthread_join(s->threads[i], NULL);
        mr_loop_free(&s->loops[i]);
    }
    mr_http_server_free(&s->http);
    pthread_mutex_destroy(&s->bad_start_lock);
}

/* ---- the client ----------------------------------------------------------------------------- */

struct client {
    int fd;
    void *tls; /* what the two below need; NULL: the socket */
    ssize_t (*tls_send)(void *tls, const void *p, size_t n);
    ssize_t (*tls_recv)(void *tls, void *p, size_t n);
    char *buf; /* received and not consumed */
    size_t len;
    size_t cap;
};

static inline int dial_raw(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval tv = {.tv_sec = PATIENCE_NS / MR_NS_PER_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
    return fd;
}

static inline struct client dial(const struct server *s)
{
    return (struct client){.fd = dial_raw(s->port)};
}

static inline void hang_up(struct client *c)
{
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c->buf);
    *c = (struct client){.fd = -1};
}

static inline bool send_all(struct client *c, const void *data, size_t n)
{
    const char *p = data;

    while (n > 0) {
        ssize_t done = c->tls ? c->tls_send(c->tls, p, n) : send(c->fd, p, n, MSG_NOSIGNAL);
        if (done <= 0) {
            return false;
        }
        p += done;
        n -= (size_t)done;
    }
    return true;
}

static inline bool say(struct client *c, const char *text)
{
    return send_all(c, text, strlen(text));
}

/* More bytes into buf; false at the end of the connection or after 30 s. */
static inline bool hear(struct client *c)
{
    if (c->cap - c->len < 65536) {
        c->cap = c->cap * 2 + 65536;
        c->buf = realloc(c->buf, c->cap);
    }
    ssize_t n = c->tls ? c->tls_recv(c->tls, c->buf + c->len, c->cap - c->len)
                       : recv(c->fd, c->buf + c->len, c->cap - c->len, 0);
    c->len += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static inline bool hear_bytes(struct client *c, size_t n)
{
    while (c->len < n) {
        if (!hear(c)) {
            return false;
        }
    }
    return true;
}

static inline void drop(struct client *c, size_t n)
{
    memmove(c->buf, c->buf + n, c->len - n);
    c->len -= n;
}

struct response {
    int status;
    bool close;
    char head[4096];
    char *body;
    size_t len;
};

static inline bool hear_chunked(struct client *c, struct response *r)
{
    for (;;) {
        char *end = c->len ? memchr(c->buf, '\n', c->len) : NULL;
        if (!end) {
            if (!hear(c)) {
                return false;
            }
            continue;
        }
        size_t n = strtoul(c->buf, NULL, 16);
        size_t line = (size_t)(end - c->buf) + 1;
        if (!hear_bytes(c, line + n + 2)) {
            return false;
        }
        r->body = realloc(r->body, r->len + n + 1);
        memcpy(r->body + r->len, c->buf + line, n);
        r->len += n;
        r->body[r->len] = '\0';
        drop(c, line + n + 2);
        if (n == 0) {
            return true;
        }
    }
}

/* Read one response; r->status 0 when none came. is_head: it has no body. */
static inline void hear_response(struct client *c, struct response *r, bool is_head)
{
    char *end = NULL;

    memset(r, 0, sizeof *r);
    r->body = calloc(1, 1);
    for (;;) {
        end = c->len ? memmem(c->buf, c->len, "\r\n\r\n", 4) : NULL;
        if (end) {
            break;
        }
        if (!hear(c)) {
            return;
        }
    }
    size_t head_len = (size_t)(end - c->buf) + 4;
    assert_true(head_len < sizeof r->head);
    memcpy(r->head, c->buf, head_len);
    drop(c, head_len);
    assert_memory_equal(r->head, "HTTP/1.1 ", 9);
    r->status = atoi(r->head + 9);
    r->close = strstr(r->head, "connection: close") != NULL;
    const char *length = strstr(r->head, "content-length: ");
    if (is_head || r->status == 100) {
        return;
    }
    if (strstr(r->head, "transfer-encoding: chunked")) {
        assert_true(hear_chunked(c, r));
    } else if (length) {
        size_t n = strtoul(length + 16, NULL, 10);
        assert_true(hear_bytes(c, n));
        r->body = realloc(r->body, n + 1);
        memcpy(r->body, c->buf, n);
        r->body[n] = '\0';
        r->len = n;
        drop(c, n);
    } else {
        while (hear(c)) {
        }
        r->body = realloc(r->body, c->len + 1);
        if (c->len) {
            memcpy(r->body, c->buf, c->len);
        }
        r->body[c->len] = '\0';
        r->len = c->len;
        c->len = 0;
    }
}

static inline void expect_response(struct client *c, int status, const char *body)
{
    struct response r;

    hear_response(c, &r, false);
    assert_int_equal(r.status, status);
    if (body) {
        assert_string_equal(r.body, body);
    }
    free(r.body);
}

/* The server has closed: nothing more comes, and not by a reset. */
static inline void expect_end(struct client *c)
{
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, 0);

    if (n != 0) {
        fail_msg("not the end: %zd, %s", n, n < 0 ? strerror(errno) : "a byte");
    }
}

static inline void fill_pattern(char *p, size_t n)
{
    const size_t period = (size_t)251 * 256;

    for (size_t i = 0; i < n && i < period; i++) {
        p[i] = (char)(i * 7 + i / 251);
    }
    repeat(p, n, period);
}

#endif
