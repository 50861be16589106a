/* Compression both ways: round trips, damage, bombs, and the choice of a coding by name. */
#include "net/compress.h"

#include <zlib.h>

#include "net_test.h"
#include "pack.h"

static void pack(enum mr_coding coding, const void *p, size_t n, struct mr_buf *out)
{
    struct mr_piece pieces[3] = {
        {.ptr = p, .len = n / 3}, {0}, {.ptr = (const uint8_t *)p + n / 3, .len = n - n / 3}};

    mr_buf_init(out, 0);
    assert_true(pack_into(coding, 6, pieces, 3, out));
}

static void test_round_trip(void **state)
{
    static const size_t sizes[] = {0, 1, 100, 16384, 16385, 1000000};
    uint8_t *data = malloc(1000000);

    (void)state;
    for (size_t i = 0; i < 1000000; i++) {
        data[i] = (uint8_t)(i * i >> 7);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (int coding = MR_CODING_GZIP; coding <= MR_CODING_DEFLATE; coding++) {
            struct mr_buf packed;
            struct mr_block *block = NULL;
            size_t len = 99;
            pack((enum mr_coding)coding, data, sizes[i], &packed);
            mr_bytes in = {(uint8_t *)packed.ptr, packed.len};
            assert_int_equal(
                mr_decompress((enum mr_coding)coding, in, sizes[i], &block, &len, NULL), MR_OK);
            assert_int_equal(len, sizes[i]);
            assert_memory_equal(block->data, data, len);
            mr_block_unref(&block);
            if (sizes[i] > 0) {
                assert_int_equal(
                    mr_decompress((enum mr_coding)coding, in, sizes[i] - 1, &block, &len, NULL),
                    MR_E_TOO_LARGE);
            }
            mr_buf_fini(&packed);
        }
    }
    free(data);
}

static void test_raw_deflate(void **state)
{
    uint8_t out[200];
    z_stream z = {0};
    struct mr_block *block = NULL;
    size_t len;

    (void)state;
    deflateInit2(&z, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (unsigned char *)"hello hello hello";
    z.avail_in = 17;
    z.next_out = out;
    z.avail_out = sizeof out;
    deflate(&z, Z_FINISH);
    mr_bytes in = {out, sizeof out - z.avail_out};
    deflateEnd(&z);
    assert_int_equal(mr_decompress(MR_CODING_DEFLATE, in, 100, &block, &len, NULL), MR_OK);
    assert_int_equal(len, 17);
    assert_memory_equal(block->data, "hello hello hello", 17);
    mr_block_unref(&block);
}

static void test_damage(void **state)
{
    struct mr_buf packed;
    struct mr_block *block = NULL;
    size_t len;
    char data[1000];

    (void)state;
    memset(data, 'd', sizeof data);
    pack(MR_CODING_GZIP, data, sizeof data, &packed);
    /* Cut short anywhere. */
    for (size_t n = 0; n < packed.len; n++) {
        mr_bytes in = {(uint8_t *)exact_copy(packed.ptr, n), n};
        assert_int_equal(mr_decompress(MR_CODING_GZIP, in, 10000, &block, &len, NULL),
                         MR_E_INVALID);
        free((void *)in.ptr);
    }
    /* Bytes after it. */
    mr_buf_char(&packed, 'x');
    mr_bytes in = {(uint8_t *)packed.ptr, packed.len};
    assert_int_equal(mr_decompress(MR_CODING_GZIP, in, 10000, &block, &len, NULL), MR_E_INVALID);
    /* A bit turned in the checksum. */
    packed.len--;
    in.len--;
    packed.ptr[packed.len - 6] ^= 1;
    assert_int_equal(mr_decompress(MR_CODING_GZIP, in, 10000, &block, &len, NULL), MR_E_INVALID);
    assert_int_equal(mr_decompress(MR_CODING_UNKNOWN, in, 10000, &block, &len, NULL),
                     MR_E_UNSUPPORTED);
    assert_null(block);
    mr_buf_fini(&packed);
}

static void test_bomb(void **state)
{
    size_t n = 200u << 20;
    char *zeros = calloc(1, n);
    struct mr_buf packed;
    struct mr_block *block = NULL;
    size_t len;

    (void)state;
    pack(MR_CODING_GZIP, zeros, n, &packed);
    free(zeros);
    uint64_t before = mr_block_get_stats().out_bytes;
    mr_bytes in = {(uint8_t *)packed.ptr, packed.len};
    assert_true(packed.len < 300000);
    assert_int_equal(mr_decompress(MR_CODING_GZIP, in, 1 << 20, &block, &len, NULL),
                     MR_E_TOO_LARGE);
    assert_null(block);
    assert_int_equal(mr_block_get_stats().out_bytes, before);
    /* Against the byte budget too. */
    mr_block_set_budget(4 << 20, 0);
    assert_int_equal(mr_decompress(MR_CODING_GZIP, in, 1 << 30, &block, &len, NULL),
                     MR_E_EXHAUSTED);
    mr_block_set_budget(0, 1 << 28);
    mr_buf_fini(&packed);
}

static void test_no_memory(void **state)
{
    struct mr_buf packed;
    struct mr_buf out;
    struct mr_block *block = NULL;
    size_t len;
    /* More than a first block holds, so that it grows and zlib needs its window. */
    static char text[40000];
    struct mr_piece piece = {.ptr = text, .len = sizeof text};

    (void)state;
    pack(MR_CODING_GZIP, text, sizeof text, &packed);
    mr_bytes in = {(uint8_t *)packed.ptr, packed.len};
    for (uint64_t i = 1; i < 20; i++) {
        mr_block_trim();
        mr_mem_fail_after(i);
        int rc = mr_decompress(MR_CODING_GZIP, in, sizeof text, &block, &len, NULL);
        assert_true(rc == MR_OK || rc == MR_E_NOMEM || rc == MR_E_EXHAUSTED);
        mr_block_unref(&block);
        mr_mem_fail_after(i);
        mr_buf_init(&out, 0);
        pack_into(MR_CODING_GZIP, 1, &piece, 1, &out);
        mr_mem_fail_after(0);
        mr_buf_fini(&out);
    }
    mr_buf_fini(&packed);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(mr_coding_from_name(MR_STR("GZip")), MR_CODING_GZIP);
    assert_int_equal(mr_coding_from_name(MR_STR("x-gzip")), MR_CODING_GZIP);
    assert_int_equal(mr_coding_from_name(MR_STR(" deflate ")), MR_CODING_DEFLATE);
    assert_int_equal(mr_coding_from_name(MR_STR("")), MR_CODING_IDENTITY);
    assert_int_equal(mr_coding_from_name(MR_STR("identity")), MR_CODING_IDENTITY);
    assert_int_equal(mr_coding_from_name(MR_STR("br")), MR_CODING_UNKNOWN);
    assert_int_equal(mr_coding_from_name(MR_STR("gzip, gzip")), MR_CODING_UNKNOWN);
}

static void test_accept(void **state)
{
    static const struct {
        const char *value;
        enum mr_coding coding;
    } rows[] = {
        {"", MR_CODING_IDENTITY},
        {"gzip", MR_CODING_GZIP},
        {"deflate", MR_CODING_DEFLATE},
        {"gzip, deflate, br", MR_CODING_GZIP},
        {"deflate, gzip", MR_CODING_GZIP},
        {"deflate;q=1.0, gzip;q=0.5", MR_CODING_DEFLATE},
        {"gzip;q=0", MR_CODING_IDENTITY},
        {"gzip;q=0.0, deflate;q=0.1", MR_CODING_DEFLATE},
        {"*", MR_CODING_GZIP},
        {"*;q=0", MR_CODING_IDENTITY},
        {"gzip;q=0, *", MR_CODING_DEFLATE},
        {"identity, gzip;q=0.5", MR_CODING_IDENTITY},
        {"identity;q=0.5, gzip", MR_CODING_GZIP},
        {"br;q=1, zstd", MR_CODING_IDENTITY},
        {" GZIP ; Q=0.8 ", MR_CODING_GZIP},
        {",,,;q=1,gzip", MR_CODING_GZIP},
        {"gzip;q=nonsense", MR_CODING_GZIP},
        {"gzip;q=0.000", MR_CODING_IDENTITY},
        {"gzip;x=1;q=0", MR_CODING_IDENTITY},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (mr_coding_accept(mr_str_c(rows[i].value)) != rows[i].coding) {
            fail_msg("'%s'", rows[i].value);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_raw_deflate),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_bomb),
        cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_accept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
