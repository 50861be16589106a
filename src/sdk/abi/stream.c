/* The callers' side of streams: what they send and read, under the lock of the stream. Whatever the loop is to do about it is set as
 * state, and the loop is poked. A stream is work of the client's thread from its beginning to its end. */
#include "stream.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

#define BYTES_DEFAULT ((uint64_t)4 << 20)
#define BYTES_MAX     ((uint64_t)1 << 40)

void stream_unref(struct mr_sdk_stream *s)
{
    struct mr_sdk_result *r;

    if (atomic_fetch_sub(&s->refs, 1) != 1) {
        return;
    }
    while ((r = STAILQ_FIRST(&s->unread))) {
        STAILQ_REMOVE_HEAD(&s->unread, link);
        mr_sdk_result_free(&r);
    }
    infer_unref(s->head);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    mr_free(s);
}

/* ---- notify ---- */

/* The lock is not held while it runs: it calls back. */
static void notify_run(struct mr_sdk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    mr_sdk_stream_fn *notify = s->notify;
    void *ctx = s->ctx;
    s->is_notifying = notify != NULL;
    s->notifier = pthread_self();
    pthread_mutex_unlock(&s->lock);
    if (!notify) {
        return;
    }
    notify(ctx);
    pthread_mutex_lock(&s->lock);
    s->is_notifying = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void on_tell(struct mr_mail *mail)
{
    struct mr_sdk_stream *s = MR_CONTAINER_OF(mail, struct mr_sdk_stream, tell);

    pthread_mutex_lock(&s->lock);
    s->is_told = false;
    pthread_mutex_unlock(&s->lock);
    notify_run(s);
    stream_unref(s);
}

void stream_notify(struct mr_sdk_stream *s)
{
    bool is_new;

    if (s->client->delivery != MR_SDK_PROCESS) {
        atomic_fetch_add(&s->refs, 1); /* it may give the handle back */
        notify_run(s);
        stream_unref(s);
        return;
    }
    pthread_mutex_lock(&s->lock);
    is_new = s->notify && !s->is_told;
    s->is_told |= is_new;
    pthread_mutex_unlock(&s->lock);
    if (is_new) {
        atomic_fetch_add(&s->refs, 1);
        s->tell.run = on_tell;
        mr_mailbox_post(&s->client->over, &s->tell);
    }
}

/* ---- the beginning ---- */

static int bytes_take(const char *name, uint64_t value, size_t *out, struct mr_err *err)
{
    if (value > BYTES_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%s: %llu, possible is 0 to %llu", name,
                       (unsigned long long)value, (unsigned long long)BYTES_MAX);
    }
    *out = (size_t)(value ? value : BYTES_DEFAULT);
    return MR_OK;
}

static void locks_init(struct mr_sdk_stream *s)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
}

/* With the lock, and only while the stream is not over: the loop exists. */
static void poke(struct mr_sdk_stream *s)
{
    if (!s->is_poked) {
        s->is_poked = true;
        s->uses++;
        s->poke.run = stream_on_poke;
        driver_post(&s->client->driver, &s->poke);
    }
}

int mr_sdk_stream_open(struct mr_sdk *client, const struct mr_sdk_stream_options *user,
                       struct mr_sdk_stream **out, struct mr_err *err)
{
    struct mr_sdk_stream_options o;
    struct mr_sdk_stream *s;
    struct mr_sdk_call *head;
    size_t max_unread = 0, max_unsent = 0;
    int rc;

    MR_TRY(ABI_TAKE(&o, user, "options", err));
    const struct mr_sdk_request first = {.size = sizeof first,
                                         .model = o.model,
                                         .headers = o.headers,
                                         .header_count = o.header_count,
                                         .timeout_ms = o.timeout_ms,
                                         .key = o.key,
                                         .variant = o.variant};
    MR_TRY(bytes_take("max_unread_bytes", o.max_unread_bytes, &max_unread, err));
    MR_TRY(bytes_take("max_unsent_bytes", o.max_unsent_bytes, &max_unsent, err));
    MR_TRY(request_take(client, &first, &head, err));
    s = MR_NEW(struct mr_sdk_stream);
    s->client = client;
    s->head = head;
    s->model = head->call.model;
    request_route(head);
    s->max_unread = max_unread;
    s->max_unsent = max_unsent;
    s->notify = o.notify;
    s->ctx = o.ctx;
    s->wants_answer = true;
    s->refs = 2; /* the handle, the loop */
    STAILQ_INIT(&s->out);
    STAILQ_INIT(&s->kept);
    STAILQ_INIT(&s->unread);
    locks_init(s);
    driver_begin(&client->driver);
    pthread_mutex_lock(&s->lock);
    poke(s);
    pthread_mutex_unlock(&s->lock);
    *out = s;
out:
    return rc;
}

/* ---- waiting ---- */

/* With the lock. False: the time is over. */
static bool wait_change(struct mr_sdk_stream *s, int64_t at_ns)
{
    if (at_ns == INT64_MAX) {
        pthread_cond_wait(&s->changed, &s->lock);
        return true;
    }
    const struct timespec at = {.tv_sec = (time_t)(at_ns / MR_NS_PER_S),
                                .tv_nsec = (long)(at_ns % MR_NS_PER_S)};
    return at_ns > 0 && pthread_cond_timedwait(&s->changed, &s->lock, &at) != ETIMEDOUT;
}

/* ---- requests ---- */

static int request_check(const struct mr_sdk_stream *s, const struct mr_sdk_request *in,
                         struct mr_err *err)
{
    if (in->header_count > 0 || in->key || in->variant) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "headers, key and variant are those of the stream: a request on it has none");
    }
    if (s->head->endpoint && strcmp(in->model, s->model) != 0 &&
        mr_map_find(&s->client->by_name, mr_str_c(in->model))) {
        return MR_FAIL(err, MR_E_INVALID, "the stream is of endpoint '%.100s', not of '%.100s'",
                       s->model, in->model);
    }
    return MR_OK;
}

static struct stream_request *request_copy(struct mr_sdk_stream *s,
                                           const struct mr_oip_encoded *body, struct mr_err *err)
{
    struct stream_request *r =
        body->bytes <= UINT32_MAX ? mr_try_alloc(sizeof *r + (size_t)body->bytes) : NULL;
    size_t at = 0;

    if (r) {
        *r = (struct stream_request){.stream = s, .refs = 1, .bytes = (size_t)body->bytes};
    } else {
        MR_FAIL(err, MR_E_TOO_LARGE, "no room for a request of %llu bytes",
                (unsigned long long)body->bytes);
        return NULL;
    }
    for (size_t i = 0; i < body->piece_count; i++) {
        memcpy(r->data + at, body->pieces[i].ptr, body->pieces[i].len);
        at += body->pieces[i].len;
    }
    return r;
}

/* The request as it goes to the host. The call is scratch. */
static int request_encode(struct mr_sdk_stream *s, struct mr_sdk_call *c, int64_t timeout_ms,
                          struct stream_request **out, struct mr_err *err)
{
    struct mr_oip_request *q = &c->call.request;
    const struct call *own = &s->head->call;
    const bool is_own = strcmp(c->call.model, s->model) == 0;
    struct mr_oip_encoded body;
    struct mr_buf buf;
    int rc;

    q->model_name = mr_str_c(is_own ? own->model : c->call.model);
    q->model_version = mr_str_c(c->call.version          ? c->call.version
                                : is_own && own->version ? own->version
                                                         : "");
    q->timeout_us = (uint64_t)timeout_ms * 1000;
    q->enable_empty_final_response = true;
    mr_buf_init(&buf, 0);
    MR_TRY(mr_oip_pb_encode_request(q, &buf, c->call.arena, &body, err));
    *out = request_copy(s, &body, err);
    rc = *out ? MR_OK : err->status;
    if (*out) {
        (*out)->is_once = c->call.is_once;
    }
out:
    mr_buf_fini(&buf);
    return rc;
}

/* With the lock. */
static bool is_closed(const struct mr_sdk_stream *s)
{
    return s->is_over || s->is_done || s->is_cancelled;
}

static bool has_room(const struct mr_sdk_stream *s, size_t bytes)
{
    return s->unsent == 0 || s->unsent + bytes <= s->max_unsent;
}

/* With the lock: the error of a send on a stream that is closed. */
static int closed_error(const struct mr_sdk_stream *s, struct mr_err *err)
{
    return s->is_over ? MR_FAIL(err, MR_E_CLOSED, "the stream is over: %s",
                                s->rc < 0 ? s->err.msg : "the host has ended it")
                      : MR_FAIL(err, MR_E_CLOSED, "the stream takes no more requests");
}

static int request_put(struct mr_sdk_stream *s, struct stream_request *r, int64_t at_ns,
                       struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&s->lock);
    while (!is_closed(s) && !has_room(s, r->bytes) && wait_change(s, at_ns)) {
    }
    if (is_closed(s)) {
        rc = closed_error(s, err);
    } else if (!has_room(s, r->bytes)) {
        s->wants_room = true;
        rc = MR_FAIL(err, MR_E_EXHAUSTED,
                     "%zu bytes of requests wait for the host, %zu may (max_unsent_bytes)",
                     s->unsent, s->max_unsent);
    } else {
        STAILQ_INSERT_TAIL(&s->out, r, link);
        s->unsent += r->bytes;
        s->uses++;
        poke(s);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Before anything is checked or waited for. */
static int over_check(struct mr_sdk_stream *s, struct mr_err *err)
{
    pthread_mutex_lock(&s->lock);
    const int rc = s->is_over ? closed_error(s, err) : MR_OK;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int mr_sdk_stream_send(struct mr_sdk_stream *s, const struct mr_sdk_request *user, int64_t wait_ms,
                       struct mr_err *err)
{
    struct mr_sdk_call *c = NULL;
    struct stream_request *r;
    struct mr_sdk_request in;
    struct mr_err own;
    int rc;

    err = err ? err : &own;
    MR_TRY(ABI_TAKE(&in, user, "request", err));
    in.size = sizeof in;
    in.model = in.model && in.model[0] ? in.model : s->model;
    MR_TRY(over_check(s, err));
    MR_TRY(request_check(s, &in, err));
    MR_TRY(request_take(s->client, &in, &c, err));
    MR_TRY(request_encode(s, c, in.timeout_ms, &r, err));
    rc = request_put(s, r, driver_wait_end(&s->client->driver, wait_ms), err);
    if (rc < 0) {
        mr_free(r);
    }
out:
    if (c) {
        infer_unref(c);
    }
    return rc;
}

void mr_sdk_stream_done(struct mr_sdk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    if (!is_closed(s)) {
        s->is_done = true;
        poke(s);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- answers ---- */

/* With the lock: the first answer, which there is. */
static struct mr_sdk_result *answer_take(struct mr_sdk_stream *s)
{
    struct mr_sdk_result *r = STAILQ_FIRST(&s->unread);

    STAILQ_REMOVE_HEAD(&s->unread, link);
    s->unread_bytes -= r->cost;
    if (s->is_paused && s->unread_bytes <= s->max_unread / 2 && !s->is_over) {
        s->is_paused = false;
        poke(s);
    }
    return r;
}

static void answer_give(struct mr_sdk_result *r, struct mr_sdk_answer *out)
{
    const uint32_t room = out->size;
    const struct mr_sdk_answer full = {.size = room,
                                       .status = r->status,
                                       .result = r,
                                       .message = r->message,
                                       .is_final = r->is_final};

    memcpy(out, &full, MR_MIN((size_t)room, sizeof full));
}

int mr_sdk_stream_read(struct mr_sdk_stream *s, int64_t wait_ms, struct mr_sdk_answer *out,
                       struct mr_err *err)
{
    struct mr_sdk_result *r = NULL;
    int rc = abi_struct_check(out, "answer", err);

    if (rc < 0) {
        return rc;
    }
    const int64_t at_ns =
        over_check(s, NULL) < 0 ? 0 : driver_wait_end(&s->client->driver, wait_ms);
    pthread_mutex_lock(&s->lock);
    while (STAILQ_EMPTY(&s->unread) && !s->is_over && wait_change(s, at_ns)) {
    }
    if (!STAILQ_EMPTY(&s->unread)) {
        r = answer_take(s);
        rc = 1;
    } else if (s->is_over && s->rc < 0) {
        rc = s->rc;
        if (err) {
            *err = s->err;
        }
    } else if (s->is_over) {
        rc = MR_FAIL(err, MR_E_CLOSED, "the stream has ended");
    } else {
        s->wants_answer = true;
    }
    pthread_mutex_unlock(&s->lock);
    if (r) {
        answer_give(r, out);
    }
    return rc;
}

const char *mr_sdk_stream_host(struct mr_sdk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    const char *url = s->host_url;
    pthread_mutex_unlock(&s->lock);
    return url ? url : "";
}

/* ---- the end ---- */

void mr_sdk_stream_cancel(struct mr_sdk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->is_over && !s->is_cancelled) {
        s->is_cancelled = true;
        poke(s);
    }
    pthread_mutex_unlock(&s->lock);
}

void mr_sdk_stream_free(struct mr_sdk_stream **ps)
{
    struct mr_sdk_stream *s = *ps;

    *ps = NULL;
    if (!s) {
        return;
    }
    mr_sdk_stream_cancel(s);
    pthread_mutex_lock(&s->lock);
    s->notify = NULL;
    while (s->is_notifying && !pthread_equal(s->notifier, pthread_self())) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    stream_unref(s);
}
