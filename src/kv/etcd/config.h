/* How to reach an etcd cluster: from a text, or a JSON file as ModelMesh's KV_STORE names one. */
#ifndef MR_KV_ETCD_CONFIG_H
#define MR_KV_ETCD_CONFIG_H

#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

#define KV_ETCD_ENDPOINTS_MAX 64

struct kv_etcd;

struct kv_etcd_config {
    MR_VEC(char *) endpoints; /* for mr_client_new */
    bool is_tls;
    char *root; /* in front of all keys: empty, or ends with '/' */
    char *user; /* NULL: no authentication */
    char *password;
    char *authority; /* in place of the endpoint's, also for TLS; NULL: none */
    /* PEM files; NULL: the system's authorities, no client certificate */
    char *ca_file;
    char *cert_file;
    char *key_file;
    MR_VEC(int) files; /* descriptors of files whose content the JSON file has itself */
    char *name;        /* without secrets */
    bool is_local;     /* the other end is on this machine: attempts are not far apart */
    /** (may be NULL) Called before each attempt to connect, which goes on with kv_etcd_prepared. Thread: loop. */
    void (*prepare)(struct kv_etcd *e, void *ctx);
    void (*release)(void *ctx); /* with prepare: the connection ends */
    void *ctx;
};

/** `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, `etcd:HOST:PORT` or `etcd:FILE`. Errors: MR_E_INVALID, MR_E_NOT_FOUND (the
 *  file), MR_E_IO. */
int kv_etcd_config_read(struct kv_etcd_config *out, mr_str text, struct mr_err *err);
/** All keys are below `prefix`, after the root that it has; "" and "/": no effect. Errors: MR_E_INVALID (its length). */
int kv_etcd_config_below(struct kv_etcd_config *c, mr_str prefix, struct mr_err *err);
void kv_etcd_config_fini(struct kv_etcd_config *c);

#endif
