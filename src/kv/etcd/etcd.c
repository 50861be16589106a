#include "etcd.h"

static void etcd_free(struct mr_kv *kv)
{
    struct kv_etcd *e = (struct kv_etcd *)kv;

    etcd_watches_fini(e);
    etcd_calls_fini(e);
    etcd_connect_end(e);
    mr_timer_stop(&e->timer);
    if (e->config.release) {
        e->config.release(e->config.ctx);
    }
    mr_tls_client_free(&e->tls);
    kv_etcd_config_fini(&e->config);
    mr_free(e->token);
    kv_conn_fini(kv);
    mr_free(e);
}

static const struct kv_store store = {
    .start = etcd_call_start,
    .cancel = etcd_call_cancel,
    .watch = etcd_watch_start,
    .watch_stop = etcd_watch_stop,
    .free = etcd_free,
};

static int make_tls(struct kv_etcd *e, struct mr_err *err)
{
    struct mr_tls_client_options options = {
        .ca_file = e->config.ca_file,
        .cert_file = e->config.cert_file,
        .key_file = e->config.key_file,
        .server_name = e->config.authority,
    };
    return e->config.is_tls ? mr_tls_client_new(&e->tls, &options, err) : MR_OK;
}

int kv_etcd_open(struct mr_kv **out, struct mr_loop *loop, struct kv_etcd_config *config,
                 const struct mr_kv_options *options, struct mr_err *err)
{
    struct kv_etcd *e = MR_NEW(struct kv_etcd);
    uint64_t seed;

    e->loop = loop;
    e->config = *config;
    *config = (struct kv_etcd_config){0};
    TAILQ_INIT(&e->calls);
    TAILQ_INIT(&e->watches);
    kv_conn_init(&e->base, &store, options, e->config.name);
    mr_rng_system(&seed, sizeof seed);
    mr_rng_seed(&e->rng, seed);
    e->endpoint = (size_t)(mr_rng_u64(&e->rng) % e->config.endpoints.len);
    int rc = make_tls(e, err);
    if (rc < 0) {
        etcd_free(&e->base);
        return rc;
    }
    etcd_connect_start(e);
    *out = &e->base;
    return MR_OK;
}
