/* The other side of `millrace perf update`: loads and unloads of a model, over a connection of its own, and what
 * the server tells of their phases. */
#ifndef MR_CLI_PERF_CONTROL_H
#define MR_CLI_PERF_CONTROL_H

#include "base/buf.h"
#include "base/vec.h"
#include "cli/common/remote.h"

struct perf_control {
    struct mr_remote remote;
    bool grpc;
    const char *model;
};

/** States of a load, in the order in which they are entered. */
enum perf_state {
    PERF_START,
    PERF_LOADING,
    PERF_WARMING,
    PERF_READY,
    PERF_DRAINING,
    PERF_UNLOADED,
    PERF_FAILED,
    PERF_STATES
};

/** A load of a version, as the server tells it. */
struct perf_life {
    int state;                            /* enum perf_state; -1: another one */
    int64_t entered_wall_ns[PERF_STATES]; /* by the server's clock, 0: never */
    int64_t
        release_ns; /* at the end of DRAINING: how long its memory took to be given back; 0: not told */
};
struct perf_lives {
    struct perf_life *at;
    size_t len;
    size_t cap;
};

/** `model` and `access` are borrowed. Nothing is connected yet. Errors: as mr_remote_open. */
int perf_control_open(struct perf_control *c, const char *url, bool grpc, const char *model,
                      const struct mr_remote_access *access, struct mr_err *err);
void perf_control_close(struct perf_control *c);

/** The calls wait for their answers, ten minutes at most. Errors: what the server says. */
int perf_control_load(struct perf_control *c, mr_str config,
                      struct mr_err *err); /* config "": none */
int perf_control_unload(struct perf_control *c, struct mr_err *err);
/** The configuration in force, as JSON. */
int perf_control_config(struct perf_control *c, struct mr_buf *out, struct mr_err *err);
/** The loads of the model that go on or have ended lately, in the order of their begin; release with MR_VEC_FINI.
 *  Errors: the server tells nothing of the kind. */
int perf_control_lives(struct perf_control *c, struct perf_lives *out, struct mr_err *err);

/* ---- texts ---- */

/** A configuration that serves this version only, from one that is there. Errors: MR_E_INVALID. */
int perf_config_of_version(mr_str config, int64_t version, struct mr_buf *out, struct mr_err *err);
/** The answer to GET /v2/models/M/versions. Errors: MR_E_INVALID. */
int perf_lives_parse(mr_bytes body, struct perf_lives *out, struct mr_err *err);
/** "2026-11-21T15:26:16.988493Z" in ns since the epoch; false when it is none. */
bool perf_wall_parse(mr_str text, int64_t *out_ns);

#endif
