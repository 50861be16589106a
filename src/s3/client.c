/* The thread of a client: signs, sends and retries requests.
 *
 * A call is owned by its caller and, until it has ended, by the thread. Waiting callers sleep on `ended`. Bodies are
 * blocks, so that a call may be cancelled while its bytes are still being sent.
 *
 * Pauses between attempts grow from 100 ms to 20 s, with a random factor between a half and one, as many clients may
 * retry after the same failure; Retry-After has precedence. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/thread.h"
#include "net/tls.h"
#include "s3_priv.h"

#define PATIENCE_NS      (300 * MR_NS_PER_S)
#define PAUSE_NS         (100 * MR_NS_PER_MS)
#define PAUSE_MOST_NS    (20 * MR_NS_PER_S)
#define RETRY_AFTER_MOST 300
#define TROUBLE_EVERY_NS (10 * MR_NS_PER_S)
#define TIMEOUT_NS       (30 * MR_NS_PER_S)
#define SLOWEST_BYTES_S  (128 << 10) /* a connection that is slower counts as broken */
#define ANSWER_MOST      (80 << 20)
#define POLL_NS          (200 * MR_NS_PER_MS)
#define CONNECTIONS      16

struct s3_call {
    struct mr_mail mail;
    struct mr_timer timer;
    TAILQ_ENTRY(s3_call) link; /* of the thread's calls */
    struct mr_s3 *s3;
    /* the request, its own copies */
    const char *method; /* static */
    char *bucket;
    char *key;
    char *query;
    struct mr_header headers[S3_HEADERS_MOST];
    size_t header_count;
    struct mr_block *body;
    size_t body_bytes;
    char payload_hash[S3_HASH_TEXT];
    int64_t timeout_ns; /* of an attempt */
    int64_t work_ns;    /* added to it */
    /* of the thread */
    uint32_t attempts;
    int64_t failed_ns; /* first failure; 0: none */
    bool is_sent;
    int64_t sent_ns;
    struct mr_buf authorization;
    struct mr_buf path;
    /* flags are guarded by s3->lock; only the thread uses the rest until the end, then it is constant */
    bool is_ended;
    bool is_dropped;
    unsigned refs; /* its owner, and the thread */
    int rc;
    struct mr_err err;
    struct s3_answer answer;
    int64_t server_ns;
};

struct mr_s3 {
    struct s3_config config;
    struct s3_renewer *renewer; /* NULL: credentials do not expire, or are from files */
    struct mr_mail news;        /* of it */
    _Atomic bool is_news_sent;  /* relaxed: the thread that sets it first posts the mail */
    void (*on_trouble)(void *ctx, const char *text);
    bool (*is_stopped)(void *ctx);
    void *ctx;
    struct mr_timer poll_timer;  /* checks is_stopped; runs while there are calls */
    _Atomic int64_t patience_ns; /* relaxed, as is_hurried: they order nothing */
    _Atomic bool is_hurried;     /* patience was set */
    struct mr_tls_client *tls;
    struct mr_loop *loop;
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock; /* guards is_ended and is_dropped of calls; held for a few instructions */
    pthread_cond_t ended;
    struct mr_mail cancel;
    struct mr_mail stop;
    _Atomic bool is_cancel_sent; /* relaxed: the thread that sets it first posts the mail */
    /* of the thread */
    bool is_cancelled;
    struct mr_map clients; /* by host */
    TAILQ_HEAD(, s3_call) calls;
    struct mr_rng rng;
    int64_t told_ns;
};

/* ---- the life of a call ---- */

static struct mr_s3_place place_of(const struct s3_call *c)
{
    return (struct mr_s3_place){mr_str_c(c->bucket), mr_str_c(c->key)};
}

static void call_drop(struct s3_call *c)
{
    for (size_t i = 0; i < c->header_count; i++) {
        mr_free((void *)(uintptr_t)c->headers[i].name.ptr);
        mr_free((void *)(uintptr_t)c->headers[i].value.ptr);
    }
    mr_block_unref(&c->body);
    mr_block_unref(&c->answer.block);
    mr_buf_fini(&c->authorization);
    mr_buf_fini(&c->path);
    mr_free(c->bucket);
    mr_free(c->key);
    mr_free(c->query);
    mr_free(c);
}

static void call_unref(struct s3_call *c)
{
    pthread_mutex_lock(&c->s3->lock);
    const bool is_last = --c->refs == 0;
    pthread_mutex_unlock(&c->s3->lock);
    if (is_last) {
        call_drop(c);
    }
}

/* On the thread, which drops its reference, unless a request is being sent: then on_done does. */
static void call_end(struct s3_call *c, int rc, const struct mr_err *err)
{
    struct mr_s3 *s = c->s3;

    mr_timer_stop(&c->timer);
    TAILQ_REMOVE(&s->calls, c, link);
    if (TAILQ_EMPTY(&s->calls)) {
        mr_timer_stop(&s->poll_timer);
    }
    c->rc = rc;
    if (rc < 0) {
        c->err = *err;
    }
    pthread_mutex_lock(&s->lock);
    c->is_ended = true;
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
    if (!c->is_sent) {
        call_unref(c);
    }
}

static void attempt(struct s3_call *c);

static void on_pause_over(struct mr_timer *t)
{
    attempt(MR_CONTAINER_OF(t, struct s3_call, timer));
}

static void trouble_report(struct s3_call *c, const struct mr_err *err)
{
    struct mr_s3 *s = c->s3;
    const int64_t now_ns = mr_now_ns();

    if (s->on_trouble && (s->told_ns == 0 || now_ns - s->told_ns > TROUBLE_EVERY_NS)) {
        s->told_ns = now_ns;
        s->on_trouble(s->ctx, err->msg);
    }
}

/* The remaining patience of a call that has failed. */
static int64_t left_ns(const struct s3_call *c, int64_t now_ns)
{
    return atomic_load_explicit(&c->s3->patience_ns, memory_order_relaxed) -
           (now_ns - c->failed_ns);
}

/* Retries after a pause, which never exceeds the patience, or ends the call. */
static void call_failed(struct s3_call *c, int64_t after_ns, const struct mr_err *err)
{
    struct mr_s3 *s = c->s3;
    const int64_t now_ns = mr_now_ns();
    const unsigned doublings = MR_MIN(c->attempts - 1, 8u);
    const int64_t most_ns = MR_MIN(PAUSE_NS << doublings, PAUSE_MOST_NS);
    const int64_t pause_ns = (int64_t)((double)most_ns * (1 + mr_rng_unit(&s->rng)) / 2);

    c->failed_ns = c->failed_ns ? c->failed_ns : now_ns;
    pthread_mutex_lock(&s->lock);
    const bool is_dropped = c->is_dropped;
    pthread_mutex_unlock(&s->lock);
    const int64_t left = left_ns(c, now_ns);
    if (is_dropped || left <= 0) {
        call_end(c, MR_E_UNAVAILABLE, err);
        return;
    }
    if (c->attempts > 1) { /* a single failure is normal: a kept connection was closed */
        trouble_report(c, err);
    }
    mr_timer_start(s->loop, &c->timer, MR_MIN(MR_MAX(pause_ns, after_ns), left), 0, on_pause_over);
}

/* ---- sending ---- */

static bool is_virtual(const struct s3_config *c, const char *bucket)
{
    return c->addressing == MR_S3_VIRTUAL ||
           (c->addressing == MR_S3_AUTO && c->is_amazon && !strchr(bucket, '.'));
}

/* The client of a host; NULL: *err. */
static struct mr_client *client_of(struct mr_s3 *s, const char *host, struct mr_err *err)
{
    struct mr_client *client = mr_map_find(&s->clients, mr_str_c(host));
    const struct mr_client_options options = {
        .tls = s->tls,
        .max_response_bytes = ANSWER_MOST,
        .max_connections = CONNECTIONS,
        .never_repeat = true /* this client repeats, and takes note of it */};
    const char *bracket = strrchr(host, ']');
    char address[400];

    if (client) {
        return client;
    }
    snprintf(address, sizeof address, "%s%s", host,
             strchr(bracket ? bracket : host, ':') ? ""
             : s->tls ? ":443"
                      : ":80");
    if (mr_client_new(&client, s->loop, address, &options, err) < 0) {
        return NULL;
    }
    mr_map_put(&s->clients, mr_str_c(host), client);
    return client;
}

static int header_cmp(const void *a, const void *b)
{
    return mr_str_cmp(((const struct mr_header *)a)->name, ((const struct mr_header *)b)->name);
}

/* Signs in c->authorization. `all` has what is to be signed. */
static void sign(struct s3_call *c, struct mr_header *all, size_t count, const char time[17])
{
    struct s3_signed r = {.method = c->method,
                          .path = mr_buf_view(&c->path),
                          .query = mr_str_c(c->query),
                          .headers = all,
                          .header_count = count,
                          .payload_hash = c->payload_hash,
                          .region = c->s3->config.region,
                          .service = "s3"};

    memcpy(r.time, time, sizeof r.time);
    qsort(all, count, sizeof *all, header_cmp);
    mr_buf_reset(&c->authorization);
    s3_sign(&c->s3->config.credentials, &r, &c->authorization);
}

static mr_client_done_fn on_done;

static void request_send(struct s3_call *c, struct mr_client *client, const char *host)
{
    const struct s3_credentials *who = &c->s3->config.credentials;
    struct mr_header all[S3_HEADERS_MOST + 5];
    char time[17];
    size_t n = 0;

    s3_time_text(mr_wall_ns(), time);
    for (; n < c->header_count; n++) {
        all[n] = c->headers[n];
    }
    if (who->id) {
        all[n++] = (struct mr_header){MR_STR("x-amz-content-sha256"), mr_str_c(c->payload_hash)};
        all[n++] = (struct mr_header){MR_STR("x-amz-date"), mr_str_c(time)};
        if (who->token) {
            all[n++] = (struct mr_header){MR_STR("x-amz-security-token"), mr_str_c(who->token)};
        }
        all[n++] = (struct mr_header){MR_STR("host"), mr_str_c(host)};
        sign(c, all, n, time);
        for (size_t i = 0; i < n; i++) { /* net writes it itself */
            if (mr_str_eq_c(all[i].name, "host")) {
                all[i] =
                    (struct mr_header){MR_STR("authorization"), mr_buf_view(&c->authorization)};
            }
        }
    }
    if (c->query[0]) {
        mr_buf_char(&c->path, '?');
        mr_buf_c(&c->path, c->query);
    }
    const struct mr_piece piece = {.ptr = c->body ? c->body->data : NULL,
                                   .len = c->body_bytes,
                                   .block = c->body ? mr_block_ref(c->body) : NULL};
    const struct mr_client_request r = {.method = c->method,
                                        .path = mr_buf_view(&c->path),
                                        .headers = all,
                                        .header_count = n,
                                        .pieces = &piece,
                                        .piece_count = c->body != NULL,
                                        .timeout_ns = c->timeout_ns + c->work_ns};
    c->is_sent = true;
    c->sent_ns = mr_now_ns();
    mr_client_send(client, &r, on_done, c);
}

static void attempt(struct s3_call *c)
{
    struct mr_s3 *s = c->s3;
    const bool is_apart = is_virtual(&s->config, c->bucket);
    struct mr_err err;
    char host[360];

    c->attempts++;
    snprintf(host, sizeof host, "%s%s%s", is_apart ? c->bucket : "", is_apart ? "." : "",
             s->config.host);
    mr_buf_reset(&c->path);
    if (!is_apart) {
        mr_buf_printf(&c->path, "/%s", c->bucket);
    }
    mr_buf_char(&c->path, '/');
    s3_encode(&c->path, mr_str_c(c->key), true);
    struct mr_client *client = client_of(s, host, &err);
    if (!client) {
        call_end(c, err.status, &err);
        return;
    }
    request_send(c, client, host);
}

/* ---- answers ---- */

static void text_take(char *out, size_t room, mr_str value)
{
    snprintf(out, room, "%.*s", (int)MR_MIN(value.len, room - 1), value.ptr);
}

/* "bytes 0-99/1234" */
static void range_take(struct s3_answer *a, mr_str value)
{
    const ptrdiff_t slash = mr_str_find(value, '/');
    uint64_t all;

    if (slash >= 0 && mr_str_to_u64(mr_str_sub(value, (size_t)slash + 1, value.len), &all)) {
        a->all_bytes = all;
    }
}

static int64_t answer_take(struct s3_call *c, const struct mr_client_response *r)
{
    struct s3_answer *a = &c->answer;

    mr_block_unref(&a->block);
    *a = (struct s3_answer){.status = r->status, .body = r->body};
    a->block = r->body_block ? mr_block_ref(r->body_block) : NULL;
    a->all_bytes = UINT64_MAX;
    a->was_tried_more = c->failed_ns != 0;
    for (size_t i = 0; i < r->header_count; i++) {
        const mr_str name = r->headers[i].name;
        const mr_str value = r->headers[i].value;
        if (mr_str_eq_c(name, "etag")) {
            text_take(a->etag, sizeof a->etag, value);
        } else if (mr_str_eq(name, MR_STR(S3_NONCE_HEADER))) {
            text_take(a->nonce, sizeof a->nonce, value);
        } else if (mr_str_eq_c(name, "content-length")) {
            mr_str_to_u64(value, &a->bytes);
        } else if (mr_str_eq_c(name, "content-range")) {
            range_take(a, value);
        } else if (mr_str_eq_c(name, "date")) {
            c->server_ns = MR_MAX(mr_http_date_ns(value), INT64_C(0));
        }
    }
    a->all_bytes = a->all_bytes == UINT64_MAX ? a->bytes : a->all_bytes;
    return MR_MIN(mr_client_retry_after_ns(r), RETRY_AFTER_MOST * MR_NS_PER_S);
}

/* The answer to the end of a multipart upload may be an error despite its status 200. */
static bool is_late_error(const struct s3_call *c, const struct s3_answer *a)
{
    const mr_str body = {(const char *)a->body.ptr, a->body.len};

    return strcmp(c->method, "POST") == 0 && a->status == 200 &&
           mr_str_find_str(body, MR_STR("<Error>")) >= 0;
}

static void answered(struct s3_call *c, int64_t after_ns)
{
    struct s3_answer *a = &c->answer;
    struct s3_refusal why;
    struct mr_err err;

    if (is_late_error(c, a)) {
        a->status = 500;
    }
    if (a->status < 300) {
        call_end(c, MR_OK, NULL);
        return;
    }
    s3_refusal_read(&why, a->body);
    s3_refusal_tell(&why, a->status, place_of(c), &c->s3->config, c->server_ns, &err);
    const bool is_expired = strcmp(why.code, "ExpiredToken") == 0 &&
                            (c->s3->renewer || c->s3->config.credentials.is_of_files);
    if (is_expired && c->s3->renewer) {
        s3_renewer_want(c->s3->renewer);
    } else if (is_expired) { /* the renewal may be late */
        s3_credentials_renew(&c->s3->config.credentials, NULL);
    }
    if (is_expired || s3_refusal_passes(&why, a->status)) {
        call_failed(c, after_ns, &err);
    } else {
        c->err = err; /* for s3_call_wait, if it is one there */
        call_end(c, MR_OK, NULL);
    }
}

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct s3_call *c = ctx;
    struct mr_err cause;

    c->is_sent = false;
    if (c->is_ended) { /* cancelled before */
        call_unref(c);
        return;
    }
    if (rc == MR_OK) {
        answered(c, answer_take(c, r));
        return;
    }
    mr_err_set(&cause, MR_E_UNAVAILABLE, MR_HERE, "s3://%s/%.200s: %s", c->bucket, c->key,
               err->msg);
    if (rc == MR_E_UNAVAILABLE || rc == MR_E_DEADLINE || rc == MR_E_INVALID ||
        rc == MR_E_EXHAUSTED) {
        call_failed(c, 0, &cause);
    } else {
        cause.status = rc;
        call_end(c, rc, &cause);
    }
}

/* ---- calls, from other threads ---- */

static void cancelled(struct s3_call *c)
{
    struct mr_err err;

    mr_err_set(&err, MR_E_CANCELLED, MR_HERE, "s3://%s/%.200s: stopped", c->bucket, c->key);
    call_end(c, MR_E_CANCELLED, &err);
}

static void cancel_all(struct mr_s3 *s)
{
    s->is_cancelled = true;
    while (!TAILQ_EMPTY(&s->calls)) {
        cancelled(TAILQ_FIRST(&s->calls));
    }
}

/* The patience is now lower than at its start. */
static void call_hurry(struct s3_call *c)
{
    const int64_t now_ns = mr_now_ns();
    struct mr_err err;

    if (c->timer.active && c->timer.at_ns - now_ns > MR_MAX(left_ns(c, now_ns), INT64_C(0))) {
        mr_timer_start(c->s3->loop, &c->timer, MR_MAX(left_ns(c, now_ns), INT64_C(0)), 0,
                       on_pause_over);
    } else if (c->is_sent && c->work_ns > 0 && now_ns - c->sent_ns > c->timeout_ns) {
        mr_err_set(&err, MR_E_UNAVAILABLE, MR_HERE, "s3://%s/%.200s: no answer in time", c->bucket,
                   c->key);
        call_end(c, MR_E_UNAVAILABLE, &err);
    }
}

static void on_check(struct mr_timer *t)
{
    struct mr_s3 *s = MR_CONTAINER_OF(t, struct mr_s3, poll_timer);

    if (s->is_stopped(s->ctx)) {
        cancel_all(s);
    } else if (atomic_load_explicit(&s->is_hurried, memory_order_relaxed)) {
        for (struct s3_call *c = TAILQ_FIRST(&s->calls), *next; c; c = next) {
            next = TAILQ_NEXT(c, link);
            call_hurry(c);
        }
    }
}

static void call_start(struct mr_mail *mail)
{
    struct s3_call *c = MR_CONTAINER_OF(mail, struct s3_call, mail);

    if (c->s3->is_stopped && TAILQ_EMPTY(&c->s3->calls)) {
        mr_timer_start(c->s3->loop, &c->s3->poll_timer, POLL_NS, POLL_NS, on_check);
    }
    TAILQ_INSERT_TAIL(&c->s3->calls, c, link);
    if (c->s3->is_cancelled) {
        cancelled(c);
    } else {
        attempt(c);
    }
}

static mr_str str_copy(mr_str s)
{
    return (mr_str){mr_strndup(s.ptr ? s.ptr : "", s.len), s.len};
}

struct s3_call *s3_call_begin(struct mr_s3 *s, const struct s3_request *r)
{
    struct s3_call *c = MR_NEW(struct s3_call);

    c->s3 = s;
    c->method = r->method;
    c->bucket = mr_strndup(r->at.bucket.ptr, r->at.bucket.len);
    c->key = (char *)(uintptr_t)str_copy(r->at.key).ptr;
    c->query = (char *)(uintptr_t)str_copy(r->query).ptr;
    for (; c->header_count < r->header_count; c->header_count++) {
        const struct mr_header *h = &r->headers[c->header_count];
        c->headers[c->header_count] = (struct mr_header){str_copy(h->name), str_copy(h->value)};
    }
    mr_buf_init(&c->authorization, 0);
    mr_buf_init(&c->path, 0);
    c->body = r->body ? mr_block_ref(r->body) : NULL;
    c->body_bytes = r->body ? r->body_bytes : 0;
    s3_hash(c->body ? c->body->data : NULL, c->body_bytes, c->payload_hash);
    c->timeout_ns =
        TIMEOUT_NS + (int64_t)((c->body_bytes + r->answer_bytes) / SLOWEST_BYTES_S) * MR_NS_PER_S;
    c->work_ns = r->work_ns;
    c->refs = 2;
    c->mail.run = call_start;
    mr_loop_post(s->loop, &c->mail);
    return c;
}

int s3_call_wait(struct s3_call *c, const int *allowed, struct s3_answer *out, struct mr_err *err)
{
    struct mr_s3 *s = c->s3;

    pthread_mutex_lock(&s->lock);
    while (!c->is_ended) {
        pthread_cond_wait(&s->ended, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    bool is_error = c->rc < 0 || c->answer.status >= 300;
    for (size_t i = 0; c->rc == MR_OK && allowed && allowed[i]; i++) {
        is_error &= c->answer.status != allowed[i];
    }
    if (is_error) {
        if (err) {
            *err = c->err;
        }
        return c->err.status;
    }
    *out = c->answer;
    return MR_OK;
}

void s3_call_free(struct s3_call **call)
{
    struct s3_call *c = *call;

    *call = NULL;
    if (!c) {
        return;
    }
    pthread_mutex_lock(&c->s3->lock);
    c->is_dropped = true;
    pthread_mutex_unlock(&c->s3->lock);
    call_unref(c);
}

/* ---- the client, from other threads ---- */

static void on_cancel(struct mr_mail *mail)
{
    cancel_all(MR_CONTAINER_OF(mail, struct mr_s3, cancel));
}

void mr_s3_cancel(struct mr_s3 *s)
{
    if (!atomic_exchange_explicit(&s->is_cancel_sent, true, memory_order_relaxed)) {
        s->cancel.run = on_cancel;
        mr_loop_post(s->loop, &s->cancel);
    }
}

void mr_s3_set_patience(struct mr_s3 *s, int64_t ns)
{
    atomic_store_explicit(&s->patience_ns, ns, memory_order_relaxed);
    atomic_store_explicit(&s->is_hurried, true, memory_order_relaxed);
}

static void news_take(struct mr_mail *mail)
{
    struct mr_s3 *s = MR_CONTAINER_OF(mail, struct mr_s3, news);
    char trouble[S3_TROUBLE_ROOM];

    if (!s->renewer) {
        return; /* the client is being freed */
    }
    atomic_store_explicit(&s->is_news_sent, false, memory_order_relaxed);
    s3_renewer_take(s->renewer, &s->config.credentials, trouble, sizeof trouble);
    if (trouble[0] && s->on_trouble) {
        s->on_trouble(s->ctx, trouble);
    }
}

/* On the renewer's thread. */
static void on_news(void *ctx)
{
    struct mr_s3 *s = ctx;

    if (!atomic_exchange_explicit(&s->is_news_sent, true, memory_order_relaxed)) {
        s->news.run = news_take;
        mr_loop_post(s->loop, &s->news);
    }
}

static void on_stop(struct mr_mail *mail)
{
    mr_loop_stop(MR_CONTAINER_OF(mail, struct mr_s3, stop)->loop);
}

static void *s3_run(void *arg)
{
    mr_loop_run(((struct mr_s3 *)arg)->loop);
    return NULL;
}

int mr_s3_new(struct mr_s3 **out, const struct mr_s3_options *o, struct mr_err *err)
{
    struct mr_s3 *s = MR_NEW(struct mr_s3);
    uint64_t seed;
    int rc;

    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->ended, NULL);
    TAILQ_INIT(&s->calls);
    mr_rng_system(&seed, sizeof seed);
    mr_rng_seed(&s->rng, seed);
    s->on_trouble = o->on_trouble;
    s->is_stopped = o->is_stopped;
    s->ctx = o->ctx;
    atomic_init(&s->patience_ns, o->patience_ns ? o->patience_ns : PATIENCE_NS);
    MR_TRY(s3_config_load(&s->config, o, err));
    if (s->config.is_tls) {
        const struct mr_tls_client_options tls = {.ca_file = s->config.ca_file};
        MR_TRY(mr_tls_client_new(&s->tls, &tls, err));
    }
    MR_TRY(mr_loop_new(&s->loop, NULL, err));
    if (s->config.is_provided) {
        char none[1];
        MR_TRY(s3_renewer_new(&s->renewer, &s->config, o, on_news, s, err));
        s3_renewer_take(s->renewer, &s->config.credentials, none, sizeof none);
    }
    rc = mr_thread_start(&s->thread, "s3", s3_run, s, err);
    s->is_started = rc == MR_OK;
out:
    if (rc < 0) {
        mr_s3_free(&s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr_s3_free(struct mr_s3 **io_s)
{
    struct mr_s3 *s = *io_s;
    struct mr_map_slot *slot;

    *io_s = NULL;
    if (!s) {
        return;
    }
    if (s->is_started) {
        mr_s3_cancel(s);
        s->stop.run = on_stop;
        mr_loop_post(s->loop, &s->stop);
        pthread_join(s->thread, NULL);
    }
    s3_renewer_free(&s->renewer); /* it posts to the loop, which exists but does not run */
    for (size_t i = 0; (slot = mr_map_next(&s->clients, &i));) {
        struct mr_client *client = slot->value;
        mr_client_free(&client);
    }
    mr_map_fini(&s->clients);
    if (s->loop) {
        mr_loop_free(&s->loop);
    }
    mr_tls_client_free(&s->tls);
    s3_config_fini(&s->config);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->ended);
    mr_free(s);
}
