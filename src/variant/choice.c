/* Weights to ranges of buckets, and keys to buckets.
 *
 * The table is a sequence lock whose data are atomics: a reader retries in the few instructions of a change, which comes
 * from an operator or a ramp, and the table needs no memory to be reclaimed. */
#include "variant/choice.h"

#include <math.h>

#include "codec/json.h"

int mr_variant_weights_check(const double *weights, const mr_str *tags, size_t count,
                             struct mr_err *err)
{
    double sum = 0;

    if (count == 0 || count > MR_VARIANTS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%zu variants, possible are 1 to %u", count,
                       MR_VARIANTS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0 && weights[i] <= MR_VARIANT_WEIGHT_MAX)) {
            mr_str tag = tags ? mr_str_sub(tags[i], 0, 64) : MR_STR("");
            char text[32];
            return MR_FAIL(err, MR_E_INVALID,
                           "variant %zu '%.*s' has weight %.*s, possible is 0 to %.0f", i + 1,
                           MR_STR_ARG(tag), (int)mr_double_text(weights[i], text), text,
                           MR_VARIANT_WEIGHT_MAX);
        }
        sum += weights[i];
    }
    if (sum <= 0) {
        return MR_FAIL(err, MR_E_INVALID, "all weights are 0: one has to be above");
    }
    return MR_OK;
}

static void borders_of(const double *weights, size_t count, uint32_t *border)
{
    double sum = 0, upto = 0;
    uint32_t low = 0, high = MR_VARIANT_BUCKETS;

    for (size_t i = 0; i < count; i++) {
        sum += weights[i];
    }
    for (size_t i = 0; i < count; i++) {
        upto += weights[i];
        uint32_t b = (uint32_t)lround(upto / sum * MR_VARIANT_BUCKETS);
        low += weights[i] > 0;
        low = border[i] = b > low ? b : low;
    }
    /* The ranges that were pushed up leave room for those after them. */
    for (size_t i = count; i-- > 0;) {
        border[i] = border[i] < high ? border[i] : high;
        high = border[i] - (weights[i] > 0);
    }
}

void mr_variant_table_set(struct mr_variant_table *t, const double *weights, size_t count)
{
    uint32_t border[MR_VARIANTS_MAX];
    uint32_t version = atomic_load_explicit(&t->version, memory_order_relaxed);

    borders_of(weights, count, border);
    border[count - 1] = MR_VARIANT_BUCKETS;
    atomic_store_explicit(&t->version, version + 1, memory_order_relaxed);
    /* release: who sees one of these sees the odd version as well, and reads again */
    atomic_store_explicit(&t->count, (uint32_t)count, memory_order_release);
    for (size_t i = 0; i < count; i++) {
        atomic_store_explicit(&t->border[i], border[i], memory_order_release);
    }
    atomic_store_explicit(&t->version, version + 2, memory_order_release);
}

/* acquire: what is read next is at least as new as what was read before, so that equal versions around it mean that all
 * of it is of that version. */
static uint32_t load(const _Atomic uint32_t *p)
{
    return atomic_load_explicit((_Atomic uint32_t *)p, memory_order_acquire);
}

unsigned mr_variant_of(const struct mr_variant_table *t, unsigned bucket)
{
    uint32_t before;
    unsigned i;

    do {
        before = load(&t->version);
        const uint32_t count = load(&t->count);
        for (i = 0; i + 1 < count && bucket >= load(&t->border[i]);) {
            i++;
        }
    } while ((before & 1) || load(&t->version) != before);
    return i;
}

bool mr_variant_is_used(const struct mr_variant_table *t, unsigned variant)
{
    uint32_t before;
    bool is_used;

    do {
        before = load(&t->version);
        is_used = variant < load(&t->count) &&
                  load(&t->border[variant]) > (variant ? load(&t->border[variant - 1]) : 0);
    } while ((before & 1) || load(&t->version) != before);
    return is_used;
}

unsigned mr_variant_biggest(const struct mr_variant_table *t)
{
    uint32_t before;
    unsigned best;

    do {
        uint32_t low = 0, most = 0;
        before = load(&t->version);
        const uint32_t count = load(&t->count);
        best = 0;
        for (unsigned i = 0; i < count; i++) {
            const uint32_t high = load(&t->border[i]);
            best = high - low > most ? i : best;
            most = MR_MAX(most, high - low);
            low = high;
        }
    } while ((before & 1) || load(&t->version) != before);
    return best;
}

static uint64_t fnv1a(uint64_t h, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        h = (h ^ (uint8_t)s.ptr[i]) * UINT64_C(0x100000001b3);
    }
    return h;
}

unsigned mr_variant_bucket(mr_str salt, mr_str key)
{
    uint64_t h = fnv1a(UINT64_C(0xcbf29ce484222325), salt);

    h = fnv1a(fnv1a(h, MR_STR("\0")), key);
    h = (h ^ (h >> 33)) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ (h >> 33)) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (unsigned)((h ^ (h >> 33)) % MR_VARIANT_BUCKETS);
}
