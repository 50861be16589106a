/* What comes of slots that were submitted: answers, wishes for a larger extent, and what the server lets a worker do next. */
#include <stdio.h>
#include <string.h>

#include "plane_priv.h"

/* ---- outcomes ---- */

/* Lets the worker that waits with that word continue. Lock held. */
static void let_run(struct mr_shm *p, struct record *r, uint64_t word)
{
    struct shm_entry *e = shm_entry(&p->map, r->slot.index);
    uint64_t seen = word;

    /* release: what it waited for. Fails if its worker is hostile, which the next check reports. */
    atomic_compare_exchange_strong_explicit(
        word_of(p, r), &seen,
        shm_word(r->generation, shm_owner(word), shm_attempts(word), SHM_RUNNING),
        memory_order_release, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->grants, 1, memory_order_release);
    shm_futex_wake(&e->grants, (int)SHM_WORKERS_MAX); /* a late one may wait there as well */
}

/* A worker waits for an extent. Lock held. */
void answers_need(struct mr_shm *p, struct record *r, uint64_t word)
{
    const struct shm_slot_cell *cell = &p->map.control->slots[r->slot.index];

    p->stats.needs++;
    plane_extent_add(p, r, atomic_load_explicit(&cell->need, memory_order_relaxed));
    let_run(p, r, word);
}

/* An answer is the caller's; the slot stays pending. Lock held. */
void answers_take(struct record *r, uint64_t word)
{
    r->state = RECORD_ANSWERED;
    r->is_lost = false;
    r->answer_word = word;
    r->slot.worker = shm_owner(word) - 1; /* a live one, which the callers have checked */
}

/* Replaces the extents that an answer refers to, so that all extents of the slot are free again. Lock held. */
static void extents_renew(struct mr_shm *p, struct record *r)
{
    struct shm_entry *e = shm_entry(&p->map, r->slot.index);
    const uint32_t count = r->block_count;
    struct mr_block *old[SHM_EXTENTS_MAX];

    memcpy(old, r->blocks, sizeof old);
    r->block_count = 0;
    atomic_store_explicit(&e->extent_count, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = old[i]->cap;
        if (mr_block_refs(old[i]) == 1) {
            plane_extent_state(e, r, old[i]);
        } else {
            mr_block_unref(&old[i]);
            plane_extent_add(p, r, bytes); /* otherwise the worker asks for it */
        }
    }
}

bool mr_shm_go_on(struct mr_shm *p, struct mr_shm_slot *s, int status, const char *why)
{
    struct shm_entry *e = shm_entry(&p->map, s->index);
    struct record *r = record_of(s);

    pthread_mutex_lock(&p->lock);
    MR_ASSERT(r->state == RECORD_ANSWERED);
    const bool is_there = !r->is_lost;
    if (is_there) {
        extents_renew(p, r);
        atomic_store_explicit(&e->taken, (uint32_t)status, memory_order_relaxed);
        snprintf(e->why, sizeof e->why, "%s", status < 0 ? why : "");
        r->state = RECORD_OUT;
        r->odd_looks = 0;
        let_run(p, r, r->answer_word);
    } else {
        plane_record_take(p, r, shm_owner(r->answer_word));
        plane_generation_end(p, r);
        r->slot.attempts++;
    }
    pthread_mutex_unlock(&p->lock);
    return is_there;
}

/* Checks a slot whose done bit is set. DONE, ANSWER: it is the caller's; WAITING: it is not. */
static enum mr_shm_outcome slot_check(struct mr_shm *p, struct record *r, uint32_t home)
{
    enum mr_shm_outcome outcome = MR_SHM_WAITING;

    pthread_mutex_lock(&p->lock);
    if (r->state == RECORD_OUT && r->home == home) {
        /* acquire: the earlier writes of the worker */
        const uint64_t word = atomic_load_explicit(word_of(p, r), memory_order_acquire);
        const unsigned state = shm_state_of(word);
        const bool is_of_this = shm_generation(word) == r->generation;
        const bool is_of_worker = is_of_this && is_alive(p, shm_owner(word));
        if (is_of_worker && state == SHM_NEED) {
            answers_need(p, r, word);
        } else if (is_of_worker && state == SHM_ANSWER) {
            outcome = MR_SHM_ANSWER;
            answers_take(r, word);
        } else if (is_of_this && state == SHM_DONE) {
            outcome = MR_SHM_DONE;
            plane_record_take(p, r, shm_owner(word));
        }
    }
    pthread_mutex_unlock(&p->lock);
    return outcome;
}

size_t mr_shm_poll(struct mr_shm *p, uint32_t home, mr_shm_outcome_fn *fn, void *ctx)
{
    _Atomic uint64_t *done = shm_done(&p->map, home);
    size_t count = 0;

    for (uint32_t k = 0; k < shm_done_words(p->map.g.slot_count); k++) {
        /* seq_cst: after the home's store that it sleeps */
        if (atomic_load(&done[k]) == 0) {
            continue;
        }
        uint64_t bits = atomic_exchange(&done[k], 0);
        for (; bits; bits &= bits - 1) {
            const uint32_t index = k * 64 + (uint32_t)__builtin_ctzll(bits);
            const enum mr_shm_outcome outcome = index < p->map.g.slot_count
                                                    ? slot_check(p, &p->records[index], home)
                                                    : MR_SHM_WAITING;
            if (outcome != MR_SHM_WAITING) {
                fn(ctx, &p->records[index].slot, outcome);
                count++;
            }
        }
    }
    return count;
}

uint32_t mr_shm_pending(struct mr_shm *p, uint32_t home)
{
    return atomic_load_explicit(&p->pending[home], memory_order_relaxed);
}
