/* Records and messages, as bytes and back, and what is refused. */
#include "mesh/records/message.h"
#include "mesh/records/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static mr_bytes bytes_of(const struct mr_buf *b)
{
    return (mr_bytes){(const uint8_t *)b->ptr, b->len};
}

static void keys_are_taken_apart(void **state)
{
    struct mr_buf b;
    (void)state;

    mr_buf_init(&b, 0);
    mesh_key_put(&b, MESH_KEY_COPY, MR_STR("team/a"), MR_STR("pod-1"));
    assert_true(mr_str_eq_c(mr_buf_view(&b), "mesh/c/team/a/pod-1"));
    struct mesh_key k = mesh_key_parse(mr_buf_view(&b));
    assert_int_equal(k.kind, MESH_KEY_COPY);
    assert_true(mr_str_eq_c(k.id, "team/a"));
    assert_true(mr_str_eq_c(k.instance, "pod-1"));
    k = mesh_key_parse(MR_STR("mesh/i/pod-1"));
    assert_int_equal(k.kind, MESH_KEY_INSTANCE);
    assert_true(mr_str_eq_c(k.instance, "pod-1"));
    k = mesh_key_parse(MR_STR("mesh/m/a/b"));
    assert_int_equal(k.kind, MESH_KEY_MODEL);
    assert_true(mr_str_eq_c(k.id, "a/b"));
    mr_buf_fini(&b);
}

static void keys_of_others_are_passed_over(void **state)
{
    static const char *const keys[] = {"",          "mesh/",         "mesh/m/",     "mesh/c/a",
                                       "mesh/c//p", "mesh/c/a/",     "mesh/x/a",    "other/m/a",
                                       "mesh/i/",   "mesh/i/a b",    "mesh/m/\xff", "mesh/m/a\n",
                                       "mesh/m",    "mesh/c/a/p\x01"};
    (void)state;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_equal(mesh_key_parse(mr_str_c(keys[i])).kind, MESH_KEY_OTHER);
    }
}

static void records_come_back(void **state)
{
    struct mr_buf b;
    (void)state;

    mr_buf_init(&b, 0);
    struct mesh_def d = {.type = MR_STR("onnx"),
                         .path = MR_STR("s3://b/m"),
                         .key = MR_STR("k"),
                         .size_bytes = 5000000000,
                         .device_bytes = 7000000000,
                         .min_copies = 2,
                         .max_copies = 3,
                         .refs = 1,
                         .pinned = true,
                         .auto_delete = true};
    mesh_def_put(&b, &d);
    struct mesh_def got;
    assert_int_equal(mesh_def_get(&got, bytes_of(&b), NULL), MR_OK);
    assert_true(mr_str_eq(got.path, d.path) && got.size_bytes == d.size_bytes && got.pinned);
    assert_int_equal(got.min_copies * 10 + got.max_copies, 23);
    assert_int_equal(got.device_bytes, 7000000000);
    mr_buf_reset(&b);
    struct mesh_instance i = {.address = MR_STR("10.0.0.1:8001"),
                              .zone = MR_STR("z"),
                              .labels = {MR_STR("gpu"), MR_STR("big")},
                              .label_count = 2,
                              .capacity_bytes = 1 << 30,
                              .device_bytes = 1 << 29,
                              .loaders = 8,
                              .draining = true};
    mesh_instance_put(&b, &i);
    struct mesh_instance back;
    assert_int_equal(mesh_instance_get(&back, bytes_of(&b), NULL), MR_OK);
    assert_int_equal(back.label_count, 2);
    assert_int_equal(back.device_bytes, 1 << 29);
    assert_true(mr_str_eq_c(back.labels[1], "big") && back.draining && back.loaders == 8);
    mr_buf_reset(&b);
    struct mesh_message m = {.kind = MESH_MSG_PLACED,
                             .seq = 9,
                             .model = MR_STR("a"),
                             .status = MR_E_EXHAUSTED,
                             .text = MR_STR("full"),
                             .exclude = {MR_STR("p")},
                             .exclude_count = 1};
    mesh_message_put(&b, &m);
    struct mesh_message answer;
    assert_int_equal(mesh_message_get(&answer, bytes_of(&b), NULL), MR_OK);
    assert_int_equal(answer.status, MR_E_EXHAUSTED);
    assert_int_equal(answer.exclude_count, 1);
    mr_buf_fini(&b);
}

static void damaged_records_are_refused(void **state)
{
    struct mesh_copy c;
    struct mesh_instance i;
    struct mesh_def d;
    struct mesh_vmodel v;
    struct mesh_message m;
    (void)state;

    mr_bytes cut = {(const uint8_t *)"\x0a\x7f", 2};
    mr_bytes no_state = {(const uint8_t *)"\x08\x09", 2};
    mr_bytes none = {(const uint8_t *)"", 0};
    assert_int_equal(mesh_def_get(&d, cut, NULL), MR_E_INVALID);
    assert_int_equal(mesh_copy_get(&c, no_state, NULL), MR_E_INVALID);
    assert_int_equal(mesh_copy_get(&c, none, NULL), MR_E_INVALID);
    assert_int_equal(mesh_instance_get(&i, none, NULL), MR_E_INVALID); /* no loaders */
    assert_int_equal(mesh_vmodel_get(&v, none, NULL), MR_E_INVALID);
    assert_int_equal(mesh_message_get(&m, none, NULL), MR_E_INVALID);
    assert_int_equal(mesh_message_get(&m, cut, NULL), MR_E_INVALID);
}

static void members_of_later_versions_are_skipped(void **state)
{
    struct mesh_copy c;
    (void)state;

    mr_bytes later = {(const uint8_t *)"\x08\x02\xa2\x06\x03xyz\x10\x05", 10};
    assert_int_equal(mesh_copy_get(&c, later, NULL), MR_OK);
    assert_int_equal(c.state, MESH_LOADED);
    assert_int_equal(c.size_bytes, 5);
}

static void ids_have_limits(void **state)
{
    char text[MESH_ID_MAX + 1];
    (void)state;

    memset(text, 'a', sizeof text);
    assert_int_equal(mesh_id_check(mr_str_n(text, MESH_ID_MAX), NULL), MR_OK);
    assert_int_equal(mesh_id_check(mr_str_n(text, MESH_ID_MAX + 1), NULL), MR_E_INVALID);
    assert_int_equal(mesh_id_check(MR_STR(""), NULL), MR_E_INVALID);
    assert_false(mesh_instance_id_is_valid(MR_STR("a/b")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_taken_apart),
        cmocka_unit_test(keys_of_others_are_passed_over),
        cmocka_unit_test(records_come_back),
        cmocka_unit_test(damaged_records_are_refused),
        cmocka_unit_test(members_of_later_versions_are_skipped),
        cmocka_unit_test(ids_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
