/* A server's statistics of its models, from its statistics endpoints. */
#ifndef MR_CLI_STATS_H
#define MR_CLI_STATS_H

#include "base/arena.h"
#include "base/vec.h"
#include "remote.h"

struct mr_stats_time {
    uint64_t count;
    uint64_t ns;
};

/** A version of a model, since the server's start. */
struct mr_stats_row {
    mr_str name; /* in the arena or the body */
    mr_str version;
    uint64_t inferences;
    uint64_t executions;
    struct mr_stats_time success;
    struct mr_stats_time fail;
    struct mr_stats_time queue;
    struct mr_stats_time input;
    struct mr_stats_time infer;
    struct mr_stats_time output;
};
struct mr_stats_list {
    struct mr_stats_row *at;
    size_t len;
    size_t cap;
};

/** The answer to GET /v2/models/[NAME/]stats. Release with MR_VEC_FINI, also after an error. */
int mr_stats_parse_rest(mr_bytes body, struct mr_arena *arena, struct mr_stats_list *out,
                        struct mr_err *err);

/** Sums over the versions of a model (version NULL: all), through REST or gRPC; names are empty. */
int mr_stats_get(struct mr_remote *r, bool grpc, const char *model, const char *version,
                 struct mr_stats_row *out, struct mr_err *err);
/** The difference between two of them. */
struct mr_stats_row mr_stats_since(const struct mr_stats_row *before,
                                   const struct mr_stats_row *after);

#endif
