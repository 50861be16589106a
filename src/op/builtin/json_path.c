#include "json_path.h"

static int bad(const struct json_path *p, size_t at, const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "path '%.*s': column %zu: %s",
                   MR_STR_ARG(mr_str_sub(p->text, 0, 200)), at + 1, what);
}

static int parse_index(struct json_path *p, size_t *io_at, struct json_step *out,
                       struct mr_err *err)
{
    mr_str rest = mr_str_sub(p->text, *io_at + 1, p->text.len);
    ptrdiff_t end = mr_str_find(rest, ']');

    *out = (struct json_step){0};
    if (end < 0 || !mr_str_to_u64(mr_str_sub(rest, 0, (size_t)end), &out->index)) {
        return bad(p, *io_at, "expected [number]", err);
    }
    *io_at += (size_t)end + 2;
    return MR_OK;
}

static int parse_key(struct json_path *p, size_t *io_at, struct json_step *out, struct mr_err *err)
{
    size_t begin = *io_at, end = begin;
    bool is_quoted = p->text.ptr[begin] == '"';

    if (is_quoted) {
        ptrdiff_t n = mr_str_find(mr_str_sub(p->text, begin + 1, p->text.len), '"');
        if (n < 0) {
            return bad(p, begin, "\" without its end", err);
        }
        out->key = mr_str_sub(p->text, begin + 1, begin + 1 + (size_t)n);
        *io_at = begin + (size_t)n + 2;
        return MR_OK;
    }
    while (end < p->text.len && p->text.ptr[end] != '.' && p->text.ptr[end] != '[') {
        end++;
    }
    out->key = mr_str_sub(p->text, begin, end);
    *io_at = end;
    return end > begin ? MR_OK : bad(p, begin, "an empty name", err);
}

static int parse_steps(struct json_path *p, struct mr_err *err)
{
    size_t at = p->text.len > 0 && p->text.ptr[0] == '$' ? 1 : 0;
    bool is_first = at == 0;

    while (at < p->text.len) {
        if (p->count == JSON_PATH_STEPS_MAX) {
            return bad(p, at, "too many steps", err);
        }
        struct json_step *step = &p->steps[p->count++];
        bool is_index = p->text.ptr[at] == '[';
        if (!is_index && !is_first) {
            if (p->text.ptr[at] != '.' || at + 1 == p->text.len) {
                return bad(p, at, "expected . or [", err);
            }
            at++;
        }
        int rc = is_index ? parse_index(p, &at, step, err) : parse_key(p, &at, step, err);
        if (rc < 0) {
            return rc;
        }
        is_first = false;
    }
    return MR_OK;
}

int json_path_parse(struct json_path *p, mr_str text, struct mr_err *err)
{
    *p = (struct json_path){.text = {mr_strndup(text.ptr, text.len), text.len}};
    int rc = parse_steps(p, err);

    if (rc < 0) {
        json_path_fini(p);
    }
    return rc;
}

void json_path_fini(struct json_path *p)
{
    mr_free((void *)(uintptr_t)p->text.ptr);
    *p = (struct json_path){0};
}

/* To a member of the object, or an element of the array, that is next. False: it is not there, or the text is broken. */
static bool seek_step(const struct json_step *step, struct mr_json *j)
{
    bool is_first = true;
    mr_str key;

    if (step->key.ptr) {
        if (mr_json_peek(j) != MR_JSON_OBJECT || mr_json_enter_object(j) < 0) {
            return false;
        }
        while (mr_json_next_key(j, &is_first, &key)) {
            if (mr_str_eq(key, step->key)) {
                return true;
            }
            mr_json_skip(j, NULL);
        }
        return false;
    }
    if (mr_json_peek(j) != MR_JSON_ARRAY || mr_json_enter_array(j) < 0) {
        return false;
    }
    for (uint64_t i = 0; mr_json_next_item(j, &is_first); i++) {
        if (i == step->index) {
            return true;
        }
        mr_json_skip(j, NULL);
    }
    return false;
}

int json_path_seek(const struct json_path *p, struct mr_json *j, bool *out_found)
{
    *out_found = false;
    for (uint32_t i = 0; i < p->count; i++) {
        if (!seek_step(&p->steps[i], j)) {
            return j->status;
        }
    }
    *out_found = mr_json_peek(j) != MR_JSON_NULL && j->status == MR_OK;
    return j->status;
}
