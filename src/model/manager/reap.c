/* The reaper: closes retired versions and frees retired memory once they are unused.
 *
 * A retired version goes through three gates, in this order:
 *   1. every reader has quiesced since it left the table (mr_epoch_wait): no reader can find it
 *      any more, and those that found it before have pinned it or let it go
 *   2. its pins are all zero, no answer is being sent from its memory, and no sequence of it goes on that requests
 *      may find it for (held.c)
 *   3. hooks.unserve has stopped its scheduler, its model is closed
 * Memory of the table needs the first gate only. The thread sleeps while there is nothing to do,
 * and looks at pins every 1 ms, later every 50 ms, while something drains. Requests never wait for
 * it, and a pin delays its own version only; an answer of a model with sequences that is still being sent delays others. */
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

/* A sequence may have such memory as its state, which is freed once nothing can be asked any more. */
static bool is_sending(const struct mr_version *v)
{
    const struct mr_executor *e = v->executor;

    return !mr_config_sequences(v->config) && e->ops->is_sending && e->ops->is_sending(e);
}

static bool is_pinned(const struct mr_models *m, const struct mr_version *v)
{
    for (uint32_t i = 0; i < m->o.reader_count; i++) {
        /* Acquire: pairs with the release in mr_version_unpin. */
        if (atomic_load_explicit(&v->pins[i].count, memory_order_acquire) != 0) {
            return true;
        }
    }
    /* Acquire: as above. Pins last: what a request was given is counted before it lets go. */
    return atomic_load_explicit(&v->other_pins, memory_order_acquire) != 0 || is_sending(v);
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

static void version_end(struct mr_models *m, struct mr_version_private *p)
{
    struct mr_model *model = p->v.model;
    struct mr_load_entry *entry = p->entry;
    int64_t number = p->v.number;
    bool was_shown;

    pthread_mutex_lock(&m->lock);
    struct mr_version_record *r = record_of(&p->v);
    was_shown = r != NULL;
    if (r) {
        r->v = NULL; /* from here on no report hands it out */
    }
    pthread_mutex_unlock(&m->lock);

    struct mr_measure measure;
    mr_measure_begin(m, &measure);
    int64_t begin_ns = mr_now_ns();
    mr_version_close(m, &p);
    int64_t release_ns = mr_now_ns() - begin_ns;
    int64_t grown = mr_measure_end(m, &measure);

    pthread_mutex_lock(&m->lock);
    entry->release_ns = release_ns;
    entry->memory.released_bytes = grown == MR_MEMORY_UNKNOWN ? grown : -grown;
    mr_load_entry_set(m, model, entry, MR_VERSION_UNLOADED, "unloaded");
    r = mr_record_find(model, number);
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

/* Ends what is not pinned and need not stay for its sequences; the rest stays in the list. True if any ended, or will at
 * the next look. */
static bool drained_end(struct mr_models *m, struct mr_version_private **list)
{
    bool any = false, is_let_go = false;

    while (*list) {
        struct mr_version_private *p = *list;
        enum mr_held held = MR_HELD_STILL;
        if (is_pinned(m, &p->v)) {
            mr_held_hasten(m, p);
        } else {
            held = mr_held_check(m, p);
        }
        if (held != MR_HELD_NOT) {
            is_let_go |= held == MR_HELD_UNTIL_NOW;
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
