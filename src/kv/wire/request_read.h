/* Requests of etcd's API, read by the process that serves the others. They come from elsewhere: anything in them is
 * possible. What is read points into the message and the arena, and is within the limits of kv/kv.h.
 *
 * Understood is what request_write.c writes: ranges of single keys and of prefixes, compares of the revision of the
 * last change. */
#ifndef MR_KV_WIRE_REQUEST_READ_H
#define MR_KV_WIRE_REQUEST_READ_H

#include "base/arena.h"
#include "kv/core/conn.h"

/** Errors: MR_E_INVALID, MR_E_UNSUPPORTED (what etcd has beyond that), MR_E_NOMEM. */
int kv_wire_read_request(mr_bytes message, enum kv_ask ask, struct mr_arena *arena,
                         struct kv_request *out, struct mr_err *err);

struct kv_wire_watch_request {
    enum { KV_WATCH_CREATE, KV_WATCH_OTHER } kind; /* OTHER: nothing that needs an answer */
    mr_str prefix;
    int64_t from;
};
/** Errors: as above. */
int kv_wire_read_watch(mr_bytes message, struct kv_wire_watch_request *out, struct mr_err *err);
/** The revision of a CompactionRequest. Errors: MR_E_INVALID. */
int kv_wire_read_compact(mr_bytes message, int64_t *out, struct mr_err *err);

#endif
