/* A folder of folders that were made once and are used by many: unpacked archives, Python environments.
 *
 * Each has a kind and a key, which says what it was made from. It is made under a temporary name, written to the
 * disk, and renamed, so that a half-made one never counts; what an interruption left is removed by the next maker.
 * Processes share the cache: while one makes a folder, others that want it wait. When all together are larger than the
 * cache may be, folders that are not in use are removed, the least recently used first.
 *
 * A folder KIND-KEY has a file KIND-KEY.lock beside it: locked (flock) by those who use it, exclusively by the one who
 * makes or removes it; it holds the folder's size, and its time is that of the last use. Thread: any; everything here
 * blocks. */
#ifndef MR_ARCHIVE_CACHE_H
#define MR_ARCHIVE_CACHE_H

#include "archive/archive.h"

struct mr_cache;

/** `dir` NULL: the folder "unpacked" in the first of $CACHE_DIRECTORY, $XDG_CACHE_HOME/millrace, $HOME/.cache/millrace
 *  that is set. Copied; made at the first use. max_bytes 0: no limit. */
struct mr_cache *mr_cache_new(const char *dir, uint64_t max_bytes);
/** References may still be held. */
void mr_cache_free(struct mr_cache **c);

/** A folder of the cache, which stays while it is referenced. */
struct mr_cache_ref;
struct mr_cache_ref *mr_cache_ref(struct mr_cache_ref *r); /* accepts NULL */
void mr_cache_unref(struct mr_cache_ref **r);              /* accepts NULL in it */
const char *mr_cache_path(const struct mr_cache_ref *r);

struct mr_cache_maker {
    /** Fills the empty folder `dir`, which will be renamed to `path`. */
    int (*make)(void *ctx, const char *dir, const char *path, struct mr_err *err);
    /** (may be NULL) True ends a wait for another maker with MR_E_CANCELLED. */
    bool (*is_unwanted)(void *ctx);
    void *ctx;
};
/** The folder of that kind and key (letters, digits, '-', '_' and '.', 200 at most), made if it is not there. Errors: the
 *  maker's; MR_E_FORBIDDEN (the cache's folder is writable by others), MR_E_IO, MR_E_CANCELLED. */
int mr_cache_get(struct mr_cache *c, const char *kind, const char *key,
                 const struct mr_cache_maker *maker, struct mr_cache_ref **out, struct mr_err *err);

/** Of an archive to be unpacked. */
struct mr_cache_archive_args {
    const char *path;
    uint32_t flags;   /* MR_ARCHIVE_* */
    const char *into; /* a folder of the result in which the files are put; NULL: none */
    /** (may be NULL) As in mr_archive_rules; `total`: of the archive. */
    bool (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
/** The folder with an archive's files, unpacked if its content has not been before. Errors: those of mr_archive_unpack and
 *  mr_cache_get, with the archive's path before them; MR_E_NOT_FOUND. */
int mr_cache_archive(struct mr_cache *c, const struct mr_cache_archive_args *args,
                     struct mr_cache_ref **out, struct mr_err *err);

#endif
