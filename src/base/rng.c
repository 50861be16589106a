/* xoshiro256** by Blackman and Vigna (2018, public domain), seeded through splitmix64 as they
 * advise, so that near seeds give unrelated streams. Secrets and hash keys come from the system. */
#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/mem.h"

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t rotl(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

void mr_rng_seed(struct mr_rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        r->s[i] = splitmix(&seed);
    }
}

uint64_t mr_rng_u64(struct mr_rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

double mr_rng_unit(struct mr_rng *r)
{
    /* 53 bits are what a double holds; 2^-53 is exact. */
    return (double)(mr_rng_u64(r) >> 11) * 0x1p-53;
}

void mr_rng_system(void *out, uint64_t bytes)
{
    char *p = out;

    while (bytes > 0) {
        /* Requests of up to 256 bytes are never cut short by a signal once the generator is up. */
        ssize_t n = getrandom(p, (size_t)MR_MIN(bytes, 256u), 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        MR_ASSERT(n > 0);
        p += n;
        bytes -= (uint64_t)n;
    }
}
