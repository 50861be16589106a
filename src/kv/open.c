#include "kv/open.h"

#include "kv/etcd/etcd.h"
#include "kv/memory/store.h"

static bool is_memory(mr_str text)
{
    return mr_str_eq(text, MR_STR("memory:"));
}

static int read_etcd(mr_str text, struct kv_etcd_config *out, struct mr_err *err)
{
    if (!mr_str_starts(text, MR_STR("etcd:"))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.*s' is no registry: must be memory:, etcd://HOST:PORT[/PREFIX], "
                       "etcd:HOST:PORT or etcd:FILE",
                       MR_STR_ARG(mr_str_sub(text, 0, 200)));
    }
    return kv_etcd_config_read(out, text, err);
}

int mr_kv_check(mr_str text, struct mr_err *err)
{
    struct kv_etcd_config config;
    int rc = is_memory(text) ? MR_OK : read_etcd(text, &config, err);

    if (rc == MR_OK && !is_memory(text)) {
        kv_etcd_config_fini(&config);
    }
    return rc;
}

int mr_kv_open(struct mr_kv **out, struct mr_loop *loop, mr_str text,
               const struct mr_kv_options *options, struct mr_err *err)
{
    struct kv_etcd_config config;

    if (is_memory(text)) {
        *out = kv_memory_open_on(loop, options);
        return MR_OK;
    }
    int rc = read_etcd(text, &config, err);
    return rc < 0 ? rc : kv_etcd_open(out, loop, &config, options, err);
}
