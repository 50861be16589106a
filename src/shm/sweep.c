/* The workers of a plane: which live, what they run, what is left of them, and slots whose word was damaged. */
#include <string.h>

#include "plane_priv.h"

/* ---- workers ---- */

struct mr_shm_load mr_shm_worker_load(const struct mr_shm *p, uint32_t worker)
{
    const struct shm_worker_cell *cell = &p->map.control->workers[worker];
    struct mr_shm_load load = {atomic_load_explicit(&cell->load_done, memory_order_relaxed),
                               atomic_load_explicit(&cell->load_total, memory_order_relaxed), ""};

    _Static_assert(sizeof load.step == SHM_STEP_WORDS * sizeof(uint64_t), "one text");
    for (unsigned i = 0; i < SHM_STEP_WORDS; i++) {
        const uint64_t word = atomic_load_explicit(&cell->load_step[i], memory_order_relaxed);
        memcpy(load.step + i * sizeof word, &word, sizeof word);
    }
    load.step[sizeof load.step - 1] = '\0';
    for (char *c = load.step; *c; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
    return load;
}

void mr_shm_set_unwanted(struct mr_shm *p)
{
    atomic_store_explicit(&p->map.directory->is_unwanted, 1, memory_order_relaxed);
}

void mr_shm_set_at_once(struct mr_shm *p, uint32_t count)
{
    p->at_once = count;
}

uint32_t mr_shm_worker_begin(struct mr_shm *p, uint32_t worker)
{
    struct shm_worker_cell *cell = &p->map.control->workers[worker];

    pthread_mutex_lock(&p->lock);
    p->alive |= 1ull << worker;
    const uint32_t process = ++p->processes[worker];
    atomic_store_explicit(&cell->progress, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->thread, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&cell->load_step[0], 0, memory_order_relaxed);
    atomic_store_explicit(&cell->mail_waits, 0, memory_order_relaxed);
    pthread_mutex_unlock(&p->lock);
    return process;
}

static bool is_out_of_line(const struct mr_shm *p, const struct record *r)
{
    const uint32_t head =
        atomic_load_explicit(&p->map.control->heads[r->ring].at, memory_order_acquire);

    return (int32_t)(head - r->position) > 0;
}

/* Collects the outcome; the caller gets it when the lock is released. */
struct outcomes {
    mr_shm_outcome_fn *fn;
    void *ctx;
    bool is_line; /* a slot waits for a worker */
    uint32_t count;
    struct {
        uint16_t slot;
        uint8_t outcome;
    } list[SHM_SLOTS_MAX];
};

/* Without the list, which is long. */
static void outcomes_init(struct outcomes *o, mr_shm_outcome_fn *fn, void *ctx)
{
    o->fn = fn;
    o->ctx = ctx;
    o->is_line = false;
    o->count = 0;
}

static void outcome_list(struct outcomes *o, const struct record *r, enum mr_shm_outcome outcome)
{
    o->list[o->count].slot = (uint16_t)r->slot.index;
    o->list[o->count++].outcome = (uint8_t)outcome;
}

/* Lock held. */
static void outcome_add(struct mr_shm *p, struct outcomes *o, struct record *r, uint64_t word,
                        enum mr_shm_outcome outcome)
{
    slots_record_take(p, r, shm_owner(word));
    if (outcome == MR_SHM_LOST || outcome == MR_SHM_DAMAGED) {
        slots_generation_end(p, r);
        r->slot.attempts++;
    }
    p->stats.damaged += outcome == MR_SHM_DAMAGED;
    outcome_list(o, r, outcome);
}

/* Wakes sleeping workers while slots wait: the wake-up of a submission may have gone to the dead worker, or to one that
 * sleeps without recording it. Lock not held. */
static void outcomes_hand_out(struct mr_shm *p, const struct outcomes *o)
{
    if (o->is_line) {
        shm_futex_wake(&p->map.directory->bell, (int)SHM_WORKERS_MAX);
    }
    for (uint32_t i = 0; i < o->count; i++) {
        o->fn(o->ctx, &p->records[o->list[i].slot].slot, (enum mr_shm_outcome)o->list[i].outcome);
    }
}

uint64_t mr_shm_worker_life(const struct mr_shm *p, uint32_t worker)
{
    return atomic_load_explicit(&p->lives[worker], memory_order_relaxed) + 1;
}

/* The state that the worker kept between slots bound to it is lost. Lock held. */
static void life_end(struct mr_shm *p, uint32_t worker)
{
    bool keeps = p->keeps >> worker & 1;

    for (uint32_t i = 0; i < p->map.g.slot_count; i++) {
        const struct record *r = &p->records[i];
        if ((r->state == RECORD_OUT || r->state == RECORD_ANSWERED) && r->slot.bound == worker) {
            keeps |=
                shm_owner(atomic_load_explicit(word_of(p, r), memory_order_relaxed)) == worker + 1;
        }
    }
    p->keeps &= ~(1ull << worker);
    if (keeps) {
        atomic_fetch_add_explicit(&p->lives[worker], 1, memory_order_relaxed);
    }
}

void mr_shm_worker_end(struct mr_shm *p, uint32_t worker, mr_shm_outcome_fn *fn, void *ctx)
{
    struct outcomes o;

    outcomes_init(&o, fn, ctx);
    pthread_mutex_lock(&p->lock);
    p->alive &= ~(1ull << worker);
    atomic_fetch_and(&p->map.control->sleepers, ~(1ull << worker));
    if (p->map.g.ring_count > SHM_RING_OWN) {
        life_end(p, worker);
    }
    for (uint32_t i = 0; i < p->map.g.slot_count; i++) {
        struct record *r = &p->records[i];
        r->is_lost |= r->state == RECORD_ANSWERED && shm_owner(r->answer_word) == worker + 1;
        if (r->state != RECORD_OUT) {
            continue;
        }
        const uint64_t word = atomic_load_explicit(word_of(p, r), memory_order_acquire);
        const unsigned state = shm_state_of(word);
        if (shm_generation(word) != r->generation) {
            continue; /* the sweep handles it */
        }
        if (shm_owner(word) == worker + 1 && is_running(state)) {
            outcome_add(p, &o, r, word, MR_SHM_LOST);
        } else if (shm_owner(word) == worker + 1 && state == SHM_DONE) {
            /* it may have died before it recorded that */
            outcome_add(p, &o, r, word, MR_SHM_DONE);
        } else if (word == word_in_line(r) && is_over(p, r)) {
            outcome_add(p, &o, r, word, MR_SHM_LOST);
        } else if (word == word_in_line(r)) {
            o.is_line = true;
            if (is_out_of_line(p, r)) {
                slots_ring_push(p, r, slots_ring_of(r, true));
            }
        }
    }
    pthread_mutex_unlock(&p->lock);
    outcomes_hand_out(p, &o);
}

/* True if that worker alone has the slot. Lock held. */
static bool runs(const struct mr_shm *p, const struct record *r, unsigned owner)
{
    const uint64_t word = atomic_load_explicit(word_of(p, r), memory_order_acquire);

    return r->state == RECORD_OUT && shm_generation(word) == r->generation &&
           shm_owner(word) == owner && is_running(shm_state_of(word));
}

/* Checks a slot that runs. Of a worker that has one at a time, one of two has a word that its worker did not write, and it
 * is unknown which. Lock held. */
static void note_running(struct mr_shm *p, struct record *r, uint64_t word, int64_t now_ns,
                         struct mr_shm_worker_state *states, struct outcomes *o)
{
    struct mr_shm_worker_state *state = &states[shm_owner(word) - 1];
    struct record *other = state->slot ? record_of(state->slot) : NULL;

    if (other && p->at_once == 1 && runs(p, other, shm_owner(word))) {
        state->slot = NULL;
        outcome_add(p, o, other, word, MR_SHM_DAMAGED);
        outcome_add(p, o, r, word, MR_SHM_DAMAGED);
        return;
    }
    if (shm_state_of(word) == SHM_NEED) {
        answers_need(p, r, word);
    }
    if (shm_state_of(word) != SHM_ANSWER && shm_state_of(word) != SHM_LETTERS) {
        r->odd_looks = 0;
    } else if (++r->odd_looks >= 2) {
        answers_take(p, r, word);
        outcome_list(o, r, MR_SHM_ANSWER);
    }
    word = shm_word(r->generation, shm_owner(word), 0, SHM_RUNNING);
    if (r->run_word != word) {
        r->run_word = word;
        r->run_since_ns = now_ns;
    }
    state->slot = &r->slot;
    state->running++;
    state->rows = r->slot.rows;
    state->is_last = r->slot.is_last;
    state->oldest_ns =
        state->oldest_ns == 0 ? r->run_since_ns : MR_MIN(state->oldest_ns, r->run_since_ns);
}

/* Lock held. */
static void sweep_waiting(struct mr_shm *p, struct record *r, struct outcomes *o)
{
    r->slot.is_unwanted = false;
    o->fn(o->ctx, &r->slot, MR_SHM_WAITING);
    if (r->slot.is_unwanted && slots_record_withdraw(p, r)) {
        outcome_list(o, r, MR_SHM_WITHDRAWN);
        return;
    }
    o->is_line = true;
    if (is_out_of_line(p, r) && ++r->odd_looks >= 2) {
        slots_ring_push(p, r, slots_ring_of(r, true));
    }
}

/* Lock held. */
static void sweep_record(struct mr_shm *p, struct record *r, int64_t now_ns,
                         struct mr_shm_worker_state *states, struct outcomes *o)
{
    const uint64_t word = atomic_load_explicit(word_of(p, r), memory_order_acquire);
    const unsigned state = shm_state_of(word);

    if (shm_generation(word) != r->generation) {
        outcome_add(p, o, r, word, MR_SHM_DAMAGED);
    } else if (word == word_in_line(r)) {
        sweep_waiting(p, r, o);
    } else if (state == SHM_DONE) {
        if (++r->odd_looks >= 2) {
            outcome_add(p, o, r, word, MR_SHM_DONE);
        }
    } else if (is_running(state) && is_alive(p, shm_owner(word))) {
        note_running(p, r, word, now_ns, states, o);
    } else {
        outcome_add(p, o, r, word, MR_SHM_DAMAGED);
    }
}

/* Its worker waits for the caller. Lock held. */
static void sweep_answered(struct record *r, struct mr_shm_worker_state *states)
{
    struct mr_shm_worker_state *state;

    if (r->state == RECORD_ANSWERED && !r->is_lost) {
        state = &states[shm_owner(r->answer_word) - 1];
        state->running++;
        if (!state->slot) {
            state->slot = &r->slot;
        }
    }
}

void mr_shm_sweep(struct mr_shm *p, int64_t now_ns, struct mr_shm_worker_state *states,
                  mr_shm_outcome_fn *fn, void *ctx)
{
    struct outcomes o;

    outcomes_init(&o, fn, ctx);
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < SHM_WORKERS_MAX; i++) {
        const struct shm_worker_cell *cell = &p->map.control->workers[i];
        states[i] = (struct mr_shm_worker_state){
            .progress = atomic_load_explicit(&cell->progress, memory_order_relaxed) +
                        atomic_load_explicit(&cell->mail_read, memory_order_relaxed),
            .thread = atomic_load_explicit(&cell->thread, memory_order_relaxed),
            .pending = atomic_load_explicit(&cell->pending, memory_order_relaxed)};
    }
    for (uint32_t i = 0; i < p->map.g.slot_count; i++) {
        if (p->records[i].state == RECORD_OUT) {
            sweep_record(p, &p->records[i], now_ns, states, &o);
        }
    }
    for (uint32_t i = 0; i < p->map.g.slot_count; i++) {
        sweep_answered(&p->records[i], states);
    }
    pthread_mutex_unlock(&p->lock);
    outcomes_hand_out(p, &o);
}

struct mr_shm_stats mr_shm_get_stats(struct mr_shm *p)
{
    pthread_mutex_lock(&p->lock);
    struct mr_shm_stats s = p->stats;
    pthread_mutex_unlock(&p->lock);
    s.wakes = atomic_load_explicit(&p->wakes, memory_order_relaxed);
    return s;
}
