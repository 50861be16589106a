/* The JSON reader: walking as a caller does, skipping, and filling arrays of every type must agree
 * on what is JSON, must not read past the text, and what the writer makes of a string must read
 * back. */
#include "fuzz.h"

#include "codec/json.h"

static void walk_value(struct mr_json *j, int depth);

static void walk_string(struct mr_json *j)
{
    mr_str s;
    if (mr_json_string(j, &s) < 0) {
        return;
    }
    REQUIRE(mr_utf8_valid(s));
    struct mr_arena arena;
    struct mr_buf b;
    struct mr_json again;
    mr_str got;
    mr_arena_init(&arena, 512, 1 << 24);
    mr_buf_init(&b, 0);
    mr_json_put_string(&b, s);
    mr_json_init(&again, mr_buf_view(&b), &arena, 0, NULL);
    REQUIRE(mr_json_string(&again, &got) == MR_OK && mr_str_eq(got, s));
    REQUIRE(mr_json_finish(&again) == MR_OK);
    size_t len;
    uint8_t *raw = malloc(s.len / 4 * 3 + 1);
    if (raw && mr_base64_decode(s, raw, &len)) {
        mr_buf_reset(&b);
        mr_base64_encode((mr_bytes){raw, len}, &b);
        REQUIRE(mr_str_eq(mr_buf_view(&b), s));
    }
    free(raw);
    mr_buf_fini(&b);
    mr_arena_fini(&arena);
}

/* One number, read in every way: the ways must not contradict each other. */
static void walk_number(struct mr_json *j)
{
    struct mr_json at = *j;
    struct mr_json probe = at;
    int64_t i;
    uint64_t u;
    float f;
    double d = 0, again;
    mr_str text;
    probe.err = NULL;
    bool is_i64 = mr_json_i64(&probe, &i) == MR_OK;
    probe = at;
    probe.err = NULL;
    bool is_u64 = mr_json_u64(&probe, &u) == MR_OK;
    REQUIRE(!is_i64 || !is_u64 || (uint64_t)i == u);
    probe = at;
    probe.err = NULL;
    bool is_float = mr_json_float(&probe, &f) == MR_OK;
    REQUIRE((mr_json_double(j, &d) == MR_OK) == is_float);
    REQUIRE(is_float || (!is_i64 && !is_u64));
    probe = at;
    probe.err = NULL;
    if (mr_json_number_text(&probe, &text) == MR_OK) {
        REQUIRE(is_float && probe.pos == j->pos);
        REQUIRE(mr_text_double(text, &again) && memcmp(&again, &d, sizeof d) == 0);
        float once_more;
        REQUIRE(mr_text_float(text, &once_more) && memcmp(&once_more, &f, sizeof f) == 0);
    }
    char out[32];
    if (is_float && d == d) {
        size_t len = mr_double_text(d, out);
        REQUIRE(mr_text_double(mr_str_n(out, len), &again) && memcmp(&again, &d, sizeof d) == 0);
    }
}

static void walk_value(struct mr_json *j, int depth)
{
    mr_str key;
    bool flag;
    bool first = true;
    REQUIRE(depth <= MR_JSON_DEPTH_DEFAULT);
    switch (mr_json_peek(j)) {
    case MR_JSON_OBJECT:
        mr_json_enter_object(j);
        while (mr_json_next_key(j, &first, &key)) {
            walk_value(j, depth + 1);
        }
        break;
    case MR_JSON_ARRAY:
        mr_json_enter_array(j);
        while (mr_json_next_item(j, &first)) {
            walk_value(j, depth + 1);
        }
        break;
    case MR_JSON_STRING: walk_string(j); break;
    case MR_JSON_NUMBER: walk_number(j); break;
    case MR_JSON_BOOL: mr_json_bool(j, &flag); break;
    case MR_JSON_NULL: mr_json_null(j); break;
    case MR_JSON_END: mr_json_fail(j, MR_E_INVALID, "no value"); break;
    }
}

/* Exactly as many elements as there is room for, on the heap, so that one too many is seen. */
static void fill_all(mr_str text, uint64_t capacity)
{
    static const size_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
    for (int kind = MR_JSON_FILL_BOOL; kind <= MR_JSON_FILL_F64; kind++) {
        struct mr_json j;
        uint64_t count = UINT64_MAX;
        struct mr_err err = {0};
        void *out = capacity ? malloc(capacity * sizes[kind]) : NULL;
        mr_json_init(&j, text, NULL, 0, &err);
        int rc = mr_json_fill(&j, (enum mr_json_fill)kind, out, capacity, &count);
        REQUIRE(rc == j.status && rc == err.status);
        REQUIRE(rc == MR_OK ? count <= capacity && j.depth == 0 : count == UINT64_MAX);
        if (rc == MR_OK) {
            struct mr_json skip;
            mr_json_init(&skip, text, NULL, 0, NULL);
            REQUIRE(mr_json_skip(&skip, NULL) == MR_OK && skip.pos == j.pos);
        }
        free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_str text = mr_str_n((const char *)data, size);
    struct mr_arena arena;
    struct mr_json walk, skip;
    struct mr_err err = {0};
    mr_arena_init(&arena, 4096, 1 << 26);
    mr_json_init(&walk, text, &arena, 0, &err);
    walk_value(&walk, 0);
    bool walked = mr_json_finish(&walk) == MR_OK;
    mr_json_init(&skip, text, NULL, 0, NULL);
    mr_json_skip(&skip, NULL);
    bool skipped = mr_json_finish(&skip) == MR_OK;
    REQUIRE(walked == skipped && err.status == walk.status);
    REQUIRE(walk.pos >= walk.begin && walk.pos <= walk.end);
    mr_arena_fini(&arena);
    fill_all(text, 0);
    fill_all(text, size % 16);
    fill_all(text, size);
    return 0;
}
