/* Strings in messages without their schema: what is found, what a replacement changes, and agreement with protobuf-c. */
#include "codec_test.h"

#include "base/mem.h"
#include "codec/pb.h"
#include "codec/splice.h"
#include "inference.pb-c.h"

static const struct mr_splice_path flat = {1, {1}}, nested = {2, {1, 1}}, deep = {3, {2, 3, 300}};

#define ROW(path, in, found, out)                                                                  \
    {                                                                                              \
        path, MR_STR_INIT(in), MR_STR_INIT(found), MR_STR_INIT(out)                                \
    }

/* With "new" in place of what was found; found "-": nothing. */
static const struct row {
    const struct mr_splice_path *path;
    mr_str in, found, out;
} rows[] = {
    ROW(&flat,
        "\x0a\x01"
        "a\x10\x05",
        "a",
        "\x0a\x03"
        "new\x10\x05"),
    ROW(&flat, "", "-",
        "\x0a\x03"
        "new"),
    ROW(&flat, "\x10\x05", "-",
        "\x10\x05\x0a\x03"
        "new"),
    ROW(&flat, "\x0a\x00", "",
        "\x0a\x03"
        "new"),
    ROW(&flat, /* the last one counts */
        "\x0a\x01"
        "a\x0a\x01"
        "b",
        "b",
        "\x0a\x01"
        "a\x0a\x03"
        "new"),
    ROW(&flat, /* another type: a field that is not known */
        "\x0a\x01"
        "a\x08\x07",
        "a",
        "\x0a\x03"
        "new\x08\x07"),
    ROW(&flat, /* a length in more bytes than it needs */
        "\x0a\x81\x80\x00"
        "a",
        "a",
        "\x0a\x03"
        "new"),
    ROW(&nested, "", "-",
        "\x0a\x05\x0a\x03"
        "new"),
    ROW(&nested, "\x0a\x00\x10\x01", "-",
        "\x0a\x05\x0a\x03"
        "new\x10\x01"),
    ROW(&nested,
        "\x0a\x05\x0a\x01"
        "a\x10\x07\x10\x01",
        "a",
        "\x0a\x07\x0a\x03"
        "new\x10\x07\x10\x01"),
    ROW(&nested, /* merged: the second parent says nothing about it */
        "\x0a\x03\x0a\x01"
        "a\x0a\x02\x10\x07",
        "a",
        "\x0a\x05\x0a\x03"
        "new\x0a\x02\x10\x07"),
    ROW(&nested, /* two parents without it */
        "\x0a\x00\x0a\x02\x10\x07", "-",
        "\x0a\x00\x0a\x07\x10\x07\x0a\x03"
        "new"),
    ROW(&deep, "\x12\x04\x1a\x02\x08\x01", "-",
        "\x12\x0a\x1a\x08\x08\x01\xe2\x12\x03"
        "new"),
    ROW(&deep, "\x12\x02\x08\x01", "-",
        "\x12\x0a\x08\x01\x1a\x06\xe2\x12\x03"
        "new"),
};

static void join(const struct mr_splice *s, struct mr_buf *out)
{
    mr_buf_init(out, 0);
    for (size_t i = 0; i < s->count; i++) {
        mr_buf_append(out, s->pieces[i].ptr, s->pieces[i].len);
    }
}

static mr_bytes bytes_of(mr_str s)
{
    return (mr_bytes){(const uint8_t *)s.ptr, s.len};
}

static void found_and_put(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        struct mr_splice s;
        struct mr_buf b;
        mr_str found = MR_STR("-");

        int rc = mr_splice_find(bytes_of(r->in), r->path, &found, NULL);
        CHECK_ROW(rc == !mr_str_eq_c(r->found, "-") && mr_str_eq(found, r->found), i,
                  "found %d '%.*s'", rc, MR_STR_ARG(found));
        CHECK_ROW(mr_splice_put(bytes_of(r->in), r->path, MR_STR("new"), &s, NULL) == MR_OK, i,
                  "not put");
        join(&s, &b);
        CHECK_ROW(mr_str_eq(mr_buf_view(&b), r->out) && s.len == b.len, i, "%zu bytes", b.len);
        mr_buf_fini(&b);
    }
}

static void refused(void **state)
{
    (void)state;
    static const mr_str texts[] = {
        MR_STR_INIT("\x0a"),
        MR_STR_INIT("\x0a\x05"
                    "abc"),
        MR_STR_INIT("\x0b\x0c"),
        MR_STR_INIT("\x0a\x01\xff"), /* the inner message */
        MR_STR_INIT("\x0a\x02\x0a\x05"),
    };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct mr_splice s;
        struct mr_err err = {0};
        mr_str found;
        CHECK_ROW(mr_splice_find(bytes_of(texts[i]), &nested, &found, &err) == MR_E_INVALID, i,
                  "taken");
        CHECK_ROW(mr_splice_put(bytes_of(texts[i]), &nested, MR_STR("x"), &s, &err) == MR_E_INVALID,
                  i, "taken");
        CHECK_ROW(strstr(err.msg, "protobuf") != NULL, i, "%s", err.msg);
    }
}

static void number_of_fields_is_bounded(void **state)
{
    (void)state;
    size_t len = 2 * ((size_t)MR_SPLICE_FIELDS_MAX + 1);
    uint8_t *many = mr_alloc(len);
    struct mr_err err = {0};
    mr_str found;

    for (size_t i = 0; i < len; i++) {
        many[i] = i % 2 ? 1 : 0x10;
    }
    assert_int_equal(mr_splice_find((mr_bytes){many, len - 2}, &flat, &found, &err), 0);
    assert_int_equal(mr_splice_find((mr_bytes){many, len}, &flat, &found, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "200000 fields"));
    mr_free(many);
}

/* Lengths of all sizes, each in front of a string of another: a length grows and shrinks in bytes on the way. */
static void lengths(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 127, 128, 129, 16383, 16384, 20000};
    char *text = mr_alloc(20001);

    memset(text, 'x', 20000);
    for (size_t i = 0; i < COUNT_OF(sizes) * COUNT_OF(sizes); i++) {
        Inference__ModelConfigResponse m = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
        Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
        size_t from = sizes[i / COUNT_OF(sizes)], to = sizes[i % COUNT_OF(sizes)];
        struct mr_splice s;
        struct mr_buf b;
        text[from] = '\0';
        config.name = text;
        config.platform = (char *)(uintptr_t) "after";
        m.config = &config;
        size_t len = inference__model_config_response__get_packed_size(&m);
        uint8_t *packed = mr_alloc(len);
        inference__model_config_response__pack(&m, packed);
        text[from] = 'x';
        assert_int_equal(
            mr_splice_put((mr_bytes){packed, len}, &nested, mr_str_n(text, to), &s, NULL), MR_OK);
        join(&s, &b);
        Inference__ModelConfigResponse *got =
            inference__model_config_response__unpack(NULL, b.len, (const uint8_t *)b.ptr);
        CHECK_ROW(got && strlen(got->config->name) == to, i, "%zu to %zu", from, to);
        CHECK_ROW(strcmp(got->config->platform, "after") == 0, i, "what follows is gone");
        inference__model_config_response__free_unpacked(got, NULL);
        mr_buf_fini(&b);
        mr_free(packed);
    }
    mr_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_and_put),
        cmocka_unit_test(refused),
        cmocka_unit_test(number_of_fields_is_bounded),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
