/* A small fast random generator (xoshiro256**), seeded by value; not for secrets. One thread. */
#ifndef MR_BASE_RNG_H
#define MR_BASE_RNG_H

#include <stdint.h>

struct mr_rng {
    uint64_t s[4];
};

void mr_rng_seed(struct mr_rng *r, uint64_t seed);
uint64_t mr_rng_u64(struct mr_rng *r);
/** Uniform in [0, 1). */
double mr_rng_unit(struct mr_rng *r);
/** Bytes from the system's generator (getrandom); aborts if that fails. */
void mr_rng_system(void *out, uint64_t bytes);

#endif
