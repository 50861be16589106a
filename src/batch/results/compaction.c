/* The choice of files, and the thread that joins them. Between the two goes one group at a time. */
#include "compaction.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "batch/manifest/manifest_priv.h"
#include "batch/manifest/merge_group.h"
#include "committer.h"
#include "results.h"
#include "sink.h"

#define FAN_IN 8
#define LEVELS 6

typedef const struct mr_manifest_item *item_ref;
typedef MR_VEC(item_ref) item_vec;

enum compaction_state { TREE_IDLE, TREE_GIVEN, TREE_JOINED };

struct compaction {
    struct results *results;
    /* of the input; -1: not known before the reader, whose the source is, or it may be repaired */
    int64_t *file_rows;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the state and is_ending; held for a few instructions */
    pthread_cond_t more;
    enum compaction_state state;
    bool is_ending;
    bool has_failed;
    /* The thread's while TREE_GIVEN, otherwise the committer's. */
    struct merge_group group;
    int rc;
    struct mr_err err;
};

/* ---- which ---- */

/* No row is missing between the two, nor will be. */
static bool are_neighbours(const struct compaction *t, item_ref a, item_ref b)
{
    const struct mr_manifest_extent *last = &a->extents[a->extent_count - 1];
    const struct mr_manifest_extent *next = b->extents;
    int64_t end = (int64_t)(last->first + last->count);

    if (last->file == next->file) {
        return next->first == (uint64_t)end;
    }
    for (uint32_t file = last->file; file < next->file; file++, end = 0) {
        if (t->file_rows[file] != end) {
            return false;
        }
    }
    return next->first == 0 && t->results->input->shard.count == 0;
}

static int items_in_order(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = (*(const item_ref *)a)->extents;
    const struct mr_manifest_extent *y = (*(const item_ref *)b)->extents;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Eight of the level between most / 8 and most, and smaller ones in between. */
static bool level_choose(const struct compaction *t, const item_vec *items, uint64_t most,
                         bool is_last, item_vec *out)
{
    const bool is_ordered = t->results->o->results.order != MR_BATCH_UNORDERED;
    size_t count = 0;

    out->len = 0;
    for (size_t i = 0; i < items->len; i++) {
        item_ref item = items->at[i];
        const bool fits =
            !item->is_elsewhere && item->part_bytes <= most && (item->part || is_ordered);
        if (is_ordered && out->len > 0 &&
            (!fits || !are_neighbours(t, out->at[out->len - 1], item))) {
            out->len = count = 0;
        }
        if (fits) {
            MR_VEC_PUSH(out, item);
            count += item->part && (is_last || item->part_bytes > most / FAN_IN);
        }
        if (count == FAN_IN) {
            return true;
        }
    }
    return false;
}

/* The lowest level goes first. */
static bool group_choose(struct compaction *t)
{
    struct mr_manifest *m = t->results->manifest;
    item_vec items = {0};
    item_vec chosen = {0};
    bool found = false;

    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        if (mr_manifest_item(m, i)->extent_count > 0) {
            MR_VEC_PUSH(&items, mr_manifest_item(m, i));
        }
    }
    if (t->results->o->results.order != MR_BATCH_UNORDERED && items.len > 1) {
        qsort(items.at, items.len, sizeof *items.at, items_in_order);
    }
    for (int level = LEVELS; level > 0 && !found; level--) {
        uint64_t most = t->results->o->results.merge_bytes;
        for (int k = 0; k < level; k++) {
            most /= FAN_IN;
        }
        found = level_choose(t, &items, most, level == LEVELS, &chosen);
    }
    if (found) {
        merge_group_begin(&t->group, m, chosen.at, chosen.len);
    }
    MR_VEC_FINI(&items);
    MR_VEC_FINI(&chosen);
    return found;
}

/* ---- the thread ---- */

static void priority_lower(void)
{
    const int of_process = 1; /* IOPRIO_WHO_PROCESS, which is a thread */
    const int idle = 3 << 13; /* IOPRIO_CLASS_IDLE */

    /* Where they do not work, it is done at the common priority. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
    syscall(SYS_ioprio_set, of_process, 0, idle);
}

static void *compaction_run(void *arg)
{
    struct compaction *t = arg;

    priority_lower();
    pthread_mutex_lock(&t->lock);
    while (t->state == TREE_GIVEN || !t->is_ending) {
        if (t->state != TREE_GIVEN) {
            pthread_cond_wait(&t->more, &t->lock);
            continue;
        }
        pthread_mutex_unlock(&t->lock);
        t->rc = merge_group_join(&t->group, &t->err);
        pthread_mutex_lock(&t->lock);
        t->state = TREE_JOINED;
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the committer's side ---- */

/* Of results: an item may have none but dead letters. */
static uint64_t group_files(const struct merge_group *g)
{
    uint64_t files = 0;

    for (size_t i = 0; i < g->items.len; i++) {
        files += g->items.at[i]->part != NULL;
    }
    return files;
}

static void joined_take(struct compaction *t, bool commit)
{
    struct committer *c = t->results->committer;
    const uint64_t files = group_files(&t->group);

    if (t->rc == MR_OK && commit) {
        t->rc = merge_group_commit(&t->group, &t->err);
        atomic_fetch_add_explicit(&c->merged, t->rc == MR_OK ? files - 1 : 0, memory_order_relaxed);
    }
    if (t->rc < 0) {
        t->has_failed = true;
        mr_log(MR_LOG_WARN, "batch.merge_failed",
               "reason=%s; the job goes on, and files stay as they are", t->err.msg);
    }
    merge_group_end(&t->group);
}

void compaction_poll(struct compaction *t)
{
    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    const enum compaction_state state = t->state;
    pthread_mutex_unlock(&t->lock);
    if (state == TREE_GIVEN) {
        return;
    }
    if (state == TREE_JOINED) {
        joined_take(t, true);
    }
    const bool is_given = !t->has_failed && group_choose(t);
    pthread_mutex_lock(&t->lock);
    t->state = is_given ? TREE_GIVEN : TREE_IDLE;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
}

struct compaction *compaction_new(struct results *rs)
{
    struct mr_err err;

    if (rs->o->results.merge_bytes == 0 || rs->dlq_retry || !rs->sink->is_in_folder) {
        return NULL;
    }
    struct compaction *t = MR_NEW(struct compaction);
    t->results = rs;
    t->file_rows = MR_NEW_ARRAY(int64_t, mr_source_file_count(rs->input->source) + 1);
    for (size_t i = 0; i < mr_source_file_count(rs->input->source); i++) {
        const struct mr_source_file f = mr_source_file(rs->input->source, i);
        t->file_rows[i] = f.bad ? -1 : f.rows; /* it may be repaired */
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->more, NULL);
    if (mr_thread_start(&t->thread, "merger", compaction_run, t, &err) < 0) {
        mr_log(MR_LOG_WARN, "batch.merge_failed", "reason=%s; files stay as they are", err.msg);
        mr_free(t->file_rows);
        mr_freep(&t);
    }
    return t;
}

void compaction_end(struct compaction **compaction, bool commit)
{
    struct compaction *t = *compaction;

    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->is_ending = true;
    pthread_cond_signal(&t->more);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    if (t->state == TREE_JOINED) {
        joined_take(t, commit);
    }
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->more);
    mr_free(t->file_rows);
    mr_freep(compaction);
}
