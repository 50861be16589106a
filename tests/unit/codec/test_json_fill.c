/* Bulk arrays: every element type, any nesting, and every way in which a text can be wrong. */
#include "codec_test.h"

#include <math.h>

#include "codec/json.h"

/* Room for 8 elements of any type. */
static union {
    bool b[8];
    uint8_t u8[8];
    uint16_t u16[8];
    uint32_t u32[8];
    uint64_t u64[8];
    int8_t i8[8];
    int16_t i16[8];
    int32_t i32[8];
    int64_t i64[8];
    float f32[8];
    double f64[8];
} out;

static struct mr_err err;

/* Elements read, or -1 when refused. */
static int64_t fill(const char *text, enum mr_json_fill kind, uint64_t capacity)
{
    char *copy = exact_copy(mr_str_c(text));
    struct mr_json j;
    uint64_t count = 999;
    memset(&out, 0x55, sizeof out);
    err = (struct mr_err){0};
    mr_json_init(&j, mr_str_n(copy, strlen(text)), NULL, 0, &err);
    int rc = mr_json_fill(&j, kind, &out, capacity, &count);
    if (rc == MR_OK) {
        rc = mr_json_finish(&j);
        assert_int_equal(j.depth, 0);
    } else {
        assert_int_equal(count, 999);
        assert_int_equal(rc, MR_E_INVALID);
    }
    free(copy);
    return rc == MR_OK ? (int64_t)count : -1;
}

static void each_type(void **state)
{
    (void)state;
    assert_int_equal(fill("[true,false]", MR_JSON_FILL_BOOL, 8), 2);
    assert_true(out.u8[0] == 1 && out.u8[1] == 0);
    assert_int_equal(fill("[0,255]", MR_JSON_FILL_U8, 8), 2);
    assert_true(out.u8[0] == 0 && out.u8[1] == 255);
    assert_int_equal(fill("[0,65535]", MR_JSON_FILL_U16, 8), 2);
    assert_true(out.u16[0] == 0 && out.u16[1] == 65535);
    assert_int_equal(fill("[0,4294967295]", MR_JSON_FILL_U32, 8), 2);
    assert_true(out.u32[0] == 0 && out.u32[1] == UINT32_MAX);
    assert_int_equal(fill("[-0,18446744073709551615]", MR_JSON_FILL_U64, 8), 2);
    assert_true(out.u64[0] == 0 && out.u64[1] == UINT64_MAX);
    assert_int_equal(fill("[-128,127]", MR_JSON_FILL_I8, 8), 2);
    assert_true(out.i8[0] == -128 && out.i8[1] == 127);
    assert_int_equal(fill("[-32768,32767]", MR_JSON_FILL_I16, 8), 2);
    assert_true(out.i16[0] == INT16_MIN && out.i16[1] == INT16_MAX);
    assert_int_equal(fill("[-2147483648,2147483647]", MR_JSON_FILL_I32, 8), 2);
    assert_true(out.i32[0] == INT32_MIN && out.i32[1] == INT32_MAX);
    assert_int_equal(fill("[-9223372036854775808,9223372036854775807]", MR_JSON_FILL_I64, 8), 2);
    assert_true(out.i64[0] == INT64_MIN && out.i64[1] == INT64_MAX);
    assert_int_equal(fill("[1,-2.5,NaN,Infinity,-Infinity,1e999]", MR_JSON_FILL_F32, 8), 6);
    assert_true(out.f32[0] == 1 && out.f32[1] == -2.5f && isnan(out.f32[2]));
    assert_true(out.f32[3] == INFINITY && out.f32[4] == -INFINITY && out.f32[5] == INFINITY);
    assert_int_equal(fill("[1,-2.5,NaN,Infinity,-Infinity,-0.0]", MR_JSON_FILL_F64, 8), 6);
    assert_true(out.f64[0] == 1 && out.f64[1] == -2.5 && isnan(out.f64[2]));
    assert_true(out.f64[3] == INFINITY && out.f64[4] == -INFINITY && signbit(out.f64[5]));
}

static void nesting(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } rows[] = {
        {"[]", 0},
        {" [ ] ", 0},
        {"[[],[],[[]]]", 0},
        {"[1,2,3,4]", 4},
        {"[[1,2],[3,4]]", 4},
        {" [ [ 1 , 2 ] , [ 3 , 4 ] ] ", 4},
        {"[[[1],[2]],[[3],[4]]]", 4},
        {"[1,[2,[3]],4]", 4},
        {"[[1,2],3,4]", 4},
        {"[[1],[],[2,3,4]]", 4},
        {"[\n1\n,\n2\n,\r\t 3,4\n]", 4},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t got = fill(rows[i].text, MR_JSON_FILL_I32, 8);
        CHECK_ROW(got == rows[i].want, i, "%s: %lld, %s", rows[i].text, (long long)got, err.msg);
        for (int k = 0; k < got; k++) {
            CHECK_ROW(out.i32[k] == k + 1, i, "element %d", k);
        }
    }
}

static void too_many(void **state)
{
    (void)state;
    assert_int_equal(fill("[1,2,3]", MR_JSON_FILL_U8, 3), 3);
    assert_int_equal(fill("[1,2,3,4]", MR_JSON_FILL_U8, 3), -1);
    assert_string_equal(err.msg, "more than 3 elements at offset 7");
    assert_int_equal(out.u8[3], 0x55);
    assert_int_equal(fill("[[1,2],[3,4]]", MR_JSON_FILL_F32, 3), -1);
    assert_int_equal(out.u32[3], 0x55555555);
    assert_int_equal(fill("[]", MR_JSON_FILL_U8, 0), 0);
    assert_int_equal(fill("[0]", MR_JSON_FILL_U8, 0), -1);
    assert_non_null(strstr(err.msg, "more than 0 elements"));
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        enum mr_json_fill kind;
        const char *text;
        const char *message;
    } rows[] = {
        {MR_JSON_FILL_F32, "1", "expected an array, found a number at offset 0"},
        {MR_JSON_FILL_F32, "{}", "expected an array, found an object"},
        {MR_JSON_FILL_F32, "", "expected an array, found the end of the text"},
        {MR_JSON_FILL_F32, "[1", "expected ',' or ']'"},
        {MR_JSON_FILL_F32, "[1,", "found the end of the text"},
        {MR_JSON_FILL_F32, "[1,]", "found ']'"},
        {MR_JSON_FILL_F32, "[,1]", "found ','"},
        {MR_JSON_FILL_F32, "[[1]", "expected ',' or ']'"},
        {MR_JSON_FILL_F32, "[1}", "found '}'"},
        {MR_JSON_FILL_F32, "[1 2]", "found a number at offset 3"},
        {MR_JSON_FILL_F32, "[\"1\"]", "expected a valid number, found a string at offset 1"},
        {MR_JSON_FILL_F32, "[1,true]", "found a bool at offset 3"},
        {MR_JSON_FILL_F32, "[null]", "found null"},
        {MR_JSON_FILL_F64, "[{}]", "found an object"},
        {MR_JSON_FILL_F64, "[1.]", "expected a valid number"},
        {MR_JSON_FILL_F64, "[01]", "expected a valid number"},
        {MR_JSON_FILL_F64, "[.5]", "expected a valid number"},
        {MR_JSON_FILL_F64, "[-NaN]", "expected a valid number"},
        {MR_JSON_FILL_I32, "[1.0]",
         "expected an integer, found a fraction or exponent at offset 1"},
        {MR_JSON_FILL_I32, "[1,2e0]", "expected an integer"},
        {MR_JSON_FILL_I32, "[NaN]", "expected an integer"},
        {MR_JSON_FILL_I32, "[true]", "expected an integer, found a bool"},
        {MR_JSON_FILL_I32, "[00]", "leading zero"},
        {MR_JSON_FILL_I32, "[-]", "expected an integer"},
        {MR_JSON_FILL_U8, "[7,256]", "value 256 does not fit uint8 at offset 3"},
        {MR_JSON_FILL_U8, "[-1]", "value -1 does not fit uint8"},
        {MR_JSON_FILL_U16, "[65536]", "does not fit uint16"},
        {MR_JSON_FILL_U32, "[4294967296]", "does not fit uint32"},
        {MR_JSON_FILL_U64, "[18446744073709551616]", "does not fit 64 bits"},
        {MR_JSON_FILL_U64, "[-1]", "does not fit uint64"},
        {MR_JSON_FILL_I8, "[-129]", "does not fit int8"},
        {MR_JSON_FILL_I8, "[128]", "does not fit int8"},
        {MR_JSON_FILL_I16, "[32768]", "does not fit int16"},
        {MR_JSON_FILL_I32, "[-2147483649]", "does not fit int32"},
        {MR_JSON_FILL_I64, "[9223372036854775808]", "does not fit int64"},
        {MR_JSON_FILL_BOOL, "[1]", "expected true or false, found a number"},
        {MR_JSON_FILL_BOOL, "[true,0]", "expected true or false"},
        {MR_JSON_FILL_BOOL, "[tru]", "expected true or false"},
        {MR_JSON_FILL_BOOL, "[\"true\"]", "found a string"},
        {MR_JSON_FILL_BOOL, "[truefalse]", "expected ',' or ']'"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        int64_t got = fill(rows[i].text, rows[i].kind, 8);
        CHECK_ROW(got == -1, i, "%s was accepted", rows[i].text);
        CHECK_ROW(strstr(err.msg, rows[i].message) != NULL, i, "%s: got \"%s\"", rows[i].text,
                  err.msg);
    }
}

static void depth_is_limited(void **state)
{
    (void)state;
    char text[402];
    memset(text, '[', 200);
    memset(text + 200, ']', 200);
    text[400] = 0;
    assert_int_equal(fill(text, MR_JSON_FILL_F32, 8), -1);
    assert_non_null(strstr(err.msg, "JSON nesting depth exceeds maximum allowed limit (100)"));
}

/* A fill inside an object leaves the reader after the array. */
static void goes_on_behind(void **state)
{
    (void)state;
    struct mr_json j;
    mr_str key;
    bool first = true;
    uint64_t count = 0;
    int64_t n = 0;
    mr_json_init(&j, MR_STR("{\"data\":[[1,2],[3]],\"n\":7}"), NULL, 0, NULL);
    mr_json_enter_object(&j);
    assert_true(mr_json_next_key(&j, &first, &key));
    assert_int_equal(mr_json_fill(&j, MR_JSON_FILL_U32, &out, 8, &count), MR_OK);
    assert_int_equal(count, 3);
    assert_true(mr_json_next_key(&j, &first, &key));
    assert_int_equal(mr_json_i64(&j, &n), MR_OK);
    assert_false(mr_json_next_key(&j, &first, &key));
    assert_int_equal(mr_json_finish(&j), MR_OK);
    assert_int_equal(n, 7);
}

static void null_is_nan(void **state)
{
    struct mr_json j;
    uint64_t count;

    (void)state;
    mr_json_init(&j, MR_STR("[null,1, null,[ null ],2]"), NULL, 0, NULL);
    j.null_is_nan = true;
    assert_int_equal(mr_json_fill(&j, MR_JSON_FILL_F32, &out, 8, &count), MR_OK);
    assert_int_equal(count, 5);
    assert_true(isnan(out.f32[0]) && isnan(out.f32[2]) && isnan(out.f32[3]));
    assert_true(out.f32[1] == 1 && out.f32[4] == 2);
    mr_json_init(&j, MR_STR("[3,null]"), NULL, 0, NULL);
    j.null_is_nan = true;
    assert_int_equal(mr_json_fill(&j, MR_JSON_FILL_F64, &out, 8, &count), MR_OK);
    assert_true(count == 2 && out.f64[0] == 3 && isnan(out.f64[1]));
    for (int i = 0; i < 2; i++) {
        mr_json_init(&j, i ? MR_STR("[nul]") : MR_STR("[null]"), NULL, 0, NULL);
        j.null_is_nan = true;
        assert_int_equal(mr_json_fill(&j, i ? MR_JSON_FILL_F32 : MR_JSON_FILL_I32, &out, 8, &count),
                         MR_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_type),        cmocka_unit_test(nesting),
        cmocka_unit_test(too_many),         cmocka_unit_test(refusals),
        cmocka_unit_test(depth_is_limited), cmocka_unit_test(goes_on_behind),
        cmocka_unit_test(null_is_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
