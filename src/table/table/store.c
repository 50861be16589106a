/* Stores: the choice of the database's functions, and retries. */
#include "table/database/store_priv.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "table/database/database.h"

#define PAUSE_FIRST_NS (100 * MR_NS_PER_MS)
#define PAUSE_MOST_NS  (5 * MR_NS_PER_S)
#define SLICE_NS       (50 * MR_NS_PER_MS) /* of a pause, between checks for its end */

struct mr_store {
    const struct mr_store_ops *ops;
    void *state;
    struct mr_store_options options;
    _Atomic int64_t until_ns;
};

static const struct mr_store_ops *ops_of(const char *database)
{
    switch (mr_database_kind_of(database)) {
    case MR_DATABASE_IS_SQLITE: return &mr_sqlite_store_ops;
    case MR_DATABASE_IS_POSTGRESQL: return &mr_pg_store_ops;
    default: return NULL;
    }
}

int mr_store_open(struct mr_store **out, const struct mr_store_options *options, struct mr_err *err)
{
    struct mr_store *s = MR_NEW(struct mr_store);

    s->options = *options;
    s->ops = ops_of(options->database);
    atomic_init(&s->until_ns, INT64_MAX);
    int rc = s->ops
                 ? s->ops->open(&s->state, &s->options, &s->until_ns, err)
                 : MR_FAIL(err, MR_E_INVALID, "'%s' is no database: sqlite:FILE or postgresql://…",
                           options->database);
    if (rc < 0) {
        mr_free(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

int mr_store_name(const char *database, const char *table, struct mr_buf *out, struct mr_err *err)
{
    if (mr_database_kind_of(database) == MR_DATABASE_IS_NONE) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' is no database: sqlite:FILE or postgresql://…",
                       database);
    }
    return mr_database_label(database, table, out, err);
}

int mr_store_commits(struct mr_store *s, mr_store_commit_fn *fn, void *ctx, struct mr_err *err)
{
    return s->ops->commits(s->state, fn, ctx, err);
}

/* Relaxed: only a time, it orders nothing. */
static int64_t wait_ends(const struct mr_store *s)
{
    return atomic_load_explicit(&s->until_ns, memory_order_relaxed);
}

/* Waits for a moment; false: the wait was ended. */
static bool pause_for(const struct mr_store *s, int64_t ns)
{
    const int64_t end_ns = mr_ns_after(mr_now_ns(), ns);
    const struct timespec slice = {0, SLICE_NS};

    while (mr_now_ns() < MR_MIN(end_ns, wait_ends(s))) {
        nanosleep(&slice, NULL);
    }
    return mr_now_ns() < wait_ends(s);
}

int mr_store_commit(struct mr_store *s, mr_str name, mr_str note, const struct mr_rows *const *rows,
                    size_t count, struct mr_err *err)
{
    struct mr_store_add add = {.name = name, .note = note, .rows = rows, .count = count};
    const int64_t give_up_ns = mr_ns_after(mr_now_ns(), s->options.outage_ns);
    int64_t pause_ns = PAUSE_FIRST_NS;
    struct mr_err why;

    for (size_t i = 0; i < count; i++) {
        add.row_count += rows[i]->count;
    }
    for (;;) {
        int rc = s->ops->commit(s->state, &add, &why);
        if (rc == MR_E_UNAVAILABLE && pause_ns == PAUSE_FIRST_NS) {
            mr_log(MR_LOG_WARN, "table.commit_waits",
                   "reason=%s; committing rows to a table failed, and is retried",
                   MR_LOG_STR(mr_str_c(why.msg)));
        }
        if (rc != MR_E_UNAVAILABLE || mr_now_ns() >= give_up_ns || !pause_for(s, pause_ns)) {
            *err = rc < 0 ? why : *err;
            return rc;
        }
        pause_ns = MR_MIN(2 * pause_ns, PAUSE_MOST_NS);
    }
}

void mr_store_stop(struct mr_store *s, int64_t until_ns)
{
    atomic_store_explicit(&s->until_ns, until_ns, memory_order_relaxed);
}

void mr_store_close(struct mr_store **store)
{
    if (*store) {
        (*store)->ops->close((*store)->state);
        mr_freep(store);
    }
}
