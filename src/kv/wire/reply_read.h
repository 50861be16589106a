/* Answers of etcd, read. They come from elsewhere: anything in them is possible. What is read points into the
 * message and the arena. */
#ifndef MR_KV_WIRE_REPLY_READ_H
#define MR_KV_WIRE_REPLY_READ_H

#include "base/arena.h"
#include "kv/core/conn.h"

struct kv_wire_header {
    uint64_t cluster;
    uint64_t term;
    int64_t revision;
};

/** root: is cut off the keys. `asked`: what was asked for, whose operations say how many results of which kind have
 *  to come. Errors: MR_E_INVALID (not what such a request is answered), MR_E_NOT_FOUND (keep: no such lease),
 *  MR_E_NOMEM. */
int kv_wire_reply(mr_bytes message, mr_str root, const struct kv_request *asked,
                  struct mr_arena *arena, struct kv_wire_header *out_header,
                  struct mr_kv_reply *out, struct mr_err *err);

struct kv_wire_watched {
    struct kv_wire_header header;
    bool is_created;
    bool is_canceled;
    int64_t compact_revision; /* > 0: of a watch that begins before it */
    mr_str reason;
    const struct mr_kv_change *changes;
    size_t count;
};
/** Errors: MR_E_INVALID, MR_E_NOMEM. */
int kv_wire_watched(mr_bytes message, mr_str root, struct mr_arena *arena,
                    struct kv_wire_watched *out, struct mr_err *err);

struct kv_wire_status {
    struct kv_wire_header header;
    uint64_t leader; /* 0: the cluster has none */
};
/** Errors: MR_E_INVALID. */
int kv_wire_status(mr_bytes message, struct kv_wire_status *out, struct mr_err *err);
/** Errors: MR_E_INVALID. */
int kv_wire_token(mr_bytes message, mr_str *out, struct mr_err *err);

#endif
