#include "kv/open.h"

#include "kv/etcd/etcd.h"
#include "kv/file/local.h"
#include "kv/file/store.h"
#include "kv/memory/store.h"

static const mr_str local = MR_STR_INIT("local");
static const mr_str file_prefix = MR_STR_INIT("file:"), etcd_prefix = MR_STR_INIT("etcd:");

static mr_str file_path(mr_str text)
{
    return mr_str_sub(text, file_prefix.len, text.len);
}

static int no_registry(mr_str text, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID,
                   "'%.*s' is no registry: must be local, file:PATH, etcd://HOST:PORT[/PREFIX], "
                   "etcd:HOST:PORT, etcd:FILE or memory:",
                   MR_STR_ARG(mr_str_sub(text, 0, 100)));
}

int mr_kv_check(mr_str text, struct mr_err *err)
{
    struct kv_etcd_config config;
    char path[KV_LOCAL_ROOM];
    int rc = MR_OK;

    if (mr_str_eq(text, local)) {
        rc = kv_local_path(path, err);
    } else if (mr_str_starts(text, file_prefix)) {
        rc = kv_file_check(file_path(text), err);
    } else if (mr_str_starts(text, etcd_prefix)) {
        rc = kv_etcd_config_read(&config, text, err);
        if (rc == MR_OK) {
            kv_etcd_config_fini(&config);
        }
    } else if (!mr_str_eq(text, MR_STR("memory:"))) {
        rc = no_registry(text, err);
    }
    return rc;
}

static int open_etcd(struct mr_kv **out, struct mr_loop *loop, mr_str text,
                     const struct mr_kv_options *options, struct mr_err *err)
{
    struct kv_etcd_config config;
    int rc = kv_etcd_config_read(&config, text, err);

    if (rc == MR_OK && options && options->prefix.len) {
        rc = kv_etcd_config_below(&config, options->prefix, err);
        if (rc < 0) {
            kv_etcd_config_fini(&config);
        }
    }
    return rc < 0 ? rc : kv_etcd_open(out, loop, &config, options, err);
}

static int open_local(struct mr_kv **out, struct mr_loop *loop, const struct mr_kv_options *options,
                      struct mr_err *err)
{
    char path[KV_LOCAL_ROOM];
    int rc;

    MR_TRY(kv_local_path(path, err));
    MR_TRY(kv_local_make(path, err));
    rc = kv_file_open(out, loop, mr_str_c(path), options, err);
out:
    return rc;
}

int mr_kv_open(struct mr_kv **out, struct mr_loop *loop, mr_str text,
               const struct mr_kv_options *options, struct mr_err *err)
{
    if (mr_str_eq(text, local)) {
        return open_local(out, loop, options, err);
    }
    if (mr_str_starts(text, file_prefix)) {
        return kv_file_open(out, loop, file_path(text), options, err);
    }
    if (mr_str_starts(text, etcd_prefix)) {
        return open_etcd(out, loop, text, options, err);
    }
    if (!mr_str_eq(text, MR_STR("memory:"))) {
        return no_registry(text, err);
    }
    *out = kv_memory_open_on(loop, options);
    return MR_OK;
}
