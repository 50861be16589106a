/* Splits of workflows. Counters are atomics that all threads add to; the rollout is under a mutex which a request only tries
 * to take, and at most twice a second. */
#include "variant/split.h"

#include <pthread.h>

#include "base/clock.h"

#define LOOK_NS (MR_NS_PER_S / 2)

struct mr_split {
    struct mr_arena arena;
    enum mr_sticky_kind kind;
    mr_str key;
    mr_str salt;
    size_t count;
    mr_str tags[MR_VARIANTS_MAX];
    double weights[MR_VARIANTS_MAX];
    struct mr_ramp ramp;
    bool has_ramp;
    struct mr_variant_table table;
    _Atomic uint64_t spread;
    _Atomic int64_t look_ns;       /* when the ramp is to be looked at */
    struct mr_variant_cell *cells; /* [count] */
    pthread_mutex_t mutex;         /* guards what follows */
    struct mr_rollout rollout;
    struct mr_variant_sums *sums; /* [count], scratch */
};

/* ---- configuration ---- */

static int read_variant(struct mr_split *s, const Millrace__WorkflowScheduling__Variant *c,
                        size_t i, struct mr_err *err)
{
    int rc = mr_variant_tag_check(mr_str_c(c->name), err);

    if (rc < 0) {
        return rc;
    }
    for (size_t k = 0; k < i; k++) {
        if (mr_str_eq_c(s->tags[k], c->name)) {
            return MR_FAIL(err, MR_E_INVALID, "variants %zu and %zu have the same name '%s'", k + 1,
                           i + 1, c->name);
        }
    }
    s->tags[i] = mr_arena_str(&s->arena, mr_str_c(c->name));
    s->weights[i] = c->weight;
    return s->tags[i].ptr ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a split");
}

static int read_ramp(struct mr_split *s, const Millrace__RampConfig *c, size_t i,
                     struct mr_err *err)
{
    int rc;

    if (!c) {
        return MR_OK;
    }
    if (s->has_ramp) {
        return MR_FAIL(err, MR_E_INVALID, "a second ramp: only one variant at a time may have one");
    }
    s->has_ramp = true;
    rc = mr_ramp_read(&s->ramp, c, (unsigned)i, s->tags, s->weights, s->count, err);
    return rc < 0 ? MR_WRAP(err, rc, "variant '%s'", s->tags[i].ptr) : MR_OK;
}

static int read_split(struct mr_split *s, const Millrace__WorkflowScheduling__Split *c,
                      struct mr_err *err)
{
    mr_str key = {0};
    int rc = MR_OK;

    if (c->n_variant == 0 || c->n_variant > MR_VARIANTS_MAX) {
        return mr_variant_weights_check(s->weights, NULL, c->n_variant, err);
    }
    s->count = c->n_variant;
    if (c->sticky || c->key[0]) {
        MR_TRY(mr_sticky_parse(mr_str_c(c->key), &s->kind, &key, err));
    }
    s->key = mr_arena_str(&s->arena, key);
    s->salt = mr_arena_str(&s->arena, mr_str_c(c->salt));
    for (size_t i = 0; i < s->count; i++) {
        rc = read_variant(s, c->variant[i], i, err);
        MR_TRY(rc < 0 ? MR_WRAP(err, rc, "variant %zu", i + 1) : MR_OK);
    }
    MR_TRY(mr_variant_weights_check(s->weights, s->tags, s->count, err));
    for (size_t i = 0; i < s->count; i++) {
        MR_TRY(read_ramp(s, c->variant[i]->ramp, i, err));
    }
out:
    return rc;
}

int mr_split_new(struct mr_split **out, const Millrace__WorkflowScheduling__Split *c,
                 struct mr_rollout_time t, struct mr_err *err)
{
    struct mr_split *s = MR_NEW(struct mr_split);

    mr_arena_init(&s->arena, 1024, (size_t)1 << 20);
    pthread_mutex_init(&s->mutex, NULL);
    int rc = read_split(s, c, err);
    if (rc < 0) {
        mr_split_free(&s);
        return rc;
    }
    s->cells = mr_alloc_aligned(s->count * sizeof *s->cells);
    s->sums = MR_NEW_ARRAY(struct mr_variant_sums, s->count);
    mr_rollout_init(&s->rollout, s->weights, s->count, s->has_ramp ? &s->ramp : NULL, t, s->sums);
    mr_variant_table_set(&s->table, s->weights, s->count);
    atomic_init(&s->look_ns, t.now_ns + LOOK_NS);
    *out = s;
    return MR_OK;
}

void mr_split_free(struct mr_split **split)
{
    struct mr_split *s = *split;

    *split = NULL;
    if (s) {
        mr_rollout_fini(&s->rollout);
        pthread_mutex_destroy(&s->mutex);
        mr_arena_fini(&s->arena);
        mr_free(s->cells);
        mr_free(s->sums);
        mr_free(s);
    }
}

size_t mr_split_count(const struct mr_split *s)
{
    return s->count;
}

mr_str mr_split_tag(const struct mr_split *s, unsigned variant)
{
    return s->tags[variant];
}

enum mr_sticky_kind mr_split_key(const struct mr_split *s, mr_str *out_name)
{
    *out_name = s->key;
    return s->kind;
}

mr_str mr_split_salt(const struct mr_split *s)
{
    return s->salt;
}

/* ---- requests ---- */

unsigned mr_split_bucket(struct mr_split *s, mr_str key)
{
    if (key.ptr) {
        return mr_variant_bucket(s->salt, key);
    }
    /* The sequence of mr_variant_spread, whose state is the number of its steps times one constant. */
    uint64_t before =
        atomic_fetch_add_explicit(&s->spread, UINT64_C(0x9e3779b97f4a7c15), memory_order_relaxed);
    return mr_variant_spread(&before);
}

unsigned mr_split_choose(const struct mr_split *s, unsigned bucket)
{
    return mr_variant_of(&s->table, bucket);
}

/* The mutex is held. */
static bool look(struct mr_split *s, struct mr_rollout_time t)
{
    const uint64_t events = s->rollout.event_count;

    if (!mr_rollout_is_active(&s->rollout)) {
        return false;
    }
    memset(s->sums, 0, s->count * sizeof *s->sums);
    for (size_t i = 0; i < s->count; i++) {
        mr_variant_sums_add(&s->sums[i], &s->cells[i]);
    }
    if (mr_rollout_tick(&s->rollout, t, s->sums)) {
        mr_variant_table_set(&s->table, s->rollout.weights, s->count);
    }
    return s->rollout.event_count != events;
}

bool mr_split_end(struct mr_split *s, unsigned variant, int status, int64_t latency_ns,
                  struct mr_rollout_time t)
{
    bool has_changed = false;

    mr_variant_cell_add_shared(&s->cells[variant], status, latency_ns);
    if (!s->has_ramp || t.now_ns < atomic_load_explicit(&s->look_ns, memory_order_relaxed) ||
        pthread_mutex_trylock(&s->mutex) != 0) {
        return false;
    }
    if (t.now_ns >= atomic_load_explicit(&s->look_ns, memory_order_relaxed)) {
        atomic_store_explicit(&s->look_ns, t.now_ns + LOOK_NS, memory_order_relaxed);
        has_changed = look(s, t);
    }
    pthread_mutex_unlock(&s->mutex);
    return has_changed;
}
