/* The shared memory of a model: what is where, who gets the descriptors, and when it ends. */
#include "shm/plane.h"

#include "plane_priv.h"
#include "shm/mail.h"

#define PAGE       4096u
#define RING_SHARE 4u /* cells of a ring per slot: it may hold several copies of a slot's number */
#define HEAPS      3u

_Static_assert(MR_SHM_WORKERS_MAX == SHM_WORKERS_MAX, "one limit");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared by processes");

/* ---- creation ---- */

static uint32_t power_of_two(uint32_t n)
{
    return n <= 1 ? 1 : 1u << (32 - __builtin_clz(n - 1));
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static struct shm_geometry geometry_of(const struct mr_shm_options *o)
{
    struct shm_geometry g = {.magic = SHM_MAGIC,
                             .abi = SHM_ABI,
                             .slot_count = power_of_two(o->slots),
                             .home_count = mr_shm_homes_count(o->homes),
                             .message_bytes = o->message_bytes,
                             .room_bytes = o->room_bytes,
                             .ring_count = o->has_bound ? SHM_RINGS : SHM_RING_OWN};

    g.ring_size = g.slot_count * RING_SHARE;
    g.done_offset = round_up(
        sizeof(struct shm_control) + g.slot_count * sizeof(struct shm_slot_cell), MR_CACHE_LINE);
    g.control_bytes = round_up(g.done_offset + g.home_count * shm_done_stride(g.slot_count), PAGE);
    g.entries_offset =
        round_up(sizeof(struct shm_directory) + (uint64_t)g.ring_count * g.ring_size * 4, 64);
    g.mail_offset = round_up(g.entries_offset + g.slot_count * sizeof(struct shm_entry), 64);
    g.messages_offset =
        round_up(g.mail_offset + (uint64_t)SHM_WORKERS_MAX * SHM_MAIL_MAX * sizeof(uint64_t), PAGE);
    g.input_bytes =
        round_up(g.messages_offset + (uint64_t)g.slot_count * g.message_bytes, MR_SHM_UNIT) +
        o->input_bytes / MR_SHM_UNIT * MR_SHM_UNIT + o->body_bytes / MR_SHM_UNIT * MR_SHM_UNIT;
    g.output_bytes = round_up((uint64_t)g.slot_count * g.room_bytes, MR_SHM_UNIT) +
                     o->output_bytes / MR_SHM_UNIT * MR_SHM_UNIT;
    return g;
}

static void records_init(struct mr_shm *p)
{
    const struct shm_geometry *g = &p->map.g;

    p->records = MR_NEW_ARRAY(struct record, g->slot_count);
    for (uint32_t i = g->slot_count; i-- > 0;) {
        struct record *r = &p->records[i];
        r->slot = (struct mr_shm_slot){.index = i,
                                       .message = p->map.input.data + g->messages_offset +
                                                  (size_t)i * g->message_bytes,
                                       .message_cap = g->message_bytes,
                                       .room = p->map.output.data + (size_t)i * g->room_bytes,
                                       .room_bytes = g->room_bytes,
                                       .room_offset = (uint64_t)i * g->room_bytes};
        r->generation = 1;
        r->next_free = p->free;
        p->free = r;
    }
}

int mr_shm_new(struct mr_shm **out, const struct mr_shm_options *o, struct mr_err *err)
{
    MR_ASSERT(o->slots >= 1 && o->slots <= SHM_SLOTS_MAX);
    MR_ASSERT(o->message_bytes % PAGE == 0 && o->room_bytes % PAGE == 0);
    struct mr_shm *p = mr_alloc_aligned(sizeof *p);
    struct shm_map *m = &p->map;
    int rc;

    m->g = geometry_of(o);
    MR_TRY(shm_segment_new(&m->control_segment, o->name, m->g.control_bytes, SHM_SHARED, err));
    MR_TRY(shm_segment_new(&m->input, o->name, m->g.input_bytes, SHM_READ_ONLY, err));
    MR_TRY(shm_segment_new(&m->output, o->name, m->g.output_bytes, SHM_SHARED, err));
    m->control = (struct shm_control *)(void *)m->control_segment.data;
    m->directory = (struct shm_directory *)(void *)m->input.data;
    m->directory->geometry = m->g;
    p->homes = o->homes;
    p->at_once = 1;
    pthread_mutex_init(&p->lock, NULL);
    records_init(p);
    p->pending = mr_alloc_array(m->g.home_count, sizeof *p->pending);
    const uint64_t in = round_up(
        m->g.messages_offset + (uint64_t)m->g.slot_count * m->g.message_bytes, MR_SHM_UNIT);
    const uint64_t room = round_up((uint64_t)m->g.slot_count * m->g.room_bytes, MR_SHM_UNIT);
    mr_shm_heap_init(&p->inputs, m->input.fd, m->input.data, in, o->input_bytes);
    const uint64_t bodies = in + p->inputs.bytes;
    mr_shm_heap_init(&p->bodies, m->input.fd, m->input.data, bodies, m->g.input_bytes - bodies);
    mr_shm_heap_init(&p->outputs, m->output.fd, m->output.data, room, m->g.output_bytes - room);
    p->stats.slots = m->g.slot_count;
    p->holders = 1 + HEAPS;
    *out = p;
    return MR_OK;
out:
    shm_segment_close(&m->control_segment);
    shm_segment_close(&m->input);
    mr_free(p);
    return rc;
}

static void let_go(void *plane)
{
    struct mr_shm *p = plane;

    /* acq_rel: the writes of every holder come before the end */
    if (atomic_fetch_sub_explicit(&p->holders, 1, memory_order_acq_rel) > 1) {
        return;
    }
    mr_shm_heap_fini(&p->inputs);
    mr_shm_heap_fini(&p->bodies);
    mr_shm_heap_fini(&p->outputs);
    shm_segment_close(&p->map.input);
    shm_segment_close(&p->map.output);
    mr_free(p);
}

void mr_shm_free(struct mr_shm **io)
{
    struct mr_shm *p = *io;

    if (!p) {
        return;
    }
    *io = NULL;
    MR_ASSERT(p->stats.slots_used == 0 && p->alive == 0);
    for (uint32_t i = 0; i < SHM_WORKERS_MAX; i++) {
        mr_shm_mail_begin(p, i);
        mr_free(p->mail[i].blocks);
    }
    pthread_mutex_destroy(&p->lock);
    shm_segment_close(&p->map.control_segment);
    mr_free(p->records);
    mr_free(p->pending);
    /* For messages and rooms: they contain no blocks, which could stay for long. */
    shm_discard(p->map.input.fd, 0, p->inputs.offset);
    shm_discard(p->map.output.fd, 0, p->outputs.offset);
    mr_shm_heap_close(&p->inputs, let_go, p);
    mr_shm_heap_close(&p->bodies, let_go, p);
    mr_shm_heap_close(&p->outputs, let_go, p);
    let_go(p);
}

struct mr_shm_fds mr_shm_get_fds(const struct mr_shm *p)
{
    return (struct mr_shm_fds){p->map.control_segment.fd, p->map.input.fd, p->map.output.fd};
}

struct mr_shm_heap *mr_shm_inputs(struct mr_shm *p)
{
    return &p->inputs;
}

struct mr_shm_heap *mr_shm_bodies(struct mr_shm *p)
{
    return &p->bodies;
}

struct mr_shm_heap *mr_shm_outputs(struct mr_shm *p)
{
    return &p->outputs;
}

bool mr_shm_input_at(const struct mr_shm *p, const void *data, uint64_t bytes, uint64_t *out_offset)
{
    const uintptr_t first = (uintptr_t)p->map.input.data, at = (uintptr_t)data;

    if (at < first + p->inputs.offset || at - first > p->map.input.bytes ||
        bytes > p->map.input.bytes - (at - first)) {
        return false;
    }
    *out_offset = at - first;
    return true;
}
