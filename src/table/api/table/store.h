/* Tables in databases that rows are appended to, each row once.
 *
 * A commit is one transaction: some rows, and a note of them under a name, in a table beside theirs. What is noted is
 * there, and what is not is not, whatever ended the process, the connection or the server. A commit whose outcome is not
 * known, because the connection was lost under it, is looked up before it is made again.
 *
 * The tables beside it, made if need be, are millrace_jobs(job, epoch, target) and millrace_commits(job, part, row_count,
 * extents). The first one fences: a start locks its job's row there and refuses to be an older one than it says.
 *
 * Thread: one at a time, but for mr_store_stop. All block on the database. */
#ifndef MR_TABLE_STORE_H
#define MR_TABLE_STORE_H

#include "base/buf.h"
#include "table/table.h"

struct mr_store_options {
    const char *database; /* see mr_database_kind_of */
    const char *table;    /* in PostgreSQL also SCHEMA.TABLE */
    const struct mr_schema *schema;
    const char *job; /* what tells it from all others */
    uint32_t epoch;  /* of this start of the job */
    bool has_rows;   /* an earlier start has committed: the table must be there */
    int64_t
        outage_ns; /* how long a commit is tried again while the database cannot be reached, or is locked */
    /** Asked five times a second while PostgreSQL is waited for, before the first commit: true ends it with
     *  MR_E_CANCELLED. NULL: never. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
};

struct mr_store;
/** Makes the table if it is not there, with the columns of the schema; one that is there must have them. Earlier starts can
 *  commit nothing any more when this returns. Options are borrowed as long as the store lives.
 *  Errors: MR_E_UNSUPPORTED (no library, or a type that has none in the database), MR_E_INVALID (a column is missing, or
 *  has another type; a later start has been made), MR_E_NOT_FOUND (has_rows, and there is no table), MR_E_UNAVAILABLE
 *  (not reached, or locked), MR_E_FORBIDDEN, MR_E_IO, MR_E_EXHAUSTED (disk full). */
int mr_store_open(struct mr_store **out, const struct mr_store_options *options,
                  struct mr_err *err);
/** Database and table without passwords, for people and to compare. Nothing is opened. Errors: MR_E_INVALID. */
int mr_store_name(const char *database, const char *table, struct mr_buf *out, struct mr_err *err);

typedef int(mr_store_commit_fn)(void *ctx, mr_str name, uint64_t rows, mr_str note,
                                struct mr_err *err);
/** Calls fn for each commit of the job. Errors: fn's, and those of open. */
int mr_store_commits(struct mr_store *s, mr_store_commit_fn *fn, void *ctx, struct mr_err *err);
/** Rows of the schema, all of them or none. Names are used once. Tried again on MR_E_UNAVAILABLE.
 *  Errors: MR_E_CLOSED (a later start has been made), MR_E_INVALID (the database refuses a row), MR_E_TOO_LARGE (a value
 *  that it cannot hold), and those of open. */
int mr_store_commit(struct mr_store *s, mr_str name, mr_str note, const struct mr_rows *const *rows,
                    size_t count, struct mr_err *err);
/** From then on nothing is waited for beyond a time (mr_now_ns). Any thread. */
void mr_store_stop(struct mr_store *s, int64_t until_ns);
/** NULL is fine. */
void mr_store_close(struct mr_store **s);

#endif
