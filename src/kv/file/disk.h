/* The file of a registry on the disk. Each function blocks until the disk has done it: for the thread `kv-disk`.
 *
 * What was answered to a client survives the death of the process and of the machine: an answer is given after
 * fdatasync. */
#ifndef MR_KV_FILE_DISK_H
#define MR_KV_FILE_DISK_H

#include "log.h"

struct kv_disk {
    char *path;
    int fd;           /* -1: not open */
    uint64_t id;      /* of the registry */
    uint64_t bytes;   /* that the file has */
    uint64_t base;    /* that it had when it was last written as a whole */
    bool is_replaced; /* the last kv_disk_rewrite has put the new file in its place */
};

/** path is copied. */
void kv_disk_init(struct kv_disk *d, const char *path);
void kv_disk_fini(struct kv_disk *d);
/** Reads the file into the state, which is empty; makes it, with `id`, if there is none. What follows the last whole
 *  entry is cut off, appended to PATH.cut, and logged (kv.file). What is in the state is on the disk. Errors:
 *  MR_E_INVALID (what the file has), MR_E_IO, MR_E_EXHAUSTED (the disk is full), MR_E_NOMEM. */
int kv_disk_load(struct kv_disk *d, uint64_t id, int64_t now_ns, struct kv_state *io_state,
                 struct mr_err *err);
/** Adds entries. After an error the file has what it had before, if the disk lets it. Errors: MR_E_IO,
 *  MR_E_EXHAUSTED. */
int kv_disk_append(struct kv_disk *d, mr_str entries, struct mr_err *err);

/** All that a registry has at one revision. */
struct kv_disk_whole {
    int64_t revision;
    const struct kv_lease *leases; /* id and ttl_s */
    size_t lease_count;
    struct kv_record *const *records;
    size_t record_count;
};
/** Writes the file anew without what is no more; the old one stays until the new one is complete. Errors: as
 *  kv_disk_append. */
int kv_disk_rewrite(struct kv_disk *d, const struct kv_disk_whole *whole, struct mr_err *err);

#endif
