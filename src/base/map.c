/* The hash map: linear probing, deletion by shifting back, so that there are no tombstones and a
 * lookup ends at the first empty slot. At most 5/8 full. The hash is SipHash-1-3 (Aumasson and
 * Bernstein, "SipHash: a fast short-input PRF", 2012) with a key drawn once per process, because
 * keys come from peers who must not be able to aim at one bucket. The full hash is kept in the
 * slot: a lookup compares bytes almost only when they are equal, and growing hashes nothing. */
#include "base/map.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#define FIRST_CAP 16

static struct {
    uint64_t key[2];
    _Atomic int is_ready;
    pthread_once_t once;
} siphash = {.once = PTHREAD_ONCE_INIT};

static void draw_key(void)
{
    mr_rng_system(siphash.key, sizeof siphash.key);
    /* Pairs with the acquire in mr_hash: a thread that sees 1 sees the key. */
    atomic_store_explicit(&siphash.is_ready, 1, memory_order_release);
}

static void fix_key(void)
{
    siphash.key[0] = UINT64_C(0x0706050403020100);
    siphash.key[1] = UINT64_C(0x0f0e0d0c0b0a0908);
    atomic_store_explicit(&siphash.is_ready, 1, memory_order_release);
}

void mr_hash_fix(void)
{
    pthread_once(&siphash.once, fix_key);
}

static inline uint64_t rotl(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t mr_hash(mr_str s)
{
    if (!atomic_load_explicit(&siphash.is_ready, memory_order_acquire)) {
        pthread_once(&siphash.once, draw_key);
    }
    uint64_t v[4] = {
        siphash.key[0] ^ UINT64_C(0x736f6d6570736575),
        siphash.key[1] ^ UINT64_C(0x646f72616e646f6d),
        siphash.key[0] ^ UINT64_C(0x6c7967656e657261),
        siphash.key[1] ^ UINT64_C(0x7465646279746573),
    };
    const char *p = s.ptr;
    size_t left = s.len;
    for (; left >= 8; p += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        sip_word(v, word);
    }
    uint64_t last = (uint64_t)s.len << 56;
    for (size_t i = 0; i < left; i++) {
        last |= (uint64_t)(uint8_t)p[i] << (8 * i);
    }
    sip_word(v, last);
    v[2] ^= 0xFF;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void mr_map_fini(struct mr_map *m)
{
    for (size_t i = 0; i < m->cap; i++) {
        mr_free((char *)m->slots[i].key.ptr);
    }
    mr_free(m->slots);
    *m = (struct mr_map){0};
}

/* The slot of the key, or the empty one where it would go. Ends, as the map is never full. */
static struct mr_map_slot *slot_of(const struct mr_map *m, mr_str key, uint64_t hash)
{
    size_t mask = m->cap - 1;
    size_t i = (size_t)hash & mask;

    for (;; i = (i + 1) & mask) {
        struct mr_map_slot *slot = &m->slots[i];
        if (!slot->key.ptr || (slot->hash == hash && mr_str_eq(slot->key, key))) {
            return slot;
        }
    }
}

void *mr_map_find(const struct mr_map *m, mr_str key)
{
    if (m->len == 0) {
        return NULL;
    }
    return slot_of(m, key, mr_hash(key))->value;
}

static void grow(struct mr_map *m)
{
    struct mr_map bigger = {.cap = m->cap ? m->cap * 2 : FIRST_CAP, .len = m->len};

    bigger.slots = MR_NEW_ARRAY(struct mr_map_slot, bigger.cap);
    size_t mask = bigger.cap - 1;
    for (size_t i = 0; i < m->cap; i++) {
        if (!m->slots[i].key.ptr) {
            continue;
        }
        size_t to = (size_t)m->slots[i].hash & mask;
        while (bigger.slots[to].key.ptr) {
            to = (to + 1) & mask;
        }
        bigger.slots[to] = m->slots[i];
    }
    mr_free(m->slots);
    *m = bigger;
}

void *mr_map_put(struct mr_map *m, mr_str key, void *value)
{
    MR_ASSERT(value != NULL);
    if ((m->len + 1) * 8 > m->cap * 5) {
        grow(m);
    }
    uint64_t hash = mr_hash(key);
    struct mr_map_slot *slot = slot_of(m, key, hash);
    void *old = slot->value;
    if (!slot->key.ptr) {
        slot->key = mr_str_n(mr_strndup(key.ptr, key.len), key.len);
        slot->hash = hash;
        m->len++;
    }
    slot->value = value;
    return old;
}

void *mr_map_remove(struct mr_map *m, mr_str key)
{
    if (m->len == 0) {
        return NULL;
    }
    struct mr_map_slot *found = slot_of(m, key, mr_hash(key));
    void *old = found->value;
    if (!found->key.ptr) {
        return NULL;
    }
    mr_free((char *)found->key.ptr);
    m->len--;

    /* Closes the hole: a later entry moves into it unless its own home lies after the hole. */
    size_t mask = m->cap - 1;
    size_t hole = (size_t)(found - m->slots);
    for (size_t i = (hole + 1) & mask; m->slots[i].key.ptr; i = (i + 1) & mask) {
        size_t home = (size_t)m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct mr_map_slot){0};
    return old;
}

struct mr_map_slot *mr_map_next(const struct mr_map *m, size_t *io_pos)
{
    while (*io_pos < m->cap) {
        struct mr_map_slot *slot = &m->slots[(*io_pos)++];
        if (slot->key.ptr) {
            return slot;
        }
    }
    return NULL;
}
