/* Hosts come from lists; balance chooses among them. Calls for which no host has room wait in the order of their arrival, and
 * are woken when a call ends, a host comes, or balance says that time has changed something. What cannot use every host has a line
 * of its own, all of which is woken, and before the others, which can use what it leaves: the first would hold up the rest for a
 * host that it does not want. */
#include "cluster.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/rng.h"
#include "client/url.h"
#include "discover.h"

#define GRPC_CONNECTIONS 4u

static int64_t now_of(const struct cluster *c)
{
    return mr_loop_now_ns(c->o->loop);
}

/* ---- hosts ---- */

static void host_free(struct host *h)
{
    if (h->client) {
        mr_client_free(&h->client);
    }
    mr_tls_client_free(&h->tls);
    mr_free(h->url);
    mr_free(h);
}

static void host_drop_if_done(struct cluster *c, struct host *h)
{
    if (!h->is_leaving || h->attempts > 0) {
        return;
    }
    for (size_t i = 0; i < c->hosts.len; i++) {
        if (c->hosts.at[i] == h) {
            c->hosts.at[i] = c->hosts.at[--c->hosts.len];
            break;
        }
    }
    host_free(h);
}

static int host_connect(struct cluster *c, struct host *h, const char *tls_name, struct mr_err *err)
{
    struct mr_client_options options = {.connect_timeout_ns =
                                            c->policy.connect_timeout_ms * MR_NS_PER_MS,
                                        .max_connections = c->policy.max_connections,
                                        .headers = c->o->headers,
                                        .header_count = c->o->header_count,
                                        .headers_are_defaults = true};
    struct mr_tls_client_options tls = c->o->tls;
    struct mr_url url;
    int rc;

    MR_TRY(mr_url_parse(h->url, &url, err));
    MR_TRY(mr_url_default_port(&url, url.is_grpc ? 8001 : 8000, err));
    snprintf(h->prefix, sizeof h->prefix, "%s", url.path);
    h->is_grpc = url.is_grpc;
    h->shares_memory = !url.is_grpc && !url.is_tls && strncmp(url.address, "unix:", 5) == 0;
    options.http2 = url.is_grpc;
    if (url.is_grpc) {
        options.max_connections =
            MR_MIN(options.max_connections, c->policy.is_single ? 1u : GRPC_CONNECTIONS);
    }
    if (url.is_tls) {
        tls.server_name = tls.server_name ? tls.server_name : tls_name;
        MR_TRY(mr_tls_client_new(&h->tls, &tls, err));
        options.tls = h->tls;
    }
    rc = mr_client_new(&h->client, c->o->loop, url.address, &options, err);
out:
    return rc;
}

static int host_new(struct cluster *c, size_t list, const struct config_host *in,
                    const char *tls_name, struct host **out, struct mr_err *err)
{
    struct host *h = MR_NEW(struct host);
    int rc;

    h->list = list;
    h->url = mr_strndup(in->url.ptr, in->url.len);
    MR_TRY(host_connect(c, h, tls_name, err));
    *out = h;
    h = NULL;
out:
    if (h) {
        host_free(h);
    }
    return rc;
}

static struct host *find_url(struct cluster *c, size_t list, mr_str url)
{
    for (size_t i = 0; i < c->hosts.len; i++) {
        struct host *h = c->hosts.at[i];
        if (h->list == list && !h->is_leaving && mr_str_eq_c(url, h->url)) {
            return h;
        }
    }
    return NULL;
}

static int host_add(struct cluster *c, size_t list, const struct config_host *in,
                    const char *tls_name, struct mr_err *err)
{
    struct host *h = find_url(c, list, in->url);
    int rc = h ? MR_OK : host_new(c, list, in, tls_name, &h, err);

    if (rc < 0) {
        return rc;
    }
    if (h->id == 0) {
        h->id = mr_balance_add(c->balance, now_of(c));
        MR_VEC_PUSH(&c->hosts, h);
    }
    mr_balance_set_share(c->balance, h->id, in->share, mr_balance_hash(in->url));
    return MR_OK;
}

static bool is_listed(const struct config_host *hosts, size_t count, const char *url)
{
    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq_c(hosts[i].url, url)) {
            return true;
        }
    }
    return false;
}

int cluster_set(struct cluster *c, size_t list, const struct config_host *hosts, size_t count,
                const char *tls_name, struct mr_err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = host_add(c, list, &hosts[i], tls_name, err);
        if (rc < 0) {
            return rc;
        }
    }
    for (size_t i = c->hosts.len; i-- > 0;) {
        struct host *h = c->hosts.at[i];
        if (h->list == list && !h->is_leaving && !is_listed(hosts, count, h->url)) {
            h->is_leaving = true;
            mr_balance_remove(c->balance, now_of(c), h->id);
            host_drop_if_done(c, h);
        }
    }
    return MR_OK;
}

static struct host *host_of(struct cluster *c, uint32_t id)
{
    for (size_t i = 0; i < c->hosts.len; i++) {
        if (c->hosts.at[i]->id == id) {
            return c->hosts.at[i];
        }
    }
    return NULL;
}

/* ---- waiting ---- */

static void timer_set(struct cluster *c);

static bool is_waited_for(const struct cluster *c)
{
    return !TAILQ_EMPTY(&c->waiting) || !TAILQ_EMPTY(&c->picky);
}

/* True: it waits again. */
static bool wake_one(struct cluster *c, struct cluster_waits *from, struct cluster_wait *w)
{
    TAILQ_REMOVE(from, w, link);
    w->is_queued = false;
    c->is_waking = true;
    const bool is_in_vain = w->wake(w);
    c->is_waking = false;
    return is_in_vain;
}

static void wake_some(struct cluster *c)
{
    struct cluster_waits todo = TAILQ_HEAD_INITIALIZER(todo);
    struct cluster_wait *w;

    if (c->is_waking) {
        return;
    }
    TAILQ_CONCAT(&todo, &c->picky, link);
    while ((w = TAILQ_FIRST(&todo))) {
        if (wake_one(c, &todo, w)) {
            TAILQ_INSERT_TAIL(&c->picky, w, link);
            w->is_queued = true;
        }
    }
    while ((w = TAILQ_FIRST(&c->waiting))) {
        if (wake_one(c, &c->waiting, w)) {
            TAILQ_INSERT_HEAD(&c->waiting, w, link);
            w->is_queued = true;
            break;
        }
    }
    timer_set(c);
}

static void on_timer(struct mr_timer *t)
{
    wake_some(MR_CONTAINER_OF(t, struct cluster, timer));
}

static void timer_set(struct cluster *c)
{
    if (!is_waited_for(c)) {
        mr_timer_stop(&c->timer);
        return;
    }
    const int64_t at_ns = mr_balance_next_wake(c->balance);
    if (at_ns == INT64_MAX) {
        mr_timer_stop(&c->timer);
        return;
    }
    mr_timer_start(c->o->loop, &c->timer, MR_MAX(at_ns - now_of(c), INT64_C(0)), 0, on_timer);
}

void cluster_hosts_changed(struct cluster *c)
{
    wake_some(c);
}

void cluster_wait(struct cluster *c, struct cluster_wait *w)
{
    TAILQ_INSERT_TAIL(w->is_picky ? &c->picky : &c->waiting, w, link);
    w->is_queued = true;
    timer_set(c);
}

void cluster_wait_end(struct cluster *c, struct cluster_wait *w)
{
    if (w->is_queued) {
        TAILQ_REMOVE(w->is_picky ? &c->picky : &c->waiting, w, link);
        w->is_queued = false;
    }
}

/* ---- calls ---- */

bool cluster_pick(struct cluster *c, const struct mr_balance_ask *ask,
                  struct mr_balance_call *out_call, struct host **out)
{
    struct host *h;

    if (c->is_closed || !mr_balance_pick(c->balance, mr_now_ns(), ask, out_call)) {
        return false;
    }
    h = host_of(c, out_call->host);
    h->attempts++;
    *out = h;
    return true;
}

bool cluster_hedge(struct cluster *c, uint64_t original, const struct mr_balance_ask *ask,
                   struct mr_balance_call *out_call, struct host **out)
{
    struct host *h;

    if (c->is_closed || !mr_balance_hedge_call(c->balance, mr_now_ns(), original, ask, out_call)) {
        return false;
    }
    h = host_of(c, out_call->host);
    h->attempts++;
    *out = h;
    return true;
}

void cluster_ended(struct cluster *c, struct host *h, uint64_t ticket,
                   enum mr_balance_outcome outcome, int64_t retry_after_ns)
{
    mr_balance_done(c->balance, mr_now_ns(), ticket, outcome, retry_after_ns);
    h->attempts--;
    host_drop_if_done(c, h);
    if (is_waited_for(c)) {
        wake_some(c);
    }
}

/* The state of each host, and why. */
static void reasons(struct cluster *c, struct mr_err *err)
{
    struct mr_balance_view views[8];
    const uint32_t all = mr_balance_views(c->balance, now_of(c), views, 8);
    const uint32_t shown = MR_MIN(all, 8u);
    const char *why = discover_error(c->discover);
    char text[300];
    size_t n = 0;

    snprintf(text, sizeof text, "there is none%s%s", why ? ": " : "", why ? why : "");
    for (uint32_t i = 0; i < shown && n < sizeof text; i++) {
        const struct host *h = host_of(c, views[i].host);
        const int len =
            snprintf(text + n, sizeof text - n, "%s%s is %s: %s", i ? "; " : "",
                     h ? h->url : "a host", mr_balance_state_name(views[i].state), views[i].reason);
        n += len > 0 ? (size_t)len : 0;
    }
    MR_FAIL(err, MR_E_UNAVAILABLE, "no host works: %s", text);
}

bool cluster_has_hope(struct cluster *c, struct mr_err *err)
{
    for (size_t i = 0; i < c->hosts.len; i++) {
        if (mr_balance_is_working(c->balance, c->hosts.at[i]->id)) {
            return true;
        }
    }
    if (discover_is_unresolved(c->discover)) {
        return true;
    }
    reasons(c, err);
    return false;
}

/* ---- life ---- */

int cluster_new(struct cluster **out, const struct cluster_options *o,
                const struct config_variant *v, struct mr_err *err)
{
    struct cluster *c = MR_NEW(struct cluster);
    struct mr_balance_options b = {.max_limit = v->policy.max_connections,
                                   .is_limit_fixed = true,
                                   .strategy = v->policy.strategy,
                                   .min_timeout_ns = v->policy.attempt_timeout_ms * MR_NS_PER_MS,
                                   .max_timeout_ns = v->policy.attempt_timeout_ms * MR_NS_PER_MS};
    int rc;

    c->o = o;
    c->policy = v->policy;
    c->lists = v->hosts;
    c->list_count = v->host_count;
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->picky);
    mr_rng_system(&b.seed, sizeof b.seed);
    c->balance = mr_balance_new(&b, mr_now_ns());
    MR_TRY(discover_new(&c->discover, c, err));
    *out = c;
    c = NULL;
out:
    if (c) {
        cluster_close(c);
        cluster_free(&c);
    }
    return rc;
}

void cluster_close(struct cluster *c)
{
    c->is_closed = true;
    discover_free(&c->discover);
    mr_timer_stop(&c->timer);
    /* backwards: a host that leaves goes with its last call, and the last of all takes its place */
    for (size_t i = c->hosts.len; i-- > 0;) {
        if (c->hosts.at[i]->client) {
            mr_client_free(&c->hosts.at[i]->client);
        }
    }
}

void cluster_free(struct cluster **pc)
{
    struct cluster *c = *pc;

    if (!c) {
        return;
    }
    for (size_t i = 0; i < c->hosts.len; i++) {
        host_free(c->hosts.at[i]);
    }
    MR_VEC_FINI(&c->hosts);
    mr_balance_free(&c->balance);
    mr_freep(pc);
}
