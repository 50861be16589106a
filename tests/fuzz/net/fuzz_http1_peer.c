/* The HTTP/1 parser beside another one, Debian's libhttp-parser: requests, and responses where the input begins with
 * "HTTP/". Whatever both accept they must read alike: method, target or status, headers, the body and where the next
 * message begins; two readers that
 * disagree there are what request smuggling is made of. What only one of them accepts is no finding,
 * but what ours accepts and the other refuses is counted down to the cases below:
 *
 *   - methods outside its table, HTTP/1.x with x > 1, bytes in a target, chunk extension bytes: RFC 9112
 *     allows ours;
 *   - CONNECT and Upgrade: it stops at the head, as a proxy would;
 *   - a response whose body ends with the connection: it has no end here. */
#include "fuzz.h"

#include <http_parser.h>

#include "net/frame/http1_parse.h"

#define TABLE 32

/* ---- the other parser ----------------------------------------------------------------------- */

struct peer {
    size_t target_len;
    uint64_t target_sum;
    uint64_t field_sum; /* over names in lower case and values, in order */
    size_t body_len;
    uint64_t body_sum;
    bool head_done;
    bool keep_alive;
    bool done;
    unsigned method;
    unsigned status;
};

static uint64_t add(uint64_t sum, const char *p, size_t n, bool lower)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        sum = sum * 1099511628211u + (lower && c >= 'A' && c <= 'Z' ? c + 32u : c) + 1;
    }
    return sum;
}

static int on_url(http_parser *p, const char *at, size_t n)
{
    struct peer *x = p->data;

    x->target_len += n;
    x->target_sum = add(x->target_sum, at, n, false);
    return 0;
}

/* Trailers come through the same callbacks; only those of the head count. */
static int on_name(http_parser *p, const char *at, size_t n)
{
    struct peer *x = p->data;

    x->field_sum = x->head_done ? x->field_sum : add(x->field_sum, at, n, true);
    return 0;
}

static int on_value(http_parser *p, const char *at, size_t n)
{
    struct peer *x = p->data;

    /* Blanks are trimmed differently; they carry nothing. */
    for (size_t i = 0; i < n && !x->head_done; i++) {
        if (at[i] != ' ' && at[i] != '\t') {
            x->field_sum = add(x->field_sum, at + i, 1, false);
        }
    }
    return 0;
}

static int on_head(http_parser *p)
{
    struct peer *x = p->data;

    x->head_done = true;
    x->method = p->method;
    x->status = p->status_code;
    x->keep_alive = http_should_keep_alive(p) != 0;
    /* 1: no body follows. It would read one after such a response if the fields give a length (RFC 9112 6.3). */
    return p->type == HTTP_RESPONSE &&
           (p->status_code < 200 || p->status_code == 204 || p->status_code == 304);
}

static int on_body(http_parser *p, const char *at, size_t n)
{
    struct peer *x = p->data;

    x->body_len += n;
    x->body_sum = add(x->body_sum, at, n, false);
    return 0;
}

static int on_done(http_parser *p)
{
    struct peer *x = p->data;

    x->done = true;
    http_parser_pause(p, 1); /* one message only */
    return 0;
}

/* Bytes of the first message, or -1 when it is refused or not complete. */
static ptrdiff_t read_by_peer(const char *p, size_t n, bool is_response, struct peer *x)
{
    static const http_parser_settings settings = {.on_url = on_url,
                                                  .on_header_field = on_name,
                                                  .on_header_value = on_value,
                                                  .on_headers_complete = on_head,
                                                  .on_body = on_body,
                                                  .on_message_complete = on_done};
    http_parser parser;

    http_parser_init(&parser, is_response ? HTTP_RESPONSE : HTTP_REQUEST);
    parser.data = x;
    size_t used = http_parser_execute(&parser, &settings, p, n);
    if (!x->done || parser.upgrade) {
        return -1;
    }
    return (ptrdiff_t)used;
}

/* ---- ours ----------------------------------------------------------------------------------- */

struct own {
    struct mr_http1_head head;
    struct mr_header table[TABLE];
    size_t body_len;
    uint64_t body_sum;
};

/* As above, for a whole message with its body. `p` is changed. */
static ptrdiff_t read_by_us(char *p, size_t n, bool is_response, struct own *x)
{
    struct mr_http1_scan scan = {0};

    if (n == 0 || mr_http1_scan(&scan, p, n) != MR_HTTP1_FOUND) {
        return -1;
    }
    int rc = is_response ? mr_http1_parse_response(p, scan.at, false, x->table, TABLE, &x->head)
                         : mr_http1_parse_request(p, scan.at, x->table, TABLE, &x->head);
    if (rc != 0 || x->head.is_to_end) {
        return -1;
    }
    size_t at = scan.at;
    if (is_response && !x->head.has_body) {
        return (ptrdiff_t)at;
    }
    if (!x->head.is_chunked) {
        size_t len = x->head.content_length > 0 ? (size_t)x->head.content_length : 0;
        if (len > n - at) {
            return -1;
        }
        x->body_len = len;
        x->body_sum = add(0, p + at, len, false);
        return (ptrdiff_t)(at + len);
    }
    struct mr_http1_chunked c = {.max_overhead = 4096, .max_chunks = 1000};
    enum mr_http1_chunk found = MR_CHUNK_MORE;
    while (at < n && (found == MR_CHUNK_MORE || found == MR_CHUNK_DATA)) {
        size_t used = 0;
        mr_bytes run = {0};
        found = mr_http1_chunk_next(&c, p + at, n - at, &used, &run);
        at += used;
        if (found == MR_CHUNK_DATA) {
            x->body_len += run.len;
            x->body_sum = add(x->body_sum, (const char *)run.ptr, run.len, false);
        }
    }
    return found == MR_CHUNK_END ? (ptrdiff_t)at : -1;
}

static uint64_t sum_fields(const struct mr_http1_head *h)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < h->header_count; i++) {
        sum = add(sum, h->headers[i].name.ptr, h->headers[i].name.len, true);
        for (size_t k = 0; k < h->headers[i].value.len; k++) {
            char c = h->headers[i].value.ptr[k];
            sum = c != ' ' && c != '\t' ? add(sum, &c, 1, false) : sum;
        }
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool is_response = size >= 5 && memcmp(data, "HTTP/", 5) == 0;
    char *copy = malloc(size ? size : 1);
    struct own own = {0};
    struct peer peer = {0};

    if (size) {
        memcpy(copy, data, size);
    }
    ptrdiff_t us = read_by_us(copy, size, is_response, &own);
    ptrdiff_t them = us < 0 ? -1 : read_by_peer((const char *)data, size, is_response, &peer);
    if (us >= 0 && them >= 0) {
        mr_str method = mr_str_c(http_method_str((enum http_method)peer.method));
        REQUIRE(us == them);
        REQUIRE(is_response ? peer.status == (unsigned)own.head.status
                            : mr_str_eq(method, own.head.method));
        REQUIRE(peer.target_len == own.head.target.len &&
                peer.target_sum == add(0, own.head.target.ptr, own.head.target.len, false));
        /* In an absolute form, its authority replaces Host. */
        REQUIRE(own.head.authority.len > 0 || peer.field_sum == sum_fields(&own.head));
        REQUIRE(peer.body_len == own.body_len && peer.body_sum == own.body_sum);
        /* Closing earlier than the other would is always safe. In HTTP/1.0 it overlooks "keep-alive"
         * after an empty list element. */
        REQUIRE(peer.keep_alive || !own.head.keep_alive || own.head.minor == 0);
    }
    free(copy);
    return 0;
}
