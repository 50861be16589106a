/* Making and ending a client. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi.h"
#include "base/buf.h"

const char *mr_sdk_version(void)
{
    return MR_VERSION;
}

/* ---- options ---- */

static int file_read(const char *path, struct mr_buf *out, struct mr_err *err)
{
    char part[8192];
    ssize_t n;

    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", path,
                       strerror(errno));
    }
    do {
        n = read(fd, part, sizeof part);
        mr_buf_append(out, part, n > 0 ? (size_t)n : 0);
    } while ((n > 0 && !out->failed) || (n < 0 && errno == EINTR));
    const int why = errno;
    close(fd);
    if (n < 0) {
        return MR_FAIL(err, MR_E_IO, "%s: %s", path, strerror(why));
    }
    return out->failed ? MR_FAIL(err, MR_E_TOO_LARGE, "%s: more than %zu bytes", path, out->max)
                       : MR_OK;
}

static int policy_take(const struct mr_sdk_options *o, struct config_policy *p, struct mr_err *err)
{
    int rc;

    *p = config_policy_default();
    p->timeout_ms = o->timeout_ms ? o->timeout_ms : p->timeout_ms;
    p->connect_timeout_ms = o->connect_timeout_ms ? o->connect_timeout_ms : p->connect_timeout_ms;
    p->attempt_timeout_ms = o->attempt_timeout_ms;
    p->hedge_after_ms = o->hedge_after_ms;
    p->attempts = o->attempts ? o->attempts : p->attempts;
    p->max_connections = o->max_connections ? o->max_connections : p->max_connections;
    p->shard_rows = o->package_size ? o->package_size : p->shard_rows;
    p->max_shards = o->max_channel_per_request ? o->max_channel_per_request : p->max_shards;
    MR_TRY(config_strategy_set(p, o->strategy, err));
    MR_TRY(config_protocol_set(p, o->protocol, err));
    MR_TRY(config_coding_set(p, o->compression, err));
out:
    return rc;
}

static int config_take(const struct mr_sdk_options *o, struct config **out, struct mr_err *err)
{
    struct config_policy policy;
    mr_str *urls = NULL;
    struct mr_buf text;
    int rc;

    mr_buf_init(&text, CONFIG_TEXT_MAX);
    if (o->config && o->config_file) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "config and config_file are both given"));
    }
    if (o->url_count > CONFIG_HOSTS_MAX) {
        MR_TRY(
            MR_FAIL(err, MR_E_INVALID, "%u urls, possible are %u", o->url_count, CONFIG_HOSTS_MAX));
    }
    MR_TRY(abi_texts_check(o->urls, o->url_count, "urls", err));
    if (o->config_file) {
        MR_TRY(file_read(o->config_file, &text, err));
    } else if (o->config) {
        mr_buf_c(&text, o->config);
        MR_TRY(text.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "config: more than %zu bytes", text.max)
                           : MR_OK);
    }
    urls = MR_NEW_ARRAY(mr_str, o->url_count + 1);
    for (uint32_t i = 0; i < o->url_count; i++) {
        urls[i] = mr_str_c(o->urls[i]);
    }
    MR_TRY(policy_take(o, &policy, err));
    rc = config_parse(mr_buf_view(&text), &policy, urls, o->url_count, out, err);
    if (rc < 0 && o->config_file) {
        MR_WRAP(err, rc, "%s", o->config_file);
    }
out:
    mr_buf_fini(&text);
    mr_free(urls);
    return rc;
}

static const char *keep(struct mr_sdk *s, const char *text)
{
    return text ? s->texts[s->text_count++] = mr_strndup(text, strlen(text)) : NULL;
}

#define HEADERS_MAX 64u

static int cluster_options_take(struct mr_sdk *s, const struct mr_sdk_options *o,
                                struct mr_err *err)
{
    if (o->header_count > HEADERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%u headers, possible are %u", o->header_count,
                       HEADERS_MAX);
    }
    int rc = abi_texts_check(o->headers, o->header_count, "headers", err);
    if (rc < 0) {
        return rc;
    }
    s->texts = MR_NEW_ARRAY(char *, o->header_count + 4);
    s->headers = MR_NEW_ARRAY(struct mr_header, o->header_count + 1);
    for (uint32_t i = 0; i < o->header_count; i++) {
        keep(s, o->headers[i]);
        rc = mr_client_header_read(s->texts[i], &s->headers[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    s->cluster_options = (struct cluster_options){.loop = s->driver.loop,
                                                  .headers = (const char *const *)s->texts,
                                                  .header_count = o->header_count,
                                                  .tls = {.is_insecure = o->tls_insecure != 0}};
    s->cluster_options.tls.ca_file = keep(s, o->tls_ca_file);
    s->cluster_options.tls.cert_file = keep(s, o->tls_cert_file);
    s->cluster_options.tls.key_file = keep(s, o->tls_key_file);
    s->cluster_options.tls.server_name = keep(s, o->tls_server_name);
    return MR_OK;
}

/* ---- clusters ---- */

/* Variants with the same hosts and rules share connections and what is known of the hosts. */
static int cluster_for(struct mr_sdk *s, const struct config_variant *v, struct cluster **out,
                       struct mr_err *err)
{
    int rc;

    for (size_t i = 0; i < s->clusters.len; i++) {
        struct cluster *c = s->clusters.at[i];
        if (c->lists == v->hosts && memcmp(&c->policy, &v->policy, sizeof v->policy) == 0) {
            *out = c;
            return MR_OK;
        }
    }
    rc = cluster_new(out, &s->cluster_options, v, err);
    if (rc == MR_OK) {
        MR_VEC_PUSH(&s->clusters, *out);
        if ((*out)->discover) {
            driver_begin(&s->driver); /* lists are looked up all the time */
        }
    }
    return rc;
}

static int endpoint_new(struct mr_sdk *s, const struct config_endpoint *in,
                        struct sdk_endpoint *out, struct mr_err *err)
{
    double weights[MR_VARIANTS_MAX];

    out->config = in;
    out->variants = MR_NEW_ARRAY(struct sdk_variant, in->variant_count);
    for (size_t i = 0; i < in->variant_count; i++) {
        out->variants[i].config = &in->variants[i];
        weights[i] = in->variants[i].weight;
        int rc = cluster_for(s, &in->variants[i], &out->variants[i].cluster, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "endpoint '%.*s', variant '%.*s'", MR_STR_ARG(in->name),
                           MR_STR_ARG(in->variants[i].tag));
        }
    }
    if (in->shadow) {
        int rc = cluster_for(s, &in->shadow_variant, &out->shadow.cluster, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "endpoint '%.*s', shadow", MR_STR_ARG(in->name));
        }
    }
    mr_variant_table_set(&out->weights, weights, in->variant_count);
    mr_map_put(&s->by_name, in->name, out);
    return MR_OK;
}

static int endpoints_new(struct mr_sdk *s, struct mr_err *err)
{
    const struct config *c = s->config;
    int rc = MR_OK;

    s->endpoints = MR_NEW_ARRAY(struct sdk_endpoint, c->endpoint_count + 1);
    for (size_t i = 0; i < c->endpoint_count; i++) {
        MR_TRY(endpoint_new(s, &c->endpoints[i], &s->endpoints[i], err));
    }
    if (c->host_count > 0) {
        const struct config_variant plain = {
            .policy = c->policy, .hosts = c->hosts, .host_count = c->host_count};
        MR_TRY(cluster_for(s, &plain, &s->plain, err));
    }
    if (c->endpoint_count == 0 && c->host_count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "neither a host nor an endpoint is given");
    }
out:
    return rc;
}

/* ---- life ---- */

static void over_wake(void *ctx)
{
    const uint64_t one = 1;
    const struct mr_sdk *s = ctx;

    while (write(s->over_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

static int delivery_open(struct mr_sdk *s, uint32_t delivery, struct mr_err *err)
{
    if (delivery > MR_SDK_PROCESS) {
        return MR_FAIL(err, MR_E_INVALID, "delivery: %u, possible is 0 or 1", delivery);
    }
    s->delivery = delivery;
    if (delivery == MR_SDK_PROCESS) {
        mr_mailbox_init(&s->over, over_wake, s);
        s->over_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
    return delivery == MR_SDK_PROCESS && s->over_fd < 0
               ? MR_FAIL(err, MR_E_IO, "eventfd: %s", strerror(errno))
               : MR_OK;
}

const char *mr_sdk_warning(const struct mr_sdk *s)
{
    return s ? config_warning(s->config) : "";
}

int mr_sdk_fd(const struct mr_sdk *s)
{
    return s ? s->over_fd : -1;
}

static void parts_free(struct mr_sdk *s)
{
    for (size_t i = 0; i < s->clusters.len; i++) {
        cluster_free(&s->clusters.at[i]);
    }
    MR_VEC_FINI(&s->clusters);
    for (size_t i = 0; s->endpoints && i < s->config->endpoint_count; i++) {
        mr_free(s->endpoints[i].variants);
    }
    mr_free(s->endpoints);
    mr_map_fini(&s->by_name);
    config_free(&s->config);
    for (size_t i = 0; i < s->text_count; i++) {
        mr_free(s->texts[i]);
    }
    mr_free(s->texts);
    mr_free(s->headers);
    if (s->over_fd >= 0) {
        close(s->over_fd);
    }
}

/* The loop is not running, or stands still: nothing of it is waited for. */
static void clusters_close(struct mr_sdk *s)
{
    for (size_t i = 0; i < s->clusters.len; i++) {
        cluster_close(s->clusters.at[i]);
    }
}

int mr_sdk_create(struct mr_sdk **out, const struct mr_sdk_options *user, struct mr_err *err)
{
    struct mr_sdk *s = MR_NEW(struct mr_sdk);
    struct mr_sdk_options o;
    bool has_driver = false;
    int rc;

    s->over_fd = -1;
    s->refs = 1;
    MR_TRY(ABI_TAKE(&o, user, "options", err));
    MR_TRY(config_take(&o, &s->config, err));
    MR_TRY(delivery_open(s, o.delivery, err));
    MR_TRY(driver_start(&s->driver, err));
    has_driver = true;
    mr_loop_settle(s->driver.loop); /* so that the loop knows the time */
    MR_TRY(cluster_options_take(s, &o, err));
    MR_TRY(endpoints_new(s, err));
    if (atomic_load(&s->driver.work) > 0) {
        driver_wake(&s->driver);
    }
    *out = s;
    s = NULL;
out:
    if (s) {
        if (has_driver) {
            driver_stop(&s->driver);
            clusters_close(s);
            driver_close(&s->driver);
            driver_free(&s->driver);
        }
        parts_free(s);
        mr_free(s);
    }
    return rc;
}

void client_unref(struct mr_sdk *s)
{
    if (atomic_fetch_sub(&s->refs, 1) == 1) {
        driver_free(&s->driver);
        mr_free(s);
    }
}

static bool has_ended(void *ctx)
{
    const struct mr_sdk *s = ctx;

    return LIST_EMPTY(&s->calls) && LIST_EMPTY(&s->streams);
}

void mr_sdk_free(struct mr_sdk **ps)
{
    struct mr_sdk *s = *ps;

    *ps = NULL;
    if (!s) {
        return;
    }
    driver_stop(&s->driver);
    infer_close(s);
    stream_close(s);
    clusters_close(s);
    driver_settle(&s->driver, has_ended, s);
    mr_sdk_process(s);
    driver_close(&s->driver);
    parts_free(s);
    client_unref(s);
}
