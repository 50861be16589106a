/* The structure of JSON text: which value comes next, objects, arrays, literals, and skipping.
 *
 * A pull reader: the only state is a position and a depth, so a caller that walks a request
 * allocates nothing and touches each byte once. The reader keeps no stack of open brackets: the
 * call that loops over an object or array knows which one it is. Skipping, which has no such
 * caller, keeps one bit per level. Errors are sticky, so callers may check once at the end.
 *
 * Strings are in json_string.c, numbers in json_number.c, bulk arrays in json_fill.c. Any
 * thread. */
#include "json_scan.h"

#include <stdio.h>

void mr_json_init(struct mr_json *j, mr_str text, struct mr_arena *arena, int max_depth,
                  struct mr_err *err)
{
    const char *begin = text.ptr ? text.ptr : "";
    *j = (struct mr_json){
        .pos = begin,
        .begin = begin,
        .end = begin + text.len,
        .arena = arena,
        .err = err,
        .max_depth = max_depth > 0 ? MR_MIN(max_depth, MR_JSON_DEPTH_MAX) : MR_JSON_DEPTH_DEFAULT,
    };
}

__attribute__((format(printf, 4, 0))) static int json_fail_va(struct mr_json *j, const char *at,
                                                              int status, const char *fmt,
                                                              va_list args)
{
    if (j->status != MR_OK) {
        return j->status;
    }
    char text[320];
    vsnprintf(text, sizeof text, fmt, args);
    j->status = status;
    return MR_FAIL(j->err, status, "%s at offset %zu", text, (size_t)(at - j->begin));
}

int mr_json_fail(struct mr_json *j, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = json_fail_va(j, j->pos, status, fmt, args);
    va_end(args);
    return rc;
}

int mr_json_fail_at(struct mr_json *j, const char *at, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int rc = json_fail_va(j, at, status, fmt, args);
    va_end(args);
    return rc;
}

const char *mr_json_skip_far(const char *p, const char *end)
{
    while (p < end && json_is_space(*p)) {
        const char *stop = end - p > JSON_STEP ? p + JSON_STEP : end;
        while (p < stop && json_is_space(*p)) {
            p++;
        }
        if (!mr_turn_spend((uint64_t)JSON_STEP)) {
            return end;
        }
    }
    return p;
}

static const char *type_text(enum mr_json_type type)
{
    static const char *const texts[] = {
        [MR_JSON_OBJECT] = "an object", [MR_JSON_ARRAY] = "an array", [MR_JSON_STRING] = "a string",
        [MR_JSON_NUMBER] = "a number",  [MR_JSON_BOOL] = "a bool",    [MR_JSON_NULL] = "null",
    };
    return texts[type];
}

static enum mr_json_type type_of(char c)
{
    switch (c) {
    case '{': return MR_JSON_OBJECT;
    case '[': return MR_JSON_ARRAY;
    case '"': return MR_JSON_STRING;
    case 't':
    case 'f': return MR_JSON_BOOL;
    case 'n': return MR_JSON_NULL;
    case '-':
    case 'N':
    case 'I': return MR_JSON_NUMBER;
    default: return json_is_digit(c) ? MR_JSON_NUMBER : MR_JSON_END;
    }
}

int mr_json_expected(struct mr_json *j, const char *what)
{
    if (!json_enter(j)) {
        return j->status;
    }
    if (j->pos == j->end) {
        return mr_json_fail(j, MR_E_INVALID, "expected %s, found the end of the text", what);
    }
    enum mr_json_type type = type_of(*j->pos);
    if (type != MR_JSON_END) {
        return mr_json_fail(j, MR_E_INVALID, "expected %s, found %s", what, type_text(type));
    }
    unsigned char c = (unsigned char)*j->pos;
    if (c > ' ' && c < 0x7f) {
        return mr_json_fail(j, MR_E_INVALID, "expected %s, found '%c'", what, c);
    }
    return mr_json_fail(j, MR_E_INVALID, "expected %s, found byte 0x%02x", what, c);
}

enum mr_json_type mr_json_peek(struct mr_json *j)
{
    if (!json_enter(j) || j->pos == j->end) {
        return MR_JSON_END;
    }
    return type_of(*j->pos);
}

static int bracket_open(struct mr_json *j, char bracket, const char *what)
{
    if (!json_enter(j)) {
        return j->status;
    }
    if (j->pos == j->end || *j->pos != bracket) {
        return mr_json_expected(j, what);
    }
    if (j->depth >= j->max_depth) {
        return mr_json_fail(j, MR_E_INVALID,
                            "JSON nesting depth exceeds maximum allowed limit (%d)%s", j->max_depth,
                            j->depth_hint ? j->depth_hint : "");
    }
    j->pos++;
    j->depth++;
    return MR_OK;
}

int mr_json_enter_object(struct mr_json *j)
{
    return bracket_open(j, '{', "an object");
}

int mr_json_enter_array(struct mr_json *j)
{
    return bracket_open(j, '[', "an array");
}

/* Before the next item: takes the comma, or the closing bracket. True if an item must follow. */
static bool item_begin(struct mr_json *j, bool *io_first, char close, const char *what)
{
    if (!json_enter(j)) {
        return false;
    }
    bool is_first = *io_first;
    *io_first = false;
    if (j->pos < j->end && *j->pos == close) {
        j->pos++;
        j->depth--;
        return false;
    }
    if (is_first) {
        return true;
    }
    if (j->pos == j->end || *j->pos != ',') {
        mr_json_expected(j, what);
        return false;
    }
    j->pos++;
    return true;
}

bool mr_json_next_item(struct mr_json *j, bool *io_first)
{
    /* For a comma followed by ']', reading the missing value fails. */
    return item_begin(j, io_first, ']', "',' or ']'");
}

/* `,"name":` as nearly every client writes it: at most one blank after the comma, a short name. */
static bool key_short(struct mr_json *j, bool is_first, mr_str *out_key)
{
    const char *p = j->pos;
    if (!is_first) {
        if (p == j->end || *p != ',') {
            return false;
        }
        p++;
    }
    p += p < j->end && *p == ' ';
    if (p == j->end || *p != '"') {
        return false;
    }
    int len = json_short_string(++p, j->end);
    if (len < 0 || j->end - p <= len + 1 || p[len + 1] != ':') {
        return false;
    }
    *out_key = mr_str_n(p, (size_t)len);
    j->pos = p + len + 2;
    return true;
}

bool mr_json_next_key(struct mr_json *j, bool *io_first, mr_str *out_key)
{
    if (j->status == MR_OK && key_short(j, *io_first, out_key)) {
        *io_first = false;
        return true;
    }
    if (!item_begin(j, io_first, '}', "',' or '}'")) {
        return false;
    }
    j->pos = json_skip_space(j->pos, j->end);
    if (j->pos == j->end || *j->pos != '"') {
        mr_json_expected(j, "a member name");
        return false;
    }
    if (mr_json_string(j, out_key) < 0) {
        return false;
    }
    j->pos = json_skip_space(j->pos, j->end);
    if (j->pos == j->end || *j->pos != ':') {
        mr_json_expected(j, "':'");
        return false;
    }
    j->pos++;
    return true;
}

bool mr_json_next_leaf(struct mr_json *j, int *io_level)
{
    bool is_first = *io_level == 0;
    if (is_first) {
        if (mr_json_enter_array(j) < 0) {
            return false;
        }
        *io_level = 1;
    }
    while (*io_level > 0) {
        if (!json_spend(j, 16)) {
            return false;
        }
        if (!mr_json_next_item(j, &is_first)) {
            if (j->status != MR_OK) {
                return false;
            }
            (*io_level)--;
            continue;
        }
        if (mr_json_peek(j) != MR_JSON_ARRAY) {
            return j->status == MR_OK;
        }
        if (mr_json_enter_array(j) < 0) {
            return false;
        }
        (*io_level)++;
        is_first = true;
    }
    return false;
}

/* Consumes the word if it comes next. */
static bool word_take(struct mr_json *j, const char *word, size_t len)
{
    if ((size_t)(j->end - j->pos) < len || memcmp(j->pos, word, len) != 0) {
        return false;
    }
    j->pos += len;
    return true;
}

int mr_json_bool(struct mr_json *j, bool *out)
{
    if (!json_enter(j)) {
        return j->status;
    }
    if (word_take(j, "true", 4)) {
        *out = true;
    } else if (word_take(j, "false", 5)) {
        *out = false;
    } else {
        return mr_json_expected(j, "true or false");
    }
    return MR_OK;
}

int mr_json_null(struct mr_json *j)
{
    if (!json_enter(j)) {
        return j->status;
    }
    return word_take(j, "null", 4) ? MR_OK : mr_json_expected(j, "null");
}

static int skip_number(struct mr_json *j)
{
    double ignored;
    size_t len = mr_json_number_len(j->pos, j->end);
    len = len ? len : mr_json_special_len(j->pos, j->end, &ignored);
    if (len == 0) {
        return mr_json_fail(j, MR_E_INVALID, "malformed number");
    }
    j->pos += len;
    return MR_OK;
}

/* Skips a value that is neither object nor array. */
static int skip_scalar(struct mr_json *j)
{
    mr_str raw;
    bool flag;
    switch (mr_json_peek(j)) {
    case MR_JSON_STRING: return mr_json_cut_string(j, &raw, &flag);
    case MR_JSON_NUMBER: return skip_number(j);
    case MR_JSON_BOOL: return mr_json_bool(j, &flag);
    case MR_JSON_NULL: return mr_json_null(j);
    default: return mr_json_expected(j, "a value");
    }
}

/* A member's name and colon, without unescaping, so that skipping needs no memory. */
static int skip_key(struct mr_json *j)
{
    mr_str raw;
    bool escaped;
    if (mr_json_peek(j) != MR_JSON_STRING) {
        return mr_json_expected(j, "a member name");
    }
    if (mr_json_cut_string(j, &raw, &escaped) < 0) {
        return j->status;
    }
    j->pos = json_skip_space(j->pos, j->end);
    if (j->pos == j->end || *j->pos != ':') {
        return mr_json_expected(j, "':'");
    }
    j->pos++;
    return MR_OK;
}

/* The levels entered by a skip, one bit each: object or array. */
struct skip_levels {
    int count;
    uint64_t is_object[(MR_JSON_DEPTH_MAX + 63) / 64];
};

static bool skip_is_object(const struct skip_levels *l)
{
    return l->is_object[(l->count - 1) / 64] >> ((l->count - 1) % 64) & 1;
}

static int skip_open(struct mr_json *j, struct skip_levels *l, bool is_object)
{
    int rc = is_object ? mr_json_enter_object(j) : mr_json_enter_array(j);
    if (rc < 0) {
        return rc;
    }
    /* enter has checked the depth against max_depth <= MR_JSON_DEPTH_MAX. */
    int at = l->count++;
    l->is_object[at / 64] &= ~(UINT64_C(1) << (at % 64));
    l->is_object[at / 64] |= (uint64_t)is_object << (at % 64);
    return MR_OK;
}

static int skip_value(struct mr_json *j)
{
    struct skip_levels levels = {0};
    bool first = false;
    do {
        enum mr_json_type type = mr_json_peek(j);
        if (!json_spend(j, 16)) {
            return j->status;
        }
        if (type == MR_JSON_OBJECT || type == MR_JSON_ARRAY) {
            if (skip_open(j, &levels, type == MR_JSON_OBJECT) < 0) {
                return j->status;
            }
            first = true;
        } else if (skip_scalar(j) < 0) {
            return j->status;
        }
        /* Closes the containers that end here, up to one in which a further value follows. */
        while (levels.count > 0) {
            bool is_object = skip_is_object(&levels);
            if (item_begin(j, &first, is_object ? '}' : ']',
                           is_object ? "',' or '}'" : "',' or ']'")) {
                if (is_object && skip_key(j) < 0) {
                    return j->status;
                }
                break;
            }
            if (j->status != MR_OK) {
                return j->status;
            }
            levels.count--;
        }
    } while (levels.count > 0);
    return MR_OK;
}

int mr_json_skip(struct mr_json *j, mr_str *out_text)
{
    if (!json_enter(j)) {
        return j->status;
    }
    const char *begin = j->pos;
    int rc = skip_value(j);
    if (rc == MR_OK && out_text) {
        *out_text = mr_str_n(begin, (size_t)(j->pos - begin));
    }
    return rc;
}

int mr_json_finish(struct mr_json *j)
{
    if (!json_enter(j)) {
        return j->status;
    }
    if (j->pos != j->end) {
        return mr_json_expected(j, "the end of the text");
    }
    return MR_OK;
}
