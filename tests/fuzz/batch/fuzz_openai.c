/* Replies of a language model's server: chat, completions, vectors and models, and answers with a schema. The first byte
 * selects one. A line may hold a schema and, after a 0 byte, the answer. */
#include "fuzz.h"

#include "batch/protocols/openai/json_schema.h"
#include "batch/protocols/openai/openai_answer.h"

static const char fixed[] = "{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":"
                            "false,\"properties\":{\"a\":{"
                            "\"enum\":[\"x\",1,null]},\"b\":{\"type\":\"array\",\"items\":{"
                            "\"type\":\"integer\",\"minimum\":0},"
                            "\"maxItems\":3},\"c\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\","
                            "\"minLength\":1},\"d\":{\"anyOf\":[{"
                            "\"$ref\":\"#\"},{\"type\":\"null\"}]}}}";

static void schema(mr_str text, mr_str answer, struct mr_arena *arena)
{
    struct json_schema *s = NULL;
    struct mr_field f;
    struct mr_err err;

    /* What the C library makes of an expression is its own. */
    if (text.ptr != fixed && mr_str_find_str(text, MR_STR("pattern")) >= 0) {
        return;
    }
    if (json_schema_new(&s, text, &err) < 0) {
        return;
    }
    for (size_t i = 0; i < json_schema_property_count(s); i++) {
        json_schema_property(s, i, &f);
        REQUIRE(f.name != NULL && f.type != MR_COLUMN_NONE);
    }
    json_schema_check(s, answer, arena, &err);
    json_schema_free(&s);
}

static void vectors(mr_str body, size_t count, struct mr_arena *arena)
{
    struct openai_answer a = {0};
    struct mr_err err;

    if (openai_answer_vectors(body, count, true, arena, &a, &err) == MR_OK) {
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            REQUIRE(a.choices[i].vector != NULL);
            for (size_t k = 0; k < a.width; k++) {
                sum += (double)a.choices[i].vector[k];
            }
        }
        REQUIRE(a.width > 0 && (sum == sum || sum != sum));
    }
}

static void texts(mr_str body, size_t count, struct mr_arena *arena)
{
    struct openai_answer a;
    struct mr_err err;

    if (openai_answer_text(body, count, arena, &a, &err) == MR_OK) {
        for (size_t i = 0; i < count; i++) {
            REQUIRE(a.choices[i].is_there);
        }
        REQUIRE(a.prompt_tokens >= -1 && a.completion_tokens >= -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arena arena;
    struct mr_err err;

    if (size < 2) {
        return 0;
    }
    const mr_str body = mr_str_n((const char *)data + 1, size - 1);
    const ptrdiff_t zero = mr_str_find(body, '\0');
    mr_arena_init(&arena, 1024, 16 << 20);
    switch (data[0] % 6) {
    case 0: texts(body, 1, &arena); break;
    case 1: texts(body, 3, &arena); break;
    case 2: vectors(body, 2, &arena); break;
    case 3: openai_answer_models(body, "m", &err); break;
    case 4: schema(mr_str_n(fixed, sizeof fixed - 1), body, &arena); break;
    default:
        if (zero >= 0) {
            schema(mr_str_sub(body, 0, (size_t)zero), mr_str_sub(body, (size_t)zero + 1, body.len),
                   &arena);
        }
        break;
    }
    mr_arena_fini(&arena);
    return 0;
}
