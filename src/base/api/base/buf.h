/* A growable byte buffer with a maximum. Writers append and check once at the end: an append that
 * would pass `max` (or finds no memory) sets `failed` and drops the data; nothing crashes. */
#ifndef MR_BASE_BUF_H
#define MR_BASE_BUF_H

#include "base/mem.h"
#include "base/str.h"

struct mr_buf {
    char *ptr;
    size_t len;
    size_t cap;
    size_t max;
    bool failed;
};

/** Caller's memory; allocates nothing yet. max 0 means 1 GiB. */
void mr_buf_init(struct mr_buf *b, size_t max);
void mr_buf_fini(struct mr_buf *b);
/** Empty again, capacity kept, `failed` cleared. */
static inline void mr_buf_reset(struct mr_buf *b)
{
    b->len = 0;
    b->failed = false;
}
/** Makes room for `n` more bytes after len. NULL, with `failed` set, if there is none. len does not change. */
char *mr_buf_reserve(struct mr_buf *b, size_t n);
/** The path of mr_buf_append if the buffer may have to grow. */
void mr_buf_append_slow(struct mr_buf *b, const void *data, size_t n);
static inline void mr_buf_append(struct mr_buf *b, const void *data, size_t n)
{
    if (n > b->cap - b->len || !b->ptr || n == 0) {
        mr_buf_append_slow(b, data, n);
        return;
    }
    memcpy(b->ptr + b->len, data, n);
    b->len += n;
}
static inline void mr_buf_str(struct mr_buf *b, mr_str s)
{
    mr_buf_append(b, s.ptr, s.len);
}
static inline void mr_buf_c(struct mr_buf *b, const char *s)
{
    mr_buf_append(b, s, strlen(s));
}
#define MR_BUF_LIT(b, lit) mr_buf_append((b), (lit), sizeof(lit) - 1)
static inline void mr_buf_char(struct mr_buf *b, char c)
{
    if (b->len < b->cap) {
        b->ptr[b->len++] = c;
    } else {
        mr_buf_append(b, &c, 1);
    }
}
void mr_buf_printf(struct mr_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mr_buf_u64(struct mr_buf *b, uint64_t v);
void mr_buf_i64(struct mr_buf *b, int64_t v);
/** `s` with each byte as %XX, except the unreserved ones of RFC 3986 and those in `also`. */
void mr_buf_percent(struct mr_buf *b, mr_str s, const char *also);
/** `s` as text of HTML or XML, also in an attribute within "": < > & " become entities. */
void mr_buf_html(struct mr_buf *b, mr_str s);
/** Drop n bytes from the front (memmove). */
void mr_buf_consume(struct mr_buf *b, size_t n);
/** Puts a NUL after the end (not counted in len). Returns ptr, "" when empty or failed. */
const char *mr_buf_cstr(struct mr_buf *b);
static inline mr_str mr_buf_view(const struct mr_buf *b)
{
    return (mr_str){b->ptr, b->len};
}

#endif
