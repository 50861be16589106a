/* The loop's side of streams: a host, a stream of gRPC to it, and what comes and goes there.
 *
 *   poked -> [waits for a host] -> stream -> over
 *
 * Requests are given to the network as they come, which holds them until the host takes them; their bytes are counted until then
 * (on_request_over). Until the first answer they are kept as well: if the host goes, they are sent to another one. Answers that are not read close the window of the host; what is within it still comes. */
#include "base/clock.h"
#include "sdk/calls/judge.h"
#include "sdk/hosts/discover.h"
#include "stream.h"

#define PATH         "/inference.GRPCInferenceService/ModelStreamInfer"
#define ANSWER_FIRST ((size_t)1024)
#define ANSWER_MAX   ((size_t)64 << 20)

static struct cluster *cluster_of(const struct mr_sdk_stream *s)
{
    return s->head->call.cluster;
}

/* The stream may be gone afterwards. */
static void uses_end(struct mr_sdk_stream *s, uint32_t count)
{
    pthread_mutex_lock(&s->lock);
    s->uses -= count;
    const bool is_last = s->uses == 0 && s->is_over;
    pthread_mutex_unlock(&s->lock);
    if (is_last) {
        LIST_REMOVE(s, link);
        driver_end(&s->client->driver);
        stream_unref(s);
    }
}

static void uses_begin(struct mr_sdk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->uses++;
    pthread_mutex_unlock(&s->lock);
}

/* ---- the end ---- */

static void request_unref(struct stream_request *r)
{
    if (--r->refs == 0) {
        mr_free(r);
    }
}

/* The network has taken the request, or it is dropped. */
static void on_request_over(void *ctx, void *data)
{
    struct stream_request *r = ctx;
    struct mr_sdk_stream *s = r->stream;
    bool tells;

    (void)data;
    pthread_mutex_lock(&s->lock);
    s->unsent -= r->bytes;
    tells = s->wants_room && !s->is_over && s->unsent <= s->max_unsent / 2;
    s->wants_room &= !tells;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    request_unref(r);
    if (tells) {
        stream_notify(s);
    }
    uses_end(s, 1);
}

static void requests_drop(struct stream_requests *list)
{
    struct stream_request *r;

    while ((r = STAILQ_FIRST(list))) {
        STAILQ_REMOVE_HEAD(list, link);
        on_request_over(r, NULL);
    }
}

/* No other host can take over any more. */
static void bind(struct mr_sdk_stream *s)
{
    struct stream_request *r;

    s->is_bound = true;
    while ((r = STAILQ_FIRST(&s->kept))) {
        STAILQ_REMOVE_HEAD(&s->kept, link);
        request_unref(r);
    }
}

/* The caller holds a use. */
static void over(struct mr_sdk_stream *s, int rc, const struct mr_err *err)
{
    struct stream_requests left = STAILQ_HEAD_INITIALIZER(left);

    if (s->is_over) { /* written by this thread only */
        return;
    }
    mr_timer_stop(&s->deadline);
    cluster_wait_end(cluster_of(s), &s->wait);
    pthread_mutex_lock(&s->lock);
    s->is_over = true;
    s->rc = rc;
    if (rc < 0) {
        s->err = *err;
        s->err.status = rc;
        s->err.flags &= ~MR_ERR_PEER;
    }
    STAILQ_CONCAT(&left, &s->out);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    requests_drop(&left);
    bind(s);
    if (s->net) {
        mr_client_stream_cancel(s->net);
    }
    stream_notify(s);
}

static void fail(struct mr_sdk_stream *s, int rc, const char *text)
{
    struct mr_err err;

    MR_FAIL(&err, rc, "%s", text);
    over(s, rc, &err);
}

/* ---- answers ---- */

static int answer_read(const struct mr_sdk_stream *s, mr_bytes message, struct mr_sdk_result *r,
                       struct mr_err *err)
{
    mr_str error;
    int rc;

    r->body = mr_block_new_due(message.len);
    if (!r->body) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer of %zu bytes", message.len);
    }
    if (message.len > 0) {
        memcpy(r->body->data, message.ptr, message.len);
    }
    MR_TRY(mr_oip_pb_decode_stream_response((mr_bytes){r->body->data, message.len}, NULL, &r->arena,
                                            &r->response, &error, &r->is_final, err));
    MR_TRY(memory_resolve(&r->response, NULL, err));
    result_names_end(r);
    r->status = error.len > 0 ? MR_E_UNKNOWN : MR_OK;
    r->message = mr_arena_str(&r->arena, error).ptr;
    r->host = mr_arena_str(&r->arena, mr_str_c(s->host->url)).ptr;
    r->attempts = s->left_count + 1;
    if (s->head->result->variant) {
        r->variant = mr_arena_str(&r->arena, mr_str_c(s->head->result->variant)).ptr;
    }
    if (!r->message) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer of %zu bytes", message.len);
    }
out:
    return rc == MR_E_INVALID ? MR_E_INTERNAL : rc; /* nothing is wrong with the request */
}

static void answer_put(struct mr_sdk_stream *s, struct mr_sdk_result *r)
{
    bool tells, is_full;

    pthread_mutex_lock(&s->lock);
    STAILQ_INSERT_TAIL(&s->unread, r, link);
    s->unread_bytes += r->cost;
    is_full = s->unread_bytes >= s->max_unread && !s->is_paused;
    s->is_paused |= is_full;
    tells = s->wants_answer;
    s->wants_answer = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (is_full) {
        mr_client_stream_pause(s->net, true);
    }
    if (tells) {
        stream_notify(s);
    }
}

static void on_message(void *ctx, mr_bytes message)
{
    struct mr_sdk_stream *s = ctx;
    struct mr_sdk_result *r;
    struct mr_err err;

    if (s->is_over) {
        return;
    }
    bind(s);
    r = MR_NEW(struct mr_sdk_result);
    mr_arena_init(&r->arena, ANSWER_FIRST, ANSWER_MAX);
    r->cost = message.len + ANSWER_FIRST + sizeof *r;
    int rc = answer_read(s, message, r, &err);
    if (rc < 0) {
        mr_sdk_result_free(&r);
        MR_WRAP(&err, rc, "an answer of %s", s->host->url);
        over(s, rc, &err);
        return;
    }
    const bool is_good = r->status == MR_OK;
    answer_put(s, r); /* which others may free by now */
    if (is_good && mr_balance_answers(cluster_of(s)->balance, mr_now_ns(), s->ticket.ticket)) {
        cluster_hosts_changed(cluster_of(s));
    }
}

/* ---- a host ---- */

static void on_net_end(void *ctx, int rc, const struct mr_err *err,
                       const struct mr_client_response *response);

static void stream_start(struct mr_sdk_stream *s)
{
    static const struct mr_client_stream_events events = {on_message, on_net_end};
    const struct call *c = &s->head->call;
    const struct mr_client_grpc_request request = {
        .path = PATH, .metadata = c->headers, .metadata_count = c->header_count};
    const char *url = mr_arena_str(c->arena, mr_str_c(s->host->url)).ptr;

    pthread_mutex_lock(&s->lock);
    s->uses++;
    s->host_url = url;
    pthread_mutex_unlock(&s->lock);
    s->net = mr_client_grpc_stream(s->host->client, &request, &events, s);
}

/* Whether a host that can be used works, or may come. False: *err says why. */
static bool has_hope(struct cluster *c, struct mr_err *err)
{
    bool has_grpc = false;

    for (size_t i = 0; i < c->hosts.len; i++) {
        const struct host *h = c->hosts.at[i];
        if (h->is_grpc && mr_balance_is_working(c->balance, h->id)) {
            return true;
        }
        has_grpc |= h->is_grpc;
    }
    if (!cluster_has_hope(c, err)) {
        return false;
    }
    if (discover_is_unresolved(c->discover)) {
        return true;
    }
    if (has_grpc) {
        MR_FAIL(err, MR_E_UNAVAILABLE, "no host with grpc:// works");
    } else {
        MR_FAIL(err, MR_E_UNSUPPORTED,
                "a stream needs a host whose address begins with grpc:// or grpcs://");
    }
    return false;
}

/* Hosts of REST are passed over. True: there is a stream, or the end. */
static bool host_find(struct mr_sdk_stream *s)
{
    struct cluster *c = cluster_of(s);
    uint32_t *rest = MR_NEW_ARRAY(uint32_t, c->hosts.len + 1);
    uint32_t count = 0;
    struct mr_err err;

    for (size_t i = 0; i < c->hosts.len; i++) {
        if (!c->hosts.at[i]->is_grpc) {
            rest[count++] = c->hosts.at[i]->id;
        }
    }
    const struct mr_balance_ask ask = {.rows = 1,
                                       .avoid = s->left,
                                       .avoid_count = s->left_count,
                                       .never = rest,
                                       .never_count = count,
                                       .is_retry = s->left_count > 0,
                                       .key = s->head->call.key};
    const bool is_found = cluster_pick(c, &ask, &s->ticket, &s->host);
    mr_free(rest);
    if (is_found) {
        stream_start(s);
        return true;
    }
    if (!has_hope(c, &err)) {
        over(s, err.status, &err);
    }
    return s->is_over;
}

/* Until the first answer, for another host; no more bytes than may wait to be sent. */
static void request_keep(struct mr_sdk_stream *s, struct stream_request *r)
{
    s->kept_bytes += r->bytes;
    if (r->is_once || s->kept_bytes > s->max_unsent) {
        bind(s);
    }
    if (!s->is_bound) {
        r->refs++;
        STAILQ_INSERT_TAIL(&s->kept, r, link);
    }
}

static void request_send(struct mr_sdk_stream *s, struct stream_request *r)
{
    struct mr_block *block = mr_block_wrap(r->data, r->bytes, on_request_over, r);
    const struct mr_piece piece = {r->data, r->bytes, block};
    struct mr_err err;

    request_keep(s, r);
    if (!block) {
        on_request_over(r, NULL);
        fail(s, MR_E_EXHAUSTED, "no memory for a request");
        return;
    }
    int rc = mr_client_stream_send(s->net, &piece, 1, &err);
    if (rc < 0) {
        over(s, rc, &err);
    }
}

static void requests_send(struct mr_sdk_stream *s)
{
    struct stream_requests list = STAILQ_HEAD_INITIALIZER(list);
    struct stream_request *r;

    pthread_mutex_lock(&s->lock);
    STAILQ_CONCAT(&list, &s->out);
    const bool is_done = s->is_done;
    const bool is_paused = s->is_paused;
    pthread_mutex_unlock(&s->lock);
    mr_client_stream_pause(s->net, is_paused);
    while (s->net && !s->is_over && (r = STAILQ_FIRST(&list))) {
        STAILQ_REMOVE_HEAD(&list, link);
        request_send(s, r);
    }
    requests_drop(&list);
    if (s->net && is_done && !s->has_done && !s->is_over) {
        s->has_done = true;
        mr_client_stream_end(s->net);
    }
}

static bool on_wake(struct cluster_wait *w)
{
    struct mr_sdk_stream *s = MR_CONTAINER_OF(w, struct mr_sdk_stream, wait);

    uses_begin(s);
    const bool is_found = host_find(s);
    if (s->net) {
        requests_send(s);
    }
    uses_end(s, 1);
    return !is_found;
}

static void host_wait(struct mr_sdk_stream *s)
{
    s->wait.wake = on_wake;
    s->wait.is_picky = true;
    cluster_wait(cluster_of(s), &s->wait);
}

/* ---- another host ---- */

static bool may_move(const struct mr_sdk_stream *s, const struct judgement *j)
{
    const struct cluster *c = cluster_of(s);

    if (!j->may_retry || s->is_over || s->is_bound || c->is_closed ||
        s->left_count + 1 >= c->policy.attempts) {
        return false;
    }
    return judge_is_no(j) || mr_balance_may_retry(c->balance, mr_loop_now_ns(c->o->loop), NULL);
}

/* What was sent is to be sent again, before what was not. */
static void kept_to_out(struct mr_sdk_stream *s)
{
    const struct stream_request *r;
    uint32_t count = 0;

    STAILQ_FOREACH(r, &s->kept, link)
    {
        count++;
    }
    pthread_mutex_lock(&s->lock);
    s->unsent += s->kept_bytes;
    s->uses += count;
    STAILQ_CONCAT(&s->kept, &s->out);
    STAILQ_CONCAT(&s->out, &s->kept);
    pthread_mutex_unlock(&s->lock);
    s->kept_bytes = 0;
    s->has_done = false;
}

static void on_net_end(void *ctx, int rc, const struct mr_err *err,
                       const struct mr_client_response *response)
{
    struct mr_sdk_stream *s = ctx;
    struct host *h = s->host;
    struct mr_err why;
    struct judgement j = judge_answer(rc, err, response, s->head->call.arena, &why);
    const bool moves = may_move(s, &j);

    s->net = NULL;
    s->host = NULL;
    if (moves) {
        s->left[s->left_count++] = h->id;
        kept_to_out(s);
    } else {
        over(s, j.status, &why);
    }
    if (j.outcome == MR_BALANCE_OK || j.outcome == MR_BALANCE_CANCELLED) {
        j.outcome = MR_BALANCE_REJECTED; /* how long a stream lasted says nothing of its host */
    }
    cluster_ended(cluster_of(s), h, s->ticket.ticket, j.outcome, j.retry_after_ns);
    if (moves && !s->is_over && !host_find(s)) {
        host_wait(s);
    }
    if (s->net) {
        requests_send(s);
    }
    uses_end(s, 1);
}

static void on_deadline(struct mr_timer *t)
{
    struct mr_sdk_stream *s = MR_CONTAINER_OF(t, struct mr_sdk_stream, deadline);

    uses_begin(s);
    fail(s, MR_E_DEADLINE, "the deadline of the stream has passed");
    uses_end(s, 1);
}

static void begin(struct mr_sdk_stream *s)
{
    struct cluster *c = cluster_of(s);
    const int64_t deadline_ns = s->head->call.deadline_ns;

    s->is_started = true;
    LIST_INSERT_HEAD(&s->client->streams, s, link);
    if (deadline_ns > 0) {
        mr_timer_start(c->o->loop, &s->deadline,
                       MR_MAX(deadline_ns - mr_loop_now_ns(c->o->loop), INT64_C(0)), 0,
                       on_deadline);
    }
    if (s->client->is_closing) {
        fail(s, MR_E_CANCELLED, "the client was freed");
    } else if (!host_find(s)) {
        host_wait(s);
    }
}

void stream_on_poke(struct mr_mail *mail)
{
    struct mr_sdk_stream *s = MR_CONTAINER_OF(mail, struct mr_sdk_stream, poke);

    pthread_mutex_lock(&s->lock);
    s->is_poked = false;
    const bool is_cancelled = s->is_cancelled;
    pthread_mutex_unlock(&s->lock);
    if (!s->is_started) {
        begin(s);
    }
    if (is_cancelled) {
        fail(s, MR_E_CANCELLED, "the stream was cancelled");
    }
    if (s->net && !s->is_over) {
        requests_send(s);
    }
    uses_end(s, 1);
}

void stream_close(struct mr_sdk *client)
{
    struct mr_sdk_stream *s, *next;

    for (s = LIST_FIRST(&client->streams); s; s = next) {
        next = LIST_NEXT(s, link);
        uses_begin(s);
        fail(s, MR_E_CANCELLED, "the client was freed");
        uses_end(s, 1);
    }
}
