/* Growable bytes. The allocation is always one byte longer than `cap`, so that mr_buf_cstr can append its NUL to a
 * full buffer. Growth doubles, clipped to `max`. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>

#define DEFAULT_MAX ((size_t)1 << 30)
#define FIRST_CAP   ((size_t)256)

void mr_buf_init(struct mr_buf *b, size_t max)
{
    *b = (struct mr_buf){.max = max ? max : DEFAULT_MAX};
}

void mr_buf_fini(struct mr_buf *b)
{
    mr_free(b->ptr);
    *b = (struct mr_buf){.max = b->max};
}

static bool grow(struct mr_buf *b, size_t need)
{
    size_t cap = MR_MAX(b->cap, FIRST_CAP / 2);

    /* max < SIZE_MAX here, or cap + 1 below could wrap; need <= max was checked by the caller. */
    cap = cap > b->max / 2 ? b->max : cap * 2;
    cap = MR_MAX(cap, need);
    cap = MR_MIN(cap, b->max);
    if (cap == SIZE_MAX) {
        return false;
    }
    char *p = mr_try_realloc(b->ptr, cap + 1);
    if (!p) {
        return false;
    }
    b->ptr = p;
    b->cap = cap;
    return true;
}

char *mr_buf_reserve(struct mr_buf *b, size_t n)
{
    if (b->ptr && n <= b->cap - b->len) {
        return b->ptr + b->len;
    }
    if (n > b->max - b->len || !grow(b, b->len + n)) {
        b->failed = true;
        return NULL;
    }
    return b->ptr + b->len;
}

void mr_buf_append_slow(struct mr_buf *b, const void *data, size_t n)
{
    if (n == 0) {
        return;
    }
    char *p = mr_buf_reserve(b, n);
    if (p) {
        memcpy(p, data, n);
        b->len += n;
    }
}

void mr_buf_printf(struct mr_buf *b, const char *fmt, ...)
{
    va_list ap;
    char *p = mr_buf_reserve(b, 0);

    if (!p) {
        return;
    }
    va_start(ap, fmt);
    int n = vsnprintf(p, b->cap - b->len + 1, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return;
    }
    if ((size_t)n > b->cap - b->len) {
        p = mr_buf_reserve(b, (size_t)n);
        if (!p) {
            return;
        }
        va_start(ap, fmt);
        n = vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    b->len += (size_t)n;
}

void mr_buf_u64(struct mr_buf *b, uint64_t v)
{
    char text[MR_U64_TEXT];

    mr_buf_append(b, text, (size_t)(mr_u64_put(text, v) - text));
}

void mr_buf_i64(struct mr_buf *b, int64_t v)
{
    char text[MR_I64_TEXT];

    mr_buf_append(b, text, (size_t)(mr_i64_put(text, v) - text));
}

static bool is_unreserved(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void mr_buf_percent(struct mr_buf *b, mr_str s, const char *also)
{
    for (size_t i = 0; i < s.len; i++) {
        const char c = s.ptr[i];
        if (is_unreserved(c) || (c && strchr(also, c))) {
            mr_buf_char(b, c);
        } else {
            mr_buf_printf(b, "%%%02X", (unsigned char)c);
        }
    }
}

void mr_buf_html(struct mr_buf *b, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        switch (s.ptr[i]) {
        case '<': MR_BUF_LIT(b, "&lt;"); break;
        case '>': MR_BUF_LIT(b, "&gt;"); break;
        case '&': MR_BUF_LIT(b, "&amp;"); break;
        case '"': MR_BUF_LIT(b, "&quot;"); break;
        default: mr_buf_char(b, s.ptr[i]); break;
        }
    }
}

void mr_buf_consume(struct mr_buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        return;
    }
    if (n == 0) {
        return;
    }
    memmove(b->ptr, b->ptr + n, b->len - n);
    b->len -= n;
}

const char *mr_buf_cstr(struct mr_buf *b)
{
    if (!b->ptr || b->failed) {
        return "";
    }
    b->ptr[b->len] = '\0';
    return b->ptr;
}
