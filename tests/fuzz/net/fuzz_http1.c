/* The HTTP/1 parser and chunk decoder on arbitrary bytes, as requests and as responses. Beyond "does not crash": the result must
 * not depend on how the bytes were cut, slices must lie in the input, and what is accepted must be
 * safe to pass on (no control characters in names and values, one way to find the end).
 *
 *   byte 0   bit 0: chunked coding, else a head; bit 1: of a response; bit 2: the response to HEAD
 *   byte 1   where or how input is cut */
#include "fuzz.h"

#include "net/frame/http1_parse.h"

#define TABLE 32

static void check_slice(mr_str s, const char *p, size_t n)
{
    REQUIRE(s.len == 0 || (s.ptr >= p && s.ptr + s.len <= p + n));
}

static void check_headers(const struct mr_http1_head *h, const char *p, size_t n)
{
    for (size_t i = 0; i < h->header_count; i++) {
        const struct mr_header *f = &h->headers[i];
        check_slice(f->name, p, n);
        check_slice(f->value, p, n);
        REQUIRE(mr_http1_is_token(f->name) && mr_http1_is_value(f->value));
        for (size_t k = 0; k < f->name.len; k++) {
            REQUIRE(f->name.ptr[k] < 'A' || f->name.ptr[k] > 'Z');
        }
    }
}

static void check_head(const struct mr_http1_head *h, bool is_response, const char *p, size_t n)
{
    check_headers(h, p, n);
    REQUIRE(!h->is_chunked || h->content_length == -1);
    REQUIRE(h->content_length >= -1);
    if (is_response) {
        REQUIRE(h->status >= 100 && h->status <= 999);
        REQUIRE(!h->is_to_end ||
                (h->has_body && !h->keep_alive && !h->is_chunked && h->content_length == -1));
        return;
    }
    check_slice(h->method, p, n);
    check_slice(h->target, p, n);
    REQUIRE(mr_http1_is_token(h->method));
    REQUIRE(h->path.len > 0);
    REQUIRE(h->has_body == (h->is_chunked || h->content_length > 0));
}

static int parse(char *p, size_t n, uint8_t flags, struct mr_header *table,
                 struct mr_http1_head *out)
{
    return flags & 2 ? mr_http1_parse_response(p, n, flags & 4, table, TABLE, out)
                     : mr_http1_parse_request(p, n, table, TABLE, out);
}

/* The whole at once, and in two parts. */
static void fuzz_head(const uint8_t *data, size_t n, size_t cut, uint8_t flags)
{
    struct mr_http1_scan whole = {0};
    struct mr_http1_scan parts = {0};
    struct mr_header table[TABLE];
    struct mr_http1_head head;
    char *p = malloc(n ? n : 1);

    if (n) {
        memcpy(p, data, n);
        (void)mr_http1_is_plausible(p, n);
    }
    enum mr_http1_found a = mr_http1_scan(&whole, p, n);
    enum mr_http1_found b = mr_http1_scan(&parts, p, cut);
    if (b == MR_HTTP1_MORE) {
        b = mr_http1_scan(&parts, p, n);
    }
    REQUIRE(a == b);
    if (a == MR_HTTP1_FOUND) {
        REQUIRE(whole.at == parts.at && whole.lines == parts.lines);
        size_t len = whole.at;
        int rc = parse(p, len, flags, table, &head);
        if (rc == 0) {
            check_head(&head, flags & 2, p, len);
            /* Lower-casing in place changes nothing for a second reader. */
            struct mr_header again_table[TABLE];
            struct mr_http1_head again;
            REQUIRE(parse(p, len, flags, again_table, &again) == 0);
            REQUIRE(again.header_count == head.header_count &&
                    again.content_length == head.content_length &&
                    again.keep_alive == head.keep_alive && again.has_body == head.has_body);
        } else {
            REQUIRE((rc == 400 || rc == 417 || rc == 431 || rc == 501 || rc == 505) && head.error);
            REQUIRE(rc != 417 || !(flags & 2));
        }
    }
    free(p);
}

struct decoded {
    enum mr_http1_chunk end;
    size_t used;
    size_t len;
    uint64_t sum;
};

static struct decoded dechunk(const uint8_t *data, size_t n, size_t step, struct mr_buf *trailers)
{
    struct mr_http1_chunked c = {.max_overhead = 256, .max_chunks = 64, .trailers = trailers};
    struct decoded d = {.end = MR_CHUNK_MORE};
    size_t at = 0;

    while (at < n && d.end != MR_CHUNK_BAD && d.end != MR_CHUNK_END) {
        size_t part = n - at < step ? n - at : step;
        size_t used = 0;
        mr_bytes run = {0};
        d.end = mr_http1_chunk_next(&c, (const char *)data + at, part, &used, &run);
        if (d.end == MR_CHUNK_BAD) {
            break;
        }
        REQUIRE(used <= part && used > 0);
        if (d.end == MR_CHUNK_DATA) {
            REQUIRE(run.ptr >= data + at && run.ptr + run.len == data + at + used);
            for (size_t i = 0; i < run.len; i++) {
                d.sum = d.sum * 31 + run.ptr[i];
            }
            d.len += run.len;
        }
        at += used;
    }
    d.used = at;
    return d;
}

static void check_trailers(struct mr_buf *b)
{
    struct mr_header table[TABLE];
    struct mr_http1_head head;
    int rc = mr_http1_parse_trailers(b->ptr, b->len, table, TABLE, &head);

    REQUIRE(!b->failed);
    if (rc == 0) {
        check_headers(&head, b->ptr, b->len);
    } else {
        REQUIRE((rc == 400 || rc == 431 || rc == 501) && head.error);
    }
}

/* As a client reads it, with its trailers and at once; as a server does, without them and cut. */
static void fuzz_chunked(const uint8_t *data, size_t n, size_t step)
{
    struct mr_buf trailers;

    mr_buf_init(&trailers, 0);
    struct decoded a = dechunk(data, n, SIZE_MAX, &trailers);
    struct decoded b = dechunk(data, n, step, NULL);

    REQUIRE((a.end == MR_CHUNK_END) == (b.end == MR_CHUNK_END));
    REQUIRE((a.end == MR_CHUNK_BAD) == (b.end == MR_CHUNK_BAD));
    if (a.end == MR_CHUNK_END) {
        REQUIRE(a.used == b.used && a.len == b.len && a.sum == b.sum);
        check_trailers(&trailers);
    }
    mr_buf_fini(&trailers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    size_t n = size - 2;
    if (data[0] & 1) {
        fuzz_chunked(data + 2, n, (size_t)data[1] % 16 + 1);
    } else {
        fuzz_head(data + 2, n, n * data[1] / 256, data[0]);
    }
    return 0;
}
