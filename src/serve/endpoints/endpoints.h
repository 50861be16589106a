/* Endpoints: names beside those of models, whose requests are shared among variants (docs/endpoints.md).
 *
 * Requests look names up in an immutable table that one atomic store replaces; the epoch of the model table protects it.
 * An endpoint outlives its table by the requests that it has open. One thread, "endpoints", watches the file, runs ramps
 * and frees what is not in use any more. */
#ifndef MR_SERVE_ENDPOINTS_ENDPOINTS_H
#define MR_SERVE_ENDPOINTS_ENDPOINTS_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/map.h"
#include "engine/engine.h"
#include "remotes.h"
#include "variant/config.h"

struct mr_shadow;

/* What one loop counts of an endpoint. Written by its loop only. */
struct endpoint_cell {
    uint64_t spread;
    uint64_t shadow_spread;
    _Atomic int64_t open; /* requests that have not ended */
    struct mr_variant_cell variants[];
};

/* A file and how many endpoints and tables refer to it. */
struct endpoint_file {
    struct mr_service_file *content;
    struct endpoint_remotes remotes;
    unsigned refs;
};

struct endpoint {
    const struct mr_endpoint_config *config; /* in `file` */
    struct endpoint_file *file;
    struct mr_variant_table weights;
    struct mr_shadow *shadow;               /* NULL: none */
    _Atomic(struct endpoint_cell *) *cells; /* [loop_count], made by their loops */
    struct mr_rollout rollout;              /* guarded by endpoints.mutex */
    bool is_listed;                         /* in the present table */
    bool has_warned;                        /* of a model of this name */
    SLIST_ENTRY(endpoint) link;             /* of endpoints.all */
};

struct endpoint_table {
    struct endpoint_file *file;
    struct mr_map endpoints; /* name → struct endpoint */
    struct mr_map services;  /* name → struct mr_service_config */
};

struct endpoints {
    struct mr_engine *engine;
    struct mr_models *models;
    const char *path;
    unsigned loop_count;
    _Atomic(struct endpoint_table *) table;
    pthread_t thread;
    bool is_started;
    unsigned ticks;        /* of the thread */
    pthread_mutex_t mutex; /* guards what follows, and rollouts; never held while a file is read */
    pthread_cond_t wake;
    bool is_stopping;
    bool is_reload_asked;
    uint64_t reloads, reload_failures;
    SLIST_HEAD(, endpoint) all;
    struct mr_variant_sums sums[MR_VARIANTS_MAX]; /* scratch */
};

/* Reads the file; the names in it are free of models. Borrows `path`. Thread: boot, after mr_models_start. Errors: those of
 * mr_service_file_parse, MR_E_IO, MR_E_NOT_FOUND. */
int endpoints_open(struct endpoints **out, struct mr_engine *engine, const char *path,
                   unsigned loop_count, struct mr_err *err);
/* Shadows take no more requests, and the thread ends. *es NULL: nothing to do. */
void endpoints_stop(struct endpoints *es);
/* After the last request. */
void endpoints_free(struct endpoints **es);
/* Reads the file again, soon. Thread: any. */
void endpoints_reload(struct endpoints *es);

/* Of all loops. Thread: any; the mutex is held. */
void endpoint_sums(const struct endpoints *es, const struct endpoint *e,
                   struct mr_variant_sums *out);
/* After a change of e->rollout: makes it that of requests, and logs it. Thread: any; the mutex is held. */
void endpoint_apply(struct endpoint *e);
/* For rollouts. */
struct mr_rollout_time endpoints_now(void);

#endif
