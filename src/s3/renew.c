/* Credentials that expire: a thread gets the first ones and renews them in time, so that no request waits for that.
 *
 * A renewal starts five minutes before the expiry, or when a fifth of the lifetime is left if that is later; at once
 * when the storage reports the expiry. After failures it is retried with growing pauses, and the old credentials are
 * used as long as the storage accepts them. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/tls.h"
#include "s3_priv.h"

#define BEFORE_NS     (300 * MR_NS_PER_S)
#define PAUSE_NS      (250 * MR_NS_PER_MS)
#define PAUSE_MOST_NS (60 * MR_NS_PER_S)
#define FIRST_NS      (2 * MR_NS_PER_S) /* for retries of the first ones, as a start waits for them */
#define AT_LEAST_NS   (1 * MR_NS_PER_S) /* between two requests */
#define POLL_NS       (100 * MR_NS_PER_MS)

/* ---- one request, on a loop of its own ---- */

struct exchange {
    struct s3_ask *ask;
    struct mr_loop *loop;
    struct mr_client *client;
    struct mr_timer poll_timer;
    struct mr_buf *out;
    int status;
    int rc;
    struct mr_err *err;
    bool is_done;
    bool is_sent;
};

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct exchange *x = ctx;

    if (!x->is_done) {
        x->rc = rc;
        if (rc < 0) {
            mr_err_set(x->err, rc, MR_HERE, "no credentials for S3: %s: %s", x->ask->who, err->msg);
        } else {
            x->status = r->status;
            mr_buf_append(x->out, r->body.ptr, r->body.len);
        }
    }
    x->is_done = true;
    mr_loop_stop(x->loop);
}

static void on_check(struct mr_timer *t)
{
    struct exchange *x = MR_CONTAINER_OF(t, struct exchange, poll_timer);

    if (x->ask->is_stopped && atomic_load_explicit(x->ask->is_stopped, memory_order_relaxed)) {
        x->rc = MR_FAIL(x->err, MR_E_CANCELLED, "no credentials for S3: stopped");
        x->is_done = true;
        mr_loop_stop(x->loop);
    }
}

/* "http://host:port/path" apart; *path is "/" without one. */
static void url_cut(const char *url, bool *out_tls, mr_str *out_host, mr_str *out_path)
{
    mr_str rest = mr_str_c(url);

    *out_tls = mr_str_starts(rest, MR_STR("https://"));
    rest = mr_str_sub(rest, *out_tls ? 8 : 7, rest.len);
    const ptrdiff_t slash = mr_str_find(rest, '/');
    *out_host = mr_str_sub(rest, 0, slash < 0 ? rest.len : (size_t)slash);
    *out_path = slash < 0 ? MR_STR("/") : mr_str_sub(rest, (size_t)slash, rest.len);
}

static void ask_send(struct exchange *x, mr_str host, mr_str path)
{
    const struct s3_ask *a = x->ask;
    const size_t body = a->body ? strlen(a->body) : 0;
    struct mr_header all[6];
    struct mr_buf signature;
    char hash[S3_HASH_TEXT];
    char time[17];
    size_t n = 0;

    mr_buf_init(&signature, 0);
    if (a->body) {
        all[n++] = (struct mr_header){MR_STR("content-type"),
                                      MR_STR("application/x-www-form-urlencoded; charset=utf-8")};
    }
    if (a->header.value.len > 0) {
        all[n++] = a->header;
    }
    if (a->signer) { /* by name: content-type, host, x-amz-date, x-amz-security-token */
        s3_time_text(mr_wall_ns(), time);
        s3_hash(a->body, body, hash);
        all[n++] = (struct mr_header){MR_STR("host"), host};
        all[n++] = (struct mr_header){MR_STR("x-amz-date"), mr_str_c(time)};
        if (a->signer->token) {
            all[n++] =
                (struct mr_header){MR_STR("x-amz-security-token"), mr_str_c(a->signer->token)};
        }
        struct s3_signed r = {.method = a->method,
                              .path = path,
                              .query = MR_STR(""),
                              .headers = all,
                              .header_count = n,
                              .payload_hash = hash,
                              .region = a->region,
                              .service = "sts"};
        memcpy(r.time, time, sizeof r.time);
        s3_sign(a->signer, &r, &signature);
        all[1] = (struct mr_header){MR_STR("authorization"), mr_buf_view(&signature)};
    }
    const struct mr_piece piece = {.ptr = a->body, .len = body};
    const struct mr_client_request r = {.method = a->method,
                                        .path = path,
                                        .headers = all,
                                        .header_count = n,
                                        .pieces = &piece,
                                        .piece_count = body > 0,
                                        .timeout_ns = a->timeout_ns};
    mr_client_send(x->client, &r, on_done, x);
    mr_buf_fini(&signature);
}

int s3_http(struct s3_ask *a, struct mr_buf *out, int *out_status, struct mr_err *err)
{
    struct exchange x = {.ask = a, .out = out, .err = err};
    struct mr_tls_client *tls = NULL;
    char address[300];
    mr_str host;
    mr_str path;
    bool is_tls;
    int rc;

    if (!mr_str_starts(mr_str_c(a->url), MR_STR("http://")) &&
        !mr_str_starts(mr_str_c(a->url), MR_STR("https://"))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "no credentials for S3: an endpoint that gives some begins with http:// or "
                       "https://");
    }
    url_cut(a->url, &is_tls, &host, &path);
    path = a->path ? mr_str_c(a->path) : path;
    snprintf(address, sizeof address, "%.*s%s", (int)MR_MIN(host.len, (size_t)280), host.ptr,
             mr_str_find(
                 mr_str_sub(host, (size_t)MR_MAX(mr_str_find(host, ']'), (ptrdiff_t)0), host.len),
                 ':') >= 0
                 ? ""
             : is_tls ? ":443"
                      : ":80");
    if (is_tls) {
        const struct mr_tls_client_options options = {.ca_file = a->ca_file};
        MR_TRY(mr_tls_client_new(&tls, &options, err));
    }
    MR_TRY(mr_loop_new(&x.loop, NULL, err));
    const struct mr_client_options options = {
        .tls = tls, .connect_timeout_ns = a->timeout_ns, .max_response_bytes = 1 << 20};
    MR_TRY(mr_client_new(&x.client, x.loop, address, &options, err));
    ask_send(&x, host, path);
    mr_timer_start(x.loop, &x.poll_timer, POLL_NS, POLL_NS, on_check);
    mr_loop_run(x.loop);
    mr_timer_stop(&x.poll_timer);
    rc = x.rc;
    if (rc == MR_OK) {
        *out_status = x.status;
    }
out:
    if (x.client) {
        x.is_done = true; /* the waiting request is cancelled */
        mr_client_free(&x.client);
    }
    if (x.loop) {
        mr_loop_free(&x.loop);
    }
    mr_tls_client_free(&tls);
    return rc;
}

/* ---- the thread ---- */

struct s3_renewer {
    pthread_t thread;
    bool is_started;
    pthread_mutex_t lock; /* guards what follows; held for a few instructions */
    pthread_cond_t changed;
    _Atomic bool is_stopping; /* also read without the lock, by a request */
    bool is_wanted;           /* at once */
    bool has_first;           /* rc and err are of the first ones */
    int rc;
    struct mr_err err;
    struct s3_credentials fresh;   /* not taken yet; id NULL: none */
    char trouble[S3_TROUBLE_ROOM]; /* not reported yet; "": none */
    /* constant */
    char *sts;
    char *region;
    char *ca_file;
    void (*on_news)(void *ctx);
    void *ctx;
};

static int provide(struct s3_renewer *r, struct s3_credentials *out, struct mr_err *err)
{
    struct s3_files *files = s3_files_read();
    struct s3_provider p = {.files = files,
                            .sts = r->sts,
                            .region = r->region,
                            .ca_file = r->ca_file,
                            .is_stopped = &r->is_stopping};
    const int rc = s3_provide(&p, out, err);

    s3_files_free(&files);
    return rc;
}

static bool may_pass(int rc)
{
    return rc == MR_E_UNAVAILABLE || rc == MR_E_DEADLINE || rc == MR_E_EXHAUSTED;
}

/* Sleeps until then, until a renewal is requested, or until the end. */
static void sleep_until(struct s3_renewer *r, int64_t until_ns)
{
    const struct timespec until = {until_ns / MR_NS_PER_S, until_ns % MR_NS_PER_S};

    while (!atomic_load(&r->is_stopping) && !r->is_wanted && mr_now_ns() < until_ns) {
        pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
}

/* When to renew credentials. */
static int64_t due_ns(const struct s3_credentials *c)
{
    const int64_t left_ns = c->until_ns - mr_wall_ns();

    if (c->until_ns == 0) {
        return INT64_MAX / 2;
    }
    return mr_now_ns() + MR_MAX(left_ns - MR_MIN(BEFORE_NS, left_ns / 5), AT_LEAST_NS);
}

/* Under the lock. */
static void news(struct s3_renewer *r, int rc, struct s3_credentials *found,
                 const struct mr_err *err)
{
    if (rc == MR_OK) {
        s3_credentials_fini(&r->fresh);
        r->fresh = *found;
    } else if (r->has_first) {
        snprintf(r->trouble, sizeof r->trouble, "%s", err->msg);
    }
    if (!r->has_first) {
        r->rc = rc;
        r->err = *err;
        r->has_first = true;
        pthread_cond_broadcast(&r->changed);
    } else {
        r->on_news(r->ctx);
    }
}

static void *renewer_run(void *arg)
{
    struct s3_renewer *r = arg;
    const int64_t started_ns = mr_now_ns();
    int64_t pause_ns = PAUSE_NS;

    pthread_mutex_lock(&r->lock);
    while (!atomic_load(&r->is_stopping)) {
        struct s3_credentials found;
        struct mr_err err = {0};
        const int64_t begin_ns = mr_now_ns();
        r->is_wanted = false;
        pthread_mutex_unlock(&r->lock);
        const int rc = provide(r, &found, &err);
        pthread_mutex_lock(&r->lock);
        const int64_t next_ns = rc == MR_OK ? due_ns(&found) : mr_now_ns() + pause_ns;
        const bool is_last = r->has_first || !may_pass(rc) || next_ns > started_ns + FIRST_NS;
        pause_ns = rc == MR_OK ? PAUSE_NS : MR_MIN(2 * pause_ns, PAUSE_MOST_NS);
        if (rc == MR_OK || is_last) {
            news(r, rc, &found, &err);
        }
        sleep_until(r, next_ns);
        while (r->is_wanted && mr_now_ns() < begin_ns + AT_LEAST_NS &&
               !atomic_load(&r->is_stopping)) {
            r->is_wanted = false;
            sleep_until(r, begin_ns + AT_LEAST_NS);
            r->is_wanted = true;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static char *copy(const char *text)
{
    return text ? mr_strndup(text, strlen(text)) : NULL;
}

/* Waits for the first credentials, or their error. */
static int first_wait(struct s3_renewer *r, const struct mr_s3_options *o, struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&r->lock);
    while (!r->has_first && rc == MR_OK) {
        const int64_t until_ns = mr_now_ns() + POLL_NS;
        const struct timespec poll_timer = {until_ns / MR_NS_PER_S, until_ns % MR_NS_PER_S};
        pthread_cond_timedwait(&r->changed, &r->lock, &poll_timer);
        if (!r->has_first && o->is_stopped && o->is_stopped(o->ctx)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "no credentials for S3: stopped");
        }
    }
    if (rc == MR_OK && (rc = r->rc) < 0) {
        *err = r->err;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int s3_renewer_new(struct s3_renewer **out, const struct s3_config *c,
                   const struct mr_s3_options *o, void (*on_news)(void *ctx), void *ctx,
                   struct mr_err *err)
{
    struct s3_renewer *r = MR_NEW(struct s3_renewer);
    pthread_condattr_t attr;
    int rc;

    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    r->sts = copy(c->sts);
    r->region = copy(c->region);
    r->ca_file = copy(c->ca_file);
    r->on_news = on_news;
    r->ctx = ctx;
    rc = mr_thread_start(&r->thread, "s3-renew", renewer_run, r, err);
    r->is_started = rc == MR_OK;
    rc = rc < 0 ? rc : first_wait(r, o, err);
    if (rc < 0) {
        s3_renewer_free(&r);
        return rc;
    }
    *out = r;
    return MR_OK;
}

void s3_renewer_take(struct s3_renewer *r, struct s3_credentials *io, char *trouble, size_t room)
{
    pthread_mutex_lock(&r->lock);
    if (r->fresh.id) {
        s3_credentials_fini(io);
        *io = r->fresh;
        r->fresh = (struct s3_credentials){0};
    }
    snprintf(trouble, room, "%s", r->trouble);
    r->trouble[0] = '\0';
    pthread_mutex_unlock(&r->lock);
}

void s3_renewer_want(struct s3_renewer *r)
{
    pthread_mutex_lock(&r->lock);
    r->is_wanted = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

void s3_renewer_free(struct s3_renewer **renewer)
{
    struct s3_renewer *r = *renewer;

    *renewer = NULL;
    if (!r) {
        return;
    }
    if (r->is_started) {
        pthread_mutex_lock(&r->lock);
        atomic_store(&r->is_stopping, true);
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    s3_credentials_fini(&r->fresh);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    mr_free(r->sts);
    mr_free(r->region);
    mr_free(r->ca_file);
    mr_free(r);
}
