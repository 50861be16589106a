/* Tokens of the protobuf text format, as its C++ parser cuts them: white space and '#' comments
 * between, strings in either quote on one line, numbers taken whole so that "12abc" is one bad
 * number and not two tokens. Lines and columns count from 1, columns in bytes. One token of
 * look-ahead, no memory. */
#include "pbtext_lex.h"

#include <stdarg.h>
#include <stdio.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

void mr_pbtext_lex_init(struct pbtext_lex *l, mr_str text, struct mr_err *err)
{
    const char *begin = text.ptr ? text.ptr : "";
    *l = (struct pbtext_lex){
        .pos = begin,
        .end = begin + text.len,
        .line_begin = begin,
        .line = 1,
        .err = err,
    };
    mr_pbtext_lex_next(l);
}

int mr_pbtext_lex_fail(struct pbtext_lex *l, int status, const char *fmt, ...)
{
    if (l->status != MR_OK) {
        return l->status;
    }
    char text[384];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    l->status = status;
    l->kind = PBTEXT_END;
    return MR_FAIL(l->err, status, "line %ld column %ld: %s", l->text_line, l->text_column, text);
}

int mr_pbtext_lex_expected(struct pbtext_lex *l, const char *what)
{
    if (l->kind == PBTEXT_END) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "expected %s, found the end of the text", what);
    }
    if (l->kind == PBTEXT_STRING) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "expected %s, found a string", what);
    }
    unsigned char c = (unsigned char)l->text.ptr[0];
    if (c < ' ' || c >= 0x7f) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "expected %s, found byte 0x%02x", what, c);
    }
    mr_str shown = mr_str_sub(l->text, 0, 60);
    return mr_pbtext_lex_fail(l, MR_E_INVALID, "expected %s, found '%.*s'", what,
                              MR_STR_ARG(shown));
}

static void space_skip(struct pbtext_lex *l)
{
    while (l->pos < l->end) {
        char c = *l->pos;
        if (c == '#') {
            const char *newline = memchr(l->pos, '\n', (size_t)(l->end - l->pos));
            l->pos = newline ? newline : l->end;
        } else if (c == '\n') {
            l->pos++;
            l->line++;
            l->line_begin = l->pos;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            l->pos++;
        } else {
            break;
        }
    }
}

static const char *number_end(const char *p, const char *end)
{
    bool hex = end - p >= 2 && p[0] == '0' && (p[1] | 0x20) == 'x';
    for (; p < end; p++) {
        bool sign = (*p == '+' || *p == '-') && !hex && (p[-1] | 0x20) == 'e';
        if (!is_word(*p) && *p != '.' && !sign) {
            break;
        }
    }
    return p;
}

/* The end of the closing quote, or NULL. */
static const char *string_end(const char *p, const char *end)
{
    char quote = *p++;
    for (; p < end && *p != '\n'; p++) {
        if (*p == quote) {
            return p + 1;
        }
        if (*p == '\\' && p + 1 < end && p[1] != '\n') {
            p++;
        }
    }
    return NULL;
}

void mr_pbtext_lex_next(struct pbtext_lex *l)
{
    if (l->status != MR_OK) {
        return;
    }
    space_skip(l);
    const char *p = l->pos;
    const char *stop = p;
    l->text_line = l->line;
    l->text_column = (long)(p - l->line_begin) + 1;
    if (p == l->end) {
        l->kind = PBTEXT_END;
    } else if (is_digit(*p) || (*p == '.' && p + 1 < l->end && is_digit(p[1]))) {
        l->kind = PBTEXT_NUMBER;
        stop = number_end(p, l->end);
    } else if (is_word(*p)) {
        l->kind = PBTEXT_IDENT;
        while (stop < l->end && is_word(*stop)) {
            stop++;
        }
    } else if (*p == '"' || *p == '\'') {
        l->kind = PBTEXT_STRING;
        stop = string_end(p, l->end);
        if (!stop) {
            mr_pbtext_lex_fail(l, MR_E_INVALID, "string without closing quote on its line");
            return;
        }
    } else {
        l->kind = PBTEXT_SYMBOL;
        stop = p + 1;
    }
    l->text = mr_str_n(p, (size_t)(stop - p));
    l->pos = stop;
}

bool mr_pbtext_lex_take(struct pbtext_lex *l, char c)
{
    if (!pbtext_at(l, c)) {
        return false;
    }
    mr_pbtext_lex_next(l);
    return true;
}

/* ---- escapes ---- */

static int digit_value(char c)
{
    int lower = c | 0x20;
    return is_digit(c) ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* Between min and max digits in base 8 or 16 at *io_p; false if there are fewer. */
static bool digits_take(const char **io_p, const char *end, int base, int min, int max,
                        uint32_t *out)
{
    const char *p = *io_p;
    uint32_t value = 0;
    int count = 0;
    while (p < end && count < max && digit_value(*p) < base) {
        value = value * (uint32_t)base + (uint32_t)digit_value(*p);
        p++;
        count++;
    }
    *io_p = p;
    *out = value;
    return count >= min;
}

static bool utf8_append(struct mr_buf *out, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return false;
    }
    char text[4];
    size_t len;
    if (c < 0x80) {
        text[0] = (char)c;
        len = 1;
    } else {
        len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t i = len - 1; i > 0; i--, c >>= 6) {
            text[i] = (char)(0x80 | (c & 0x3f));
        }
        text[0] = (char)((0xf00u >> len & 0xf0u) | c);
    }
    mr_buf_append(out, text, len);
    return true;
}

/* \u of a high surrogate: the low one must follow as another \u. */
static bool low_surrogate_take(const char **io_p, const char *end, uint32_t *io_code)
{
    uint32_t low;
    if (*io_code < 0xd800 || *io_code > 0xdbff) {
        return true;
    }
    if (end - *io_p < 2 || (*io_p)[0] != '\\' || (*io_p)[1] != 'u') {
        return false;
    }
    *io_p += 2;
    if (!digits_take(io_p, end, 16, 4, 4, &low) || low < 0xdc00 || low > 0xdfff) {
        return false;
    }
    *io_code = 0x10000 + ((*io_code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* One escape at *io_p, after the backslash. */
static bool escape_append(const char **io_p, const char *end, struct mr_buf *out)
{
    static const char names[] = "abfnrtv\\?'\"";
    static const char values[] = "\a\b\f\n\r\t\v\\?'\"";
    if (*io_p == end) {
        return false;
    }
    char c = **io_p;
    uint32_t code;
    const char *at = memchr(names, c, sizeof names - 1);
    if (at) {
        (*io_p)++;
        mr_buf_char(out, values[at - names]);
        return true;
    }
    if (c >= '0' && c <= '7') {
        bool ok = digits_take(io_p, end, 8, 1, 3, &code) && code < 256;
        mr_buf_char(out, (char)code);
        return ok;
    }
    (*io_p)++;
    switch (c) {
    case 'x':
    case 'X':
        if (!digits_take(io_p, end, 16, 1, 2, &code)) {
            return false;
        }
        mr_buf_char(out, (char)code);
        return true;
    case 'u':
        return digits_take(io_p, end, 16, 4, 4, &code) && low_surrogate_take(io_p, end, &code) &&
               utf8_append(out, code);
    case 'U': return digits_take(io_p, end, 16, 8, 8, &code) && utf8_append(out, code);
    default: return false;
    }
}

int mr_pbtext_lex_string(struct pbtext_lex *l, struct mr_buf *out)
{
    const char *p = l->text.ptr + 1;
    const char *end = l->text.ptr + l->text.len - 1;
    while (p < end) {
        const char *stop = memchr(p, '\\', (size_t)(end - p));
        stop = stop ? stop : end;
        mr_buf_append(out, p, (size_t)(stop - p));
        p = stop;
        if (p < end) {
            p++;
            if (!escape_append(&p, end, out)) {
                return mr_pbtext_lex_fail(l, MR_E_INVALID, "malformed escape in a string");
            }
        }
    }
    if (out->failed) {
        return mr_pbtext_lex_fail(l, MR_E_NOMEM, "no memory for a string");
    }
    mr_pbtext_lex_next(l);
    return MR_OK;
}
