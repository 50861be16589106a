/* The control side of `millrace perf update`: loads and unloads of a model, over a connection of its own, and their
 * phases as reported by the server. */
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

/** A load of a version, as reported by the server. */
struct perf_load {
    int state;                            /* enum perf_state; -1: another one */
    int64_t entered_wall_ns[PERF_STATES]; /* by the server's clock, 0: never */
    /* at the end of DRAINING: time to release its memory; 0: not reported */
    int64_t release_ns;
};
struct perf_load_history {
    struct perf_load *at;
    size_t len;
    size_t cap;
};

/** `model` and `access` are borrowed. Does not connect. Errors: as mr_remote_open. */
int perf_control_open(struct perf_control *c, const char *url, bool grpc, const char *model,
                      const struct mr_remote_access *access, struct mr_err *err);
void perf_control_close(struct perf_control *c);

/** The calls wait for their answers, at most ten minutes. Errors: the server's. */
int perf_control_load(struct perf_control *c, mr_str config,
                      struct mr_err *err); /* config "": none */
int perf_control_unload(struct perf_control *c, struct mr_err *err);
/** The current configuration, as JSON. */
int perf_control_config(struct perf_control *c, struct mr_buf *out, struct mr_err *err);
/** The running and recent loads of the model, in the order of their start; release with MR_VEC_FINI. Fails if the
 *  server does not report loads. */
int perf_control_load_history(struct perf_control *c, struct perf_load_history *out,
                              struct mr_err *err);

/* ---- texts ---- */

/** Makes a configuration that serves only this version from an existing one. Errors: MR_E_INVALID. */
int perf_config_of_version(mr_str config, int64_t version, struct mr_buf *out, struct mr_err *err);
/** The answer to GET /v2/models/M/versions. Errors: MR_E_INVALID. */
int perf_load_history_parse(mr_bytes body, struct perf_load_history *out, struct mr_err *err);
/** "2026-11-21T15:26:16.988493Z" in ns since the epoch; false if it is not such a time. */
bool perf_wall_parse(mr_str text, int64_t *out_ns);

#endif
