/* The form of a REST path: literal characters, {NAME} for a segment, [...] for a part that may be left out. Any thread. */
#include "oip/oip.h"

/* Digits, or a label. Which of them exist is for the model to say. */
static bool is_version(mr_str s)
{
    bool is_label = s.len > 0 && !(s.ptr[0] >= '0' && s.ptr[0] <= '9');

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_digit && !(is_label && (is_letter || (i > 0 && (c == '-' || c == '.'))))) {
            return false;
        }
    }
    return s.len > 0;
}

static bool segment_take(mr_str name, mr_str value, struct mr_oip_path *out)
{
    if (mr_str_eq(name, MR_STR("model"))) {
        out->model = value;
    } else if (mr_str_eq(name, MR_STR("version"))) {
        out->version = value;
        return is_version(value);
    } else if (mr_str_eq(name, MR_STR("repository"))) {
        out->repository = value;
    } else {
        out->region = value;
    }
    return value.len > 0;
}

/* One character of the pattern, or one {NAME}: goes on in both texts. */
static bool step(const char **pattern, mr_str *rest, struct mr_oip_path *out)
{
    if (**pattern != '{') {
        bool is_same = rest->len > 0 && *rest->ptr == **pattern;
        ++*pattern;
        *rest = mr_str_sub(*rest, 1, rest->len);
        return is_same;
    }
    const char *name = *pattern + 1;
    const char *end = strchr(name, '}');
    ptrdiff_t slash = mr_str_find(*rest, '/');
    mr_str value = mr_str_sub(*rest, 0, slash < 0 ? rest->len : (size_t)slash);

    *pattern = end + 1;
    *rest = mr_str_sub(*rest, value.len, rest->len);
    return segment_take(mr_str_n(name, (size_t)(end - name)), value, out);
}

static bool part_matches(const char *pattern, char until, mr_str *rest, struct mr_oip_path *out)
{
    while (*pattern != until) {
        if (!step(&pattern, rest, out)) {
            return false;
        }
    }
    return true;
}

/* At most one part of a pattern may be left out: it is tried first, as {NAME} fits many words. */
static bool path_matches(const char *pattern, mr_str rest, struct mr_oip_path *out)
{
    while (*pattern && *pattern != '[') {
        if (!step(&pattern, &rest, out)) {
            return false;
        }
    }
    if (*pattern == '\0') {
        return rest.len == 0;
    }
    const char *after = strchr(pattern, ']') + 1;
    struct mr_oip_path whole = *out;
    mr_str behind = rest;

    if (part_matches(pattern + 1, ']', &behind, &whole) &&
        part_matches(after, '\0', &behind, &whole) && behind.len == 0) {
        *out = whole;
        return true;
    }
    return part_matches(after, '\0', &rest, out) && rest.len == 0;
}

bool mr_oip_path_match(const char *pattern, mr_str path, struct mr_oip_path *out)
{
    const struct mr_oip_path none = {MR_STR(""), MR_STR(""), MR_STR(""), MR_STR("")};

    *out = none;
    if (path_matches(pattern, path, out)) {
        return true;
    }
    *out = none;
    return false;
}
