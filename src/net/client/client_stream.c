/* A gRPC stream of the HTTP/2 client: messages both ways on one call, until either side ends it. An exchange that is passed on
 * (mr_client_pass) is the same without messages: bytes go and come as they are.
 *
 * Messages wait in a queue of pieces, from which nghttp2 takes them when it may send; an empty queue defers the
 * stream's data, and the next message resumes it. What comes is cut into messages as it comes. Nothing of a
 * stream is ever sent twice: the server may have acted on it. */
#include "client_priv.h"
#include "net/frame/grpc_frame.h"

struct mr_client_stream {
    struct mr_client_call *call; /* NULL: refused, or over */
    struct mr_client_stream_events events;
    const struct mr_client_pass_events *pass; /* NULL: a stream of messages */
    void *ctx;
    struct mr_loop *loop;
    char *address;
    size_t max_bytes; /* of a message that comes */
    /* out */
    MR_VEC(struct mr_piece) queue; /* each with a block */
    size_t first;                  /* in the queue */
    size_t offset;                 /* in that piece */
    bool has_body;                 /* it is sent from the queue */
    bool is_ended;                 /* nothing more is sent */
    size_t backlog;                /* bytes in the queue */
    bool wants_room;               /* there were many */
    struct mr_flush room;          /* says that there are few */
    /* in */
    uint8_t prefix[MR_GRPC_PREFIX_BYTES];
    size_t prefix_len;
    uint32_t wanted; /* bytes of the message after the prefix */
    struct mr_buf message;
    bool is_paused;
    size_t unopened; /* bytes that came while paused: the window stays closed for them */
};

static void stream_free(struct mr_client_stream *s)
{
    mr_flush_cancel(s->loop, &s->room);
    for (size_t i = s->first; i < s->queue.len; i++) {
        mr_block_unref(&s->queue.at[i].block);
    }
    MR_VEC_FINI(&s->queue);
    mr_buf_fini(&s->message);
    mr_free(s->address);
    mr_free(s);
}

static void on_call_end(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct mr_client_stream *s = ctx;
    struct mr_client_response end;
    struct mr_err own = {0};

    s->call = NULL;
    if (rc == MR_OK) {
        end = *response;
        err = &own;
        rc = mr_client_grpc_status(s->address, response, &end.grpc_status, &own);
        if (rc == MR_OK && s->prefix_len > 0) {
            MR_FAIL(&own, MR_E_INVALID, "%s ends within a message", s->address);
            rc = mr_client_blame(&own);
        }
    }
    s->events.on_end(s->ctx, rc, err, response ? &end : NULL);
    stream_free(s);
}

static struct mr_client_stream *stream_new(struct mr_client *c, void *ctx)
{
    struct mr_client_stream *s = MR_NEW(struct mr_client_stream);

    s->ctx = ctx;
    s->loop = c->loop;
    s->address = mr_strndup(c->address, strlen(c->address));
    s->max_bytes = (size_t)c->options.max_response_bytes;
    mr_buf_init(&s->message, s->max_bytes);
    return s;
}

struct mr_client_stream *mr_client_grpc_stream(struct mr_client *c,
                                               const struct mr_client_grpc_request *r,
                                               const struct mr_client_stream_events *events,
                                               void *ctx)
{
    struct mr_client_stream *s = stream_new(c, ctx);
    const struct mr_client_grpc_request head = {
        .path = r->path, .metadata = r->metadata, .metadata_count = r->metadata_count};
    struct mr_client_request request;
    struct mr_arena arena;

    mr_arena_init(&arena, 1024, MR_CLIENT_HEAD_MAX);
    const bool has_head = mr_client_grpc_head(&head, &arena, &request) == MR_OK;
    s->events = *events;
    s->has_body = true;
    if (!c->options.http2) {
        mr_client_refuse(c, &request, MR_E_INVALID, "gRPC needs HTTP/2", on_call_end, s);
    } else if (!has_head) {
        mr_client_refuse(c, &request, MR_E_TOO_LARGE, "too much metadata", on_call_end, s);
    } else {
        s->call = mr_client_call_new(c, &request, on_call_end, s);
        s->call->stream = s;
        mr_client_call_start(c, s->call);
    }
    mr_arena_fini(&arena);
    return s;
}

/* ---- an exchange that is passed on ---- */

static void on_pass_end(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct mr_client_stream *s = ctx;

    s->call = NULL;
    s->pass->on_end(s->ctx, rc, err, response);
    stream_free(s);
}

static void on_room(struct mr_flush *f)
{
    struct mr_client_stream *s = MR_CONTAINER_OF(f, struct mr_client_stream, room);

    s->pass->on_room(s->ctx);
}

struct mr_client_stream *mr_client_pass(struct mr_client *c,
                                        const struct mr_client_request *request, bool is_open,
                                        const struct mr_client_pass_events *events, void *ctx)
{
    struct mr_client_stream *s = stream_new(c, ctx);

    s->pass = events;
    s->has_body = is_open;
    s->is_ended = !is_open;
    s->room.run = on_room;
    if (!c->options.http2) {
        mr_client_refuse(c, request, MR_E_INVALID, "this needs HTTP/2", on_pass_end, s);
        return s;
    }
    s->call = mr_client_call_new(c, request, on_pass_end, s);
    s->call->stream = s;
    mr_client_call_start(c, s->call);
    return s;
}

void mr_client_stream_head(struct mr_client_stream *s)
{
    const struct mr_client_answer *a = &s->call->answer;
    const struct mr_client_response head = {
        .status = a->status, .headers = a->headers, .header_count = a->header_count};

    if (s->pass) {
        s->pass->on_head(s->ctx, &head);
    }
}

bool mr_client_stream_has_body(const struct mr_client_stream *s)
{
    return s->has_body;
}

/* ---- out ---- */

/* There is something new for nghttp2 to ask for. */
static void resume(struct mr_client_stream *s)
{
    struct mr_client_conn *conn = s->call ? s->call->conn : NULL;

    if (conn && conn->h2 && s->call->stream_id > 0) {
        nghttp2_session_resume_data(conn->h2,
                                    s->call->stream_id); /* an error: it was not deferred */
        mr_flush_queue(conn->client->loop, &conn->flush);
    }
}

/* What was sent makes room. */
static void compact(struct mr_client_stream *s)
{
    if (s->first > 0 && s->first * 2 >= s->queue.len) {
        s->queue.len -= s->first;
        memmove(s->queue.at, s->queue.at + s->first, s->queue.len * sizeof *s->queue.at);
        s->first = 0;
    }
}

int mr_client_stream_send(struct mr_client_stream *s, const struct mr_piece *pieces, size_t count,
                          struct mr_err *err)
{
    const size_t prefix_len = s->pass ? 0 : MR_GRPC_PREFIX_BYTES;
    size_t borrowed = prefix_len;
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        total += pieces[i].len;
        borrowed += pieces[i].block ? 0 : pieces[i].len;
    }
    struct mr_block *own = total <= UINT32_MAX ? mr_block_new(MR_MAX(borrowed, 1)) : NULL;
    if (!own || s->is_ended) {
        mr_block_unref(&own);
        for (size_t i = 0; i < count; i++) {
            struct mr_block *block = pieces[i].block;
            mr_block_unref(&block);
        }
        return s->is_ended ? MR_FAIL(err, MR_E_CLOSED, "the stream was ended")
                           : MR_FAIL(err, MR_E_TOO_LARGE, "no room for a message of %llu bytes",
                                     (unsigned long long)total);
    }
    compact(s);
    size_t at = prefix_len;
    if (prefix_len) {
        struct mr_piece prefix = {own->data, prefix_len, mr_block_ref(own)};
        mr_grpc_prefix_write((uint8_t *)own->data, false, (uint32_t)total);
        MR_VEC_PUSH(&s->queue, prefix);
    }
    for (size_t i = 0; i < count; i++) {
        struct mr_piece p = pieces[i];
        if (!p.block && p.len) {
            memcpy(own->data + at, p.ptr, p.len);
            p = (struct mr_piece){own->data + at, p.len, mr_block_ref(own)};
            at += p.len;
        }
        if (p.len) {
            MR_VEC_PUSH(&s->queue, p);
        } else {
            mr_block_unref(&p.block);
        }
    }
    mr_block_unref(&own);
    s->backlog += prefix_len + (size_t)total;
    s->wants_room = s->wants_room || s->backlog > MR_CLIENT_ROOM;
    resume(s);
    return MR_OK;
}

size_t mr_client_stream_backlog(const struct mr_client_stream *s)
{
    return s->backlog;
}

void mr_client_stream_end(struct mr_client_stream *s)
{
    s->is_ended = true;
    resume(s);
}

void mr_client_stream_answered(struct mr_client_stream *s)
{
    if (!s->pass || s->is_ended) {
        return;
    }
    for (size_t i = s->first; i < s->queue.len; i++) {
        mr_block_unref(&s->queue.at[i].block);
    }
    s->first = s->queue.len = s->offset = s->backlog = 0;
    mr_client_stream_end(s);
}

size_t mr_client_stream_read(struct mr_client_stream *s, uint8_t *out, size_t max, bool *out_end)
{
    size_t n = 0;

    while (n < max && s->first < s->queue.len) {
        struct mr_piece *p = &s->queue.at[s->first];
        size_t part = MR_MIN(max - n, p->len - s->offset);
        memcpy(out + n, (const char *)p->ptr + s->offset, part);
        n += part;
        s->backlog -= part;
        s->offset += part;
        if (s->offset == p->len) {
            mr_block_unref(&p->block);
            s->first++;
            s->offset = 0;
        }
    }
    if (s->wants_room && s->backlog < MR_CLIENT_ROOM / 2) {
        s->wants_room = false;
        if (s->pass && s->pass->on_room) {
            mr_flush_queue(s->loop, &s->room);
        }
    }
    *out_end = s->is_ended && s->first == s->queue.len;
    return n;
}

void mr_client_stream_cancel(struct mr_client_stream *s)
{
    s->is_ended = true;
    if (s->call) {
        mr_client_cancel(s->call);
    }
}

/* ---- in ---- */

size_t mr_client_stream_taken(struct mr_client_stream *s, size_t bytes)
{
    if (!s->is_paused) {
        return bytes;
    }
    s->unopened += bytes;
    return 0;
}

void mr_client_stream_pause(struct mr_client_stream *s, bool is_paused)
{
    struct mr_client_conn *conn = s->call ? s->call->conn : NULL;

    s->is_paused = is_paused;
    if (!is_paused && s->unopened > 0 && conn) {
        nghttp2_session_consume_stream(conn->h2, s->call->stream_id, s->unopened);
        mr_flush_queue(conn->client->loop, &conn->flush);
        s->unopened = 0;
    }
}

/* Cancelled, perhaps by what its owner did with the last message. */
static bool is_over(const struct mr_client_stream *s)
{
    return !s->call || s->call->failed_rc < 0;
}

static int begin_message(struct mr_client_stream *s, struct mr_err *err)
{
    struct mr_grpc_prefix p;

    if (!mr_grpc_prefix_parse(s->prefix, &p) || p.is_compressed) {
        MR_FAIL(err, MR_E_INVALID, "%s answers compressed, which was not asked for", s->address);
        return mr_client_blame(err);
    }
    if (p.length > s->max_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "a message of %s is larger than %zu bytes", s->address,
                       s->max_bytes);
    }
    s->wanted = p.length;
    mr_buf_reset(&s->message);
    return MR_OK;
}

static int feed_messages(struct mr_client_stream *s, mr_bytes data, struct mr_err *err)
{
    while (!is_over(s) &&
           (data.len > 0 || (s->prefix_len == sizeof s->prefix && s->wanted == s->message.len))) {
        if (s->prefix_len < sizeof s->prefix) {
            s->prefix[s->prefix_len++] = *data.ptr++;
            data.len--;
            int rc = s->prefix_len == sizeof s->prefix ? begin_message(s, err) : MR_OK;
            if (rc < 0) {
                return rc;
            }
            continue;
        }
        size_t part = MR_MIN(data.len, s->wanted - s->message.len);
        mr_buf_append(&s->message, data.ptr, part);
        data.ptr += part;
        data.len -= part;
        if (s->message.failed) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a message of %u bytes", s->wanted);
        }
        if (s->message.len == s->wanted) {
            s->prefix_len = 0;
            s->events.on_message(s->ctx,
                                 (mr_bytes){(const uint8_t *)s->message.ptr, s->message.len});
        }
    }
    return MR_OK;
}

int mr_client_stream_feed(struct mr_client_stream *s, mr_bytes data, struct mr_err *err)
{
    if (!s->pass) {
        /* With another status it is no message; what is meant shows at the end. */
        return s->call->answer.status == 200 ? feed_messages(s, data, err) : MR_OK;
    }
    if (!is_over(s)) {
        s->pass->on_data(s->ctx, data);
    }
    return MR_OK;
}
