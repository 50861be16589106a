/* What is sent to a model, and how its answers are understood; the calls themselves are tested by the commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "client/endpoint.h"

static void paths(void **state)
{
    static const struct {
        const char *prefix, *version, *verb, *path;
    } rows[] = {{NULL, NULL, "", "/v2/models/m"},
                {NULL, "3", "", "/v2/models/m/versions/3"},
                {"", NULL, "/infer", "/v2/models/m/infer"},
                {"/gate/way", "stable", "/infer", "/gate/way/v2/models/m/versions/stable/infer"}};
    struct mr_arena arena;

    (void)state;
    mr_arena_init(&arena, 0, 4096);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mr_endpoint e = {
            .prefix = rows[i].prefix, .model = "m", .version = rows[i].version};
        const mr_str path = mr_endpoint_path(&e, rows[i].verb, &arena);
        assert_true(mr_str_eq_c(path, rows[i].path));
    }
    mr_arena_fini(&arena);
}

/* Of which a server would read another path than that of the model. */
static void names(void **state)
{
    static const struct {
        const char *model, *version;
        bool fits;
    } rows[] = {{"m", NULL, true},      {"m", "3", true},         {NULL, NULL, true},
                {"a.b-c_d", "1", true}, {"m?x", NULL, false},     {"m/versions/2", NULL, false},
                {"m#", NULL, false},    {"m", "1/2", false},      {"m", "1?", false},
                {"m x", NULL, false},   {"m\r\n", NULL, false},   {"m", "1\t", false},
                {"m\x7f", NULL, false}, {"m\xc3\xa9", NULL, true}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_endpoint e = {.model = rows[i].model, .version = rows[i].version};
        struct mr_err err;
        assert_int_equal(mr_endpoint_names_check(&e, &err), rows[i].fits ? MR_OK : MR_E_INVALID);
        e.is_grpc = true;
        assert_int_equal(mr_endpoint_names_check(&e, &err), MR_OK);
    }
}

static void headers(void **state)
{
    struct mr_oip_encoded body = {.header_length = -1};
    struct mr_header out[2];
    char length[24];

    (void)state;
    assert_int_equal(mr_endpoint_headers(&body, length, out), 1);
    assert_true(mr_str_eq_c(out[0].value, "application/json"));
    body.header_length = 1234;
    assert_int_equal(mr_endpoint_headers(&body, length, out), 2);
    assert_true(mr_str_eq_c(out[0].value, "application/octet-stream"));
    assert_true(mr_str_eq_c(out[1].value, "1234"));

    const struct mr_client_response with = {.headers = out, .header_count = 2};
    const struct mr_client_response without = {.headers = out, .header_count = 1};
    assert_int_equal(mr_endpoint_header_length(&with), 1234);
    assert_int_equal(mr_endpoint_header_length(&without), -1);
    out[1].value = MR_STR("many");
    assert_int_equal(mr_endpoint_header_length(&with), -1);
}

static void answers(void **state)
{
    static const char text[] = "{\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":"
                               "\"INT32\",\"shape\":[2],\"data\":[5,6]}]}";
    const struct mr_client_response response = {.status = 200,
                                                .body = {(const uint8_t *)text, sizeof text - 1}};
    struct mr_endpoint e = {.model = "m"};
    struct mr_oip_response out;
    struct mr_arena arena;
    struct mr_err err;

    (void)state;
    mr_arena_init(&arena, 0, 1 << 20);
    assert_int_equal(mr_endpoint_decode(&e, &response, NULL, &arena, &out, &err), MR_OK);
    assert_int_equal(out.output_count, 1);
    assert_int_equal(((const int32_t *)out.outputs[0].tensor.data)[1], 6);
    e.is_grpc = true;
    assert_int_equal(mr_endpoint_decode(&e, &response, NULL, &arena, &out, &err), MR_E_INVALID);
    mr_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(paths), cmocka_unit_test(names),
                                       cmocka_unit_test(headers), cmocka_unit_test(answers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
