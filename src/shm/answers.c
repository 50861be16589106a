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

    /* seq_cst: what it waited for comes before, and a look at its letters after. Fails if its worker is hostile, which the
     * next check reports. */
    atomic_compare_exchange_strong(
        word_of(p, r), &seen,
        shm_word(r->generation, shm_owner(word), shm_attempts(word), SHM_RUNNING));
    atomic_fetch_add(&e->grants, 1); /* seq_cst: before the check whether it sleeps */
    if (atomic_load(&p->map.control->slots[r->slot.index].waits)) {
        shm_futex_wake(&e->grants, (int)SHM_WORKERS_MAX); /* a late one may wait there as well */
    }
}

/* A worker waits for an extent. Lock held. */
void answers_need(struct mr_shm *p, struct record *r, uint64_t word)
{
    const struct shm_slot_cell *cell = &p->map.control->slots[r->slot.index];

    p->stats.needs++;
    slots_extent_add(p, r, atomic_load_explicit(&cell->need, memory_order_relaxed));
    let_run(p, r, word);
}

/* An answer is the caller's; the slot stays pending. Lock held. */
void answers_take(const struct mr_shm *p, struct record *r, uint64_t word)
{
    r->state = RECORD_ANSWERED;
    r->is_lost = r->is_read = false;
    r->answer_word = word;
    /* its time starts again afterwards */
    r->run_word = 0;
    r->slot.worker = shm_owner(word) - 1; /* a live one, which the callers have checked */
    r->slot.process = p->processes[r->slot.worker];
}

bool mr_shm_next_letter(struct mr_shm *p, struct mr_shm_slot *s)
{
    struct record *r = record_of(s);
    const struct shm_slot_cell *cell = &p->map.control->slots[s->index];

    if (shm_state_of(r->answer_word) == SHM_ANSWER) {
        s->letter = s->room;
        const bool is_next = !r->is_read;
        r->is_read = true;
        return is_next;
    }
    /* A worker of good will posts no more before the next mr_shm_go_on. acquire: the letters */
    const uint32_t granted =
        atomic_load_explicit(&shm_entry(&p->map, s->index)->read, memory_order_relaxed);
    const uint32_t posted = atomic_load_explicit(&cell->posted, memory_order_acquire);
    if (posted - granted > SHM_LETTERS_MAX || r->read - granted >= posted - granted) {
        return false;
    }
    s->letter = s->room + (size_t)(r->read++ % SHM_LETTERS_MAX) * shm_letter_bytes(&p->map.g);
    return true;
}

bool mr_shm_is_posted(const struct mr_shm_slot *s)
{
    const struct record *r = (const struct record *)(const void *)s;

    return shm_state_of(r->answer_word) == SHM_LETTERS;
}

/* The worker may have posted while its letters were read: it has not rung then. Lock held. */
static void letters_again(struct mr_shm *p, struct record *r)
{
    const struct shm_slot_cell *cell = &p->map.control->slots[r->slot.index];
    const unsigned owner = shm_owner(r->answer_word), attempts = shm_attempts(r->answer_word);
    uint64_t word = shm_word(r->generation, owner, attempts, SHM_RUNNING);

    /* seq_cst: after the word, as the worker posts and then looks at the word */
    const uint32_t unread = atomic_load(&cell->posted) - r->read;
    if (unread > 0 && unread <= SHM_LETTERS_MAX &&
        atomic_compare_exchange_strong(word_of(p, r), &word, r->answer_word)) {
        atomic_fetch_or(&shm_done(&p->map, r->home)[r->slot.index / 64],
                        1ull << (r->slot.index % 64));
        mr_shm_home_ring(p->homes, r->home);
    }
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
            slots_extent_state(e, r, old[i]);
        } else {
            mr_block_unref(&old[i]);
            slots_extent_add(p, r, bytes); /* otherwise the worker asks for it */
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
        const bool is_posted = shm_state_of(r->answer_word) == SHM_LETTERS;
        if (!is_posted) {
            extents_renew(p, r);
        }
        atomic_store_explicit(&e->taken, (uint32_t)status, memory_order_relaxed);
        snprintf(e->why, sizeof e->why, "%s", status < 0 ? why : "");
        atomic_store_explicit(&e->read, r->read, memory_order_release);
        r->state = RECORD_OUT;
        r->odd_looks = 0;
        let_run(p, r, r->answer_word);
        if (is_posted) {
            letters_again(p, r);
        }
    } else {
        slots_record_take(p, r, shm_owner(r->answer_word));
        slots_generation_end(p, r);
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
        } else if (is_of_worker && (state == SHM_ANSWER || state == SHM_LETTERS)) {
            outcome = MR_SHM_ANSWER;
            answers_take(p, r, word);
        } else if (is_of_this && state == SHM_DONE) {
            outcome = MR_SHM_DONE;
            slots_record_take(p, r, shm_owner(word));
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
