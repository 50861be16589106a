/* The reaper: closes retired versions and frees retired memory once they are unused.
 *
 * A retired version goes through four gates, in this order:
 *   1. every reader has quiesced since it left the table (mr_epoch_wait): no reader can find it
 *      any more, and those that found it before have pinned it or let it go
 *   2. its pins are all zero, and no sequence of it goes on that requests may find it for (held.c): its processes are
 *      asked to end
 *   3. they have ended: hooks.unserve stops its scheduler, which frees the states of its sequences
 *   4. no answer is being sent from its memory: its model is closed
 * Memory of the table needs the first gate only. The thread sleeps while there is nothing to do,
 * and looks at what drains every 1 ms, later every 50 ms. Requests never wait for
 * it, and a pin, a process that is slow to end or a client that reads slowly delays its own version only. */
#include "reap.h"

#include "base/clock.h"
#include "model/config.h"
#include "model/records/held.h"
#include "model/records/load_history.h"
#include "model/records/measure.h"
#include "model/records/records.h"
#include "model/version/version.h"

#define POLL_FIRST_NS MR_NS_PER_MS
#define POLL_MOST_NS  (50 * MR_NS_PER_MS)

static bool is_sending(const struct mr_version *v)
{
    const struct mr_executor *e = v->executor;

    return e->ops->is_sending && e->ops->is_sending(e);
}

static bool is_pinned(const struct mr_models *m, const struct mr_version *v)
{
    for (uint32_t i = 0; i < m->o.reader_count; i++) {
        /* Acquire: pairs with the release in mr_version_unpin. */
        if (atomic_load_explicit(&v->pins[i].count, memory_order_acquire) != 0) {
            return true;
        }
    }
    /* Acquire: as above. */
    return atomic_load_explicit(&v->other_pins, memory_order_acquire) != 0;
}

void mr_retired_free(struct mr_model_retired *list)
{
    while (list) {
        struct mr_model_retired *next = list->next;
        list->release(list->ptr);
        mr_free(list);
        list = next;
    }
}

/* The record that shows this version, if no later one has taken its place. Lock held. */
static struct mr_version_record *record_of(struct mr_version *v)
{
    struct mr_version_record *r = mr_record_find(v->model, v->number);

    return r && r->v == v ? r : NULL;
}

static void release_begin(struct mr_models *m, struct mr_release *r)
{
    mr_measure_begin(m, &r->measure);
    r->begin_ns = mr_now_ns();
}

/* Adds what a part of the release took, and gave back. */
static void release_end(struct mr_models *m, struct mr_release *r)
{
    r->ns += mr_now_ns() - r->begin_ns;
    const int64_t grown = mr_measure_end(m, &r->measure);
    if (grown == MR_MEMORY_UNKNOWN || r->bytes == MR_MEMORY_UNKNOWN) {
        r->bytes = MR_MEMORY_UNKNOWN;
    } else {
        r->bytes -= grown;
    }
}

/* The version leaves the reports, and nothing can be asked of it any more. */
static void version_stop_begin(struct mr_models *m, struct mr_version_private *p)
{
    p->is_ending = true;
    pthread_mutex_lock(&m->lock);
    struct mr_version_record *r = record_of(&p->v);
    p->was_shown = r != NULL;
    if (r) {
        r->v = NULL; /* from here on no report hands it out */
    }
    pthread_mutex_unlock(&m->lock);
    release_begin(m, &p->release);
}

/* False: its processes are ending, which others need not wait for. */
static bool version_stop(struct mr_models *m, struct mr_version_private *p)
{
    struct mr_executor *e = p->v.executor;

    if (!p->is_ending) {
        version_stop_begin(m, p);
    }
    if (e->ops->wind_down && !e->ops->wind_down(e)) {
        return false;
    }
    mr_version_unserve(m, p);
    release_end(m, &p->release);
    return true;
}

static void version_end(struct mr_models *m, struct mr_version_private *p)
{
    struct mr_model *model = p->v.model;
    struct mr_load_entry *entry = p->entry;
    const int64_t number = p->v.number;
    const bool was_shown = p->was_shown;
    struct mr_release release = p->release;

    release_begin(m, &release);
    mr_version_close(m, &p);
    release_end(m, &release);

    pthread_mutex_lock(&m->lock);
    entry->release_ns = release.ns;
    entry->memory.released_bytes = release.bytes;
    mr_load_entry_set(m, model, entry, MR_VERSION_UNLOADED, "unloaded");
    struct mr_version_record *r = mr_record_find(model, number);
    /* If a load of the same number has begun since, its state is the one to show. */
    if (was_shown && r && r->state == MR_VERSION_DRAINING) {
        mr_record_set(m, model, r, MR_VERSION_UNLOADED, "unloaded");
    }
    model->draining--;
    m->draining--;
    mr_model_forget_if_empty(m, model);
    pthread_cond_broadcast(&m->idle);
    pthread_mutex_unlock(&m->lock);
    mr_changes_report(m);
}

/* Whether a version that serves need not do so any more. Sets *is_let_go if that is so from the next look on. */
static bool may_stop(struct mr_models *m, struct mr_version_private *p, bool *is_let_go)
{
    if (is_pinned(m, &p->v)) {
        mr_held_hasten(m, p);
        return false;
    }
    enum mr_held held = mr_held_check(m, p);
    *is_let_go |= held == MR_HELD_UNTIL_NOW;
    return held == MR_HELD_NOT;
}

/* True: it can be closed. */
static bool has_drained(struct mr_models *m, struct mr_version_private *p, bool *is_let_go)
{
    if (p->is_served && !p->is_ending && !may_stop(m, p, is_let_go)) {
        return false;
    }
    return (!p->is_served || version_stop(m, p)) && !is_sending(&p->v);
}

/* Ends what is not pinned, need not stay for its sequences and has sent its answers; the rest stays in the list. True if
 * any ended, or will at the next look. */
static bool drained_end(struct mr_models *m, struct mr_version_private **list)
{
    bool any = false, is_let_go = false;

    while (*list) {
        struct mr_version_private *p = *list;
        if (!has_drained(m, p, &is_let_go)) {
            list = &p->next;
            continue;
        }
        *list = p->next;
        version_end(m, p);
        any = true;
    }
    if (is_let_go) {
        mr_epoch_wait(&m->epoch);
    }
    return any || is_let_go;
}

static void list_join(struct mr_version_private **list, struct mr_version_private *more)
{
    while (*list) {
        list = &(*list)->next;
    }
    *list = more;
}

/* Lock held. Returns when something is new, or after a pause when something drains. */
static void work_wait(struct mr_models *m, bool drains, int64_t pause_ns)
{
    int64_t until = mr_now_ns() + pause_ns;
    struct timespec ts = {until / MR_NS_PER_S, until % MR_NS_PER_S};
    int rc = 0;

    while (!m->retired && !m->retired_versions && rc == 0 && (drains || !m->quit)) {
        rc = drains ? pthread_cond_timedwait(&m->reap, &m->lock, &ts)
                    : pthread_cond_wait(&m->reap, &m->lock);
    }
}

static void *reaper_main(void *arg)
{
    struct mr_models *m = arg;
    struct mr_version_private *draining = NULL;
    int64_t pause_ns = POLL_FIRST_NS;

    pthread_mutex_lock(&m->lock);
    for (;;) {
        work_wait(m, draining != NULL, pause_ns);
        struct mr_model_retired *memory = m->retired;
        struct mr_version_private *versions = m->retired_versions;
        m->retired = NULL;
        m->retired_versions = NULL;
        bool is_last = m->quit && !memory && !versions && !draining;
        pthread_mutex_unlock(&m->lock);
        if (is_last) {
            break;
        }
        if (memory || versions) {
            mr_epoch_wait(&m->epoch);
            mr_retired_free(memory);
            list_join(&draining, versions);
            pause_ns = POLL_FIRST_NS;
        }
        pause_ns = drained_end(m, &draining) ? POLL_FIRST_NS : MR_MIN(pause_ns * 2, POLL_MOST_NS);
        pthread_mutex_lock(&m->lock);
    }
    return NULL;
}

int mr_reaper_start(struct mr_models *m, struct mr_err *err)
{
    int rc = mr_thread_start(&m->reaper, "mr-reap", reaper_main, m, err);

    m->has_reaper = rc == MR_OK;
    return rc;
}

void mr_reaper_join(struct mr_models *m)
{
    if (!m->has_reaper) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_broadcast(&m->reap);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->reaper, NULL);
    m->has_reaper = false;
}
