/* Thousands of random games of a hostile worker against the server; a failure names the game, which is then replayed by
 * its number. */
#include "hostile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"

#define GAMES      3000u
#define BYTES_MOST 2048u

static void test_games(void **state)
{
    static uint8_t bytes[BYTES_MOST];
    struct mr_rng rng;
    char name[32];

    (void)state;
    for (uint64_t game = 0; game < GAMES; game++) {
        snprintf(name, sizeof name, "game %u", (unsigned)game);
        mr_rng_seed(&rng, game);
        const size_t size = mr_rng_u64(&rng) % BYTES_MOST;
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)(mr_rng_u64(&rng) >> 32);
        }
        hostile_run(name, bytes, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_games)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
