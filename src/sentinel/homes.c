/* The threads that take completed executions from workers, and the models that each of them polls.
 *
 * A model is in the list of a home from its first submission there until the home finds nothing of it pending. A submitter
 * counts the execution as pending, then checks whether the model is listed; the home removes the model from its list, then
 * checks whether anything is pending. Both orders are sequentially consistent, so one of the two lists it again. A listed
 * model has a reference, as the thread that takes the last answer may still read it after the close. */
#include "sentinel_priv.h"

#define NOWHERE    UINT32_MAX
#define RING_AFTER 8u

static _Thread_local uint32_t here = NOWHERE; /* the home that this thread is */

bool home_is_here(uint32_t home)
{
    return here == home;
}

static void list(struct home *h, struct model_home *m)
{
    struct model_home *first = atomic_load_explicit(&h->coming, memory_order_relaxed);

    do {
        m->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&h->coming, &first, m, memory_order_release,
                                                    memory_order_relaxed));
}

/* Waking a worker is a system call, and the worker may take this thread's CPU at once. So there is one wake-up for all
 * submissions of an iteration of the loop, but not so late that workers idle in between. */
static void submit_mine(struct process_model *m, struct model_home *mine, struct mr_shm_slot *slot,
                        size_t message_bytes, bool is_again)
{
    mr_shm_submit_quietly(m->shm, slot, message_bytes, (uint32_t)(mine - m->homes), is_again);
    if (++mine->unrung >= RING_AFTER) {
        mr_shm_ring(m->shm, mine->unrung);
        mine->unrung = 0;
    }
}

bool home_submit(struct process_model *m, struct mr_shm_slot *slot, size_t message_bytes,
                 uint32_t home, bool is_again)
{
    struct mr_sentinel *s = m->sentinel;
    struct model_home *mine = &m->homes[home];

    /* The model lives until the execution ends, and another thread may see that end before this function returns. */
    sentinel_model_ref(m);
    if (here == home && slot->bound == MR_SHM_ANY) {
        submit_mine(m, mine, slot, message_bytes, is_again);
    } else if (!mr_shm_submit(m->shm, slot, message_bytes, home, is_again)) {
        sentinel_model_unref(m);
        return false;
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&mine->is_listed, memory_order_relaxed) &&
        !atomic_exchange(&mine->is_listed, true)) {
        sentinel_model_ref(m);
        list(&s->home_list[home], mine);
    }
    if (here != home) {
        mr_shm_home_ring(s->homes, home);
    }
    sentinel_note_busy(s);
    sentinel_model_unref(m);
    return true;
}

static void join_coming(struct home *h)
{
    struct model_home *m = atomic_exchange_explicit(&h->coming, NULL, memory_order_acquire);

    while (m) {
        struct model_home *next = m->next;
        m->next = h->active;
        h->active = m;
        m = next;
    }
}

void home_ring(struct mr_sentinel *s, uint32_t home)
{
    struct home *h = &s->home_list[home];

    join_coming(h);
    for (struct model_home *m = h->active; m; m = m->next) {
        mr_shm_ring(m->model->shm, m->unrung);
        m->unrung = 0;
    }
}

size_t home_take(struct mr_sentinel *s, uint32_t home)
{
    struct home *h = &s->home_list[home];
    struct model_home **at = &h->active;
    size_t count = 0;

    here = home;
    mr_shm_home_sleep(s->homes, home); /* before all checks */
    join_coming(h);
    while (*at) {
        struct model_home *mine = *at;
        struct process_model *m = mine->model;
        count += mr_shm_poll(m->shm, home, run_outcome, m);
        mr_shm_ring(m->shm, mine->unrung);
        mine->unrung = 0;
        if (mr_shm_pending(m->shm, home) > 0) {
            at = &mine->next;
            continue;
        }
        *at = mine->next;
        atomic_store(&mine->is_listed, false);
        atomic_thread_fence(memory_order_seq_cst);
        if (mr_shm_pending(m->shm, home) > 0 && !atomic_exchange(&mine->is_listed, true)) {
            list(h, mine);
        } else {
            sentinel_model_unref(m);
        }
    }
    return count;
}

void homes_drop(struct mr_sentinel *s)
{
    for (uint32_t i = 0; s->home_list && i < s->home_count; i++) {
        struct home *h = &s->home_list[i];
        join_coming(h);
        while (h->active) {
            struct process_model *m = h->active->model;
            h->active = h->active->next;
            sentinel_model_unref(m);
        }
    }
}

/* ---- loops ---- */

size_t mr_sentinel_take(struct mr_sentinel *s, uint32_t loop)
{
    return loop + 1 < s->home_count ? home_take(s, loop + 1) : 0;
}

void mr_sentinel_awake(struct mr_sentinel *s, uint32_t loop)
{
    if (loop + 1 < s->home_count) {
        mr_shm_home_wake(s->homes, loop + 1);
    }
}

bool mr_sentinel_has_pending(const struct mr_sentinel *s, uint32_t loop)
{
    /* Models that other threads have listed since the last iteration have rung. */
    return loop + 1 < s->home_count && s->home_list[loop + 1].active;
}
