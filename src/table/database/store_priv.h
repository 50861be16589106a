/* Shared by the stores, and their tables of functions. Private. */
#ifndef MR_TABLE_STORE_PRIV_H
#define MR_TABLE_STORE_PRIV_H

#include <stdatomic.h>

#include "table/store.h"

#define MR_STORE_JOBS    "millrace_jobs"
#define MR_STORE_COMMITS "millrace_commits"

/** The content of a commit. */
struct mr_store_add {
    mr_str name;
    mr_str note;
    const struct mr_rows *const *rows;
    size_t count;
    uint64_t row_count;
};

/** A database's store: the functions of store.h over a state that `open` makes. */
struct mr_store_ops {
    /** until_ns: when waits end; it may change during the open. */
    int (*open)(void **out, const struct mr_store_options *options, const _Atomic int64_t *until_ns,
                struct mr_err *err);
    int (*commits)(void *s, mr_store_commit_fn *fn, void *ctx, struct mr_err *err);
    /** Tries a commit once. After MR_E_UNAVAILABLE it may be called again, and then finds out whether the commit was
     *  made. */
    int (*commit)(void *s, const struct mr_store_add *add, struct mr_err *err);
    void (*close)(void *s);
};

extern const struct mr_store_ops mr_pg_store_ops;
extern const struct mr_store_ops mr_sqlite_store_ops;

/** Errors shared by the stores. */
int mr_store_no_table(const struct mr_store_options *o, struct mr_err *err);
int mr_store_no_column(const struct mr_store_options *o, const char *column, struct mr_err *err);
int mr_store_other_type(const struct mr_store_options *o, const char *column, mr_str type,
                        const char *expected, struct mr_err *err);
int mr_store_fenced(const struct mr_store_options *o, int64_t epoch, struct mr_err *err);

#endif
