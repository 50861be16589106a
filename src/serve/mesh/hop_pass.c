/* Exchanges that are passed on piece by piece: answers that come over time, and streams of requests.
 *
 * What a client streams is kept until the answer begins, so that it can be sent elsewhere if the first server turns out not to have the
 * model. A client that sends more than KEPT_MAX before that is bound to the server that has it then. Whichever side is slower holds up the other:
 * the client is not read while much waits to be sent on, and the server's window stays closed while the client does not read. */
#include "hop_priv.h"
#include "net/grpc_status.h"

#define KEPT_MAX (4u << 20)
#define TEXT_MAX 300u

static void on_head(void *ctx, const struct mr_client_response *head);
static void on_data(void *ctx, mr_bytes data);
static void on_end(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r);
static void on_room(void *ctx);

static const struct mr_client_pass_events events = {on_head, on_data, on_end, on_room};

static void end_with_status(struct mr_call *call, int status, mr_str text)
{
    mr_str number = mr_arena_printf(call->arena, "%d", status);
    struct mr_header trailers[] = {{MR_STR("grpc-status"), number}, {MR_STR("grpc-message"), text}};

    if (call->is_grpc && number.ptr) {
        mr_call_end(call, trailers, 2);
    } else {
        mr_call_abort(call, 2); /* INTERNAL_ERROR: the client sees that it was cut */
    }
}

/* ---- from the client ---- */

static void send_some(struct hop_attempt *at, mr_bytes data, bool is_last)
{
    struct mr_piece piece = {data.ptr, data.len, NULL};
    int rc = data.len > 0 ? mr_client_stream_send(at->stream, &piece, 1, NULL) : MR_OK;

    if (rc < 0 && rc != MR_E_CLOSED) { /* what follows makes no sense without this piece */
        at->is_short = true;
        mr_client_stream_cancel(at->stream);
    } else if (is_last) {
        mr_client_stream_end(at->stream);
    }
}

/* The answer is this one's: what was kept for another is not needed any more. */
static void choose(struct hop *h, struct hop_attempt *at)
{
    if (h->chosen) {
        return;
    }
    h->chosen = at;
    mr_buf_fini(&h->arrival->first);
    hop_result(h, at, MR_MESH_ANSWERING, (mr_str){0});
}

static struct hop_attempt *under_way(struct hop *h)
{
    for (int i = 0; i < 2; i++) {
        if (h->attempt[i].stream) {
            return &h->attempt[i];
        }
    }
    return NULL;
}

bool hop_pass_begin(struct hop *h, struct hop_attempt *at, struct mr_client *c,
                    const struct mr_client_request *q)
{
    struct serve_arrival *a = h->arrival;

    mr_buf_reset(&at->text);
    at->stream = mr_client_pass(c, q, a->is_stream, &events, at);
    if (a->is_stream) {
        send_some(at, (mr_bytes){(const uint8_t *)a->first.ptr, a->first.len},
                  h->input_ended || h->is_cut);
        if (a->first.len >= KEPT_MAX) {
            choose(h, at);
        }
        mr_call_pause(a->call, false);
    }
    return true;
}

static void take_input(struct hop *h, mr_bytes data)
{
    struct serve_arrival *a = h->arrival;

    if (!h->chosen) {
        mr_buf_append(&a->first, data.ptr, data.len);
    }
    for (int i = 0; i < 2; i++) {
        struct hop_attempt *at = &h->attempt[i];
        if (at->stream && (!h->chosen || h->chosen == at)) {
            send_some(at, data, h->input_ended);
        }
    }
    struct hop_attempt *at = h->chosen ? h->chosen : under_way(h);
    if (!h->chosen && a->first.len >= KEPT_MAX && at) {
        choose(h, at);
    }
    bool is_full = at && at->stream ? mr_client_stream_backlog(at->stream) > MR_CLIENT_ROOM
                                    : a->first.len >= KEPT_MAX;
    if (is_full) {
        mr_call_pause(a->call, true);
    }
}

/* Whether each message is as small as it must be, as far as it shows yet. */
static bool fits(struct hop *h, mr_bytes data, uint64_t most)
{
    while (data.len > 0) {
        size_t n = MR_MIN(h->frames.left, data.len);
        if (n == 0) {
            n = 1;
            h->frames.prefix[h->frames.prefix_len++] = *data.ptr;
        } else {
            h->frames.left -= n;
        }
        data.ptr += n;
        data.len -= n;
        if (h->frames.prefix_len == sizeof h->frames.prefix) {
            const uint8_t *b = h->frames.prefix;
            h->frames.left =
                (uint64_t)b[1] << 24 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 8 | b[4];
            h->frames.prefix_len = 0;
        }
        if (h->frames.left > most) {
            return false;
        }
        h->frames.has_whole |= h->frames.left == 0 && h->frames.prefix_len == 0;
    }
    return true;
}

static void refuse(struct hop *h, int64_t most)
{
    struct serve_arrival *a = h->arrival;
    bool has_begun = h->has_begun;
    struct mr_call *call = hop_abandon(h);
    struct mr_err err;

    MR_FAIL(&err, MR_E_TOO_LARGE,
            "Received message larger than max (%lld bytes, --grpc-max-message-size)",
            (long long)most);
    if (has_begun) {
        end_with_status(call, MR_GRPC_RESOURCE_EXHAUSTED, mr_str_c(err.msg));
    } else {
        a->fail(a, &err);
    }
}

void hop_pass_first(struct hop *h)
{
    fits(h, (mr_bytes){(const uint8_t *)h->arrival->first.ptr, h->arrival->first.len}, UINT64_MAX);
}

void hop_pass_data(struct serve_pending *p, mr_bytes data, bool last)
{
    struct serve_arrival *a = MR_CONTAINER_OF(p, struct serve_arrival, pending);
    struct hop *h = a->hop;

    if (!fits(h, data, a->route ? (uint64_t)a->route->message_max : UINT64_MAX)) {
        refuse(h, a->route->message_max);
    } else if (!h->is_cut) {
        h->input_ended |= last;
        take_input(h, data);
        hop_pass_changed(p);
    } else if (last && data.len == 0) {
        h->is_cut = false; /* that was all: nothing of it is missing */
        h->input_ended = true;
    }
}

static void on_room(void *ctx)
{
    struct hop_attempt *at = ctx;

    if (at->stream && at->hop->arrival) {
        mr_call_pause(at->hop->arrival->call, false);
    }
}

/* The server ends: the requests that it has taken are answered before the stream ends, and so is one that has come in part. A stream of
 * another server that has sent none is sent elsewhere by that. */
void hop_pass_changed(struct serve_pending *p)
{
    struct hop *h = MR_CONTAINER_OF(p, struct serve_arrival, pending)->hop;
    bool is_within = h->frames.left > 0 || h->frames.prefix_len > 0;

    if (!serve_is_exiting(h->loop->server) || h->is_cut || h->input_ended || is_within) {
        return;
    }
    if (h->ticket.is_from_peer && !h->frames.has_whole && !h->has_begun) {
        hop_refuse_exiting(hop_abandon(h));
    } else {
        h->is_cut = true;
        for (int i = 0; i < 2; i++) {
            if (h->attempt[i].stream) {
                mr_client_stream_end(h->attempt[i].stream);
            }
        }
    }
}

/* ---- to the client ---- */

static bool is_given_up(const struct hop_attempt *at)
{
    return !at->stream || !at->hop->arrival || (at->hop->chosen && at->hop->chosen != at);
}

static void begin_answer(struct hop *h, struct hop_attempt *at)
{
    struct mr_call *call = h->arrival->call;
    struct hop_answer a;

    choose(h, at);
    if (hop_answer(call, &at->head, &a)) {
        h->has_begun = true;
        mr_call_begin(call, at->head.status, a.headers, a.count);
    }
}

static void on_head(void *ctx, const struct mr_client_response *head)
{
    struct hop_attempt *at = ctx;
    struct hop *h = at->hop;

    if (is_given_up(at)) {
        return;
    }
    at->is_refused = hop_refuses(head, &at->why, &at->status);
    if (at->is_refused) {
        return;
    }
    at->head = *head;
    /* What has a status ends at once, and a runtime that has not got the model may say so at the end only. */
    const mr_str status = mr_header_find(head->headers, head->header_count, MR_STR("grpc-status"));
    if (!status.ptr && !(at->is_at_runtime && h->input_ended)) {
        begin_answer(h, at);
    }
}

static void on_data(void *ctx, mr_bytes data)
{
    struct hop_attempt *at = ctx;
    struct hop *h = at->hop;
    struct mr_piece piece = {data.ptr, data.len, NULL};

    if (is_given_up(at)) {
        return;
    }
    if (at->is_refused) {
        mr_buf_append(&at->text, data.ptr,
                      MR_MIN(data.len, TEXT_MAX - MR_MIN(TEXT_MAX, at->text.len)));
        return;
    }
    if (!h->has_begun) {
        begin_answer(h, at);
    }
    if (!h->has_begun) {
        return; /* without memory for its head; the end says so */
    }
    mr_call_write(h->arrival->call, &piece, 1);
    if (mr_call_is_backlogged(h->arrival->call)) {
        mr_client_stream_pause(at->stream, true);
        mr_call_when_room(h->arrival->call);
    }
}

void hop_pass_room(struct serve_pending *p)
{
    struct hop *h = MR_CONTAINER_OF(p, struct serve_arrival, pending)->hop;

    if (h->chosen && h->chosen->stream) {
        mr_client_stream_pause(h->chosen->stream, false);
    }
}

/* ---- the end ---- */

/* After the request was bound to this server. */
static void fail(struct hop *h, int status, mr_str why)
{
    struct serve_arrival *a = h->arrival;
    struct mr_call *call = hop_take_call(h);
    struct mr_err err;

    if (h->has_begun) {
        end_with_status(call, mr_status_grpc(status), why);
        return;
    }
    MR_FAIL(&err, status, "model '%.*s': %.*s", MR_STR_ARG(mr_str_sub(h->ticket.id, 0, 128)),
            MR_STR_ARG(why));
    a->fail(a, &err);
}

static void fail_broken(struct hop *h, const struct hop_attempt *at, int rc,
                        const struct mr_err *err)
{
    if (at->is_at_runtime || at->is_short) {
        fail(h, rc, mr_str_c(err->msg));
    } else {
        fail(h, MR_E_UNAVAILABLE,
             at->is_refused ? MR_STR("the server that it was sent to has not got it any more")
                            : MR_STR("the connection to the server that ran it broke"));
    }
}

static void end_well(struct hop *h, const struct mr_client_response *r)
{
    struct hop_answer a;

    if (h->is_cut) {
        fail(h, MR_E_UNAVAILABLE, MR_STR("the server is exiting"));
        return;
    }
    struct mr_call *call = hop_take_call(h);
    if (!h->has_begun) {
        hop_reply(call, r);
    } else if (!hop_answer(call, r, &a)) {
        mr_call_abort(call, 11); /* ENHANCE_YOUR_CALM: its headers used up the arena */
    } else {
        mr_call_end(call, a.trailers, a.trailer_count);
    }
}

/* Whether the client gets what has come. */
static bool is_answer(const struct hop *h, const struct hop_attempt *at, int rc)
{
    bool is_final = rc == MR_OK ? !at->is_refused : at->is_at_runtime || at->is_short;

    return h->arrival && (h->chosen ? h->chosen == at : is_final);
}

static void on_end(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct hop_attempt *at = ctx;
    struct hop *h = at->hop;
    struct mr_err lack;

    h->calls--;
    if (!at->stream) { /* it was given up */
        hop_release(h);
        return;
    }
    at->stream = NULL;
    if (at->is_short) {
        rc = MR_FAIL(&lack, MR_E_EXHAUSTED,
                     "the server's memory for requests in flight is used up (--memory-budget), try "
                     "later");
        err = &lack;
        r = NULL;
    }
    if (at->is_at_runtime && h->arrival) {
        hop_count_run(at, rc, r);
    }
    if (at->is_at_runtime && h->arrival && !h->chosen && hop_is_missing(h, at, rc, r)) {
        return;
    }
    h->is_lost = at->is_at_runtime && h->arrival && h->chosen == at && !h->has_begun &&
                 hop_is_lost(h, at, rc, r);
    if (is_answer(h, at, rc)) {
        h->chosen = at;
        if (rc == MR_OK && !at->is_refused) {
            end_well(h, r);
        } else {
            fail_broken(h, at, rc, err);
        }
    }
    if (h->chosen) {
        hop_end_chosen(h, at);
    } else if (at->is_refused) {
        hop_result(h, at, at->why, mr_str_n(at->text.ptr, at->text.len));
    } else {
        hop_result(h, at, MR_MESH_BROKEN, (mr_str){0});
    }
}
