/* ModelStreamInfer: many requests in flight on one stream, answers in the order of the requests.
 *
 * Each message becomes a stream_item with an arena of its own, recycled per loop. Items stand in a list in
 * request order, but those of decoupled models, which stand in a list of their own: their answers leave as they come,
 * and wait with the item while the stream is backlogged. Items are unpacked and decoded one after the other, so that requests are submitted in their order
 * although one may take many turns; whenever the first is done its answer is encoded and sent. A failed request is answered inside the
 * stream, which goes on; with the metadata `triton_grpc_error: true` the first failure ends the stream with
 * its status. The stream ends when the client has closed its side and the list is empty, or when the
 * connection is gone and nothing runs any more. A server that exits answers what it has taken and ends the stream
 * with UNAVAILABLE, as it would wait for the client for ever otherwise.
 *
 * A model of MLServer that answers streams gets the first message as its request, and the later ones for that name as it asks
 * for them (exec/feed.h): until then they stand with the items of decoupled models. The stream ends with that request. */
#include "grpc_stream.h"

#include "exec/feed.h"
#include "methods_priv.h"
#include "serve/mesh/arrival.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

#define IN_FLIGHT_MAX  256u
#define FREE_ITEMS_MAX 64u
#define ITEM_ARENA_MIN 8192u
#define ITEM_ARENA_MAX (64u << 20)
#define SMALL_BYTES    4096u /* messages above count as bulk memory */

struct stream {
    struct serve_pending pending;
    struct mr_server *server;
    struct serve_loop *loop;
    struct mr_grpc_call *g;
    struct stream_item *first;
    struct stream_item *last;
    struct stream_item *undecoded;      /* the first whose turn to be decoded has not come */
    LIST_HEAD(, stream_item) decoupled; /* these run */
    unsigned in_flight;
    bool is_decoding; /* one is being decoded in turns */
    bool is_encoding; /* the first is being encoded in turns */
    bool is_advancing;
    bool input_ended;
    bool is_cancelled;
    bool is_feeding;  /* inside mr_grpc_feed: the call must not be ended there */
    bool is_walking;  /* over the list: nothing may be taken off it */
    bool is_complete; /* its model has answered it: nothing more is taken */
    bool is_exiting;  /* nor here */
    bool is_cut;      /* and something was sent all the same */
    bool is_failed;   /* ends with `failure` once nothing runs */
    bool error_ends;  /* triton_grpc_error */
    struct mr_err failure;
    /* of the last answer with any; in trailer_text */
    struct mr_header trailers[MR_GRPC_TRAILERS_MAX];
    size_t trailer_count;
    struct mr_buf trailer_text;
};

struct stream_item {
    struct mr_arena arena;    /* the next request's, too */
    struct stream_item *next; /* this and what follows begins as zeros */
    struct stream *stream;
    struct mr_block *message; /* holds the bytes of the request */
    mr_bytes bytes;
    bool is_packed;     /* they are compressed */
    bool breaks_stream; /* they could not be decompressed */
    bool is_done;
    bool is_encoded;
    bool is_decoupled;
    bool is_fed; /* it is for the model of an earlier one, which runs or has ended */
    struct mr_feed_item fed;
    struct mr_mail taken;
    LIST_ENTRY(stream_item) link; /* of stream.decoupled */
    struct mr_response *unsent;   /* its answers for which there is no room, in order */
    struct mr_response **unsent_end;
    struct mr_grpc_message answer;
    int encode_status; /* of one of several answers */
    struct mr_err encode_err;
    struct serve_arrival arrival;
    bool has_arrived; /* whether its model is ready has been looked at */
    struct serve_infer si;
};

#define ITEM_BYTES (int64_t)(sizeof(struct stream_item) + ITEM_ARENA_MIN)

static struct stream_item *of_turn(struct mr_turn *t)
{
    return MR_CONTAINER_OF(t, struct stream_item, si.turn);
}

static struct stream_item *item_new(struct stream *st)
{
    struct serve_loop *l = st->loop;
    struct stream_item *it = l->free_items;

    if (it) {
        l->free_items = it->next;
        l->free_item_count--;
    } else {
        it = mr_try_alloc(sizeof *it);
        if (!it) {
            return NULL;
        }
        mr_arena_init(&it->arena, ITEM_ARENA_MIN, ITEM_ARENA_MAX);
    }
    const size_t kept = offsetof(struct stream_item, next);
    memset((char *)it + kept, 0, sizeof *it - kept);
    it->stream = st;
    it->unsent_end = &it->unsent;
    return it;
}

static void item_free(struct stream_item *it)
{
    struct serve_loop *l = it->stream->loop;

    mr_feed_unref(&it->si.infer.feed);
    mr_block_unref(&it->message);
    mr_buf_fini(&it->si.text);
    mr_arena_reset(&it->arena);
    if (l->free_item_count < FREE_ITEMS_MAX) {
        it->next = l->free_items;
        l->free_items = it;
        l->free_item_count++;
        return;
    }
    mr_arena_fini(&it->arena);
    mr_free(it);
}

void stream_items_free(struct serve_loop *here)
{
    while (here->free_items) {
        struct stream_item *it = here->free_items;
        here->free_items = it->next;
        mr_arena_fini(&it->arena);
        mr_free(it);
    }
    here->free_item_count = 0;
}

static void cancel_items(struct stream *st);

static void fail_stream(struct stream *st, int status, const struct mr_err *err)
{
    if (!st->is_failed) {
        st->is_failed = true;
        st->failure = *err;
        st->failure.status = status;
        cancel_items(st);
    }
}

static const struct mr_oip_param FINAL = {
    .key = MR_STR_INIT("triton_final_response"), .kind = MR_OIP_BOOL, .b = true};

/* As Triton, only the failure of a request that a model was to have names the model and ends the answers to it. */
static void send_error(struct stream *st, struct stream_item *it)
{
    struct mr_buf *b = mr_loop_scratch(st->loop->loop);
    struct mr_infer *r = &it->si.infer;
    struct mr_oip_response of = {.id = it->si.request.id};
    struct mr_oip_param final = FINAL, *params = &final;
    size_t count = 0;

    if (r->answer.count > 0) { /* the trace of a graph */
        mr_wire_answer_params(&r->answer, r->arena, 1, &params, &count, NULL);
    }
    if (r->times.queued) {
        of.model_name = it->si.request.model_name;
        of.model_version = it->si.request.model_version;
        params[count++] = FINAL;
    }
    of.params = params;
    of.param_count = count;
    mr_buf_reset(b);
    mr_oip_pb_encode_stream_error(mr_str_c(r->err.msg), &of, b);
    if (b->failed) {
        fail_stream(st, MR_E_NOMEM, &(struct mr_err){.msg = "out of memory"});
        return;
    }
    struct mr_piece piece = {b->ptr, b->len, NULL};
    /* The first message decides how all of them are compressed, and answers that are compressed already follow. */
    mr_grpc_send_message(st->g, &(struct mr_grpc_message){.pieces = &piece, .count = 1},
                         grpc_compression(st->server));
}

/* Of an answer that has been encoded: its trailing metadata become those of the stream. */
static void keep_trailers(struct stream *st, struct serve_infer *si)
{
    const size_t count = MR_MIN(si->trailer_count, MR_GRPC_TRAILERS_MAX);
    struct mr_buf *b = &st->trailer_text;

    if (count == 0) {
        return;
    }
    si->trailer_count = 0; /* they go with the answer */
    mr_buf_reset(b);
    for (size_t i = 0; i < count; i++) {
        mr_buf_str(b, si->trailers[i].name);
        mr_buf_str(b, si->trailers[i].value);
    }
    st->trailer_count = b->failed ? 0 : count;
    const char *at = b->ptr;
    for (size_t i = 0; i < st->trailer_count; i++) {
        const size_t name = si->trailers[i].name.len, value = si->trailers[i].value.len;
        st->trailers[i] = (struct mr_header){{at, name}, {at + name, value}};
        at += name + value;
    }
}

/* Whether a failure of the request is the stream's. MLServer's streams have no errors in them; with its errors asked for, a
 * name that no model has is answered as there. */
static bool is_fatal(const struct stream *st, const struct stream_item *it)
{
    return st->error_ends || it->si.message_kind ||
           (st->server->options.mlserver_errors && !it->si.infer.version);
}

static void send_item(struct stream *st, struct stream_item *it)
{
    struct serve_infer *si = &it->si;
    bool is_ok = si->infer.status == MR_OK;
    const bool ends = !is_ok && is_fatal(st, it);

    if (!is_ok) {
        infer_log_failure(si);
    }
    infer_end(si);
    if (is_ok) {
        if (!st->is_failed && it->is_encoded) {
            mr_grpc_send_message(st->g, &it->answer, grpc_compression(st->server));
            keep_trailers(st, si);
        } else {
            infer_drop_answer(&it->answer);
        }
    } else if (ends) {
        fail_stream(st, si->infer.status, &si->infer.err);
    } else if (!st->is_failed) {
        send_error(st, it);
    }
}

/* The work of a turn, or done at once. */
static void encode(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);

    it->si.infer.status = infer_encode_grpc(&it->si, &FINAL, &it->answer);
}

static void advance(struct stream *st);

static void encoded(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);
    struct stream *st = it->stream;

    infer_turned(&it->si);
    if (it->si.infer.status < 0) {
        infer_drop_answer(&it->answer);
    }
    it->is_encoded = true;
    st->is_encoding = false;
    if (!st->is_advancing) {
        advance(st);
    }
}

/* False: it goes on in later turns. */
static bool encode_first(struct stream *st)
{
    struct serve_infer *si = &st->first->si;

    if (si->infer.status < 0 || st->first->is_encoded || st->is_failed || st->is_cancelled) {
        return true;
    }
    if (infer_is_long_answer(si)) {
        st->is_encoding = true;
        infer_turn(si, encode, encoded, false);
        return !st->is_encoding;
    }
    encode(&si->turn);
    st->first->is_encoded = true;
    return true;
}

static bool is_over(const struct stream *st)
{
    return !st->first && LIST_EMPTY(&st->decoupled) &&
           (st->input_ended || st->is_cancelled || st->is_failed || st->is_complete ||
            st->is_exiting);
}

/* `st` is gone afterwards. */
static void end(struct stream *st)
{
    struct mr_buf text = st->trailer_text;

    serve_closed(&st->pending);
    st->g->call->user = NULL;
    if (st->is_failed) {
        mr_grpc_finish(st->g, mr_status_grpc(st->failure.status), mr_str_c(st->failure.msg));
    } else if (st->is_exiting && !st->is_complete && (st->is_cut || !st->input_ended)) {
        mr_grpc_finish(st->g, MR_GRPC_UNAVAILABLE, MR_STR("the server is exiting"));
    } else {
        mr_grpc_finish_with(st->g, MR_GRPC_OK, MR_STR(""), st->trailers, st->trailer_count);
    }
    mr_buf_fini(&text);
}

/* No message follows those that have been decoded. */
static void end_feeds(struct stream *st)
{
    struct stream_item *it;

    if ((!st->input_ended && !st->is_exiting) || st->undecoded || st->is_decoding) {
        return;
    }
    LIST_FOREACH (it, &st->decoupled, link) {
        if (it->si.infer.feed) {
            mr_feed_end(it->si.infer.feed);
        }
    }
}

static void decode_next(struct stream *st);

/* Send what is done at the front; end the stream when that was all: `st` may be gone afterwards. */
static void advance(struct stream *st)
{
    st->is_advancing = true;
    while (st->first && st->first->is_done && !st->is_encoding && encode_first(st)) {
        struct stream_item *it = st->first;
        st->first = it->next;
        st->last = st->first ? st->last : NULL;
        st->in_flight--;
        mr_call_hold(st->g->call, -ITEM_BYTES);
        send_item(st, it);
        item_free(it);
    }
    st->is_advancing = false;
    end_feeds(st);
    if (st->is_feeding) {
        return;
    }
    if (is_over(st)) {
        end(st);
    } else if (st->is_failed && st->undecoded && !st->is_decoding && !st->is_walking) {
        decode_next(st); /* which refuses it, and comes back */
    } else {
        mr_call_pause(st->g->call, st->in_flight >= IN_FLIGHT_MAX);
    }
}

/* ---- several answers ---- */

static void drop_unsent(struct stream_item *it)
{
    struct mr_response *q;

    while ((q = it->unsent) != NULL) {
        it->unsent = q->next;
        mr_infer_response_end(&it->si.infer, &q);
    }
    it->unsent_end = &it->unsent;
}

static void end_apart(struct stream *st, struct stream_item *it);

/* The client no longer waits for running requests. */
static void cancel_decoupled(struct stream *st)
{
    struct stream_item *it = LIST_FIRST(&st->decoupled);

    while (it) {
        struct stream_item *next = LIST_NEXT(it, link);
        drop_unsent(it);
        if (it->si.infer.feed) {
            mr_feed_close(it->si.infer.feed);
        }
        if (it->is_done) {
            end_apart(st, it);
        } else if (!it->is_fed) {
            infer_cancel(&it->si); /* ends it if it was queued */
        }
        it = next;
    }
}

/* The client no longer waits for any. */
static void cancel_items(struct stream *st)
{
    const bool was_walking = st->is_walking;

    st->is_walking = true;
    cancel_decoupled(st);
    for (struct stream_item *it = st->first, *next; it; it = next) {
        next = it->next;
        const bool is_open = mr_turn_is_open(&it->si.turn) || (!it->is_done && it->si.is_pinned);
        if (!infer_cancel_variant(&it->si) && is_open) {
            infer_cancel(&it->si);
        }
    }
    st->is_walking = was_walking;
}

/* One that cannot be encoded is the last of its request, which ends with the reason. */
static void send_response(struct stream_item *it, struct mr_response *q)
{
    struct stream *st = it->stream;
    struct serve_infer *si = &it->si;
    bool is_wanted = q->outputs.list || si->request.enable_empty_final_response;
    struct mr_grpc_message message;
    int rc = MR_OK;

    if (is_wanted) {
        MR_TRY(infer_encode_response(si, q, &message));
        mr_grpc_send_message(st->g, &message, grpc_compression(st->server));
        keep_trailers(st, si);
    }
out:
    mr_infer_response_end(&si->infer, &q);
    if (rc < 0) {
        it->encode_status = rc;
        it->encode_err = si->infer.err;
        drop_unsent(it);
        infer_cancel(si);
    }
}

static void on_response(struct mr_infer *r, struct mr_response *q)
{
    struct stream_item *it = MR_CONTAINER_OF(r, struct stream_item, si.infer);
    struct stream *st = it->stream;

    if (st->is_failed || st->is_cancelled || it->encode_status < 0) {
        mr_infer_response_end(r, &q);
    } else if (it->unsent || mr_call_is_backlogged(st->g->call)) {
        q->next = NULL;
        *it->unsent_end = q;
        it->unsent_end = &q->next;
        mr_call_when_room(st->g->call);
    } else {
        send_response(it, q);
    }
}

static void send_unsent(struct stream *st, struct stream_item *it)
{
    struct mr_response *q;

    while ((q = it->unsent) != NULL && !mr_call_is_backlogged(st->g->call)) {
        it->unsent = q->next;
        if (!it->unsent) {
            it->unsent_end = &it->unsent;
        }
        send_response(it, q);
    }
}

/* The item was decoded and is of a decoupled model: it leaves the order. */
static void set_apart(struct stream *st, struct stream_item *it)
{
    struct stream_item **at = &st->first;

    st->last = NULL;
    while (*at != it) {
        st->last = *at;
        at = &(*at)->next;
    }
    *at = it->next;
    for (struct stream_item *rest = it->next; rest; rest = rest->next) {
        st->last = rest;
    }
    it->is_decoupled = true;
    LIST_INSERT_HEAD(&st->decoupled, it, link);
}

/* The model is done without a final answer: one without outputs follows, for a client that waits for it. */
static void send_end(struct stream *st, struct stream_item *it)
{
    struct serve_infer *si = &it->si;
    struct mr_grpc_message message;

    if (si->infer.is_final || !si->request.enable_empty_final_response || st->is_failed) {
        return;
    }
    si->infer.status = infer_encode_end(si, &message);
    if (si->infer.status == MR_OK) {
        mr_grpc_send_message(st->g, &message, grpc_compression(st->server));
    }
}

/* ---- later messages for a model that answers the first one ---- */

/* The item of the request that gets the messages for that name; NULL: there is none. */
static struct stream_item *feeder_of(const struct stream *st, const struct mr_oip_request *q)
{
    struct stream_item *it;

    LIST_FOREACH (it, &st->decoupled, link) {
        if (it->si.infer.feed && mr_str_eq(it->si.request.model_name, q->model_name) &&
            mr_str_eq(it->si.request.model_version, q->model_version)) {
            return it;
        }
    }
    return NULL;
}

static void leave(struct stream *st, struct stream_item *it)
{
    LIST_REMOVE(it, link);
    st->in_flight--;
    mr_call_hold(st->g->call, -ITEM_BYTES);
}

static void on_taken(struct mr_mail *mail)
{
    struct stream_item *it = MR_CONTAINER_OF(mail, struct stream_item, taken);
    struct stream *st = it->stream;

    leave(st, it);
    item_free(it);
    advance(st);
}

/* mr_feed_item.done, on any thread. */
static void fed_done(struct mr_feed_item *i)
{
    struct stream_item *it = MR_CONTAINER_OF(i, struct stream_item, fed);

    it->taken.run = on_taken;
    mr_loop_post(it->stream->loop->loop, &it->taken);
}

static void feed(struct stream *st, struct stream_item *it)
{
    struct stream_item *to = feeder_of(st, &it->si.request);

    set_apart(st, it);
    it->is_fed = true;
    it->fed = (struct mr_feed_item){.message = it->bytes, .done = fed_done};
    if (to) {
        mr_feed_put(to->si.infer.feed, &it->fed);
    } else { /* it has ended */
        fed_done(&it->fed);
    }
}

/* The stream ends with the last of its requests that took messages. */
static void end_feeder(struct stream *st, struct stream_item *it)
{
    struct stream_item *other = LIST_FIRST(&st->decoupled);

    mr_feed_close(it->si.infer.feed);
    while (other && !other->si.infer.feed) {
        other = LIST_NEXT(other, link);
    }
    st->is_complete |= !other;
}

/* An item of a decoupled model has had its last answer, and all have left. */
static void end_apart(struct stream *st, struct stream_item *it)
{
    leave(st, it);
    if (it->si.infer.feed) {
        end_feeder(st, it);
    }
    it->si.infer.status =
        it->si.infer.status == MR_OK && st->is_cancelled ? MR_E_CANCELLED : it->si.infer.status;
    if (it->encode_status < 0 &&
        (it->si.infer.status == MR_OK || it->si.infer.status == MR_E_CANCELLED)) {
        it->si.infer.status = it->encode_status;
        it->si.infer.err = it->encode_err;
    }
    if (it->si.infer.status == MR_OK) {
        send_end(st, it);
    }
    if (it->si.infer.status < 0) {
        infer_log_failure(&it->si);
    }
    const bool ends = is_fatal(st, it);
    infer_end(&it->si);
    if (it->si.infer.status < 0 && ends && !st->is_cancelled) {
        fail_stream(st, it->si.infer.status, &it->si.infer.err);
    } else if (it->si.infer.status < 0 && !st->is_failed && !st->is_cancelled) {
        send_error(st, it);
    }
    item_free(it);
}

/* `st` may be gone afterwards. */
static void on_room(struct serve_pending *p)
{
    struct stream *st = MR_CONTAINER_OF(p, struct stream, pending);
    struct stream_item *it = LIST_FIRST(&st->decoupled);

    while (it) {
        send_unsent(st, it);
        if (it->unsent) {
            mr_call_when_room(st->g->call);
        }
        if (it->is_done && !it->unsent) {
            end_apart(st, it); /* which may end others */
            it = LIST_FIRST(&st->decoupled);
        } else {
            it = LIST_NEXT(it, link);
        }
    }
    advance(st);
}

static void reply_item(struct serve_infer *si)
{
    struct stream_item *it = MR_CONTAINER_OF(si, struct stream_item, si);
    struct stream *st = it->stream;

    it->is_done = true;
    if (it->is_decoupled && !it->unsent) {
        end_apart(st, it);
    }
    if (!st->is_walking) {
        advance(st);
    }
}

static void append(struct stream *st, struct stream_item *it)
{
    if (st->last) {
        st->last->next = it;
    } else {
        st->first = it;
    }
    st->last = it;
    if (!st->undecoded) {
        st->undecoded = it;
    }
    mr_call_hold(st->g->call, ITEM_BYTES);
    if (++st->in_flight >= IN_FLIGHT_MAX) {
        mr_call_pause(st->g->call, true);
    }
}

/* The bytes of a message must live as long as its request. */
static int keep_message(struct stream_item *it, mr_bytes *io, struct mr_block *block,
                        struct mr_err *err)
{
    if (block) {
        it->message = mr_block_ref(block);
        return MR_OK;
    }
    uint8_t *copy = NULL;
    if (io->len <= SMALL_BYTES) {
        copy = mr_arena_try(&it->arena, io->len ? io->len : 1, 64);
    }
    if (!copy) {
        it->message = mr_block_new(io->len);
        if (!it->message) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the request");
        }
        copy = it->message->data;
    }
    memcpy(copy, io->ptr, io->len);
    io->ptr = copy;
    return MR_OK;
}

static int unpack(struct stream_item *it)
{
    int rc = MR_OK;

    it->breaks_stream = it->is_packed;
    if (it->is_packed) {
        MR_TRY(mr_grpc_unpack(it->stream->g, it->bytes, &it->arena, &it->bytes, &it->si.infer.err));
    }
    it->breaks_stream = it->is_packed = false;
out:
    return rc;
}

/* The work of a turn. */
static void unpack_first(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);

    it->si.infer.status = unpack(it);
}

/* The work of a turn, or done at once. */
static void decode(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);
    struct mr_infer *r = &it->si.infer;
    mr_bytes message;
    int rc;

    MR_TRY(unpack(it));
    message = it->bytes;
    rc = mr_oip_pb_decode_request(message, &it->stream->server->grpc_limits, &it->arena,
                                  &it->si.request, &r->err);
    if (rc < 0) {
        mr_oip_pb_find_names(message, &it->si.request);
    } else {
        it->is_fed = feeder_of(it->stream, &it->si.request) != NULL;
        if (it->is_fed) {
            goto out;
        }
        if (infer_takes_messages(&it->si, it->si.request.model_name,
                                 it->si.request.model_version)) {
            it->si.message = message;
            it->si.message_kind = "grpc_stream";
        }
        rc = infer_bind(&it->si, it->si.request.model_name, it->si.request.model_version);
    }
out:
    r->status = rc;
}

static void refuse_item(struct serve_infer *si)
{
    infer_refuse(si, si->infer.status);
    reply_item(si);
}

/* Runs it, or refuses it by its status. */
static void run_item(struct stream *st, struct stream_item *it)
{
    struct serve_infer *si = &it->si;
    struct mr_infer *r = &si->infer;

    if (r->status == MR_OK) {
        const bool takes_messages = si->bound == MR_OK && si->message_kind;
        r->feed = takes_messages && mr_version_is_streaming(r->version) ? mr_feed_new() : NULL;
        infer_run(si);
    } else {
        refuse_item(si);
    }
    if (!it->is_done && mr_version_is_streaming(r->version)) {
        set_apart(st, it);
    }
}

static void decoded(struct mr_turn *t);

/* serve_infer.again */
static void again(struct serve_infer *si, bool is_there)
{
    if (is_there) {
        infer_turn(si, decode, decoded, true);
    } else {
        decoded(&si->turn);
    }
}

/* Whether the item waits for the model that an endpoint or a service leads to; other items wait for it. */
static bool awaits_variant(struct stream *st, struct serve_infer *si)
{
    if (si->infer.status < 0 || si->bound == MR_OK) {
        return false;
    }
    st->is_decoding = true;
    if (infer_awaits_variant(si)) {
        return true;
    }
    st->is_decoding = false;
    return false;
}

static void decoded(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);
    struct stream *st = it->stream;
    struct serve_infer *si = &it->si;
    struct mr_infer *r = &si->infer;
    bool was_walking = st->is_walking;

    st->is_decoding = false;
    st->is_walking = true; /* or it might be the last of the stream */
    infer_turned(si);
    if (r->status < 0 && it->breaks_stream) {
        fail_stream(st, r->status, &r->err);
    }
    if (r->status == MR_OK && it->is_fed) {
        feed(st, it);
    } else if (!awaits_variant(st, si)) {
        run_item(st, it);
    }
    st->is_walking = was_walking;
    if (!was_walking) {
        decode_next(st);
    }
}

static void decode_item(struct stream *st, struct stream_item *it);

/* What the item waited for before it is decoded has ended. */
static void resume(struct stream_item *it)
{
    struct stream *st = it->stream;
    bool was_walking = st->is_walking;

    st->is_decoding = false;
    st->is_walking = true;
    decode_item(st, it);
    st->is_walking = was_walking;
    if (!was_walking) {
        decode_next(st);
    }
}

static void unpacked(struct mr_turn *t)
{
    struct stream_item *it = of_turn(t);

    infer_turned(&it->si);
    if (it->si.infer.status < 0) {
        decoded(t);
    } else {
        resume(it);
    }
}

static void arrived(struct serve_arrival *a)
{
    resume(MR_CONTAINER_OF(a, struct stream_item, arrival));
}

static void not_arrived(struct serve_arrival *a, const struct mr_err *err)
{
    struct stream_item *it = MR_CONTAINER_OF(a, struct stream_item, arrival);

    it->si.infer.err = *err;
    it->si.infer.status = err->status;
    resume(it);
}

/* Whether the item waits for its model, which is done once; other items wait for it. */
static bool waits(struct stream *st, struct stream_item *it)
{
    struct mr_oip_request names;

    if (it->has_arrived || !arrival_is_possible(st->server, MR_API_INFERENCE, false)) {
        return false;
    }
    st->is_decoding = true;
    if (it->is_packed) {
        infer_turn(&it->si, unpack_first, unpacked, true);
        return true;
    }
    it->has_arrived = true;
    mr_oip_pb_find_names(it->bytes, &names);
    it->arrival = (struct serve_arrival){.call = st->g->call, .go = arrived, .fail = not_arrived};
    if (!arrival_wait(&it->arrival, names.model_name, names.model_version, false)) {
        st->is_decoding = false;
        return false;
    }
    return true;
}

static void decode_item(struct stream *st, struct stream_item *it)
{
    struct serve_infer *si = &it->si;

    if (si->infer.status < 0 || st->is_cancelled || st->is_failed) {
        si->infer.status = si->infer.status < 0 ? si->infer.status : MR_E_CANCELLED;
        refuse_item(si);
    } else if (st->is_complete) {
        feed(st, it); /* to no one */
    } else if (waits(st, it)) {
        return;
    } else if (it->is_packed || infer_is_long_body(it->bytes.len)) {
        st->is_decoding = true;
        infer_turn(si, decode, decoded, true);
    } else {
        decode(&si->turn);
        decoded(&si->turn);
    }
}

/* Decode what waits for that, as far as it goes at once. `st` may be gone afterwards. */
static void decode_next(struct stream *st)
{
    if (st->is_walking) {
        return;
    }
    st->is_walking = true;
    while (st->undecoded && !st->is_decoding) {
        struct stream_item *it = st->undecoded;
        st->undecoded = it->next;
        decode_item(st, it);
    }
    st->is_walking = false;
    advance(st);
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct stream *st = ctx;
    struct stream_item *it;
    struct serve_infer *si;

    st->is_cut |= st->is_exiting;
    if (st->is_failed || st->is_cancelled || st->is_complete || st->is_exiting) {
        return;
    }
    it = item_new(st);
    if (!it) {
        struct mr_err err = {.status = MR_E_EXHAUSTED, .msg = "no memory for the request"};
        infer_count_refused(st->g->call, MR_STR(""), &err);
        fail_stream(st, MR_E_EXHAUSTED, &err);
        return;
    }
    si = &it->si;
    infer_init(si, st->g->call, &it->arena, MR_INFER_GRPC);
    si->grpc = st->g;
    si->infer.on_response = on_response;
    si->reply = reply_item;
    si->again = again;
    si->infer.times.received = mr_now_ns();
    si->infer.deadline_ns = st->g->deadline_ns;
    it->is_packed = st->g->is_packed;
    append(st, it);
    si->infer.status = keep_message(it, &message, block, &si->infer.err);
    it->bytes = message;
    decode_next(st);
}

static void on_data(struct serve_pending *p, mr_bytes data, bool last)
{
    struct stream *st = MR_CONTAINER_OF(p, struct stream, pending);
    struct mr_err err = {0};
    int rc;

    st->is_feeding = true;
    rc = st->is_failed ? MR_OK : mr_grpc_feed(st->g, data, on_message, st, &err);
    st->is_feeding = false;
    if (rc < 0 && rc != MR_E_CLOSED) {
        infer_count_refused(st->g->call, MR_STR(""), &err); /* a message that is no item */
    }
    if (rc < 0) {
        fail_stream(st, rc, &err);
    }
    if (last) {
        if (!st->is_failed && mr_grpc_feed_incomplete(st->g)) {
            struct mr_err cut = {.msg = "the stream ended inside a message"};
            fail_stream(st, MR_E_INVALID, &cut);
        }
        st->input_ended = true;
    }
    advance(st);
}

static void on_cancel(struct serve_pending *p)
{
    struct stream *st = MR_CONTAINER_OF(p, struct stream, pending);

    st->is_cancelled = true;
    cancel_items(st);
    decode_next(st);
}

static void on_changed(struct serve_pending *p)
{
    struct stream *st = MR_CONTAINER_OF(p, struct stream, pending);

    if (!serve_is_exiting(st->server) || st->is_exiting) {
        return;
    }
    st->is_exiting = true;
    advance(st);
}

void grpc_model_stream_infer(struct mr_server *s, struct mr_grpc_call *g)
{
    struct stream *st = MR_ARENA_NEW(g->call->arena, struct stream);
    mr_str flag = mr_call_header(g->call, "triton_grpc_error");

    if (!st) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the stream needs more memory than it may use"));
        return;
    }
    st->server = s;
    st->loop = serve_here();
    st->g = g;
    g->keeps_packed = true;
    mr_buf_init(&st->trailer_text, 0);
    st->error_ends = flag.ptr && mr_str_ieq(flag, MR_STR("true"));
    st->pending.data = on_data;
    st->pending.cancel = on_cancel;
    st->pending.room = on_room;
    st->pending.changed = on_changed;
    serve_open(&st->pending);
    g->call->user = &st->pending;
    on_changed(&st->pending);
}
