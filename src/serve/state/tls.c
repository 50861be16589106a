/* TLS of the listeners, and of the connections to other servers of a mesh: the files, read again when they change, and what the log and the metrics report.
 *
 * One thread looks at the files every two seconds and when SIGHUP asks. It takes a few stat calls, which
 * may hang where the files are on a network disk; network threads never touch them. */
#include "tls.h"

#include <stdio.h>
#include <time.h>

#include "base/thread.h"
#include "state.h"

#define POLL_NS   (2 * MR_NS_PER_S)
#define SOON_S    (14 * INT64_C(86400))
#define REMIND_NS (24 * 3600 * MR_NS_PER_S)

/* ---- what is in force ---- */

static void date_text(int64_t wall_s, char out[32])
{
    time_t t = (time_t)wall_s;
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static void report(struct serve_tls *t, const char *event)
{
    struct mr_tls_info info;
    char date[32];

    mr_tls_get_info(t->tls, &info);
    date_text(info.expires_s, date);
    mr_log(MR_LOG_INFO, event, "listener=%s subject=%s expires=%s clients=%s", t->name,
           MR_LOG_STR(mr_str_c(info.subject)), date,
           t->options->mutual ? "with a certificate" : "any");
    if (info.is_key_open) {
        mr_log(MR_LOG_WARN, "tls.key_open", "listener=%s %s can be read by every user", t->name,
               MR_LOG_STR(mr_str_c(t->options->key)));
    }
}

/* Once a day from two weeks before the end, or from the last fifth of a short life. */
static void remind(struct serve_tls *t)
{
    struct mr_tls_info info;
    char date[32];

    mr_tls_get_info(t->tls, &info);
    if (info.expires_s - mr_wall_ns() / MR_NS_PER_S > MR_MIN(SOON_S, info.lasts_s / 5) ||
        mr_now_ns() < t->remind_ns) {
        return;
    }
    t->remind_ns = mr_now_ns() + REMIND_NS;
    date_text(info.expires_s, date);
    mr_log(MR_LOG_WARN, "tls.expires", "listener=%s %s ends %s: put a new certificate in its place",
           t->name, MR_LOG_STR(mr_str_c(t->options->cert)), date);
}

/* ---- start ---- */

/* Names of options, for messages. */
static const struct serve_tls_words {
    const char *name, *on, *mutual, *cert, *key, *ca;
} words[SERVE_TLS_KINDS] = {{"http", "--http-use-ssl", "--http-use-ssl-mutual",
                             "--http-server-cert", "--http-server-key", "--http-root-cert"},
                            {"grpc", "--grpc-use-ssl", "--grpc-use-ssl-mutual",
                             "--grpc-server-cert", "--grpc-server-key", "--grpc-root-cert"},
                            {"mesh", "TLS in the mesh", "TLS in the mesh", "--mesh-tls-cert",
                             "--mesh-tls-key", "--mesh-tls-ca"}};

static int check(const struct mr_serve_tls *o, const struct serve_tls_words *w, struct mr_err *err)
{
    if (!o->cert || !o->key) {
        return MR_FAIL(err, MR_E_INVALID, "%s needs %s", w->on, o->cert ? w->key : w->cert);
    }
    if (o->mutual && !o->ca) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s needs %s, the authority that clients' certificates must come from",
                       w->mutual, w->ca);
    }
    return MR_OK;
}

int mr_server_tls_check(const struct mr_server_options *o, struct mr_err *err)
{
    const struct mr_serve_tls *all[SERVE_TLS_KINDS] = {&o->http_tls, &o->grpc_tls, &o->mesh_tls};
    int rc = MR_OK;

    for (int i = 0; i < SERVE_TLS_KINDS; i++) {
        if (all[i]->on || all[i]->mutual) {
            MR_TRY(check(all[i], &words[i], err));
        }
    }
    if (o->metrics_use_tls && !o->http_tls.on && !o->http_tls.mutual) {
        rc = MR_FAIL(err, MR_E_INVALID, "--metrics-use-ssl needs --http-use-ssl and its files");
    }
out:
    return rc;
}

static void warn_unused(const struct serve_tls *t, const struct serve_tls_words *w)
{
    const struct mr_serve_tls *o = t->options;

    if (!t->tls && (o->cert || o->key || o->ca)) {
        mr_log(MR_LOG_WARN, "tls.unused", "%s and the like have no effect without %s", w->cert,
               w == &words[SERVE_TLS_MESH] ? "--mesh" : w->on);
    } else if (o->ca && !o->mutual) {
        mr_log(MR_LOG_WARN, "tls.unused",
               "%s has no effect without %s: clients need no certificate", w->ca, w->mutual);
    }
}

int serve_tls_open(struct mr_server *s, struct mr_err *err)
{
    const struct mr_serve_tls *options[SERVE_TLS_KINDS] = {
        &s->options.http_tls, &s->options.grpc_tls, &s->options.mesh_tls};
    int rc = mr_server_tls_check(&s->options, err);

    for (int i = 0; rc == MR_OK && i < SERVE_TLS_KINDS; i++) {
        struct serve_tls *t = &s->tls[i];
        t->name = words[i].name;
        t->options = options[i];
        if (t->options->on || t->options->mutual) {
            struct mr_tls_options o = {.cert_file = t->options->cert,
                                       .key_file = t->options->key,
                                       .client_ca_file = t->options->mutual ? t->options->ca : NULL,
                                       .only_13 = s->options.tls_min_version == MR_SERVE_TLS_13};
            if ((rc = mr_tls_new(&t->tls, &o, err)) < 0) {
                return MR_WRAP(err, rc, "%s", words[i].on);
            }
            report(t, "tls.ready");
            remind(t);
        }
        warn_unused(t, &words[i]);
    }
    return rc;
}

struct mr_tls *serve_tls_for(const struct mr_server *s, enum listener_tag tag)
{
    if (tag == LISTEN_MESH) {
        return s->tls[SERVE_TLS_MESH].tls;
    }
    if (tag == LISTEN_METRICS && !s->options.metrics_use_tls) {
        return NULL;
    }
    return s->tls[tag == LISTEN_GRPC ? SERVE_TLS_GRPC : SERVE_TLS_HTTP].tls;
}

/* ---- files that change ---- */

static void refresh(struct serve_tls *t, bool now)
{
    struct mr_err err;
    int rc = mr_tls_refresh(t->tls, now, &err);

    if (rc > 0) {
        atomic_fetch_add_explicit(&t->reloads, 1, memory_order_relaxed);
        t->remind_ns = 0;
        report(t, "tls.reloaded");
    } else if (rc < 0) {
        atomic_fetch_add_explicit(&t->reload_failures, 1, memory_order_relaxed);
        mr_log(MR_LOG_WARN, "tls.reload_failed", "listener=%s %s; what was in force stays", t->name,
               err.msg);
    }
    remind(t);
}

static void *watch_main(void *arg)
{
    struct mr_server *s = arg;
    struct serve_tls_watch *w = &s->tls_watch;
    struct timespec until;

    pthread_mutex_lock(&w->mutex);
    while (!w->is_stopping) {
        bool now = w->is_asked;
        w->is_asked = false;
        pthread_mutex_unlock(&w->mutex);
        for (int i = 0; i < SERVE_TLS_KINDS; i++) {
            if (s->tls[i].tls) {
                refresh(&s->tls[i], now);
            }
        }
        int64_t at = mr_now_ns() + POLL_NS;
        until = (struct timespec){at / MR_NS_PER_S, at % MR_NS_PER_S};
        pthread_mutex_lock(&w->mutex);
        while (!w->is_stopping && !w->is_asked &&
               pthread_cond_timedwait(&w->wake, &w->mutex, &until) == 0) {
        }
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

bool serve_tls_is_on(const struct mr_server *s)
{
    bool is_on = false;

    for (int i = 0; i < SERVE_TLS_KINDS; i++) {
        is_on = is_on || s->tls[i].tls;
    }
    return is_on;
}

int serve_tls_start(struct mr_server *s, struct mr_err *err)
{
    struct serve_tls_watch *w = &s->tls_watch;
    pthread_condattr_t attr;

    if (!serve_tls_is_on(s)) {
        return MR_OK;
    }
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    int rc = mr_thread_start(&w->thread, "mr-tls", watch_main, s, err);
    w->is_started = rc == MR_OK;
    return rc;
}

static void wake(struct serve_tls_watch *w, bool *flag)
{
    pthread_mutex_lock(&w->mutex);
    *flag = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

void mr_server_reload_tls(struct mr_server *s)
{
    if (s->tls_watch.is_started) {
        wake(&s->tls_watch, &s->tls_watch.is_asked);
    }
}

void serve_tls_stop(struct mr_server *s)
{
    struct serve_tls_watch *w = &s->tls_watch;

    if (!w->is_started) {
        return;
    }
    wake(w, &w->is_stopping);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    w->is_started = false;
}

void serve_tls_free(struct mr_server *s)
{
    mr_tls_client_free(&s->mesh_tls);
    for (int i = 0; i < SERVE_TLS_KINDS; i++) {
        mr_tls_free(&s->tls[i].tls);
    }
}

/* ---- what others want to know ---- */

static const char *listener_name(int tag)
{
    return tag == LISTEN_HTTP   ? "http"
           : tag == LISTEN_GRPC ? "grpc"
           : tag == LISTEN_MESH ? "mesh"
                                : "metrics";
}

void serve_tls_bad_start(void *ctx, int tag, const char *peer, const char *why)
{
    (void)ctx;
    mr_log(MR_LOG_INFO, "tls.failed", "listener=%s peer=%s %s", listener_name(tag), peer, why);
}
