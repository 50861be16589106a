/* Calls: the part of a request's life cycle that HTTP/1 and HTTP/2 share, and the answer functions for handlers.
 *
 * Calls are recycled through the loop's cache together with the first chunk of their arena, so that a request on a
 * warm loop allocates nothing from the heap.
 *
 * Thread: loop. */
#include "call.h"

#include "net/frame/grpc_frame.h"
#include "origin.h"
#include "server.h"

static struct mr_call_impl *call_impl(const struct mr_call *call)
{
    return MR_CONTAINER_OF(call, struct mr_call_impl, pub);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void cached_fini(void *p)
{
    mr_arena_fini(&((struct mr_call_impl *)p)->arena);
}

void mr_call_impl_cache_init(struct mr_free_list *cache, uint32_t max)
{
    mr_free_list_init(cache, sizeof(struct mr_call_impl), max);
    cache->fini = cached_fini;
    /* The link of a cached piece lies in its first bytes, which must not be the arena's. */
    _Static_assert(offsetof(struct mr_call_impl, arena) >= sizeof(void *), "see above");
}

struct mr_call_impl *mr_call_impl_new(struct mr_conn *c, const struct mr_call_ops *ops)
{
    const struct mr_http_options *o = c->part->options;
    bool is_fresh;
    struct mr_call_impl *call = mr_free_list_take(&c->loop->calls, &is_fresh);

    if (!call) {
        return NULL;
    }
    if (is_fresh) {
        mr_arena_init(&call->arena, MR_ICALL_ARENA_BYTES, (size_t)o->max_arena_bytes);
    }
    struct mr_arena arena = call->arena;
    *call = (struct mr_call_impl){
        .pub = {.loop = c->loop,
                .over_unix = c->over_unix,
                .content_length = -1,
                .body_limit = o->max_body_bytes,
                .body_align_at = -1,
                .recv_start_ns = c->loop->now_ns},
        .arena = arena,
        .conn = c,
        .ops = ops,
        .tag = c->tag,
        .owes = true,
        .body = {.expect = -1, .align_at = -1},
    };
    call->pub.arena = &call->arena;
    return call;
}

void mr_call_impl_free(struct mr_call_impl *call)
{
    struct mr_loop *loop = call->pub.loop;

    mr_block_unref(&call->body.block);
    mr_outq_fini(&call->out);
    mr_outq_fini(&call->held);
    mr_arena_reset(&call->arena);
    mr_free((void *)(uintptr_t)call->peer_text);
    if (call->held_input) {
        mr_conn_input_free(loop, call->held_input, call->held_cap);
    }
    if (!mr_free_list_put(&loop->calls, call)) {
        mr_arena_fini(&call->arena);
        mr_free(call);
    }
}

void mr_call_impl_cancel(struct mr_call_impl *call)
{
    const struct mr_http_handler *h = call->conn->part->handler;

    if (call->owes && !call->told_cancel) {
        call->told_cancel = true;
        call->pub.cancelled = true;
        if (h->on_cancel) {
            h->on_cancel(h->ctx, &call->pub);
        }
    }
}

void mr_call_impl_detach(struct mr_call_impl *call)
{
    struct mr_conn *c = call->conn;
    const struct mr_http_handler *h = c->part->handler;

    /* Not into the arena: the handler may have lent it to another thread. */
    call->peer_text = mr_strndup(mr_conn_peer(c), strlen(mr_conn_peer(c)));
    call->conn = NULL;
    mr_outq_fini(&call->out);
    mr_outq_fini(&call->held);
    if (!call->owes) {
        mr_call_impl_free(call);
    } else if (!call->told_cancel) {
        call->told_cancel = true;
        call->pub.cancelled = true;
        if (h->on_cancel) {
            h->on_cancel(h->ctx, &call->pub);
        }
    }
}

bool mr_call_impl_is_ready(const struct mr_call_impl *call)
{
    return !call->paused && !(call->conn && call->ops->is_backlogged(call, true));
}

void mr_call_impl_put_back(struct mr_call_impl *call, size_t n)
{
    call->put_back = n;
    call->streamed_bytes -= n;
}

/* ---- calls to the handler ----------------------------------------------------------------- */

void mr_call_impl_refuse(struct mr_call_impl *call, int status)
{
    const struct mr_http_handler *h = call->conn->part->handler;

    call->refused = true;
    mr_block_unref(&call->body.block);
    call->body = (struct mr_body){.expect = -1, .align_at = -1};
    h->on_body_refused(h->ctx, &call->pub, status);
}

bool mr_call_impl_head(struct mr_call_impl *call)
{
    struct mr_conn *c = call->conn;
    const struct mr_http_handler *h = c->part->handler;

    if (c->part->options->refuse_foreign && mr_origin_judge(call)) {
        return !c->closing;
    }
    mr_count_add(&c->loop->stats.requests, 1);
    h->on_head(h->ctx, &call->pub);
    return !c->closing;
}

void mr_call_impl_body(struct mr_call_impl *call)
{
    const struct mr_http_handler *h = call->conn->part->handler;

    call->pub.recv_end_ns = call->pub.loop->now_ns;
    h->on_body(h->ctx, &call->pub);
}

void mr_call_impl_room(struct mr_call_impl *call)
{
    const struct mr_http_handler *h = call->conn->part->handler;

    call->wants_room = false;
    if (h->on_room) {
        h->on_room(h->ctx, &call->pub);
    }
}

/* ---- the public functions ------------------------------------------------------------------- */

mr_str mr_call_header(const struct mr_call *call, const char *lower_name)
{
    return mr_header_find(call->headers, call->header_count, mr_str_c(lower_name));
}

mr_str mr_call_name_sent(const struct mr_call *call, const struct mr_header *header)
{
    size_t at = (size_t)((uintptr_t)header->name.ptr - (uintptr_t)call->head);

    /* A name outside of the head was added by net. */
    if (!call->head_sent || !call->head || at > call->head_len ||
        header->name.len > call->head_len - at) {
        return header->name;
    }
    return mr_str_n(call->head_sent + at, header->name.len);
}

bool mr_call_is_backlogged(const struct mr_call *call)
{
    const struct mr_call_impl *ic = call_impl(call);

    return ic->conn && ic->ops->is_backlogged(ic, false);
}

void mr_call_when_room(struct mr_call *call)
{
    struct mr_call_impl *ic = call_impl(call);

    ic->wants_room = true;
    if (ic->conn && ic->ops->want_room) {
        ic->ops->want_room(ic);
    }
}

int mr_call_listener_tag(const struct mr_call *call)
{
    return call_impl(call)->tag;
}

const char *mr_call_peer(const struct mr_call *call)
{
    struct mr_call_impl *ic = call_impl(call);

    if (ic->conn) {
        return mr_conn_peer(ic->conn);
    }
    return ic->peer_text ? ic->peer_text : "?";
}

bool mr_call_is_private(const struct mr_call *call)
{
    const struct mr_conn *c = call_impl(call)->conn;

    return c && (c->transport == &mr_transport_tls || c->over_unix || mr_conn_is_of_machine(c));
}

void mr_pieces_drop(const struct mr_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct mr_block *block = pieces[i].block;
        mr_block_unref(&block);
    }
}

size_t mr_pieces_bytes(const struct mr_piece *pieces, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        n += pieces[i].len;
    }
    return n;
}

void mr_pieces_append(struct mr_outq *q, const struct mr_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct mr_piece *p = &pieces[i];
        if (p->block) {
            mr_outq_append_block(q, p->ptr, p->len, p->block);
        } else if (p->len > MR_OUTQ_LARGE_BYTES) {
            mr_outq_append_large(q, p->ptr, p->len);
        } else {
            mr_outq_append(q, p->ptr, p->len);
        }
    }
}

/* The handler ends a call whose connection is gone. */
static void end_detached(struct mr_call_impl *call)
{
    call->owes = false;
    mr_call_impl_free(call);
}

void mr_http_count(struct mr_loop *loop, int status)
{
    int i = status - MR_HTTP_STATUS_FIRST;

    if (i >= 0 && i < MR_HTTP_STATUSES) {
        mr_count_add(&loop->stats.http_answers[i], 1);
    }
}

static void count_answer(const struct mr_call_impl *ic, int status)
{
    if (!ic->pub.is_grpc) {
        mr_http_count(ic->pub.loop, status);
    }
}

int mr_call_passed_memory(const struct mr_call *call, uint64_t *out_bytes)
{
    const struct mr_conn *c = MR_CONTAINER_OF(call, struct mr_call_impl, pub)->conn;

    if (!c || c->passed_fd < 0) {
        return -1;
    }
    *out_bytes = c->passed_bytes;
    return c->passed_fd;
}

/* -1: the headers do not say it. */
static int grpc_status_of(const struct mr_header *headers, size_t count)
{
    const mr_str text = mr_header_find(headers, count, MR_STR("grpc-status"));
    uint64_t status;

    return !text.ptr                                                   ? -1
           : mr_str_to_u64(text, &status) && status < MR_GRPC_STATUSES ? (int)status
                                                                       : MR_GRPC_UNKNOWN;
}

/* headers: those that have the status of a gRPC call. */
static void note_end(struct mr_call_impl *ic, const struct mr_header *headers, size_t count)
{
    int status = ic->pub.is_grpc ? grpc_status_of(headers, count) : ic->status;

    if (ic->pub.is_grpc && status >= 0) {
        mr_count_add(&ic->pub.loop->stats.grpc_answers[status], 1);
    }
    if (ic->pub.ended) {
        ic->pub.ended(&ic->pub, status);
    }
}

struct mr_call_bytes mr_call_bytes(const struct mr_call *call)
{
    const struct mr_call_impl *ic = call_impl(call);
    const uint64_t prefix = call->is_grpc ? MR_GRPC_PREFIX_BYTES : 0;
    uint64_t in = call->streaming ? ic->streamed_bytes : call->body.len;

    return (struct mr_call_bytes){in - MR_MIN(in, prefix),
                                  ic->answer_bytes - MR_MIN(ic->answer_bytes, prefix)};
}

void mr_call_reply(struct mr_call *call, const struct mr_reply *reply)
{
    struct mr_call_impl *ic = call_impl(call);

    ic->status = reply->status;
    ic->answer_bytes = mr_pieces_bytes(reply->pieces, reply->piece_count);
    note_end(ic, reply->headers, reply->header_count);
    if (ic->conn) {
        count_answer(ic, reply->status);
        ic->ops->reply(ic, reply);
        return;
    }
    mr_pieces_drop(reply->pieces, reply->piece_count);
    end_detached(ic);
}

void mr_call_begin(struct mr_call *call, int status, const struct mr_header *headers,
                   size_t header_count)
{
    struct mr_call_impl *ic = call_impl(call);

    ic->begun = true;
    ic->status = status;
    if (ic->conn) {
        count_answer(ic, status);
        ic->ops->begin(ic, status, headers, header_count);
    }
}

void mr_call_write(struct mr_call *call, const struct mr_piece *pieces, size_t piece_count)
{
    struct mr_call_impl *ic = call_impl(call);

    ic->answer_bytes += mr_pieces_bytes(pieces, piece_count);
    if (ic->conn) {
        ic->ops->write(ic, pieces, piece_count);
    } else {
        mr_pieces_drop(pieces, piece_count);
    }
}

void mr_call_end(struct mr_call *call, const struct mr_header *trailers, size_t trailer_count)
{
    struct mr_call_impl *ic = call_impl(call);

    note_end(ic, trailers, trailer_count);
    if (ic->conn) {
        ic->ops->end(ic, trailers, trailer_count);
    } else {
        end_detached(ic);
    }
}

void mr_call_pause(struct mr_call *call, bool paused)
{
    struct mr_call_impl *ic = call_impl(call);

    if (ic->conn && ic->paused != paused) {
        ic->paused = paused;
        ic->ops->pause(ic, paused);
    }
}

void mr_call_unread(struct mr_call *call, mr_bytes data)
{
    struct mr_call_impl *ic = call_impl(call);

    if (ic->conn && ic->ops->unread) {
        ic->streamed_bytes -= data.len;
        ic->ops->unread(ic, data);
    }
}

void mr_call_hold(struct mr_call *call, int64_t bytes)
{
    struct mr_call_impl *ic = call_impl(call);

    if (ic->conn && ic->ops->hold) {
        ic->ops->hold(ic, bytes);
    }
}

const _Atomic bool *mr_call_is_unread(const struct mr_call *call)
{
    return &call_impl(call)->is_unread;
}

bool mr_call_wait_read(struct mr_call *call, struct mr_call_wait *w)
{
    struct mr_call_impl *ic = call_impl(call);

    if (!ic->conn || !ic->ops->waits ||
        !atomic_load_explicit(&ic->is_unread, memory_order_relaxed)) {
        return false;
    }
    w->list = ic->ops->waits(ic);
    TAILQ_INSERT_TAIL(w->list, w, link);
    return true;
}

void mr_call_wait_end(struct mr_call_wait *w)
{
    if (w->list) {
        TAILQ_REMOVE(w->list, w, link);
        w->list = NULL;
    }
}

void mr_call_abort(struct mr_call *call, uint32_t h2_error)
{
    struct mr_call_impl *ic = call_impl(call);

    ic->status = -1;
    note_end(ic, NULL, 0);
    if (ic->conn) {
        ic->ops->abort(ic, h2_error);
    } else {
        end_detached(ic);
    }
}
