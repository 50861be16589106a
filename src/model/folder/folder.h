/* Model folders on disk: names, paths that stay inside, contents at one moment, temporary copies.
 *
 * The rule: a path from a name, a config or a link is resolved, and used
 * only if the result lies inside the repository. Contents of folders are compared by fingerprint, a
 * sum over path, size, times and inode of every file; equal fingerprints mean "unchanged". */
#ifndef MR_MODEL_FOLDER_H
#define MR_MODEL_FOLDER_H

#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "base/str.h"
#include "base/vec.h"
#include "model/archives/archives.h"
#include "model/name.h"

/** Bounds of one model's folder. */
#define MR_FOLDER_MAX_FILES    100000
#define MR_FOLDER_MAX_DEPTH    16
#define MR_FOLDER_MAX_VERSIONS 10000

/* ---- path.c ---- */

/** A relative path without empty, "." and ".." parts, at most 16 of them, 512 bytes, no control
 *  characters. */
int mr_model_path_check(mr_str path, struct mr_err *err);
/** `a` "/" `b` on the heap. */
char *mr_path_join(const char *a, mr_str b);
/** Resolve `path`; it must be `root` (a resolved folder; NULL: none), one of `links` (likewise; ends with NULL; NULL: none), or lie
 *  below one of them. *out on the heap. Errors: MR_E_NOT_FOUND, MR_E_FORBIDDEN (leads outside, or may
 *  not be read), MR_E_INVALID. */
int mr_path_inside(const char *root, const char *const *links, const char *path, char **out,
                   struct mr_err *err);

/* ---- folder.c ---- */

/** Sum over the files below a folder. Sums add up in any order. */
struct mr_fingerprint {
    uint64_t sum;
    uint64_t beside; /* of rights and of recorded requests: what a version is not made of */
    uint64_t bytes;
    int64_t newest_wall_ns; /* latest change of any file or folder (ctime) */
    size_t files;
    size_t links; /* among them, whose targets change without a change of this folder */
};

struct mr_folder_version {
    int64_t number;
    char *dir;         /* not resolved: <model folder>/<number> */
    bool has_marker;   /* a file ".ready" in it */
    bool has_requests; /* a file MR_WARMUP_REQUESTS */
    struct mr_fingerprint fingerprint;
    char *label;       /* the version's name at MLServer, where that is no number; NULL: none */
    bool is_unnamed;   /* one of MLServer's without a name */
    struct mr_err err; /* status MR_OK, or why it cannot be used */
};

/** A model's folder at one moment. */
struct mr_folder {
    char *root;                                /* resolved repository */
    const char *const *links;                  /* where else links may lead; borrowed */
    char *dir;                                 /* resolved model folder, below root or a link's */
    struct mr_fingerprint shared;              /* all but the versions */
    MR_VEC(struct mr_folder_version) versions; /* ascending; zero is never one */
    char *config_path;                         /* NULL = none there */
    struct archive_repository *archive;        /* that it is in, which has `links`; NULL = none */
    /* A model of MLServer without a configuration: its versions are the folders with a model-settings.json that names
     * the model, anywhere in the repository. */
    bool is_mlserver;
    int64_t max_batch_size; /* of the last version; 0 = none */
    double max_batch_time_s;
};

/** Called for each folder that mr_folder_read reads, for watch.c. */
typedef void(mr_folder_visit_fn)(void *ctx, const char *dir);

/** Reads a model's folder. `links` as in mr_path_inside, must outlive *f. config_name NULL: config.pbtxt, otherwise
 *  configs/<config_name>.pbtxt if it exists. Errors: MR_E_NOT_FOUND (no such folder), MR_E_FORBIDDEN (leads outside the root,
 *  unreadable), ... A broken version is no error: it is in its `err`. Free with mr_folder_fini also
 *  after an error. */
int mr_folder_read(struct mr_folder *f, const char *repository, const char *const *links,
                   mr_str name, const char *config_name, mr_folder_visit_fn *visit, void *ctx,
                   struct mr_err *err);
/** The configuration file of a model's folder, as mr_folder_read finds it, without reading the rest. *out NULL: it has none. Errors:
 *  as mr_folder_read. */
int mr_folder_config_path(char **out, const char *repository, const char *const *links, mr_str name,
                          const char *config_name, struct mr_err *err);
void mr_folder_fini(struct mr_folder *f);
const struct mr_folder_version *mr_folder_find(const struct mr_folder *f, int64_t number);
/** "12": decimal, no leading zero, 1..INT64_MAX. */
bool mr_version_number(mr_str name, int64_t *out);

/* ---- names of a repository ---- */

struct mr_name {
    char *name;
    uint32_t count; /* repositories that have it */
};
struct mr_name_list {
    struct mr_name *at;
    size_t len;
};
/** Folder names of all repositories and `more` names, sorted, without hidden and invalid names
 *  (which are logged). Errors: a repository cannot be read. */
int mr_names_read(const char *const *repositories, size_t count, const char *const *more,
                  size_t more_count, struct mr_name_list *out, struct mr_err *err);
void mr_names_fini(struct mr_name_list *list);

/* ---- temp.c ---- */

/** A folder below the system's temporary one, with mode 0700, removed with the last reference. */
struct mr_temp_dir {
    _Atomic unsigned refs;
    char *path;
};
int mr_temp_new(struct mr_temp_dir **out, struct mr_err *err);
struct mr_temp_dir *mr_temp_ref(struct mr_temp_dir *t);
void mr_temp_unref(struct mr_temp_dir **t);
/** Write <path>/<model>/<file>, folders included. `file` passed mr_model_path_check. */
int mr_temp_write(struct mr_temp_dir *t, mr_str model, mr_str file, const void *data, size_t len,
                  struct mr_err *err);

#endif
