/* Removes the developers' parts of ONNX Runtime's messages: "Load model from <path> failed:", and the place in its
 * source with a C++ signature that precedes many of them and is longer than the message.
 *
 *     /src/core/graph/model.cc:202 ns::Model::Model(ns::Proto&&, const std::map<int, int>&) Unsupported model ...
 *
 * Thread: any. */
#include <ctype.h>

#include "message.h"

/* The position after a bracket and its content; NULL: not closed. */
static const char *bracket_end(const char *s, char open, char close)
{
    int depth = 0;

    for (; *s; s++) {
        depth += *s == open;
        depth -= *s == close;
        if (depth == 0) {
            return s + 1;
        }
    }
    return NULL;
}

static const char *after(const char *s, const char *word)
{
    const size_t n = strlen(word);

    return strncmp(s, word, n) == 0 ? s + n : s;
}

/* The position after a function's signature at `s`; NULL: not a signature. */
static const char *signature_end(const char *s)
{
    const char *p = strchr(s, '(');

    /* operator()(int), Outer(int)::<lambda(float)>, Inner(int)::Local::run() */
    while (p && *p == '(' && (p = bracket_end(p, '(', ')'))) {
        if (strncmp(p, "::", 2) == 0) {
            p += strcspn(p, " (");
        } else if (*p == '>') {
            p++;
        }
    }
    if (!p) {
        return NULL;
    }
    p = after(after(after(p, " const"), " &"), " noexcept");
    if (strncmp(p, " [with ", 7) == 0) {
        p = bracket_end(p + 1, '[', ']');
    }
    return p && *p == ' ' ? p + 1 : NULL;
}

/* True if "<file>.cc:<line> " surrounds `colon`; returns its start and end. */
static int is_place(const char *text, const char *colon, const char **out_begin,
                    const char **out_end)
{
    static const char *const kinds[] = {".cc", ".h", ".cpp", ".hpp", ".inc"};
    const char *p = colon + 1;
    int is_source = 0;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i]);
        is_source |= (size_t)(colon - text) > n && strncmp(colon - n, kinds[i], n) == 0;
    }
    while (isdigit((unsigned char)*p)) {
        p++;
    }
    if (!is_source || p == colon + 1 || *p != ' ') {
        return 0;
    }
    *out_end = p + 1;
    for (*out_begin = colon;
         *out_begin > text && (*out_begin)[-1] != ' ' && (*out_begin)[-1] != ':';) {
        --*out_begin;
    }
    return 1;
}

static const char *without_load(const char *text)
{
    static const char failed[] = " failed:";
    const char *end = strstr(text, failed);

    return strncmp(text, "Load model from ", 16) == 0 && end ? end + strlen(failed) : text;
}

void onnx_message_clean(const char *text, char *out, size_t room)
{
    size_t used = 0;
    const char *begin;
    const char *after;

    text = without_load(text);
    text += strspn(text, " ");
    for (const char *colon = text; (colon = strchr(colon, ':'));) {
        const char *end = is_place(text, colon, &begin, &after) ? signature_end(after) : NULL;
        if (!end) {
            colon++;
            continue;
        }
        const int n = snprintf(out + used, room - used, "%.*s", (int)(begin - text), text);
        used = n >= 0 && (size_t)n < room - used ? used + (size_t)n : room - 1;
        text = colon = end;
    }
    snprintf(out + used, room - used, "%s", text);
    for (char *c = out; *c; c++) {
        if ((unsigned char)*c < ' ') {
            *c = ' ';
        }
    }
    for (size_t n = strlen(out); n > 0 && out[n - 1] == ' '; n--) {
        out[n - 1] = '\0';
    }
}
