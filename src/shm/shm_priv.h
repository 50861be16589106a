/* The layout of the segments of one model that the server and its workers share, without anything that only one side needs.
 *
 *   control   both write    heads of the rings, sleepers, completions, one word per slot
 *   input     server writes directory (geometry, rings, an entry for each slot), messages, extents of inputs
 *   output    both write    one room per slot, extents of outputs
 *   homes     server writes which of its threads sleep; one segment for all models
 *
 * A worker can corrupt what it may write, for itself and the other workers of its model. So the server trusts nothing in
 * control or output: indices, generations and states are compared with its private records. */
#ifndef SHM_PRIV_H
#define SHM_PRIV_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "segment.h"

#define SHM_MAGIC       0x4c505248534d524dull
#define SHM_ABI         3u
#define SHM_WORKERS_MAX 64u
#define SHM_SLOTS_MAX   1024u
#define SHM_EXTENTS_MAX 6u
#define SHM_WHY_BYTES   192u
#define SHM_MAIL_MAX    32768u /* unread answers to calls of a worker: more than its calls can have */
#define SHM_STEP_WORDS  6u
#define SHM_LETTERS_MAX 16u /* of a slot that its server has not read, in equal parts of the room */

/* ---- the word of a slot: generation 40, owner 8 (worker + 1), attempts 8, state 8 ---- */

enum shm_state {
    SHM_FREE = 0,
    SHM_SUBMITTED,
    SHM_RUNNING,
    SHM_DONE,
    SHM_NEED,   /* running, and waits for a larger extent */
    SHM_ANSWER, /* running, and waits until the server has taken one of several answers */
    SHM_LETTERS /* running, and has posted letters that the server has not read */
};

static inline uint64_t shm_word(uint64_t generation, unsigned owner, unsigned attempts,
                                enum shm_state state)
{
    return generation << 24 | (uint64_t)(owner & 0xff) << 16 | (uint64_t)(attempts & 0xff) << 8 |
           (uint64_t)state;
}

static inline uint64_t shm_generation(uint64_t word)
{
    return word >> 24;
}

static inline unsigned shm_owner(uint64_t word)
{
    return (unsigned)(word >> 16) & 0xff;
}

static inline unsigned shm_attempts(uint64_t word)
{
    return (unsigned)(word >> 8) & 0xff;
}

static inline unsigned shm_state_of(uint64_t word)
{
    return (unsigned)word & 0xff;
}

/* The generation of the next life of a slot; it wraps around after 2^40. */
static inline uint64_t shm_next_generation(uint64_t generation)
{
    return shm_generation(shm_word(generation + 1, 0, 0, SHM_FREE));
}

/* ---- control ---- */

/* From SHM_RING_OWN on there is one for each worker, for models with bound slots. */
enum { SHM_RING_AGAIN, SHM_RING_NEW, SHM_RING_OWN, SHM_RINGS = SHM_RING_OWN + SHM_WORKERS_MAX };

struct shm_head {
    alignas(MR_CACHE_LINE) _Atomic uint32_t at;
};

struct shm_worker_cell {
    alignas(MR_CACHE_LINE) _Atomic uint64_t
        progress;             /* changes while its executing thread makes progress */
    _Atomic uint32_t thread;  /* id of that thread */
    _Atomic uint32_t pending; /* slots that it runs no longer, and that end later */
    /* of loading the model */
    _Atomic uint64_t load_done, load_total;
    _Atomic uint64_t load_step[SHM_STEP_WORDS]; /* a text */
    /* of its mail */
    _Atomic uint32_t mail_read;  /* cells so far */
    _Atomic uint32_t mail_waits; /* a thread sleeps on the tail */
};

struct shm_slot_cell {
    alignas(MR_CACHE_LINE) _Atomic uint64_t word;
    _Atomic uint64_t need;   /* bytes, in state NEED */
    _Atomic uint32_t posted; /* letters so far */
    /* Workers that may sleep on grants: two if one is taken for dead that is not. One that dies asleep counts on, for a
     * wake-up too many. */
    _Atomic uint32_t waits;
};

struct shm_control {
    struct shm_head heads[SHM_RINGS];
    alignas(MR_CACHE_LINE) _Atomic uint64_t sleepers; /* a bit for each worker */
    struct shm_worker_cell workers[SHM_WORKERS_MAX];
    /** [slot_count], then the done bits of each home, at least a cache line for each. */
    struct shm_slot_cell slots[];
};

/* ---- directory: the beginning of the input segment ---- */

struct shm_extent {
    uint64_t offset;
    uint64_t bytes;
};

/* The entry of a slot, for the generation that it states. */
struct shm_entry {
    alignas(MR_CACHE_LINE) _Atomic uint64_t generation;
    uint32_t message_bytes;
    uint32_t home;
    _Atomic uint32_t grants; /* futex, on which NEED, ANSWER and LETTERS wait */
    _Atomic uint32_t read;   /* letters so far */
    _Atomic uint32_t taken;  /* the status of the last ANSWER */
    _Atomic uint32_t is_cancelled;
    _Atomic uint32_t extent_count;
    struct shm_extent extents[SHM_EXTENTS_MAX]; /* for outputs */
    char why[SHM_WHY_BYTES];                    /* the reason of its refusal */
};

struct shm_geometry {
    uint64_t magic;
    uint32_t abi;
    uint32_t slot_count; /* power of two */
    uint32_t ring_size;  /* power of two */
    uint32_t ring_count; /* SHM_RING_OWN or SHM_RINGS */
    uint32_t home_count;
    uint32_t message_bytes; /* per slot */
    uint32_t room_bytes;    /* per slot */
    uint64_t done_offset;   /* in control */
    uint64_t entries_offset;
    uint64_t mail_offset; /* [SHM_WORKERS_MAX][SHM_MAIL_MAX] of uint64_t, offsets in the segment */
    uint64_t messages_offset; /* in the input segment */
    uint64_t control_bytes, input_bytes, output_bytes;
};

struct shm_directory {
    struct shm_geometry geometry;
    alignas(MR_CACHE_LINE) _Atomic uint32_t bell; /* futex; rung with each submission */
    _Atomic uint32_t is_unwanted;                 /* the load of the model */
    alignas(MR_CACHE_LINE) _Atomic uint32_t tails[SHM_RINGS];
    alignas(MR_CACHE_LINE) _Atomic uint32_t mail_tails[SHM_WORKERS_MAX]; /* futexes */
    /** [ring_count][ring_size] of shm_cell_of, then entries. */
    alignas(MR_CACHE_LINE) _Atomic uint32_t cells[];
};

/* A ring's cell holds a slot and, in the remaining bits, the life for which it was added: so a cell that outlives its
 * submission lets no worker take a later one out of turn. */
static inline uint32_t shm_cell_of(uint32_t slot, uint64_t generation)
{
    return slot | (uint32_t)(generation * SHM_SLOTS_MAX);
}

struct shm_home {
    alignas(MR_CACHE_LINE) _Atomic uint32_t is_sleeping;
};

static inline uint32_t shm_done_words(uint32_t slot_count)
{
    return (slot_count + 63) / 64;
}

/* Bytes of the done bits of one home: whole cache lines. */
static inline size_t shm_done_stride(uint32_t slot_count)
{
    const size_t bytes = shm_done_words(slot_count) * sizeof(uint64_t);

    return (bytes + MR_CACHE_LINE - 1) / MR_CACHE_LINE * MR_CACHE_LINE;
}

/* The mapped parts of one model's segments. */
struct shm_map {
    struct shm_segment control_segment, input, output;
    struct shm_control *control;
    struct shm_directory *directory;
    struct shm_geometry g; /* a private copy */
};

static inline _Atomic uint64_t *shm_done(const struct shm_map *m, uint32_t home)
{
    return (_Atomic uint64_t *)(void *)(m->control_segment.data + m->g.done_offset +
                                        home * shm_done_stride(m->g.slot_count));
}

static inline struct shm_entry *shm_entry(const struct shm_map *m, uint32_t slot)
{
    return (struct shm_entry *)(void *)(m->input.data + m->g.entries_offset) + slot;
}

static inline _Atomic uint64_t *shm_mail_cell(const struct shm_map *m, uint32_t worker, uint32_t at)
{
    return (_Atomic uint64_t *)(void *)(m->input.data + m->g.mail_offset) +
           (size_t)worker * SHM_MAIL_MAX + at % SHM_MAIL_MAX;
}

static inline uint32_t shm_letter_bytes(const struct shm_geometry *g)
{
    return g->room_bytes / SHM_LETTERS_MAX / MR_CACHE_LINE * MR_CACHE_LINE;
}

static inline _Atomic uint32_t *shm_cell(const struct shm_map *m, unsigned ring, uint32_t at)
{
    return &m->directory->cells[ring * m->g.ring_size + (at & (m->g.ring_size - 1))];
}

/* Futexes in memory that processes share, and eventfds (futex.c). */
void shm_futex_wait(const _Atomic uint32_t *word, uint32_t seen, int64_t max_ns);
void shm_futex_wake(const _Atomic uint32_t *word, int count);
void shm_event_write(int fd);

#endif
