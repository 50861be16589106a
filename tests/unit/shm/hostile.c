#include "hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/plane.h"
#include "shm/worker.h"
#include "shm_priv.h"

#define SLOTS        4u
#define HOMES        2u
#define WORKERS      3u
#define OUTPUT_BYTES (2u << 20)
#define STEPS_MAX    4096u

static const char *running; /* for the message of a failure */

#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: REQUIRE(%s)\n", __FILE__, __LINE__, running, #cond);       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum mine { FREE, CALLERS, OUT, ANSWERED };

struct game {
    const uint8_t *at, *end; /* of the bytes */
    struct mr_shm_homes *homes;
    struct mr_shm_door doors[HOMES];
    struct mr_shm *plane;
    struct mr_shm_view *views[WORKERS];
    /* the hostile worker's own mappings */
    struct shm_segment control_segment, output;
    struct shm_control *control;
    const struct shm_geometry *g; /* at the beginning of the input segment, which can be read */
    struct shm_segment input;
    enum mine mine[SLOTS];
    struct mr_shm_slot *slots[SLOTS];
    struct mr_shm_task tasks[WORKERS];
    bool has_task[WORKERS];
    struct mr_block *kept[SLOTS]; /* of an answer */
    uint64_t outputs_seen;
};

/* ---- bytes ---- */

static uint8_t byte(struct game *h)
{
    return h->at < h->end ? *h->at++ : 0;
}

static uint64_t number(struct game *h, unsigned bytes)
{
    uint64_t n = 0;

    while (bytes-- > 0) {
        n = n << 8 | byte(h);
    }
    return n;
}

/* ---- the server ---- */

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome);

static void give(struct game *h, struct mr_shm_slot *s)
{
    REQUIRE(h->mine[s->index] == CALLERS);
    h->mine[s->index] = FREE;
    mr_shm_give(h->plane, s);
}

static void submit(struct game *h, struct mr_shm_slot *s, bool is_again)
{
    const uint8_t options = byte(h);

    REQUIRE(h->mine[s->index] == CALLERS);
    if (options & 2) {
        mr_shm_add_extent(h->plane, s, 1 + number(h, 2) * 8);
    }
    memset(s->message, options, 16);
    if (options & 8) {
        s->bound = (options >> 4) % WORKERS;
        s->life = options & 128 ? mr_shm_worker_life(h->plane, s->bound) : 0;
    }
    h->mine[s->index] = OUT;
    if (!mr_shm_submit(h->plane, s, 16, options & 1, is_again || (options & 4))) {
        h->mine[s->index] = CALLERS;
        REQUIRE(s->bound != MR_SHM_ANY && s->life != 0);
        give(h, s);
    }
}

static void take(struct game *h)
{
    struct mr_shm_slot *s = mr_shm_take(h->plane);

    if (s) {
        REQUIRE(s->index < SLOTS && h->mine[s->index] == FREE);
        h->mine[s->index] = CALLERS;
        h->slots[s->index] = s;
        submit(h, s, false);
    }
}

/* An answer gives its place, which must lie within the slot's own memory. Returns the block that it is in. */
static struct mr_block *check_output(struct game *h, struct mr_shm_slot *s)
{
    const struct mr_shm_heap *outputs = mr_shm_outputs(h->plane);
    const uint8_t *const base = outputs->data;
    uint64_t offset, bytes;
    const uint8_t *data;
    struct mr_block *block;

    memcpy(&offset, s->room, sizeof offset);
    memcpy(&bytes, s->room + 8, sizeof bytes);
    if (mr_shm_output_at(h->plane, s, offset, bytes, &data, &block)) {
        REQUIRE(data == base + offset && bytes <= h->output.bytes - offset);
        REQUIRE(block ? data >= block->data && data + bytes <= block->data + block->cap
                      : data >= s->room && data + bytes <= s->room + s->room_bytes);
        h->outputs_seen++;
        return block;
    }
    return NULL;
}

/* An answer is kept for a while, as a client does that reads slowly. */
static void keep(struct game *h, struct mr_shm_slot *s)
{
    struct mr_block *block = check_output(h, s);

    h->mine[s->index] = ANSWERED;
    mr_block_unref(&h->kept[s->index]);
    if (block && byte(h) % 2) {
        h->kept[s->index] = mr_block_ref(block);
    }
}

static void go_on(struct game *h, struct mr_shm_slot *s)
{
    if (!s || h->mine[s->index] != ANSWERED) {
        return;
    }
    for (unsigned n = 0; mr_shm_next_letter(h->plane, s); n++) {
        REQUIRE(n < 16 && s->letter >= s->room && s->letter < s->room + s->room_bytes);
    }
    h->mine[s->index] = OUT; /* it may be handed out at once */
    if (!mr_shm_go_on(h->plane, s, byte(h) % 2 ? MR_E_CANCELLED : MR_OK, "so")) {
        h->mine[s->index] = CALLERS;
        give(h, s);
    }
}

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct game *h = ctx;

    REQUIRE(s->index < SLOTS && h->mine[s->index] == OUT && h->slots[s->index] == s);
    if (outcome == MR_SHM_WAITING) {
        s->is_unwanted = byte(h) % 8 == 1;
        return;
    }
    if (outcome == MR_SHM_ANSWER) {
        keep(h, s);
        return;
    }
    h->mine[s->index] = CALLERS;
    if (outcome == MR_SHM_DONE) {
        check_output(h, s);
    }
    if (h->at < h->end && outcome != MR_SHM_DONE && byte(h) % 2) {
        submit(h, s, true);
    } else {
        give(h, s);
    }
}

static void sweep(struct game *h, int64_t now)
{
    struct mr_shm_worker_state states[MR_SHM_WORKERS_MAX];

    mr_shm_sweep(h->plane, now, states, on_outcome, h);
    for (unsigned i = 0; i < MR_SHM_WORKERS_MAX; i++) {
        REQUIRE(!states[i].slot || (i < WORKERS && states[i].slot->index < SLOTS));
    }
}

static void worker_end(struct game *h, uint32_t worker)
{
    h->has_task[worker] = false;
    mr_shm_worker_end(h->plane, worker, on_outcome, h);
}

static void withdraw(struct game *h, struct mr_shm_slot *s)
{
    if (s && h->mine[s->index] == OUT && mr_shm_withdraw(h->plane, s)) {
        h->mine[s->index] = CALLERS;
        give(h, s);
    }
}

static void cancel(struct game *h, struct mr_shm_slot *s)
{
    if (s && (h->mine[s->index] == OUT || h->mine[s->index] == ANSWERED)) {
        mr_shm_cancel(h->plane, s);
    }
}

/* ---- honest workers ---- */

static void work(struct game *h, uint32_t w)
{
    struct mr_shm_task *t = &h->tasks[w];
    struct mr_shm_range range;

    if (!h->has_task[w]) {
        h->has_task[w] = mr_shm_claim(h->views[w], t);
        if (h->has_task[w]) {
            /* perhaps an old one, or one that never was: 0 bytes */
            REQUIRE(t->slot < SLOTS && t->message_bytes <= 16 && t->home < HOMES);
        }
        return;
    }
    if (mr_shm_task_extent(h->views[w], t, byte(h) % 8, &range)) {
        REQUIRE(range.offset <= h->output.bytes && range.bytes <= h->output.bytes - range.offset);
        memcpy(t->room, &range.offset, 8);
        memcpy(t->room + 8, &range.bytes, 8);
    }
    const unsigned kind = byte(h) % 4;
    if (kind == 2) {
        mr_shm_task_post(h->views[w], t);
        return;
    }
    if (kind == 1) { /* as mr_shm_task_answer, but for the wait */
        uint64_t word = t->word;
        atomic_compare_exchange_strong(
            &h->control->slots[t->slot].word, &word,
            shm_word(t->generation, w + 1, shm_attempts(word), SHM_ANSWER));
        atomic_fetch_or((_Atomic uint64_t *)(void *)(h->control_segment.data + h->g->done_offset +
                                                     t->home * shm_done_stride(SLOTS)),
                        1ull << t->slot);
        return;
    }
    mr_shm_complete(h->views[w], t);
    h->has_task[w] = false;
}

/* ---- the hostile one ---- */

static void scribble(struct game *h, uint8_t *memory, size_t size)
{
    const size_t at = number(h, 4) % size;

    for (unsigned n = byte(h) % 16; n > 0; n--) {
        memory[(at + n) % size] = byte(h);
    }
}

/* A word as the server could expect it, but for what the bytes change. */
static void write_word(struct game *h)
{
    _Atomic uint64_t *word = &h->control->slots[byte(h) % SLOTS].word;
    const uint64_t seen = atomic_load(word);
    const uint8_t kind = byte(h);
    const uint64_t generation = shm_generation(seen) + (kind & 3) - ((kind >> 2) & 3);
    const unsigned owner = kind & 16 ? byte(h) % (WORKERS + 2) : shm_owner(seen);
    const unsigned attempts = kind & 32 ? byte(h) : shm_attempts(seen);

    atomic_store(word, shm_word(kind & 64 ? generation : shm_generation(seen), owner, attempts,
                                (enum shm_state)(byte(h) % 7)));
}

static void write_head(struct game *h)
{
    const struct shm_directory *d = (const struct shm_directory *)(const void *)h->input.data;
    const uint8_t kind = byte(h);
    const unsigned ring = kind & 8 ? SHM_RING_OWN + kind % WORKERS : kind & 1;
    const uint32_t from = kind & 2 ? atomic_load(&d->tails[ring]) : 0;

    atomic_store(&h->control->heads[ring].at,
                 kind & 4 ? (uint32_t)number(h, 4) : from + byte(h) - 128);
}

static void write_done(struct game *h)
{
    uint8_t *done = h->control_segment.data + h->g->done_offset +
                    byte(h) % HOMES * shm_done_stride(h->g->slot_count);

    atomic_store((_Atomic uint64_t *)(void *)done, number(h, 1) | number(h, 1) << 56);
}

static void write_need(struct game *h)
{
    struct shm_slot_cell *cell = &h->control->slots[byte(h) % SLOTS];
    const uint8_t kind = byte(h);
    const uint64_t word = atomic_load(&cell->word);

    atomic_store(&cell->need, kind & 1 ? number(h, 8) : number(h, 2) * 16);
    if (kind & 2) {
        atomic_store(&cell->word, shm_word(shm_generation(word), 1 + kind % WORKERS,
                                           shm_attempts(word), SHM_NEED));
    }
}

static void write_about_itself(struct game *h)
{
    struct shm_worker_cell *cell = &h->control->workers[byte(h) % MR_SHM_WORKERS_MAX];

    atomic_store(&cell->progress, number(h, 8));
    atomic_store(&cell->thread, (uint32_t)number(h, 4));
    atomic_store(&h->control->sleepers, number(h, 8));
}

/* ---- all of it ---- */

static void step(struct game *h, int64_t now)
{
    const uint8_t what = byte(h);

    switch (what % 16) {
    case 0:
    case 1: take(h); break;
    case 2:
    case 3: work(h, byte(h) % WORKERS); break;
    case 4:
    case 5: REQUIRE(mr_shm_poll(h->plane, what >> 4 & 1, on_outcome, h) <= SLOTS); break;
    case 6: sweep(h, now); break;
    case 7: {
        const uint32_t w = byte(h) % WORKERS;
        worker_end(h, w);
        mr_shm_worker_begin(h->plane, w);
        break;
    }
    case 8: withdraw(h, h->slots[byte(h) % SLOTS]); break;
    case 9:
        if (what & 16) {
            go_on(h, h->slots[byte(h) % SLOTS]);
        } else {
            cancel(h, h->slots[byte(h) % SLOTS]);
        }
        break;
    case 10: write_word(h); break;
    case 11: write_head(h); break;
    case 12: write_done(h); break;
    case 13: write_need(h); break;
    case 14:
        if (what & 16) {
            scribble(h, h->control_segment.data, h->control_segment.bytes);
        } else {
            write_about_itself(h);
        }
        break;
    default: scribble(h, h->output.data, SLOTS * 4096); break;
    }
}

/* With no worker left, everything comes back: at once, by two sweeps, or because it still waits. */
static void all_back(struct game *h)
{
    h->at = h->end;
    for (uint32_t w = 0; w < WORKERS; w++) {
        worker_end(h, w);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        go_on(h, h->slots[i]);
        mr_block_unref(&h->kept[i]);
    }
    sweep(h, INT64_MAX - 1);
    sweep(h, INT64_MAX);
    for (unsigned i = 0; i < SLOTS; i++) {
        withdraw(h, h->slots[i]);
        REQUIRE(h->mine[i] == FREE);
    }
    for (uint32_t home = 0; home < HOMES; home++) {
        REQUIRE(mr_shm_pending(h->plane, home) == 0);
        mr_shm_home_wake(h->homes, home);
    }
    REQUIRE(mr_shm_get_stats(h->plane).slots_used == 0);
    REQUIRE(mr_shm_heap_get_stats(mr_shm_outputs(h->plane)).used_bytes == 0);
}

static void open_all(struct game *h)
{
    struct mr_err err;

    for (uint32_t i = 0; i < HOMES; i++) {
        h->doors[i] = (struct mr_shm_door){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                           eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    }
    REQUIRE(mr_shm_homes_new(&h->homes, h->doors, HOMES, &err) == MR_OK);
    const struct mr_shm_options o = {.name = "hostile",
                                     .slots = SLOTS,
                                     .message_bytes = 4096,
                                     .room_bytes = 4096,
                                     .output_bytes = OUTPUT_BYTES,
                                     .homes = h->homes,
                                     .has_bound = true};
    REQUIRE(mr_shm_new(&h->plane, &o, &err) == MR_OK);
    const struct mr_shm_fds fds = mr_shm_get_fds(h->plane);
    const int home_fds[HOMES] = {mr_shm_home_fd(h->homes, 0), mr_shm_home_fd(h->homes, 1)};
    const struct mr_shm_view_fds view = {
        fds.control, fds.input, fds.output, mr_shm_homes_segment(h->homes), home_fds, HOMES};
    for (uint32_t w = 0; w < WORKERS; w++) {
        REQUIRE(mr_shm_view_open(&h->views[w], &view, w, &err) == MR_OK);
        mr_shm_worker_begin(h->plane, w);
    }
    REQUIRE(shm_segment_map(&h->control_segment, fds.control, SHM_SHARED, &err) == MR_OK);
    REQUIRE(shm_segment_map(&h->output, fds.output, SHM_SHARED, &err) == MR_OK);
    REQUIRE(shm_segment_map(&h->input, fds.input, SHM_READ_ONLY, &err) == MR_OK);
    h->control = (struct shm_control *)(void *)h->control_segment.data;
    h->g = (const struct shm_geometry *)(const void *)h->input.data;
}

void hostile_run(const char *name, const uint8_t *data, size_t size)
{
    struct game h = {.at = data, .end = data + size};

    running = name;
    open_all(&h);
    for (unsigned i = 0; i < STEPS_MAX && h.at < h.end; i++) {
        step(&h, (int64_t)i + 1);
    }
    all_back(&h);
    for (uint32_t w = 0; w < WORKERS; w++) {
        mr_shm_view_close(&h.views[w]);
    }
    shm_segment_unmap(&h.control_segment);
    shm_segment_unmap(&h.output);
    shm_segment_unmap(&h.input);
    mr_shm_free(&h.plane);
    mr_shm_homes_free(&h.homes);
    for (uint32_t i = 0; i < HOMES; i++) {
        close(h.doors[i].workers);
        close(h.doors[i].server);
    }
}
