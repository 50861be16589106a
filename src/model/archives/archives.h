/* Archives in the repositories, or by their addresses: files NAME.tar.gz and the like, whose content is served as if it were
 * unpacked.
 *
 * Each is unpacked into the cache and stands as a repository of its own beside the folder it lies in. What of it is the
 * repository: the folder `models`, if it has one, also below a single folder at its top; otherwise all of it; and if it is
 * the folder of a model itself, that model has the archive's name without its end. What lies beside `models` (assets,
 * requirements.txt) may be linked to.
 *
 * Others are placed: each is one model, by a name that its files need not know. */
#ifndef MR_MODEL_ARCHIVES_H
#define MR_MODEL_ARCHIVES_H

#include "archive/cache.h"
#include "base/str.h"

/** An archive that was found, or a model that was placed. Immutable; stays, with its unpacked files, while it is referenced. */
struct archive_repository {
    _Atomic unsigned refs;
    char *file; /* its path or address */
    char *stem; /* its name without the end */
    uint64_t identity;
    bool is_placed;
    bool is_temp; /* path is a temporary folder, of what is no archive: top and content are NULL */
    /* What it was until an update that cannot be used: its models serve from there. NULL: none. Has no `before` itself. */
    struct archive_repository *before;
    struct mr_err err;  /* status MR_OK, or why it cannot be used; what follows is then NULL */
    char *top;          /* the unpacked files, resolved */
    char *path;         /* what of it is the repository */
    const char **links; /* where links may lead: `top`, and those of archives_new; ends with NULL */
    struct mr_cache_ref *content; /* of top */
    struct mr_cache_ref *view; /* of path, if that is another folder of the cache; otherwise NULL */
};
struct archive_repository *archive_repository_ref(struct archive_repository *r); /* accepts NULL */
void archive_repository_unref(struct archive_repository **r); /* accepts NULL in it */

struct archive_list {
    struct archive_repository **at;
    size_t len;
};
void archive_list_fini(struct archive_list *list);

struct archives;
struct archives_options {
    struct mr_cache *cache; /* borrowed, as all of these */
    const char *const *repositories;
    size_t repository_count;
    const char *const *urls; /* of archive_url_parse, which has accepted them */
    size_t url_count;
    uint64_t max_bytes;       /* of one that is fetched, 0 = no limit */
    const char *const *links; /* ends with NULL */
    const char *placed;       /* where the links to what is no archive are */
    /** Makes `path` the model `name` of a folder: mr_model_place. */
    int (*place)(const char *folder, mr_str name, const char *path, mr_str type,
                 struct mr_err *err);
    const _Atomic bool *is_stopping; /* unpacking ends */
};
struct archives *archives_new(const struct archives_options *o);
void archives_free(struct archives **a);
/** Looks for archives, and fetches and unpacks those that are new or have changed since the last call. What was usable of one
 *  that no longer is stays in its `before`. settle_ns: files that were
 *  touched less than that ago are left for later, and what they were before stays. *out_is_restless (may be NULL): there are such files.
 *  True if the list has changed. Thread: any that may block for long; one at a time, others wait. */
bool archives_refresh(struct archives *a, int64_t settle_ns, bool *out_is_restless);
/** True if `path` is a regular file whose name ends as an archive's does. */
bool archives_is_file(const char *path);
/** Fetches and unpacks the archive at a path or address, as the model of that name and type, in the place of what was placed by
 *  that name. What of it is the model: its top, or below it `models` and a single folder, or the folder of that name in `models`.
 *  A path that is not an archive is the model itself.
 *  is_unwanted (may be NULL) ends a download. Errors: those of archive_url_parse, fetch_archive and `place`; nothing has changed then. Thread: any that may block for long; one
 *  at a time for a name. */
int archives_place(struct archives *a, mr_str name, mr_str type, const char *address,
                   const _Atomic bool *is_unwanted, struct mr_err *err);
/** What is placed under that name, with a reference for the caller; NULL: nothing. Thread: any. */
struct archive_repository *archives_placed(struct archives *a, mr_str name);
/** Replaces what is placed under that name by `r`, which it takes; NULL: removes it. Thread: any. */
void archives_put(struct archives *a, mr_str name, struct archive_repository *r);
/** Those of the last refresh, and those that are placed. Free with archive_list_fini. Thread: any. */
void archives_get(struct archives *a, struct archive_list *out);

#endif
