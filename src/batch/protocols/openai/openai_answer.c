/* Source: OpenAI's API reference; vLLM and others leave out what they do not know, and add what they like. A member that
 * is not looked for is passed over. */
#include "openai_answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "codec/json.h"

#define NAMES_ROOM 200 /* of an error that lists models */

static bool is_null(struct mr_json *j)
{
    return mr_json_peek(j) == MR_JSON_NULL && mr_json_null(j) == MR_OK;
}

/* A string or null, which leaves *out as it is. */
static void text_read(struct mr_json *j, mr_str *out)
{
    if (!is_null(j)) {
        mr_json_string(j, out);
    }
}

/* ---- usage ---- */

static void count_read(struct mr_json *j, int64_t *out)
{
    if (is_null(j)) {
        return;
    }
    mr_json_i64(j, out);
    if (*out < 0) {
        mr_json_fail(j, MR_E_INVALID, "a number of tokens below 0");
    }
}

static void usage_read(struct mr_json *j, struct openai_answer *a)
{
    bool is_first = true;
    mr_str key;

    if (is_null(j) || mr_json_enter_object(j) < 0) {
        return;
    }
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("prompt_tokens"))) {
            count_read(j, &a->prompt_tokens);
        } else if (mr_str_eq(key, MR_STR("completion_tokens"))) {
            count_read(j, &a->completion_tokens);
        } else {
            mr_json_skip(j, NULL);
        }
    }
}

/* ---- choices ---- */

static void message_read(struct mr_json *j, struct openai_choice *c)
{
    bool is_first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("content"))) {
            text_read(j, &c->text);
        } else if (mr_str_eq(key, MR_STR("refusal"))) {
            text_read(j, &c->refusal);
        } else {
            mr_json_skip(j, NULL);
        }
    }
}

struct reading {
    struct mr_json json;
    struct mr_arena *arena;
    struct openai_answer *answer;
    size_t count;
    size_t place; /* of the next choice */
    bool are_vectors;
    bool allows_nan;
};

static void vector_check(struct reading *r, const float *v, size_t n)
{
    size_t bad = 0;

    if (r->answer->width == 0 && n > 0) {
        r->answer->width = n;
    }
    if (n == 0 || n != r->answer->width) {
        mr_json_fail(&r->json, MR_E_INVALID, "a vector of %zu numbers, others have %zu", n,
                     r->answer->width);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        bad += !isfinite(v[i]);
    }
    if (bad > 0 && !r->allows_nan) {
        mr_json_fail(&r->json, MR_E_INVALID, "a vector holds a NaN or an infinity");
    }
}

static float *floats_new(struct reading *r, size_t n)
{
    float *v = MR_ARENA_ARRAY(r->arena, float, n + 1);

    if (!v) {
        mr_json_fail(&r->json, MR_E_EXHAUSTED, "no memory for a vector");
    }
    return v;
}

static void packed_read(struct reading *r, struct openai_choice *c)
{
    mr_str text = {0};
    size_t bytes = 0;

    if (mr_json_string(&r->json, &text) < 0) {
        return;
    }
    float *v = floats_new(r, text.len / 4 * 3 / sizeof(float) + 1);
    if (!v) {
        return;
    }
    if (!mr_base64_decode(text, (uint8_t *)v, &bytes) || bytes % sizeof(float) != 0) {
        mr_json_fail(&r->json, MR_E_INVALID, "a vector is no base64 of floats");
        return;
    }
    c->vector = v;
    vector_check(r, v, bytes / sizeof(float));
}

static void list_read(struct reading *r, struct openai_choice *c)
{
    struct mr_json list;
    mr_str text = {0};
    uint64_t n = 0;
    size_t most = 1;

    if (mr_json_skip(&r->json, &text) < 0) {
        return;
    }
    for (size_t i = 0; i < text.len; i++) {
        most += text.ptr[i] == ',';
    }
    float *v = floats_new(r, most);
    if (!v) {
        return;
    }
    mr_json_init(&list, text, r->arena, 1, NULL);
    if (mr_json_fill(&list, MR_JSON_FILL_F32, v, most, &n) < 0) {
        mr_json_fail(&r->json, MR_E_INVALID, "a vector is no list of numbers");
        return;
    }
    c->vector = v;
    vector_check(r, v, (size_t)n);
}

static void choice_place(struct reading *r, const struct openai_choice *c, int64_t index)
{
    const size_t at = index < 0 ? r->place : (size_t)index;

    r->place++;
    if (r->json.status < 0) {
        return;
    }
    if (at >= r->count || r->answer->choices[at].is_there) {
        mr_json_fail(&r->json, MR_E_INVALID, "index %zu is there twice, or too many for %zu row%s",
                     at, r->count, r->count == 1 ? "" : "s");
        return;
    }
    r->answer->choices[at] = *c;
    r->answer->choices[at].is_there = true;
}

static void index_read(struct mr_json *j, int64_t *out)
{
    mr_json_i64(j, out);
    if (*out < 0) {
        mr_json_fail(j, MR_E_INVALID, "an index below 0");
    }
}

static void choice_read(struct reading *r)
{
    struct mr_json *j = &r->json;
    struct openai_choice c = {0};
    bool is_first = true;
    int64_t index = -1;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("index"))) {
            index_read(j, &index);
        } else if (mr_str_eq(key, MR_STR("message")) && !r->are_vectors) {
            message_read(j, &c);
        } else if (mr_str_eq(key, MR_STR("text")) && !r->are_vectors) {
            text_read(j, &c.text);
        } else if (mr_str_eq(key, MR_STR("finish_reason"))) {
            text_read(j, &c.finish_reason);
        } else if (mr_str_eq(key, MR_STR("embedding")) && r->are_vectors) {
            if (mr_json_peek(j) == MR_JSON_STRING) {
                packed_read(r, &c);
            } else {
                list_read(r, &c);
            }
        } else {
            mr_json_skip(j, NULL);
        }
    }
    choice_place(r, &c, index);
}

static void choices_read(struct reading *r)
{
    bool is_first = true;

    mr_json_enter_array(&r->json);
    while (mr_json_next_item(&r->json, &is_first)) {
        choice_read(r);
    }
}

/* ---- the whole ---- */

static int answer_read(struct reading *r, mr_str body, struct mr_err *err)
{
    struct mr_json *j = &r->json;
    const char *list = r->are_vectors ? "data" : "choices";
    bool is_first = true;
    mr_str key;

    r->answer->choices = MR_ARENA_ARRAY(r->arena, struct openai_choice, r->count + 1);
    if (!r->answer->choices) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    mr_json_init(j, body, r->arena, 0, err);
    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq_c(key, list)) {
            choices_read(r);
        } else if (mr_str_eq(key, MR_STR("usage"))) {
            usage_read(j, r->answer);
        } else if (mr_str_eq(key, MR_STR("model"))) {
            text_read(j, &r->answer->model);
        } else {
            mr_json_skip(j, NULL);
        }
    }
    int rc = mr_json_finish(j);
    for (size_t i = 0; i < r->count && rc == MR_OK; i++) {
        const struct openai_choice *c = &r->answer->choices[i];
        if (!c->is_there || (r->are_vectors && !c->vector)) {
            rc = MR_FAIL(err, MR_E_INVALID, "'%s' has nothing for row %zu of %zu", list, i,
                         r->count);
        }
    }
    return rc;
}

int openai_answer_text(mr_str body, size_t count, struct mr_arena *arena, struct openai_answer *out,
                       struct mr_err *err)
{
    struct reading r = {.arena = arena, .answer = out, .count = count};

    *out = (struct openai_answer){.prompt_tokens = -1, .completion_tokens = -1};
    return answer_read(&r, body, err);
}

int openai_answer_vectors(mr_str body, size_t count, bool allows_nan, struct mr_arena *arena,
                          struct openai_answer *out, struct mr_err *err)
{
    struct reading r = {.arena = arena,
                        .answer = out,
                        .count = count,
                        .are_vectors = true,
                        .allows_nan = allows_nan};

    *out =
        (struct openai_answer){.prompt_tokens = -1, .completion_tokens = -1, .width = out->width};
    return answer_read(&r, body, err);
}

/* On one line: line feeds in JSON are between its values. */
static int body_flatten(struct mr_arena *arena, struct openai_answer *a, struct mr_err *err)
{
    const mr_str copy = mr_arena_str(arena, a->body);

    if (!copy.ptr) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    char *text = (char *)(uintptr_t)copy.ptr;
    for (size_t i = 0; i < copy.len; i++) {
        text[i] = (char)(text[i] == '\n' || text[i] == '\r' ? ' ' : text[i]);
    }
    a->body = copy;
    return MR_OK;
}

int openai_answer_any(mr_str body, struct mr_arena *arena, struct openai_answer *out,
                      struct mr_err *err)
{
    struct mr_json j;
    bool is_first = true;
    mr_str key;

    *out = (struct openai_answer){
        .prompt_tokens = -1, .completion_tokens = -1, .body = mr_str_trim(body), .id = MR_STR("")};
    mr_json_init(&j, out->body, arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("usage"))) {
            usage_read(&j, out);
        } else if (mr_str_eq(key, MR_STR("model"))) {
            text_read(&j, &out->model);
        } else if (mr_str_eq(key, MR_STR("id")) && mr_json_peek(&j) == MR_JSON_STRING) {
            mr_json_string(&j, &out->id);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    int rc = mr_json_finish(&j);
    return rc < 0 ? rc : body_flatten(arena, out, err);
}

/* ---- models ---- */

struct names {
    char text[NAMES_ROOM];
    size_t len;
    const char *wanted;
    bool is_found;
};

static void name_add(struct names *n, mr_str id)
{
    n->is_found = n->is_found || (n->wanted && mr_str_eq_c(id, n->wanted));
    if (n->len + id.len + 4 < sizeof n->text) {
        n->len += (size_t)snprintf(n->text + n->len, sizeof n->text - n->len, "%s'%.*s'",
                                   n->len ? ", " : "", MR_STR_ARG(id));
    }
}

static void models_read(struct mr_json *j, struct names *n)
{
    bool is_first = true;

    mr_json_enter_array(j);
    while (mr_json_next_item(j, &is_first)) {
        bool is_first_key = true;
        mr_str key;
        mr_json_enter_object(j);
        while (mr_json_next_key(j, &is_first_key, &key)) {
            mr_str id = {0};
            if (!mr_str_eq(key, MR_STR("id"))) {
                mr_json_skip(j, NULL);
            } else if (mr_json_string(j, &id) == MR_OK) {
                name_add(n, id);
            }
        }
    }
}

int openai_answer_models(mr_str body, const char *model, struct mr_err *err)
{
    struct names n = {.wanted = model};
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    mr_str key;

    mr_arena_init(&arena, 1024, 1 << 20);
    mr_json_init(&j, body, &arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("data"))) {
            models_read(&j, &n);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    int rc = mr_json_finish(&j);
    if (rc == MR_OK && model && !n.is_found) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "it serves %s, not '%s'", n.len ? n.text : "no model",
                     model);
    }
    mr_arena_fini(&arena);
    return rc;
}
