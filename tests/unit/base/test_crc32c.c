/* CRC-32C: the vectors of RFC 3720, and the instruction against the table in pieces of every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "base_priv.h"

static void known_vectors(void **state)
{
    static const uint8_t read_command[48] = {
        0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
        0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    };
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t up[32];
    uint8_t down[32];

    (void)state;
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    const struct {
        const void *data;
        size_t len;
        uint32_t crc;
    } rows[] = {
        {"", 0, 0},
        {"123456789", 9, 0xe3069283},
        {zeros, 32, 0x8a9136aa},
        {ones, 32, 0x62a8ab43},
        {up, 32, 0x46dd794e},
        {down, 32, 0x113fdb5c},
        {read_command, 48, 0xd9963a56},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mr_crc32c(0, rows[i].data, rows[i].len), rows[i].crc);
        assert_int_equal(mr_crc32c_by_table(0, rows[i].data, rows[i].len), rows[i].crc);
        if (mr_crc32c_has_instruction()) {
            assert_int_equal(mr_crc32c_by_instruction(0, rows[i].data, rows[i].len), rows[i].crc);
        }
    }
}

static void both_ways_agree_in_pieces(void **state)
{
    uint8_t data[300];
    struct mr_rng rng;

    (void)state;
    mr_rng_seed(&rng, 7);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)mr_rng_u64(&rng);
    }
    const uint32_t whole = mr_crc32c_by_table(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut++) {
        const uint32_t front = mr_crc32c_by_table(0, data, cut);
        assert_int_equal(mr_crc32c(0, data, cut), front);
        assert_int_equal(mr_crc32c(front, data + cut, sizeof data - cut), whole);
        assert_int_equal(mr_crc32c_by_table(front, data + cut, sizeof data - cut), whole);
    }
    for (size_t bit = 0; bit < sizeof data * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(mr_crc32c(0, data, sizeof data), whole);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_vectors),
        cmocka_unit_test(both_ways_agree_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
