/* The repositories with their archives, and the names of the folders in them. */
#ifndef MR_MODEL_NAMES_H
#define MR_MODEL_NAMES_H

#include "model/archives/archives.h"
#include "state.h"

/** A repository, or an archive in one, which stands beside it. */
struct mr_repository {
    const char *path;                   /* NULL: an archive that never could be used */
    const char *const *links;           /* where its links may lead */
    struct archive_repository *archive; /* NULL = none */
};
/** All repositories that count, with their archives. */
struct mr_repository_list {
    struct mr_repository *at;
    size_t len;
    struct archive_list archives; /* that `at` refers to */
};
void mr_repositories_get(struct mr_models *m, struct mr_repository_list *out);
void mr_repositories_fini(struct mr_repository_list *list);
/** Reads a model's folder of one of them. Errors: as mr_folder_read, and those of an archive that cannot be used: for the models
 *  that it had before, or, if there were none, for the model that has its name. */
int mr_repository_read(struct mr_folder *f, const struct mr_models *m,
                       const struct mr_repository *r, mr_str name, mr_folder_visit_fn *visit,
                       void *ctx, struct mr_err *err);
/** True if `rc` of mr_repository_read means that the repository itself cannot be read now: it may have the model or not. */
bool mr_repository_is_away(const struct mr_repository *r, const struct mr_folder *f, int rc);
/** Whether the repository counts: false while it has been missing ever since the start; checked
 *  each time, but in mode none. Thread: any; blocks when it is missing. */
bool mr_repository_counts(struct mr_models *m, size_t i);
/** Reads the folder names again, unless they were read less than max_age_ns ago. Thread: any;
 *  blocks. */
int mr_names_refresh(struct mr_models *m, int64_t max_age_ns, struct mr_err *err);

#endif
