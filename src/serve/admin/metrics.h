/* Shared by the files that implement GET /metrics. Everything here belongs to the administration thread. */
#ifndef MR_SERVE_METRICS_H
#define MR_SERVE_METRICS_H

#include "base/vec.h"
#include "serve/state/state.h"

/* Text that is complete; freed with mr_free. */
struct metrics_chunk {
    char *ptr;
    size_t len;
};

typedef MR_VEC(struct metrics_chunk) metrics_chunks;

/* A chunk is about so long: as much as is sent, or given back, in one go. */
#define METRICS_CHUNK ((size_t)64 << 10)
/* Past this there is no answer. */
#define METRICS_MOST ((size_t)256 << 20)

/* metrics.c: GET /metrics. Thread: the call's. */
void metrics_rest(struct mr_server *s, struct mr_call *call);
void metrics_head(struct mr_buf *b, const char *name, const char *type, const char *help);
/* What `b` holds becomes a chunk, if it is that long; `b` goes on empty. */
void metrics_seal(struct mr_buf *b, size_t at_least, metrics_chunks *out);

/* metrics_process.c: as the protocol writes it */
extern const char *const metrics_grpc_names[MR_GRPC_STATUSES];

/* metrics_models.c: a version each. False: more than METRICS_MOST. */
bool metrics_models(struct mr_server *s, metrics_chunks *out,
                    uint64_t out_states[MR_VERSION_STATES]);
/* metrics_mesh.c: none without a mesh */
void metrics_mesh(struct mr_server *s, struct mr_buf *b);
/* metrics_process.c: everything else, of bounded length */
void metrics_process(struct mr_server *s, const uint64_t states[MR_VERSION_STATES],
                     struct mr_buf *b);

#endif
