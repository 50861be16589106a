/* JSON Schema: what fits, what does not and why, what is refused before there is an answer, and the columns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "batch/protocols/openai/json_schema.h"

/* why NULL: it fits. */
static void check(const char *schema, const char *text, const char *why)
{
    struct json_schema *s = NULL;
    struct mr_arena arena;
    struct mr_err err;

    mr_arena_init(&arena, 1024, 1 << 20);
    if (json_schema_new(&s, mr_str_c(schema), &err) < 0) {
        fail_msg("%s: %s", schema, err.msg);
    }
    const int rc = json_schema_check(s, mr_str_c(text), &arena, &err);
    if (rc < 0 && (!why || !strstr(err.msg, why))) {
        fail_msg("%s of %s: %s", text, schema, err.msg);
    }
    if (rc == MR_OK && why) {
        fail_msg("%s fits %s", text, schema);
    }
    json_schema_free(&s);
    mr_arena_fini(&arena);
}

static void test_scalars(void **state)
{
    (void)state;
    check("{}", "[1,{\"a\":null}]", NULL);
    check("true", "1", NULL);
    check("false", "1", "must not be there");
    check("{\"type\":\"integer\"}", " -5 ", NULL);
    check("{\"type\":\"integer\"}", "5.0", NULL);
    check("{\"type\":\"integer\"}", "5.5", "integer");
    check("{\"type\":\"integer\"}", "1e30", "64 bits");
    check("{\"type\":\"integer\"}", "9223372036854775807", NULL);
    check("{\"type\":\"integer\"}", "9223372036854775808", "64 bits");
    check("{\"type\":\"number\"}", "1e30", NULL);
    check("{\"type\":\"number\"}", "NaN", "number");
    check("{}", "NaN", "64 bits");
    check("{\"type\":[\"string\",\"null\"]}", "null", NULL);
    check("{\"type\":[\"string\",\"null\"]}", "1", "null or string");
    check("{\"type\":\"boolean\"}", "\"true\"", "boolean");
    check("{\"minimum\":2,\"exclusiveMaximum\":3}", "2", NULL);
    check("{\"minimum\":2,\"exclusiveMaximum\":3}", "3", "less than 3");
    check("{\"exclusiveMinimum\":2,\"minimum\":2}", "2", "more than 2");
    check("{\"minLength\":2,\"maxLength\":2}", "\"\\u00e4\xc3\xa4\"", NULL);
    check("{\"minLength\":2}", "\"\xc3\xa4\"", "at least 2");
    check("{\"maxLength\":1}", "\"ab\"", "at most 1");
    check("{\"pattern\":\"^[A-Z]{2}-[0-9]+$\"}", "\"AB-12\"", NULL);
    check("{\"pattern\":\"^[A-Z]{2}-[0-9]+$\"}", "\"AB-\"", "pattern");
    check("{\"pattern\":\"a\"}", "\"a\\u0000\"", "pattern");
    check("{\"enum\":[\"a\",1,null,\"\\u00e4\"]}", "1.0", NULL);
    check("{\"enum\":[\"a\",1,null,\"\\u00e4\"]}", "\"\xc3\xa4\"", NULL);
    check("{\"enum\":[\"a\",1]}", "\"1\"", "none of the allowed");
    check("{\"const\":false}", "true", "none of the allowed");
    check("{}", "", "no JSON");
    check("{}", "1 2", "no JSON");
    check("{}", "```json\n1```", "no JSON");
}

static void test_nests(void **state)
{
    static const char object[] =
        "{\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"items\":{"
        "\"type\":\"integer\"},\"maxItems\":2,\"minItems\":1}},"
        "\"required\":[\"a\",\"c\"],\"additionalProperties\":{\"type\":\"boolean\"}}";
    static const char compaction[] =
        "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{"
        "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/t\"},{\"type\":\"null\"}]}},"
        "\"required\":[\"next\"]}}}";

    (void)state;
    check(object, "{\"a\":\"\",\"b\":[1,2],\"c\":true}", NULL);
    check(object, "{\"a\":\"\"}", "lacks the property 'c'");
    check(object, "{\"a\":1,\"c\":true}", "$.a is 1");
    check(object, "{\"a\":\"\",\"c\":true,\"b\":[1,\"x\"]}", "$.b[1]");
    check(object, "{\"a\":\"\",\"c\":true,\"b\":[]}", "$.b has 0 items");
    check(object, "{\"a\":\"\",\"c\":true,\"b\":[1,2,3]}", "at most 2");
    check(object, "{\"a\":\"\",\"c\":true,\"d\":1}", "$.d is 1");
    check(object, "{\"a\":\"\",\"a\":\"\",\"c\":true}", "$.a is there twice");
    check("{\"additionalProperties\":false}", "{\"x\":1}", "$.x is no property");
    check(compaction, "{\"next\":{\"next\":{\"next\":null}}}", NULL);
    check(compaction, "{\"next\":{\"next\":{\"next\":1}}}", "$.next fits none");
    check("{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}", "7", "fits 2");
    check("{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}", "7.5", NULL);
    check("{\"allOf\":[{\"minimum\":5},{\"maximum\":6}]}", "7", "at most 6");
    check("{\"$ref\":\"#\"}", "1", "too deep");
}

/* Lists in lists, for which each level doubles the work. */
static void test_costs(void **state)
{
    char text[200] = "";

    (void)state;
    for (int i = 0; i < 40; i++) {
        text[i] = '[';
        text[79 - i] = ']';
    }
    check("{\"anyOf\":[{\"items\":{\"$ref\":\"#\"},\"minItems\":2},{\"items\":{\"$ref\":\"#\"},"
          "\"minItems\":3}]}",
          text, "anyOf");
    memset(text, '[', 199);
    check("{}", text, "no JSON");
}

static void test_refused(void **state)
{
    static const char *const schemas[][2] = {
        {"", "offset 0"},
        {"[]", "object"},
        {"{\"type\":\"text\"}", "'text'"},
        {"{\"type\":5}", "string"},
        {"{\"multipleOf\":5}", "'multipleOf'"},
        {"{\"items\":{\"uniqueItems\":true}}", "'uniqueItems'"},
        {"{\"patternProperties\":{}}", "'patternProperties'"},
        {"{\"pattern\":\"[\"}", "pattern"},
        {"{\"pattern\":\"\\\\d\"}", "\\d"},
        {"{\"pattern\":\"a*?\"}", "*?"},
        {"{\"enum\":[]}", "enum"},
        {"{\"enum\":[[1]]}", "scalars"},
        {"{\"anyOf\":[]}", "without one"},
        {"{\"minItems\":-1}", "minItems"},
        {"{\"$ref\":\"https://example.com\"}", "https://example.com"},
        {"{\"$ref\":\"#/$defs/a\"}", "#/$defs/a"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct json_schema *s = NULL;
        struct mr_err err;
        assert_true(json_schema_new(&s, mr_str_c(schemas[i][0]), &err) < 0);
        if (!strstr(err.msg, schemas[i][1])) {
            fail_msg("%s: %s", schemas[i][0], err.msg);
        }
    }
}

static void test_columns(void **state)
{
    static const struct {
        const char *name;
        const char *type;
        bool is_json;
    } want[] = {{"s", "STRING", false}, {"i", "I64", false},       {"n", "F64", false},
                {"b", "BOOL", false},   {"l", "LIST<F64>", false}, {"o", "STRING", true},
                {"ll", "STRING", true}, {"any", "STRING", true},   {"r", "I64", false}};
    struct json_schema *s = NULL;
    struct mr_field f;
    struct mr_err err;
    char text[64];

    (void)state;
    assert_int_equal(
        json_schema_new(
            &s,
            MR_STR("{\"required\":[\"i\",\"only\"],\"properties\":{\"s\":{\"type\":[\"string\","
                   "\"null\"]},"
                   "\"i\":{\"type\":\"integer\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":"
                   "\"boolean\"},"
                   "\"l\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}},\"o\":{\"type\":"
                   "\"object\"},"
                   "\"ll\":{\"type\":\"array\",\"items\":{\"type\":\"array\"}},\"any\":{},"
                   "\"r\":{\"$ref\":\"#/$defs/i\"}},\"$defs\":{\"i\":{\"type\":\"integer\"}}}"),
            &err),
        MR_OK);
    assert_int_equal(json_schema_property_count(s), sizeof want / sizeof *want);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_schema_property(s, i, &f);
        assert_string_equal(f.name, want[i].name);
        assert_string_equal(mr_field_text(&f, text, sizeof text), want[i].type);
        assert_int_equal(f.is_json, want[i].is_json);
    }
    json_schema_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars), cmocka_unit_test(test_nests),
        cmocka_unit_test(test_costs),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
