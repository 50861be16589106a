/* The file of a registry: what it consists of, written and read. Pure: bytes in memory.
 *
 * A header of 24 bytes: "MRKVLOG1", the registry's id (8 bytes, little-endian), 4 bytes of zero, CRC-32C of the 20
 * bytes before. Then entries: length of the payload (4 bytes), CRC-32C of length and payload (4 bytes), payload. An
 * entry is a change of the registry, whole or not at all; a protobuf message:
 *
 *   1  revision after it
 *   2  keys put and deleted, in their order, each an etcd Event
 *   3  a lease that begins: 1 id, 2 time to live in seconds
 *   4  id of a lease that ends
 *   5  true: no change, but a part of what there was when the file was begun
 *
 * New fields are refused by older versions, which would lose them. */
#ifndef MR_KV_FILE_LOG_H
#define MR_KV_FILE_LOG_H

#include "base/buf.h"
#include "kv/state/state.h"

#define KV_LOG_HEADER_BYTES 24

void kv_log_put_header(struct mr_buf *b, uint64_t id);

struct kv_log_entry {
    int64_t revision;
    struct kv_record *const *records;
    size_t record_count;
    const struct kv_lease *granted; /* NULL: none */
    int64_t ended;                  /* 0: none */
    bool is_old;
};
void kv_log_put(struct mr_buf *b, const struct kv_log_entry *entry);

struct kv_log_found {
    uint64_t id;
    /** Of header and whole entries; what follows was being written when something died. */
    size_t bytes;
    size_t base; /* of these: what the file had when it was begun */
};
/** Makes the state, which is empty, what the file says. Leases end a whole time to live after `now_ns`.
 *  Errors: MR_E_INVALID (not such a file, or of another version; a whole entry that makes no sense). */
int kv_log_read(mr_bytes file, int64_t now_ns, struct kv_state *io_state, struct kv_log_found *out,
                struct mr_err *err);

#endif
