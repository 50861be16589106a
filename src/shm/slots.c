/* The slots. One is free, the caller's, or submitted: in the queue or with a worker. The private state, under the lock, says
 * which; the shared word is read once per check, and is used only if it agrees with the record. */
#include <string.h>

#include "plane_priv.h"

struct mr_shm_slot *mr_shm_take(struct mr_shm *p)
{
    pthread_mutex_lock(&p->lock);
    struct record *r = p->free;
    if (r) {
        p->free = r->next_free;
        r->state = RECORD_CALLERS;
        r->slot.attempts = 0;
        r->slot.bound = MR_SHM_ANY;
        r->slot.life = 0;
        p->stats.slots_used++;
    } else {
        p->stats.no_slot++;
    }
    pthread_mutex_unlock(&p->lock);
    return r ? &r->slot : NULL;
}

/* Lock held; the ring has room. */
static void ring_append(struct mr_shm *p, struct record *r)
{
    _Atomic uint32_t *tail = &p->map.directory->tails[r->ring];

    r->position = atomic_load_explicit(tail, memory_order_relaxed);
    atomic_store_explicit(shm_cell(&p->map, r->ring, r->position),
                          shm_cell_of(r->slot.index, r->generation), memory_order_relaxed);
    /* release: the cell, and the word that was written before it */
    atomic_store_explicit(tail, r->position + 1, memory_order_release);
}

/* Removes all cells as a worker does, and appends those of waiting slots again in their order, as withdrawn slots leave
 * their cells. Lock held. */
static void ring_compact(struct mr_shm *p, unsigned ring)
{
    const uint32_t tail =
        atomic_load_explicit(&p->map.directory->tails[ring], memory_order_relaxed);
    uint32_t at = atomic_exchange(&p->map.control->heads[ring].at, tail);

    if (tail - at > p->map.g.ring_size) {
        return; /* no correct worker leaves it in this state: sweeps recover the queued slots */
    }
    for (; at != tail; at++) {
        const uint32_t cell =
            atomic_load_explicit(shm_cell(&p->map, ring, at), memory_order_relaxed);
        struct record *r = &p->records[cell & (p->map.g.slot_count - 1)];
        if (r->state == RECORD_OUT && r->ring == ring && r->position == at) {
            ring_append(p, r);
        }
    }
}

/* Lock held. */
void slots_ring_push(struct mr_shm *p, struct record *r, unsigned ring)
{
    struct shm_directory *d = p->map.directory;
    const uint32_t tail = atomic_load_explicit(&d->tails[ring], memory_order_relaxed);
    const uint32_t head =
        atomic_load_explicit(&p->map.control->heads[ring].at, memory_order_acquire);

    r->ring = ring;
    r->position = tail;
    r->odd_looks = 0;
    if (tail - head >= p->map.g.ring_size) {
        ring_compact(p, ring);
    }
    ring_append(p, r);
    /* seq_cst: before the check for sleeping workers */
    atomic_fetch_add(&d->bell, 1);
}

void mr_shm_ring(struct mr_shm *p, uint32_t count)
{
    if (count > 0 && atomic_load(&p->map.control->sleepers) != 0) {
        atomic_fetch_add_explicit(&p->wakes, 1, memory_order_relaxed);
        shm_futex_wake(&p->map.directory->bell, (int)MR_MIN(count, MR_SHM_WORKERS_MAX));
    }
}

unsigned slots_ring_of(const struct record *r, bool is_again)
{
    if (r->slot.bound != MR_SHM_ANY) {
        return SHM_RING_OWN + r->slot.bound;
    }
    return is_again ? SHM_RING_AGAIN : SHM_RING_NEW;
}

bool mr_shm_submit(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes, uint32_t home,
                   bool is_again)
{
    const uint32_t count = s->bound == MR_SHM_ANY ? 1 : SHM_WORKERS_MAX; /* they share the bell */

    if (!mr_shm_submit_quietly(p, s, message_bytes, home, is_again)) {
        return false;
    }
    mr_shm_ring(p, count);
    return true;
}

bool mr_shm_submit_quietly(struct mr_shm *p, struct mr_shm_slot *s, size_t message_bytes,
                           uint32_t home, bool is_again)
{
    struct record *r = record_of(s);
    struct shm_entry *e = shm_entry(&p->map, s->index);

    MR_ASSERT(message_bytes <= s->message_cap && home < p->map.g.home_count);
    MR_ASSERT(slots_ring_of(r, is_again) < p->map.g.ring_count);
    pthread_mutex_lock(&p->lock);
    if (is_over(p, r)) {
        pthread_mutex_unlock(&p->lock);
        return false;
    }
    r->state = RECORD_OUT;
    r->is_cancelled = false;
    r->read = 0;
    r->home = home;
    r->run_word = 0;
    atomic_fetch_add_explicit(&p->pending[home], 1, memory_order_relaxed);
    e->message_bytes = (uint32_t)message_bytes;
    e->home = home;
    atomic_store_explicit(&e->is_cancelled, 0, memory_order_relaxed);
    atomic_store_explicit(&e->read, 0, memory_order_relaxed);
    atomic_store_explicit(&e->generation, r->generation, memory_order_relaxed);
    /* release: entry and message, for the worker that takes it */
    atomic_store_explicit(word_of(p, r), word_in_line(r), memory_order_release);
    slots_ring_push(p, r, slots_ring_of(r, is_again));
    p->stats.submitted++;
    p->stats.requeued += is_again;
    pthread_mutex_unlock(&p->lock);
    return true;
}

/* Passes the extent to the worker; the record takes the block. */
void slots_extent_state(struct shm_entry *e, struct record *r, struct mr_block *b)
{
    int fd;

    e->extents[r->block_count].bytes = b->cap;
    mr_block_in_file(b, b->data, &fd, &e->extents[r->block_count].offset);
    r->blocks[r->block_count++] = b;
    atomic_store_explicit(&e->extent_count, r->block_count, memory_order_release);
}

/* The slot is the caller's, or it is submitted and the lock is held. */
bool slots_extent_add(struct mr_shm *p, struct record *r, uint64_t bytes)
{
    struct shm_entry *e = shm_entry(&p->map, r->slot.index);
    struct mr_block *b = r->block_count < SHM_EXTENTS_MAX && bytes <= p->outputs.bytes
                             ? mr_block_new_in(&p->outputs.provider, bytes)
                             : NULL;

    if (!b) {
        return false;
    }
    slots_extent_state(e, r, b);
    return true;
}

bool mr_shm_has_extents(const struct mr_shm_slot *s)
{
    return ((const struct record *)(const void *)s)->block_count > 0;
}

bool mr_shm_add_extent(struct mr_shm *p, struct mr_shm_slot *s, size_t bytes)
{
    return slots_extent_add(p, record_of(s), bytes);
}

/* Passes the slot to the caller. Lock held. */
void slots_record_take(struct mr_shm *p, struct record *r, unsigned owner)
{
    r->state = RECORD_CALLERS;
    r->slot.worker = owner >= 1 && owner <= SHM_WORKERS_MAX ? owner - 1 : 0;
    r->slot.process = p->processes[r->slot.worker];
    if (owner >= 1 && r->slot.bound == owner - 1) {
        p->keeps |= 1ull << r->slot.bound;
    }
    atomic_fetch_sub_explicit(&p->pending[r->home], 1, memory_order_relaxed);
}

/* Ends the life of the slot: no worker can complete it any more. Lock held. */
void slots_generation_end(struct mr_shm *p, struct record *r)
{
    r->generation = shm_next_generation(r->generation);
    atomic_store_explicit(word_of(p, r), shm_word(r->generation, 0, 0, SHM_FREE),
                          memory_order_relaxed);
}

/* False: a worker has taken it. Lock held. */
bool slots_record_withdraw(struct mr_shm *p, struct record *r)
{
    const uint64_t next = shm_next_generation(r->generation);
    uint64_t word = word_in_line(r);

    if (!atomic_compare_exchange_strong(word_of(p, r), &word, shm_word(next, 0, 0, SHM_FREE))) {
        return false;
    }
    r->generation = next;
    slots_record_take(p, r, 0);
    return true;
}

bool mr_shm_withdraw(struct mr_shm *p, struct mr_shm_slot *s)
{
    struct record *r = record_of(s);

    pthread_mutex_lock(&p->lock);
    const bool is_ours = r->state == RECORD_OUT && slots_record_withdraw(p, r);
    pthread_mutex_unlock(&p->lock);
    return is_ours;
}

/* Lock held. */
static void record_cancel(struct mr_shm *p, struct record *r)
{
    if (r->state == RECORD_OUT || r->state == RECORD_ANSWERED) {
        atomic_store_explicit(&shm_entry(&p->map, r->slot.index)->is_cancelled, 1,
                              memory_order_relaxed);
        r->is_cancelled = true;
    }
}

void mr_shm_cancel(struct mr_shm *p, struct mr_shm_slot *s)
{
    pthread_mutex_lock(&p->lock);
    record_cancel(p, record_of(s));
    pthread_mutex_unlock(&p->lock);
}

bool mr_shm_cancel_of(struct mr_shm *p, struct mr_shm_slot *s, const void *user)
{
    struct record *r = record_of(s);
    bool is_ours = false;

    pthread_mutex_lock(&p->lock);
    if (s->user == user) {
        is_ours = r->state == RECORD_OUT && slots_record_withdraw(p, r);
        if (!is_ours) {
            record_cancel(p, r);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return is_ours;
}

void mr_shm_cancelled(struct mr_shm *p, mr_shm_cancelled_fn *fn, void *ctx)
{
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->map.g.slot_count; i++) {
        struct record *r = &p->records[i];
        if (!r->is_cancelled || (r->state != RECORD_OUT && r->state != RECORD_ANSWERED)) {
            continue;
        }
        const uint64_t word = atomic_load_explicit(word_of(p, r), memory_order_relaxed);
        if (shm_generation(word) == r->generation && is_running(shm_state_of(word)) &&
            is_alive(p, shm_owner(word))) {
            r->is_cancelled = false;
            fn(ctx, shm_owner(word) - 1, i, r->generation);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

bool mr_shm_output_at(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t offset,
                      uint64_t bytes, const uint8_t **out_data, struct mr_block **out_block)
{
    const struct record *r = (const struct record *)(const void *)s;

    *out_block = NULL;
    if (offset >= s->room_offset && offset - s->room_offset <= s->room_bytes &&
        bytes <= s->room_bytes - (offset - s->room_offset)) {
        *out_data = p->map.output.data + offset;
        return true;
    }
    for (uint32_t i = 0; i < r->block_count; i++) {
        struct mr_block *b = r->blocks[i];
        int fd;
        uint64_t begin;
        mr_block_in_file(b, b->data, &fd, &begin);
        if (offset >= begin && offset - begin <= b->cap && bytes <= b->cap - (offset - begin)) {
            *out_data = b->data + (offset - begin);
            *out_block = b;
            return true;
        }
    }
    return false;
}

void mr_shm_give(struct mr_shm *p, struct mr_shm_slot *s)
{
    struct record *r = record_of(s);
    struct mr_block *blocks[SHM_EXTENTS_MAX];
    const uint32_t count = r->block_count;

    memcpy(blocks, r->blocks, sizeof blocks);
    r->block_count = 0;
    atomic_store_explicit(&shm_entry(&p->map, s->index)->extent_count, 0, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    MR_ASSERT(r->state == RECORD_CALLERS);
    slots_generation_end(p, r);
    r->state = RECORD_FREE;
    r->slot.user = NULL;
    r->next_free = p->free;
    p->free = r;
    p->stats.slots_used--;
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < count; i++) {
        mr_block_unref(&blocks[i]);
    }
}
