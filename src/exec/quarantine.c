#include "exec/quarantine.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"

#define PART_BYTES ((uint64_t)4096)
#define PARTS      16u /* of an input, at equal distances */

void mr_quarantine_init(struct mr_quarantine *q)
{
    *q = (struct mr_quarantine){0};
    pthread_mutex_init(&q->lock, NULL);
}

void mr_quarantine_fini(struct mr_quarantine *q)
{
    pthread_mutex_destroy(&q->lock);
}

static uint64_t mix(uint64_t digest, const void *data, size_t len)
{
    const uint64_t both[2] = {digest, mr_hash((mr_str){data, len})};

    return mr_hash((mr_str){(const char *)both, sizeof both});
}

static uint64_t mix_tensor(uint64_t digest, const struct mr_tensor *t, bool is_quick)
{
    const int64_t head[] = {t->dtype, t->rank, (int64_t)t->bytes};

    digest = mix(digest, head, sizeof head);
    if (t->dtype == MR_DTYPE_INVALID) {
        return digest;
    }
    digest = mix(digest, t->shape, (size_t)MR_MAX(t->rank, 0) * sizeof *t->shape);
    if (!is_quick || t->bytes <= PARTS * PART_BYTES) {
        return mix(digest, t->data, t->bytes);
    }
    for (unsigned i = 0; i < PARTS; i++) {
        const uint64_t at = (t->bytes - PART_BYTES) / (PARTS - 1) * i;
        digest = mix(digest, (const uint8_t *)t->data + at, PART_BYTES);
    }
    return digest;
}

static uint64_t digest_of(const struct mr_quarantine_key *k, bool is_quick)
{
    uint64_t digest = k->input_count;

    for (uint32_t i = 0; i < k->parameter_count; i++) {
        digest = mix(digest, k->parameters[i].key, strlen(k->parameters[i].key));
        digest = mix(digest, k->parameters[i].value, strlen(k->parameters[i].value));
    }
    for (uint32_t i = 0; i < k->input_count; i++) {
        digest = mix_tensor(digest, &k->inputs[i], is_quick);
    }
    return digest;
}

void mr_quarantine_add(struct mr_quarantine *q, const struct mr_quarantine_key *k, int64_t now_ns)
{
    const struct mr_quarantine_entry e = {digest_of(k, true), digest_of(k, false),
                                          now_ns + MR_QUARANTINE_NS};

    pthread_mutex_lock(&q->lock);
    q->entries[q->next++ % MR_QUARANTINE_MAX] = e;
    atomic_store_explicit(&q->until_ns, e.until_ns, memory_order_relaxed);
    pthread_mutex_unlock(&q->lock);
}

static bool has(struct mr_quarantine *q, uint64_t digest, bool is_quick, int64_t now_ns)
{
    bool found = false;

    pthread_mutex_lock(&q->lock);
    for (unsigned i = 0; i < MR_QUARANTINE_MAX; i++) {
        const struct mr_quarantine_entry *e = &q->entries[i];
        found |= e->until_ns > now_ns && (is_quick ? e->quick : e->whole) == digest;
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

bool mr_quarantine_refuses(struct mr_quarantine *q, const struct mr_quarantine_key *k,
                           int64_t now_ns)
{
    if (now_ns >= atomic_load_explicit(&q->until_ns, memory_order_relaxed) ||
        !has(q, digest_of(k, true), true, now_ns) || !has(q, digest_of(k, false), false, now_ns)) {
        return false;
    }
    atomic_fetch_add_explicit(&q->refused, 1, memory_order_relaxed);
    return true;
}

uint32_t mr_quarantine_count(struct mr_quarantine *q, int64_t now_ns)
{
    uint32_t count = 0;

    pthread_mutex_lock(&q->lock);
    for (unsigned i = 0; i < MR_QUARANTINE_MAX; i++) {
        count += q->entries[i].until_ns > now_ns;
    }
    pthread_mutex_unlock(&q->lock);
    return count;
}
