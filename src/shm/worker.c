/* The worker's side. It may die between any two instructions, and the server can recover from every state in between. */
#include "shm/worker.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "shm_priv.h"

#define GRANT_WAIT_NS (20 * MR_NS_PER_MS)
/* The longest spin. The worker spins only while recent slots have arrived within that time. */
#define SPIN_NS     (50 * MR_NS_PER_US)
#define SPIN_ROUNDS 32
/* The most completed slots that share one wake-up of their home. */
#define UNSIGNALLED_MAX 16u

struct mr_shm_view {
    struct shm_map map;
    struct shm_segment homes_segment;
    const struct shm_home *homes;
    uint32_t worker;
    bool is_known;  /* the thread has reported its id */
    bool may_spin;  /* whoever submits has another CPU */
    int64_t gap_ns; /* smoothed duration of a wait */
    uint32_t mail_read;
    long switches; /* involuntary context switches of this thread, at the last check */
    uint32_t home_count;
    uint32_t unsignalled;      /* completed slots without a wake-up of their home */
    uint32_t unsignalled_home; /* the home of all of them */
    int home_fds[];
};

static int view_check(const struct mr_shm_view *v, const struct mr_shm_view_fds *fds,
                      struct mr_err *err)
{
    const struct shm_map *m = &v->map;
    const struct shm_geometry *g = &m->g;

    if (g->magic != SHM_MAGIC || g->abi != SHM_ABI) {
        return MR_FAIL(err, MR_E_INVALID, "the shared memory is of another version of the server");
    }
    if (g->control_bytes != m->control_segment.bytes || g->input_bytes != m->input.bytes ||
        g->output_bytes != m->output.bytes || g->home_count != fds->home_count ||
        g->home_count * sizeof *v->homes > v->homes_segment.bytes) {
        return MR_FAIL(err, MR_E_INVALID, "the segments of shared memory do not belong together");
    }
    return MR_OK;
}

int mr_shm_view_open(struct mr_shm_view **out, const struct mr_shm_view_fds *fds, uint32_t worker,
                     struct mr_err *err)
{
    struct mr_shm_view *v = mr_alloc(sizeof *v + fds->home_count * sizeof v->home_fds[0]);
    struct shm_map *m = &v->map;
    int rc;

    MR_TRY(shm_segment_map(&m->control_segment, fds->control, SHM_SHARED, err));
    MR_TRY(shm_segment_map(&m->input, fds->input, SHM_READ_ONLY, err));
    MR_TRY(shm_segment_map(&m->output, fds->output, SHM_SHARED, err));
    MR_TRY(shm_segment_map(&v->homes_segment, fds->homes, SHM_READ_ONLY, err));
    if (m->input.bytes < sizeof *m->directory) {
        rc = MR_FAIL(err, MR_E_INVALID, "the segment of inputs is too small");
        goto out;
    }
    m->control = (struct shm_control *)(void *)m->control_segment.data;
    m->directory = (struct shm_directory *)(void *)m->input.data;
    m->g = m->directory->geometry;
    v->homes = (const struct shm_home *)(const void *)v->homes_segment.data;
    MR_TRY(view_check(v, fds, err));
    v->worker = worker;
    v->may_spin = mr_cpu_count() > 1;
    /* What was sent to an earlier process is not this one's. */
    v->mail_read = atomic_load_explicit(&m->directory->mail_tails[worker], memory_order_relaxed);
    atomic_store_explicit(&m->control->workers[worker].mail_read, v->mail_read,
                          memory_order_relaxed);
    v->home_count = fds->home_count;
    memcpy(v->home_fds, fds->home_fds, fds->home_count * sizeof v->home_fds[0]);
    *out = v;
    return MR_OK;
out:
    mr_shm_view_close(&v);
    return rc;
}

void mr_shm_view_close(struct mr_shm_view **v)
{
    if (*v) {
        shm_segment_unmap(&(*v)->map.control_segment);
        shm_segment_unmap(&(*v)->map.input);
        shm_segment_unmap(&(*v)->map.output);
        shm_segment_unmap(&(*v)->homes_segment);
        mr_freep(v);
    }
}

/* ---- taking a slot ---- */

static _Atomic uint64_t *word_of(const struct mr_shm_view *v, uint32_t slot)
{
    return &v->map.control->slots[slot].word;
}

/* The next cell of a ring. False: it is empty. */
static bool ring_pop(struct mr_shm_view *v, unsigned ring, uint32_t *out_cell)
{
    const struct shm_directory *d = v->map.directory;
    _Atomic uint32_t *head = &v->map.control->heads[ring].at;

    uint32_t at = atomic_load_explicit(head, memory_order_acquire);
    for (;;) {
        /* seq_cst: after this worker's store that it sleeps; acquire: the cell */
        const uint32_t tail = atomic_load(&d->tails[ring]);
        uint32_t next = at + 1;
        if (at == tail) {
            return false;
        }
        if (tail - at > v->map.g.ring_size) {
            next = tail; /* another worker has corrupted it: the server restores what is lost */
        }
        const uint32_t cell =
            atomic_load_explicit(shm_cell(&v->map, ring, at), memory_order_relaxed);
        if (atomic_compare_exchange_strong_explicit(head, &at, next, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            *out_cell = cell;
            return true;
        }
    }
}

/* Takes a slot of the queue. False: it has been taken or withdrawn in between. */
static bool slot_take(struct mr_shm_view *v, uint32_t cell, struct mr_shm_task *out)
{
    const struct shm_geometry *g = &v->map.g;
    const uint32_t slot = cell & (g->slot_count - 1);
    const struct shm_entry *e = shm_entry(&v->map, slot);

    /* acquire: entry and message */
    uint64_t word = atomic_load_explicit(word_of(v, slot), memory_order_acquire);
    const uint64_t generation = atomic_load_explicit(&e->generation, memory_order_relaxed);
    if (shm_state_of(word) != SHM_SUBMITTED || shm_owner(word) != 0 ||
        shm_generation(word) != generation || shm_cell_of(slot, generation) != cell) {
        return false;
    }
    const uint64_t mine = shm_word(generation, v->worker + 1, shm_attempts(word) + 1, SHM_RUNNING);
    if (!atomic_compare_exchange_strong_explicit(word_of(v, slot), &word, mine,
                                                 memory_order_acq_rel, memory_order_relaxed)) {
        return false;
    }
    /* relaxed: the server looks at it once there is a letter */
    atomic_store_explicit(&v->map.control->slots[slot].posted, 0, memory_order_relaxed);
    *out = (struct mr_shm_task){.slot = slot,
                                .home = e->home,
                                .generation = generation,
                                .word = mine,
                                .message = v->map.input.data + g->messages_offset +
                                           (size_t)slot * g->message_bytes,
                                .message_bytes = e->message_bytes,
                                .room = v->map.output.data + (size_t)slot * g->room_bytes,
                                .room_bytes = g->room_bytes,
                                .room_offset = (uint64_t)slot * g->room_bytes};
    return true;
}

static void unsignalled_wake(struct mr_shm_view *v);

/* The k-th ring that this worker takes from. False: there are no more. */
static bool ring_at(const struct mr_shm_view *v, unsigned k, unsigned *out)
{
    *out = k < SHM_RING_OWN ? k : SHM_RING_OWN + v->worker;
    return k <= SHM_RING_OWN && *out < v->map.g.ring_count;
}

bool mr_shm_claim(struct mr_shm_view *v, struct mr_shm_task *out)
{
    unsigned ring;
    uint32_t cell;

    for (unsigned k = 0; ring_at(v, k, &ring); k++) {
        while (ring_pop(v, ring, &cell)) {
            if (slot_take(v, cell, out)) {
                mr_shm_progress(v);
                return true;
            }
        }
    }
    unsignalled_wake(v); /* another worker took the slot that this one expected */
    return false;
}

static bool is_empty(const struct mr_shm_view *v)
{
    unsigned ring;

    for (unsigned k = 0; ring_at(v, k, &ring); k++) {
        /* seq_cst: after the store that this worker sleeps */
        if (atomic_load(&v->map.directory->tails[ring]) !=
            atomic_load(&v->map.control->heads[ring].at)) {
            return false;
        }
    }
    return true;
}

/* True if this thread has been preempted since the last check: then spinning takes the CPU from others. */
static bool is_crowded(struct mr_shm_view *v)
{
    struct rusage u;

    if (getrusage(RUSAGE_THREAD, &u) < 0) {
        return true;
    }
    const bool crowded = u.ru_nivcsw != v->switches;
    v->switches = u.ru_nivcsw;
    return crowded;
}

static bool spin(const struct mr_shm_view *v, int64_t until)
{
    do {
        for (int i = 0; i < SPIN_ROUNDS; i++) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            if (!is_empty(v)) {
                return true;
            }
        }
    } while (mr_now_ns() < until);
    return false;
}

void mr_shm_wait(struct mr_shm_view *v, int64_t max_ns)
{
    _Atomic uint64_t *sleepers = &v->map.control->sleepers;
    const uint64_t me = 1ull << v->worker;
    const int64_t begin = mr_now_ns();

    if (v->may_spin && v->gap_ns > 0 && v->gap_ns < SPIN_NS && !is_crowded(v) &&
        spin(v, begin + SPIN_NS)) {
        v->gap_ns += (mr_now_ns() - begin - v->gap_ns) / 8;
        return;
    }
    const uint32_t seen = atomic_load(&v->map.directory->bell);
    atomic_fetch_or(sleepers, me);
    if (is_empty(v)) {
        shm_futex_wait(&v->map.directory->bell, seen, max_ns);
    }
    atomic_fetch_and(sleepers, ~me);
    v->gap_ns += (mr_now_ns() - begin - v->gap_ns) / 8;
}

void mr_shm_view_wake(struct mr_shm_view *v)
{
    shm_futex_wake(&v->map.directory->bell, (int)SHM_WORKERS_MAX);
}

/* ---- running it ---- */

bool mr_shm_task_extent(struct mr_shm_view *v, const struct mr_shm_task *t, uint32_t index,
                        struct mr_shm_range *out)
{
    const struct shm_entry *e = shm_entry(&v->map, t->slot);

    /* acquire: the extent */
    if (index >= atomic_load_explicit(&e->extent_count, memory_order_acquire) ||
        index >= SHM_EXTENTS_MAX) {
        return false;
    }
    *out = (struct mr_shm_range){v->map.output.data + e->extents[index].offset,
                                 e->extents[index].offset, e->extents[index].bytes};
    return true;
}

static void home_wake(const struct mr_shm_view *v, uint32_t home)
{
    if (atomic_load(&v->homes[home].is_sleeping)) {
        shm_event_write(v->home_fds[home]);
    }
}

static void unsignalled_wake(struct mr_shm_view *v)
{
    if (v->unsignalled > 0) {
        v->unsignalled = 0;
        home_wake(v, v->unsignalled_home);
    }
}

/* seq_cst: before the check whether the home sleeps */
static void done_set(const struct mr_shm_view *v, const struct mr_shm_task *t)
{
    atomic_fetch_or(&shm_done(&v->map, t->home)[t->slot / 64], 1ull << (t->slot % 64));
}

static bool word_change(const struct mr_shm_view *v, const struct mr_shm_task *t, enum shm_state to)
{
    uint64_t word = t->word;

    /* release: room and extents */
    return atomic_compare_exchange_strong_explicit(
        word_of(v, t->slot), &word, shm_word(t->generation, v->worker + 1, shm_attempts(word), to),
        memory_order_release, memory_order_relaxed);
}

/* Waits until the server has handled the state. False: the slot does not belong to this worker any more. */
static bool grant_wait(struct mr_shm_view *v, const struct mr_shm_task *t, enum shm_state asked,
                       uint32_t seen)
{
    const struct shm_entry *e = shm_entry(&v->map, t->slot);
    const uint64_t asking = shm_word(t->generation, v->worker + 1, shm_attempts(t->word), asked);
    _Atomic uint32_t *waits = &v->map.control->slots[t->slot].waits;
    uint64_t word;

    atomic_fetch_add(waits, 1); /* seq_cst: before the look at the word, here and below */
    done_set(v, t);
    home_wake(v, t->home);
    /* acquire: the changes of the server */
    while ((word = atomic_load_explicit(word_of(v, t->slot), memory_order_acquire)) == asking) {
        shm_futex_wait(&e->grants, seen, GRANT_WAIT_NS);
        mr_shm_progress(v);
    }
    atomic_fetch_sub_explicit(waits, 1, memory_order_relaxed);
    return word == t->word;
}

/* ---- letters ---- */

/* Waits until the server has read all letters but `left`, or, with none left, until the word says so. False: the slot does
 * not belong to this worker any more. */
static bool letters_wait(struct mr_shm_view *v, const struct mr_shm_task *t, uint32_t left)
{
    const struct shm_entry *e = shm_entry(&v->map, t->slot);
    const uint64_t unread =
        shm_word(t->generation, v->worker + 1, shm_attempts(t->word), SHM_LETTERS);
    _Atomic uint32_t *waits = &v->map.control->slots[t->slot].waits;
    uint64_t word;
    bool is_over;

    atomic_fetch_add(waits, 1); /* seq_cst: before the looks below */
    for (;;) {
        const uint32_t seen = atomic_load(&e->grants);
        word = atomic_load(word_of(v, t->slot));
        const uint32_t read = atomic_load_explicit(&e->read, memory_order_acquire);
        is_over = word != t->word && word != unread;
        if (is_over || (t->posted - read <= left && (left > 0 || word == t->word))) {
            break;
        }
        shm_futex_wait(&e->grants, seen, GRANT_WAIT_NS);
        mr_shm_progress(v);
    }
    atomic_fetch_sub_explicit(waits, 1, memory_order_relaxed);
    return !is_over;
}

bool mr_shm_task_letter(struct mr_shm_view *v, const struct mr_shm_task *t,
                        struct mr_shm_range *out)
{
    const uint32_t bytes = shm_letter_bytes(&v->map.g);
    const size_t at = (size_t)(t->posted % SHM_LETTERS_MAX) * bytes;
    const uint32_t read =
        atomic_load_explicit(&shm_entry(&v->map, t->slot)->read, memory_order_acquire);

    /* A wait ends when there is room for several, so that they share the wake-up. */
    if (t->posted - read >= SHM_LETTERS_MAX && !letters_wait(v, t, SHM_LETTERS_MAX / 2)) {
        return false;
    }
    *out = (struct mr_shm_range){t->room + at, t->room_offset + at, bytes};
    return true;
}

bool mr_shm_task_post(struct mr_shm_view *v, struct mr_shm_task *t)
{
    uint64_t word = t->word;
    const uint64_t unread = shm_word(t->generation, v->worker + 1, shm_attempts(word), SHM_LETTERS);

    /* seq_cst, as below: first the count, then the word, which the server changes before it looks at the count again */
    atomic_store(&v->map.control->slots[t->slot].posted, ++t->posted);
    if (!atomic_compare_exchange_strong(word_of(v, t->slot), &word, unread)) {
        return word == unread;
    }
    done_set(v, t);
    home_wake(v, t->home);
    return true;
}

bool mr_shm_task_settle(struct mr_shm_view *v, const struct mr_shm_task *t)
{
    return t->posted == 0 || letters_wait(v, t, 0);
}

bool mr_shm_task_need(struct mr_shm_view *v, struct mr_shm_task *t, uint64_t bytes,
                      struct mr_shm_range *out)
{
    struct shm_entry *e = shm_entry(&v->map, t->slot);
    const uint32_t had = atomic_load_explicit(&e->extent_count, memory_order_relaxed);

    if (!mr_shm_task_settle(v, t)) {
        return false;
    }
    atomic_store_explicit(&v->map.control->slots[t->slot].need, bytes, memory_order_relaxed);
    const uint32_t seen = atomic_load_explicit(&e->grants, memory_order_relaxed);
    if (!word_change(v, t, SHM_NEED)) {
        return false;
    }
    return grant_wait(v, t, SHM_NEED, seen) && mr_shm_task_extent(v, t, had, out) &&
           out->bytes >= bytes;
}

int mr_shm_task_answer(struct mr_shm_view *v, const struct mr_shm_task *t, struct mr_err *err)
{
    const struct shm_entry *e = shm_entry(&v->map, t->slot);
    const uint32_t seen = atomic_load_explicit(&e->grants, memory_order_relaxed);

    if (!mr_shm_task_settle(v, t) || !word_change(v, t, SHM_ANSWER) ||
        !grant_wait(v, t, SHM_ANSWER, seen)) {
        return MR_FAIL(err, MR_E_CANCELLED, "no one waits for the answer");
    }
    const int status = (int32_t)atomic_load_explicit(&e->taken, memory_order_relaxed);
    return status < 0 ? MR_FAIL(err, status, "%s", e->why) : MR_OK;
}

bool mr_shm_task_is_cancelled(const struct mr_shm_view *v, const struct mr_shm_task *t)
{
    const struct shm_entry *e = shm_entry(&v->map, t->slot);

    return atomic_load_explicit(&e->is_cancelled, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&e->generation, memory_order_relaxed) != t->generation;
}

static bool complete(struct mr_shm_view *v, const struct mr_shm_task *t)
{
    if (!word_change(v, t, SHM_DONE)) {
        return false;
    }
    if (v->unsignalled_home != t->home) {
        unsignalled_wake(v);
    }
    done_set(v, t);
    v->unsignalled++;
    v->unsignalled_home = t->home;
    mr_shm_progress(v);
    return true;
}

bool mr_shm_complete(struct mr_shm_view *v, const struct mr_shm_task *t)
{
    const bool is_mine = complete(v, t);

    unsignalled_wake(v);
    return is_mine;
}

bool mr_shm_complete_with_next(struct mr_shm_view *v, const struct mr_shm_task *t)
{
    const bool is_mine = complete(v, t);

    if (v->unsignalled >= UNSIGNALLED_MAX || is_empty(v)) {
        unsignalled_wake(v);
    }
    return is_mine;
}

bool mr_shm_complete_apart(const struct mr_shm_view *v, const struct mr_shm_task *t)
{
    if (!word_change(v, t, SHM_DONE)) {
        return false;
    }
    done_set(v, t);
    home_wake(v, t->home);
    return true;
}

/* ---- mail ---- */

bool mr_shm_mail_next(struct mr_shm_view *v, uint64_t *out_offset)
{
    /* seq_cst: after the store that a thread waits; acquire: the message */
    if (atomic_load(&v->map.directory->mail_tails[v->worker]) == v->mail_read) {
        return false;
    }
    *out_offset =
        atomic_load_explicit(shm_mail_cell(&v->map, v->worker, v->mail_read), memory_order_relaxed);
    return true;
}

void mr_shm_mail_taken(struct mr_shm_view *v)
{
    /* release: the copy that has been made of it */
    atomic_store_explicit(&v->map.control->workers[v->worker].mail_read, ++v->mail_read,
                          memory_order_release);
}

void mr_shm_mail_wait(struct mr_shm_view *v, int64_t max_ns)
{
    _Atomic uint32_t *waits = &v->map.control->workers[v->worker].mail_waits;
    uint64_t offset;

    atomic_store(waits, 1); /* seq_cst: before the look */
    if (!mr_shm_mail_next(v, &offset)) {
        shm_futex_wait(&v->map.directory->mail_tails[v->worker], v->mail_read, max_ns);
    }
    atomic_store_explicit(waits, 0, memory_order_relaxed);
}

void mr_shm_mail_wake(struct mr_shm_view *v)
{
    shm_futex_wake(&v->map.directory->mail_tails[v->worker], (int)SHM_WORKERS_MAX);
}

void mr_shm_count_pending(const struct mr_shm_view *v, int by)
{
    atomic_fetch_add_explicit(&v->map.control->workers[v->worker].pending, (uint32_t)by,
                              memory_order_relaxed);
}

void mr_shm_progress(struct mr_shm_view *v)
{
    struct shm_worker_cell *cell = &v->map.control->workers[v->worker];

    if (!v->is_known) {
        atomic_store_explicit(&cell->thread, (uint32_t)syscall(SYS_gettid), memory_order_relaxed);
        v->is_known = true;
    }
    atomic_fetch_add_explicit(&cell->progress, 1, memory_order_relaxed);
}

const uint8_t *mr_shm_input(const struct mr_shm_view *v, uint64_t offset, uint64_t bytes)
{
    if (offset > v->map.input.bytes || bytes > v->map.input.bytes - offset) {
        return NULL;
    }
    return v->map.input.data + offset;
}

void mr_shm_load_progress(struct mr_shm_view *v, const char *step, uint64_t done, uint64_t total)
{
    struct shm_worker_cell *cell = &v->map.control->workers[v->worker];
    char text[SHM_STEP_WORDS * sizeof(uint64_t)] = "";
    uint64_t word;

    memcpy(text, step, strnlen(step, sizeof text - 1));
    atomic_store_explicit(&cell->load_done, done, memory_order_relaxed);
    atomic_store_explicit(&cell->load_total, total, memory_order_relaxed);
    for (unsigned i = 0; i < SHM_STEP_WORDS; i++) {
        memcpy(&word, text + i * sizeof word, sizeof word);
        atomic_store_explicit(&cell->load_step[i], word, memory_order_relaxed);
    }
}

bool mr_shm_load_is_unwanted(const struct mr_shm_view *v)
{
    return atomic_load_explicit(&v->map.directory->is_unwanted, memory_order_relaxed) != 0;
}
