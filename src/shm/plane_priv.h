/* What plane.c, slots.c, answers.c and sweep.c share: the records of the slots. Thread: any; what says so needs the lock. */
#ifndef SHM_PLANE_PRIV_H
#define SHM_PLANE_PRIV_H

#include "shm/plane.h"
#include "shm_priv.h"

enum record_state {
    RECORD_FREE,
    RECORD_CALLERS,
    RECORD_OUT,
    RECORD_ANSWERED /* shared by the caller and the worker, until the caller lets the worker continue */
};

struct record {
    struct mr_shm_slot slot; /* first */
    enum record_state state;
    uint64_t generation;
    uint32_t home;
    unsigned ring;
    uint32_t position; /* in the ring */
    /** Consecutive sweeps that found it done or out of the queue, without an owner. */
    unsigned odd_looks;
    bool is_cancelled;    /* and mr_shm_cancelled has not reported it yet */
    bool is_lost;         /* ANSWERED: the worker has died */
    uint64_t answer_word; /* ANSWERED: the word with which it waits */
    bool is_read;         /* ANSWERED: its only letter */
    uint32_t read;        /* letters of this life so far */
    uint64_t run_word;    /* the word of the execution at the last sweep; 0 after an answer */
    int64_t run_since_ns;
    uint32_t block_count;
    struct mr_block *blocks[SHM_EXTENTS_MAX];
    struct record *next_free;
};

/* What the server has sent to one worker. Its caller's, see shm/mail.h. */
struct mail {
    struct mr_block **blocks; /* [SHM_MAIL_MAX], NULL: none yet */
    uint32_t tail, released;  /* cells so far */
};

struct mr_shm {
    struct shm_map map;
    struct mr_shm_homes *homes;
    struct mr_shm_heap inputs, bodies, outputs;
    struct mail mail[SHM_WORKERS_MAX];
    struct record *records;    /* [slot_count] */
    _Atomic uint32_t *pending; /* [home_count]; relaxed: a hint whether a poll is needed */
    _Atomic uint64_t wakes;    /* relaxed */
    pthread_mutex_t lock; /* guards what follows, and the records of slots that no caller owns */
    struct record *free;
    uint32_t at_once;                    /* slots that a worker runs at once */
    uint64_t alive;                      /* a bit for each worker */
    uint32_t processes[SHM_WORKERS_MAX]; /* of each worker so far */
    uint64_t keeps;                      /* a bit for each worker that has had slots bound to it */
    _Atomic uint64_t lives[SHM_WORKERS_MAX]; /* written under the lock; relaxed */
    struct mr_shm_stats stats;
    _Atomic uint32_t holders; /* the owner, and heaps that have not drained */
};

static inline struct record *record_of(struct mr_shm_slot *s)
{
    return (struct record *)s;
}

static inline _Atomic uint64_t *word_of(const struct mr_shm *p, const struct record *r)
{
    return &p->map.control->slots[r->slot.index].word;
}

/* The state of a slot from its submission until a worker takes it. */
static inline uint64_t word_in_line(const struct record *r)
{
    return shm_word(r->generation, 0, r->slot.attempts, SHM_SUBMITTED);
}

static inline bool is_over(const struct mr_shm *p, const struct record *r)
{
    return r->slot.bound != MR_SHM_ANY && r->slot.life != 0 &&
           r->slot.life != mr_shm_worker_life(p, r->slot.bound);
}

static inline bool is_running(unsigned state)
{
    return state == SHM_RUNNING || state == SHM_NEED || state == SHM_ANSWER || state == SHM_LETTERS;
}

static inline bool is_alive(const struct mr_shm *p, unsigned owner)
{
    return owner >= 1 && owner <= SHM_WORKERS_MAX && (p->alive >> (owner - 1) & 1);
}

/* ---- slots.c ---- */

/* Lock held. */
void slots_ring_push(struct mr_shm *p, struct record *r, unsigned ring);
unsigned slots_ring_of(const struct record *r, bool is_again);
/* Passes the extent to the worker; the record takes the block. */
void slots_extent_state(struct shm_entry *e, struct record *r, struct mr_block *b);
/* The slot is the caller's, or it is submitted and the lock is held. */
bool slots_extent_add(struct mr_shm *p, struct record *r, uint64_t bytes);
/* Passes the slot to the caller. Lock held. */
void slots_record_take(struct mr_shm *p, struct record *r, unsigned owner);
/* Ends the life of the slot: no worker can complete it any more. Lock held. */
void slots_generation_end(struct mr_shm *p, struct record *r);
/* False: a worker has taken it. Lock held. */
bool slots_record_withdraw(struct mr_shm *p, struct record *r);

/* ---- answers.c ---- */

/* A worker waits for an extent. Lock held. */
void answers_need(struct mr_shm *p, struct record *r, uint64_t word);
/* An answer is the caller's; the slot stays pending. Lock held. */
void answers_take(const struct mr_shm *p, struct record *r, uint64_t word);

#endif
