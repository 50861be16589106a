/* Appending rows to tables in databases, each row exactly once.
 *
 * A commit is one transaction: some rows, and a note under a name in another table. Rows are in the table if and only
 * if their note is, whatever ends the process, the connection or the server. A commit whose outcome is unknown
 * because the connection was lost is looked up before it is repeated.
 *
 * The additional tables, created if missing, are millrace_jobs(job, epoch, target) and millrace_commits(job, part,
 * row_count, extents). The first one fences off old starts: a start locks its job's row there and fails if the row
 * names a later start.
 *
 * Thread: one at a time, except mr_store_stop. All block on the database. */
#ifndef MR_TABLE_STORE_H
#define MR_TABLE_STORE_H

#include "base/buf.h"
#include "table/table.h"

struct mr_store_options {
    const char *database; /* see mr_database_kind_of */
    const char *table;    /* in PostgreSQL also SCHEMA.TABLE */
    const struct mr_schema *schema;
    const char *job; /* its unique identity */
    uint32_t epoch;  /* number of this start of the job */
    bool has_rows;   /* an earlier start has committed: the table must exist */
    /* how long a commit is retried while the database cannot be reached, or is locked */
    int64_t outage_ns;
    /** Called five times a second during waits for PostgreSQL before the first commit: true ends them with
     *  MR_E_CANCELLED. NULL: never. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
};

struct mr_store;
/** Creates the table with the columns of the schema; an existing table must have them. After the return earlier
 *  starts can no longer commit. Options are borrowed until the store is closed.
 *  Errors: MR_E_UNSUPPORTED (no library, or a type that the database lacks), MR_E_INVALID (a column is missing, or
 *  has another type; there is a later start), MR_E_NOT_FOUND (has_rows, or commits of the job, and there is no table), MR_E_UNAVAILABLE (not
 *  reached, or locked), MR_E_FORBIDDEN, MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_store_open(struct mr_store **out, const struct mr_store_options *options,
                  struct mr_err *err);
/** Database and table without passwords, for messages and comparisons. Opens nothing. Errors: MR_E_INVALID. */
int mr_store_name(const char *database, const char *table, struct mr_buf *out, struct mr_err *err);

typedef int(mr_store_commit_fn)(void *ctx, mr_str name, uint64_t rows, mr_str note,
                                struct mr_err *err);
/** Calls fn for each commit of the job. Errors: fn's, and those of open. */
int mr_store_commits(struct mr_store *s, mr_store_commit_fn *fn, void *ctx, struct mr_err *err);
/** Commits rows of the schema, all of them or none. Each name is used once. Retries on MR_E_UNAVAILABLE.
 *  Errors: MR_E_CLOSED (there is a later start), MR_E_INVALID (the database refuses a row), MR_E_TOO_LARGE (a value
 *  that it cannot hold), and those of open. */
int mr_store_commit(struct mr_store *s, mr_str name, mr_str note, const struct mr_rows *const *rows,
                    size_t count, struct mr_err *err);
/** Later waits, and those that go on, end at until_ns at the latest (mr_now_ns). Any thread. */
void mr_store_stop(struct mr_store *s, int64_t until_ns);
/** Accepts NULL. */
void mr_store_close(struct mr_store **s);

#endif
