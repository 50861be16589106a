/* json.parse and json.format: paths, types, shapes, defaults, broken texts. */
#include "op_test.h"

static uint8_t packed[1 << 19];

static void set_texts(struct node_case *c, const char *a, const char *b)
{
    static const int64_t two[] = {2};
    size_t at = 0;
    const char *const texts[] = {a, b};

    for (int i = 0; i < 2 && texts[i]; i++) {
        uint32_t len = (uint32_t)strlen(texts[i]);
        memcpy(packed + at, &len, 4);
        memcpy(packed + at + 4, texts[i], len);
        at += 4 + len;
    }
    c->inputs[0] =
        (struct input){"json", MR_DTYPE_BYTES, 1, {b ? -1 : 1}, packed, at, b ? two : NULL};
}

static void values(void **state)
{
    (void)state;
    static const float matrix[] = {1, 2.5f, -3, 4};
    static const int64_t number[] = {7};
    static const uint8_t flag[] = {1};
    struct node_case c = {.op = "json.parse",
                          .settings = {"m.path", "a.b[1].\"odd key\"", "m.dims", "-1,2", "n.dtype",
                                       "INT64", "n.path", "$.n", "flag.dtype", "BOOL", "s.dtype",
                                       "BYTES", "s.dims", "-1"},
                          .outputs = {"m", "n", "flag", "s"}};
    struct node n;

    set_texts(
        &c,
        "{\"a\":{\"b\":[0,{\"odd "
        "key\":[[1,2.5],[-3,4]]}]},\"n\":7,\"flag\":true,\"s\":[\"x\",\"\\u00e4\",{\"k\":1}]}",
        NULL);
    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (2, 2), matrix);
    EXPECT(&n, 1, INT64, (1), number);
    EXPECT(&n, 2, BOOL, (1), flag);
    EXPECT_TEXT(&n, 3, (3), "\1\0\0\0x\2\0\0\0\xc3\xa4\7\0\0\0{\"k\":1}");
    node_close(&n);
}

/* Numbers are read to their end: 1.000…e5. The reader takes 64 KiB. */
static void long_number(void **state)
{
    (void)state;
    enum { ZEROS = 60000 };
    static const double number[] = {1e5};
    static char text[ZEROS + 40];
    struct node_case c = {.op = "json.parse", .settings = {"x.dtype", "FP64"}, .outputs = {"x"}};
    struct node n;

    snprintf(text, sizeof text, "{\"x\":1.%0*de5}", ZEROS, 0);
    set_texts(&c, text, NULL);
    node_do(&n, &c);
    EXPECT(&n, 0, FP64, (1), number);
    node_close(&n);
    snprintf(text, sizeof text, "{\"x\":1.%0*d,}", ZEROS, 0);
    set_texts(&c, text, NULL);
    expect_refused(&c, MR_E_INVALID, "op 'json.parse': ");
}

static void several_texts(void **state)
{
    (void)state;
    static const int32_t both[] = {1, 2, 3, 4};
    struct node_case c = {
        .op = "json.parse", .settings = {"x.dtype", "INT32", "x.dims", "-1"}, .outputs = {"x"}};
    struct node n;

    set_texts(&c, "{\"x\":[1,2]}", "{\"x\":[3,4]}");
    node_do(&n, &c);
    EXPECT(&n, 0, INT32, (2, 2), both);
    node_close(&n);
    set_texts(&c, "{\"x\":[1,2]}", "{\"x\":[3]}");
    expect_refused(&c, MR_E_INVALID, "text 1: 'x' has another number of elements than in text 0");
    set_texts(&c, "{\"x\":[1,2]}", "{\"x\":[3,]}");
    expect_refused(&c, MR_E_INVALID, "text 1: ");
}

static void defaults(void **state)
{
    (void)state;
    static const float half[] = {0.5f};
    struct node_case c = {.op = "json.parse", .settings = {"x.path", "a.x"}, .outputs = {"x"}};
    struct node n;

    static const char *const without[] = {"{}",          "{\"a\":null}", "{\"a\":{\"x\":null}}",
                                          "{\"a\":[1]}", "[]",           "3"};
    for (size_t i = 0; i < COUNT_OF(without); i++) {
        c.settings[2] = NULL;
        set_texts(&c, without[i], NULL);
        expect_refused(&c, MR_E_INVALID, "there is no 'a.x' in the JSON");
        c.settings[2] = "x.default";
        c.settings[3] = "0.5";
        node_do(&n, &c);
        EXPECT(&n, 0, FP32, (1), half);
        node_close(&n);
    }
}

/* A default that no request could take is refused at load. */
static void default_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dtype, *dims, *fallback, *words; /* words NULL: it is fine */
    } rows[] = {
        {"INT32", "1", "none", "parameter 'x.default': "},
        {"INT32", "1", "", "parameter 'x.default': "},
        {"INT32", "1", "null", "parameter 'x.default': "},
        {"INT32", "1", "1.5", "parameter 'x.default': "},
        {"INT32", "1", "\"1\"", "parameter 'x.default': "},
        {"INT32", "1", "1 2", "parameter 'x.default': "},
        {"INT32", "1", "[1]]", "parameter 'x.default': "},
        {"INT32", "1", "[1,2]", "parameter 'x.default': 'x' has 2 elements, which [1] does not"},
        {"INT32", "-1,2", "[1,2,3]", "parameter 'x.default': 'x' has 3 elements"},
        {"UINT8", "1", "256", "parameter 'x.default': "},
        {"BOOL", "1", "1", "parameter 'x.default': "},
        {"BYTES", "1", "none", "parameter 'x.default': "},
        {"BYTES", "2", "\"a\"", "parameter 'x.default': 'x' has 1 elements"},
        {"INT32", "1", " [7] ", NULL},
        {"INT32", "-1,2", "[[1,2],[3,4]]", NULL},
        {"INT32", "-1", "[]", NULL},
        {"BOOL", "1", "true", NULL},
        {"BYTES", "1", "\"none\"", NULL},
        {"BYTES", "2", "[\"a\",{}]", NULL},
    };
    struct node_case c = {.op = "json.parse",
                          .settings = {"x.dtype", "", "x.dims", "", "x.default", ""},
                          .outputs = {"x"}};
    struct node n;

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        c.settings[1] = rows[i].dtype;
        c.settings[3] = rows[i].dims;
        c.settings[5] = rows[i].fallback;
        set_texts(&c, "{}", NULL);
        if (rows[i].words) {
            expect_no_node(&c, rows[i].words);
        } else {
            node_do(&n, &c);
            node_close(&n);
        }
    }
    c.settings[1] = "FP32";
    c.settings[3] = "1";
    c.settings[5] = "a";
    c.settings[6] = "x.path";
    c.settings[7] = "$";
    expect_no_node(&c, "parameter 'x.default': ");
}

/* A default needs room of its own: the texts may be short. */
static void long_default(void **state)
{
    (void)state;
    static char text[300000];
    struct node_case c = {
        .op = "json.parse", .settings = {"x.dtype", "BYTES", "x.default", text}, .outputs = {"x"}};
    struct node n;

    memset(text, 'a', sizeof text - 1);
    memcpy(text, "\"\\n", 3);
    text[sizeof text - 2] = '"';
    set_texts(&c, "{}", NULL);
    node_do(&n, &c);
    assert_int_equal(n.out[0].tensor.bytes, 4 + sizeof text - 1 - 2 - 1);
    node_close(&n);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"{\"x\":\"a\"}", "'x': "},
        {"{\"x\":[1,2]}", "'x' has 2 elements, which [1] does not"},
        {"{\"x\":[]}", "'x' has 0 elements, which [1] does not"},
        {"{\"x\":1", "op 'json.parse': "},
        {"{\"x\":1}}", "op 'json.parse': "},
        {"", "op 'json.parse': "},
        {"{\"x\":1e5000000000}x", "op 'json.parse': "},
        {"{\"x\":[[[[[[[[[[1]]]]]]]]],\"y\":2}", "op 'json.parse': "},
    };
    static char deep[4000];
    struct node_case c = {.op = "json.parse", .outputs = {"x"}};

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        set_texts(&c, rows[i].text, NULL);
        expect_refused(&c, MR_E_INVALID, rows[i].words);
    }
    memset(deep, '[', sizeof deep - 1);
    set_texts(&c, deep, NULL);
    expect_refused(&c, MR_E_INVALID, "op 'json.parse': ");
    c.settings[0] = "x.dtype";
    c.settings[1] = "UINT8";
    set_texts(&c, "{\"x\":256}", NULL);
    expect_refused(&c, MR_E_INVALID, "'x': ");
    static const struct {
        const char *key, *value, *words;
    } nodes[] = {
        {"x.dtype", "FP16", "output 'x' cannot be FP16"},
        {"x.dims", "-1,-1", "only one of dims may be -1"},
        {"x.dims", "0", "dims must be whole numbers from 1 on, or -1"},
        {"x.dims", "1000000000,1000000000", "dims of too many elements"},
        {"x.path", "a..b", "path 'a..b': column 3: an empty name"},
        {"x.path", "a[", "expected [number]"},
        {"x.path", "a[-1]", "expected [number]"},
        {"x.path", "a]", NULL},
        {"x.path", "\"a", "\" without its end"},
        {"x.path", "a.", "expected . or ["},
        {"x.paths", "a", "unknown parameter 'x.paths'"},
        {"y.path", "a", "unknown parameter 'y.path'"},
    };
    for (size_t i = 0; i < COUNT_OF(nodes); i++) {
        c.settings[0] = nodes[i].key;
        c.settings[1] = nodes[i].value;
        if (nodes[i].words) {
            expect_no_node(&c, nodes[i].words);
        }
    }
}

static void format(void **state)
{
    (void)state;
    static const float scores[] = {0.5f, 1, 0.0f / 0.0f, -2};
    static const char names[] = "\1\0\0\0a\2\0\0\0\"b";
    static const int64_t ids[] = {7, -8};
    struct node_case c = {
        .op = "json.format",
        .settings = {"label.key", "the \"label\""},
        .inputs = {{"scores", MR_DTYPE_FP32, 2, {2, 2}, scores, sizeof scores, NULL},
                   {"label", MR_DTYPE_BYTES, 1, {2}, names, sizeof names - 1, NULL},
                   {"id", MR_DTYPE_INT64, 2, {2, 1}, ids, sizeof ids, NULL}},
        .outputs = {"json"}};
    struct node n;
    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (1),
                "\x4a\0\0\0{\"scores\":[[0.5,1],[null,-2]],\"the "
                "\\\"label\\\"\":[\"a\",\"\\\"b\"],\"id\":[[7],[-8]]}");
    node_close(&n);
    c.settings[2] = "rows";
    c.settings[3] = "true";
    c.settings[4] = "scalar";
    c.settings[5] = "true";
    c.inputs[0] = (struct input){
        "scores", MR_DTYPE_INT64, 2, {2, 2}, (const int64_t[]){1, 2, 3, 4}, 32, NULL};
    node_do(&n, &c);
    EXPECT_TEXT(&n, 0, (2, 1),
                "\x2b\0\0\0{\"scores\":[1,2],\"the \\\"label\\\"\":\"a\",\"id\":7}"
                "\x2e\0\0\0{\"scores\":[3,4],\"the \\\"label\\\"\":\"\\\"b\",\"id\":-8}");
    node_close(&n);
    c.inputs[1].dims[0] = 1;
    c.inputs[1].bytes = 5;
    expect_refused(&c, MR_E_INVALID, "input 1 has 1 rows, others 2");
    c.settings[4] = "scalars";
    expect_no_node(&c, "unknown parameter (there are rows, scalar and <input>.key)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),          cmocka_unit_test(several_texts),
        cmocka_unit_test(defaults),        cmocka_unit_test(refused),
        cmocka_unit_test(format),          cmocka_unit_test(long_number),
        cmocka_unit_test(default_refused), cmocka_unit_test(long_default),
    };
    return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
