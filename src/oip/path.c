/* The form of a REST path: literal characters, {NAME} for a segment, [...] for a part that may be left out. Any thread. */
#include "oip/oip.h"

/* A number, a label, or a name that MLServer's file gives. Which of them exist is for the model to say. */
static bool is_version(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_digit && !is_letter && !(i > 0 && (c == '-' || c == '.'))) {
            return false;
        }
    }
    return s.len > 0;
}

/* The member that {NAME} is for: their names differ in the first letter, or in the third. */
static mr_str *member_of(struct mr_oip_path *out, const char *name)
{
    return name[0] == 'm'   ? &out->model
           : name[0] == 'v' ? &out->version
           : name[2] == 'p' ? &out->repository
                            : &out->region;
}

/* At most one part of a pattern may be left out: it is tried first, as {NAME} fits many words. */
static bool path_matches(const char *pattern, const char *at, const char *end,
                         struct mr_oip_path *out)
{
    for (; *pattern; pattern++) { /* the ] of a part that is there is passed over */
        if (*pattern == '[') {
            struct mr_oip_path whole = *out;
            if (path_matches(pattern + 1, at, end, &whole)) {
                *out = whole;
                return true;
            }
            pattern = strchr(pattern, ']');
        } else if (*pattern == '{') {
            mr_str *part = member_of(out, pattern + 1);
            const char *slash = memchr(at, '/', (size_t)(end - at));
            *part = mr_str_n(at, (size_t)((slash ? slash : end) - at));
            if (part->len == 0 || (part == &out->version && !is_version(*part))) {
                return false;
            }
            at += part->len;
            pattern = strchr(pattern, '}');
        } else if (*pattern != ']') {
            if (at == end || *at != *pattern) {
                return false;
            }
            at++;
        }
    }
    return at == end;
}

bool mr_oip_path_match(const char *pattern, mr_str path, struct mr_oip_path *out)
{
    const struct mr_oip_path none = {MR_STR(""), MR_STR(""), MR_STR(""), MR_STR("")};

    *out = none;
    if (path.len > 0 && path_matches(pattern, path.ptr, path.ptr + path.len, out)) {
        return true;
    }
    *out = none;
    return false;
}
