/* The HTTP/1 parser by tables, for requests and responses: what is accepted, each refusal with its status, and every
 * message again with its bytes arriving in pieces of each size. */
#include "net/frame/http1_parse.h"

#include "net_test.h"

#define TABLE 16

/* As a connection would: look for the end of a head while bytes come in `step` at a time. Returns its length, with a
 * copy in *out_copy; 0 with *out_result -1 when the search refused, -2 when the head is incomplete. */
static size_t scan_in_steps(const char *text, size_t n, size_t step, char **out_copy,
                            int *out_result)
{
    struct mr_http1_scan scan = {0};
    enum mr_http1_found found = MR_HTTP1_MORE;

    for (size_t have = 0; found == MR_HTTP1_MORE && have < n;) {
        have = have + step < n ? have + step : n;
        char *part = exact_copy(text, have);
        found = mr_http1_scan(&scan, part, have);
        free(part);
    }
    *out_copy = found == MR_HTTP1_FOUND ? exact_copy(text, scan.at) : NULL;
    *out_result = found == MR_HTTP1_BAD ? -1 : -2;
    return found == MR_HTTP1_FOUND ? scan.at : 0;
}

/* Returns the status of the request, or the result of the search. */
static int parse(const char *text, size_t n, size_t step, char **out_copy, struct mr_header *table,
                 struct mr_http1_head *head)
{
    int rc;
    size_t at = scan_in_steps(text, n, step, out_copy, &rc);

    return at ? mr_http1_parse_request(*out_copy, at, table, TABLE, head) : rc;
}

struct good {
    const char *text;
    const char *method;
    const char *path;
    const char *query;
    int minor;
    size_t headers;
    int64_t length; /* -1 none, -2 chunked */
    bool keep_alive;
};

static const struct good goods[] = {
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", "", 1, 1, -1, true},
    {"GET /a?b=c?d HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/a", "b=c?d", 1, 1, -1, true},
    {"GET /a? HTTP/1.1\r\nHost:\r\n\r\n", "GET", "/a", "", 1, 1, -1, true},
    {"POST /x HTTP/1.1\r\nhost: a:80\r\nContent-Length: 12\r\n\r\n", "POST", "/x", "", 1, 2, 12,
     true},
    {"POST /x HTTP/1.1\r\nHost: [::1]:80\r\ncontent-length:0012  \r\n\r\n", "POST", "/x", "", 1, 2,
     12, true},
    {"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", "POST", "/x",
     "", 1, 3, 5, true},
    {"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunkeD\r\n\r\n", "POST", "/x", "", 1, 2,
     -2, true},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET", "/", "", 1, 2, -1, false},
    {"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo , Close\r\n\r\n", "GET", "/", "", 1, 2, -1,
     false},
    {"GET / HTTP/1.0\r\n\r\n", "GET", "/", "", 0, 0, -1, false},
    {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET", "/", "", 0, 1, -1, true},
    {"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET", "/", "", 0, 1, -1, false},
    {"GET http://a.b:80/c/d?e HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/c/d", "e", 1, 1, -1, true},
    {"GET HTTPS://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", "", 1, 1, -1, true},
    {"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/", "q", 1, 1, -1, true},
    {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS", "*", "", 1, 1, -1, true},
    {"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n", "BREW", "/pot", "", 1, 1, -1, true},
    {"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\nX: \xc3\xa9\tb\r\n\r\n", "GET", "/\xc3\xa9", "", 1, 2,
     -1, true},
    {"GET / HTTP/1.7\r\nHost: a\r\n\r\n", "GET", "/", "", 1, 1, -1, true},
    {"GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t \r\n\r\n", "GET", "/", "", 1, 3, -1, true},
    {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n", "PUT", "/", "", 1,
     2, INT64_MAX, true},
};

static void test_accepted(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(goods); i++) {
        const struct good *g = &goods[i];
        size_t n = strlen(g->text);
        for (size_t step = 1; step <= n; step++) {
            struct mr_header table[TABLE];
            struct mr_http1_head head;
            char *copy;
            int rc = parse(g->text, n, step, &copy, table, &head);
            if (rc != 0) {
                fail_msg("row %zu, steps of %zu: %d %s", i, step, rc, rc > 0 ? head.error : "");
            }
            assert_str(head.method, g->method);
            assert_str(head.path, g->path);
            assert_str(head.query, g->query);
            assert_int_equal(head.minor, g->minor);
            assert_int_equal(head.header_count, g->headers);
            assert_int_equal(head.is_chunked, g->length == -2);
            assert_int_equal(head.content_length, g->length == -2 ? -1 : g->length);
            assert_int_equal(head.keep_alive, g->keep_alive);
            free(copy);
        }
    }
}

struct bad {
    const char *text;
    int status; /* -1: the search for the end already fails */
};

static const struct bad bads[] = {
    /* request line */
    {"GET /\r\nHost: a\r\n\r\n", 400},
    {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
    {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GETGETGETGETGETGETGETGETGETGETGETGETGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET http://u@a/x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/11\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.1x\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
    {"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505},
    /* line ends */
    {"GET / HTTP/1.1\nHost: a\r\n\r\n", -1},
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", -1},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", -1},
    {"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\n\rHost: a\r\n\r\n", 400},
    /* header lines */
    {"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n X: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nX\xc3: b\r\n\r\n", 400},
    /* host */
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
    /* smuggling */
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999999\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
     400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n", 501},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
     "chunked\r\n\r\n",
     400},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    /* the rest */
    {"GET / HTTP/1.1\r\nHost: a\r\nExpect: the worst\r\n\r\n", 417},
    {"GET / HTTP/1.1\r\nHost: "
     "a\r\n1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n9:\r\n10:\r\n11:\r\n"
     "12:\r\n13:\r\n14:\r\n15:\r\n16:\r\n\r\n",
     431},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bads); i++) {
        size_t n = strlen(bads[i].text);
        for (size_t step = 1; step <= n; step++) {
            struct mr_header table[TABLE];
            struct mr_http1_head head = {0};
            char *copy;
            int rc = parse(bads[i].text, n, step, &copy, table, &head);
            if (rc != bads[i].status) {
                fail_msg("row %zu: %d, not %d\n%s", i, rc, bads[i].status, bads[i].text);
            }
            if (rc > 0) {
                assert_non_null(head.error);
            }
            free(copy);
        }
    }
}

static void test_fields(void **state)
{
    static const char text[] =
        "POST /p HTTP/1.1\r\nHost: h\r\nContent-TYPE:\t application/json \t\r\n"
        "Expect: 100-Continue\r\nContent-Length: 3\r\n\r\n";
    struct mr_header table[TABLE];
    struct mr_http1_head head;
    char *copy;

    (void)state;
    assert_int_equal(parse(text, sizeof text - 1, sizeof text, &copy, table, &head), 0);
    assert_str(head.headers[1].name, "content-type");
    assert_str(head.headers[1].value, "application/json");
    assert_true(head.expects_continue);
    assert_true(head.has_body);
    free(copy);
    /* A request without a body needs no 100, and HTTP/1.0 has none. */
    static const char bodyless[] = "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    assert_int_equal(parse(bodyless, sizeof bodyless - 1, 99, &copy, table, &head), 0);
    assert_false(head.expects_continue);
    free(copy);
}

/* Each byte at each place of a target and of a value, for any number that is scanned at once. */
static void test_each_byte_at_each_place(void **state)
{
    (void)state;
    for (size_t len = 1; len <= 36; len++) {
        for (unsigned c = 1; c < 256; c++) {
            size_t at = c * 7 % len;
            bool is_value = (c >= 0x20 && c != 0x7f) || c == '\t';
            bool is_target = c > 0x20 && c != 0x7f && c != '#';
            char part[37], text[160];
            struct mr_header table[TABLE];
            struct mr_http1_head head;
            char *copy;
            memset(part, 'a', len);
            part[at] = (char)c;
            part[len] = '\0';
            int n =
                snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: a\r\nX:a%sa\r\n\r\n", part);
            int rc = parse(text, (size_t)n, (size_t)n, &copy, table, &head);
            free(copy);
            if ((rc == 0) != is_value) {
                fail_msg("byte %#x at %zu of %zu of a value: %d", c, at, len, rc);
            }
            assert_int_equal(mr_http1_is_value(mr_str_n(part, len)), is_value);
            n = snprintf(text, sizeof text, "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", part);
            rc = parse(text, (size_t)n, (size_t)n, &copy, table, &head);
            free(copy);
            if ((rc == 0) != is_target) {
                fail_msg("byte %#x at %zu of %zu of a target: %d", c, at, len, rc);
            }
        }
    }
}

static void test_no_nul(void **state)
{
    /* A NUL in each place of a head is refused, or the head is not complete. */
    static const char text[] = "GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";

    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        char bad[sizeof text];
        struct mr_header table[TABLE];
        struct mr_http1_head head;
        char *copy;
        memcpy(bad, text, sizeof text);
        bad[i] = '\0';
        int rc = parse(bad, sizeof text - 1, sizeof text, &copy, table, &head);
        if (rc == 0) {
            fail_msg("NUL at %zu was accepted", i);
        }
        free(copy);
    }
}

static void test_scan_is_linear(void **state)
{
    /* A megabyte in single bytes: quadratic work would take minutes. */
    size_t n = 1u << 20;
    char *text = malloc(n);
    struct mr_http1_scan scan = {0};

    (void)state;
    memset(text, 'a', n);
    for (size_t i = 1; i <= n; i++) {
        assert_int_equal(mr_http1_scan(&scan, text, i), MR_HTTP1_MORE);
    }
    free(text);
}

static void test_plausible(void **state)
{
    (void)state;
    assert_true(mr_http1_is_plausible("GET / HT", 8));
    assert_true(mr_http1_is_plausible("GE", 2));
    assert_true(mr_http1_is_plausible("M-SEARCH ", 9));
    assert_false(mr_http1_is_plausible("\x16\x03\x01", 3));
    assert_false(mr_http1_is_plausible("GE\x01", 3));
    assert_false(mr_http1_is_plausible(" GET", 4));
    assert_false(mr_http1_is_plausible("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 40));
}

/* ---- chunked coding ------------------------------------------------------------------------- */

struct chunked {
    const char *text;
    const char *body; /* NULL: refused */
    const char *rest; /* bytes after the body */
};

static const struct chunked chunkeds[] = {
    {"0\r\n\r\n", "", ""},
    {"3\r\nabc\r\n0\r\n\r\n", "abc", ""},
    {"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET", "abcde", "GET"},
    {"A\r\n0123456789\r\n00\r\n\r\n", "0123456789", ""},
    {"a;x=y;z=\"q\"\r\n0123456789\r\n0;last\r\n\r\n", "0123456789", ""},
    {"000000000000003\r\nabc\r\n0\r\n\r\n", "abc", ""},
    {"1\r\na\r\n0\r\nX: y\r\nZ: w\r\n\r\n", "a", ""},
    {"", NULL, NULL},
    {"\r\n", NULL, NULL},
    {"g\r\n", NULL, NULL},
    {"-1\r\n", NULL, NULL},
    {"+1\r\na\r\n0\r\n\r\n", NULL, NULL},
    {"0x1\r\na\r\n0\r\n\r\n", NULL, NULL},
    {" 1\r\na\r\n0\r\n\r\n", NULL, NULL},
    {"1 \r\na\r\n0\r\n\r\n", NULL, NULL},
    {"1\na\r\n0\r\n\r\n", NULL, NULL},
    {"1\r\na\n0\r\n\r\n", NULL, NULL},
    {"1\r\nab\r\n0\r\n\r\n", NULL, NULL},
    {"2\r\na\r\n0\r\n\r\n", NULL, NULL},
    {"0000000000000003\r\nabc\r\n0\r\n\r\n", NULL, NULL},
    {"ffffffffffffffff\r\n", NULL, NULL},
    {"1\r\na\r\n0\r\n\n", NULL, NULL},
    {"1\r\na\r\n0\r\n X: y\r\n\r\n", NULL, NULL},
    {"1\r\na\r\n0\r\nX: \x01\r\n\r\n", NULL, NULL},
    {"1;\x01\r\na\r\n0\r\n\r\n", NULL, NULL},
    {"1;a\rb\r\na\r\n0\r\n\r\n", NULL, NULL},
};

/* Decodes with the input cut into pieces of `step`. False if it is refused or incomplete. trailers may be NULL. */
static bool dechunk(const char *text, size_t n, size_t step, struct mr_buf *trailers, char *out,
                    size_t *out_len, size_t *out_used)
{
    struct mr_http1_chunked c = {.max_overhead = 64, .max_chunks = 8, .trailers = trailers};
    size_t at = 0;
    size_t len = 0;

    while (at < n) {
        size_t part = at + step < n ? step : n - at;
        char *copy = exact_copy(text + at, part);
        size_t from = 0;
        enum mr_http1_chunk got;
        do {
            size_t used = 0;
            mr_bytes data = {0};
            got = mr_http1_chunk_next(&c, copy + from, part - from, &used, &data);
            if (got == MR_CHUNK_DATA) {
                memcpy(out + len, data.ptr, data.len);
                len += data.len;
            }
            from += used;
        } while (got == MR_CHUNK_DATA);
        free(copy);
        at += from;
        if (got == MR_CHUNK_END) {
            *out_len = len;
            *out_used = at;
            return true;
        }
        if (got == MR_CHUNK_BAD) {
            return false;
        }
    }
    return false;
}

static void test_chunked(void **state)
{
    char out[256];

    (void)state;
    for (size_t i = 0; i < COUNT(chunkeds); i++) {
        const struct chunked *c = &chunkeds[i];
        size_t n = strlen(c->text);
        for (size_t step = 1; step <= n + 1; step++) {
            size_t len = 0;
            size_t used = 0;
            bool ok = dechunk(c->text, n, step, NULL, out, &len, &used);
            if (ok != (c->body != NULL)) {
                fail_msg("row %zu, steps of %zu: %d", i, step, ok);
            }
            if (ok) {
                assert_int_equal(len, strlen(c->body));
                assert_memory_equal(out, c->body, len);
                assert_string_equal(c->text + used, c->rest);
            }
        }
    }
}

static void test_chunked_bounds(void **state)
{
    char text[512];
    char out[512];
    size_t len;
    size_t used;

    (void)state;
    /* Eight chunks, the limit here, and nine. */
    const char *eight =
        "1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n1\r\na\r\n";
    snprintf(text, sizeof text, "%s0\r\n\r\n", eight);
    assert_true(dechunk(text, strlen(text), 7, NULL, out, &len, &used));
    snprintf(text, sizeof text, "%s1\r\na\r\n0\r\n\r\n", eight);
    assert_false(dechunk(text, strlen(text), 7, NULL, out, &len, &used));
    /* Extensions and trailers together have a limit too. */
    memset(text, 0, sizeof text);
    memcpy(text, "1;", 2);
    memset(text + 2, 'x', 64);
    memcpy(text + 66, "\r\na\r\n0\r\n\r\n", 10);
    assert_true(dechunk(text, 76, 76, NULL, out, &len, &used));
    memcpy(text + 66, "x\r\na\r\n0\r\n\r\n", 11);
    assert_false(dechunk(text, 77, 77, NULL, out, &len, &used));
}

/* ---- responses ------------------------------------------------------------------------------ */

struct answer {
    const char *text;
    int status;
    int64_t length; /* -1 to the end of the connection, -2 chunked */
    bool is_head;
    bool has_body;
    bool keep_alive;
};

static const struct answer answers[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 3, false, true, true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, 0, false, false, true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n", 200, 3, false, true,
     true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", 200, -2, false, true, true},
    {"HTTP/1.1 200 OK\r\n\r\n", 200, -1, false, true, false},
    {"HTTP/1.1 404\r\nContent-Length: 3\r\n\r\n", 404, 3, false, true, true},
    {"HTTP/1.1 404 \r\nContent-Length: 3\r\n\r\n", 404, 3, false, true, true},
    {"HTTP/1.1 999 a\tb \xc3\xa9\r\nContent-Length: 3\r\n\r\n", 999, 3, false, true, true},
    {"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 3, false, true, false},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n", 200, 3, false, true,
     true},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", 200, -1, false, true, false},
    {"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 3\r\n\r\n", 200, 3, false, true,
     false},
    /* responses without a body whatever their fields are */
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", 200, 3, true, false, true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, -2, true, false, true},
    {"HTTP/1.1 200 OK\r\n\r\n", 200, -1, true, false, true},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, -1, false, false, true},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", 304, 3, false, false, true},
    {"HTTP/1.1 100 Continue\r\n\r\n", 100, -1, false, false, true},
    /* what concerns requests alone */
    {"HTTP/1.1 200 OK\r\nHost: a/b\r\nHost: c\r\nExpect: x\r\nContent-Length: 3\r\n\r\n", 200, 3,
     false, true, true},
};

/* As parse() for a response. */
static int parse_response(const char *text, size_t step, bool is_head, char **out_copy,
                          struct mr_header *table, struct mr_http1_head *head)
{
    int rc;
    size_t at = scan_in_steps(text, strlen(text), step, out_copy, &rc);

    return at ? mr_http1_parse_response(*out_copy, at, is_head, table, TABLE, head) : rc;
}

static void test_responses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(answers); i++) {
        const struct answer *a = &answers[i];
        for (size_t step = 1; step <= strlen(a->text); step++) {
            struct mr_header table[TABLE];
            struct mr_http1_head head;
            char *copy;
            int rc = parse_response(a->text, step, a->is_head, &copy, table, &head);
            if (rc != 0) {
                fail_msg("row %zu, steps of %zu: %d %s", i, step, rc, rc > 0 ? head.error : "");
            }
            assert_int_equal(head.status, a->status);
            assert_int_equal(head.is_chunked, a->length == -2);
            assert_int_equal(head.content_length, a->length == -2 ? -1 : a->length);
            assert_int_equal(head.is_to_end, a->has_body && a->length == -1);
            assert_int_equal(head.has_body, a->has_body);
            assert_int_equal(head.keep_alive, a->keep_alive);
            free(copy);
        }
    }
}

static const struct bad bad_answers[] = {
    {"HTTP/1.1 20 OK\r\n\r\n", 400},
    {"HTTP/1.1 099 OK\r\n\r\n", 400},
    {"HTTP/1.1 2000 OK\r\n\r\n", 400},
    {"HTTP/1.1 +20 OK\r\n\r\n", 400},
    {"HTTP/1.1  200 OK\r\n\r\n", 400},
    {"HTTP/1.1\t200 OK\r\n\r\n", 400},
    {"HTTP/1.1 200\tOK\r\n\r\n", 400},
    {"HTTP/1.1 200 O\x01K\r\n\r\n", 400},
    {"HTTP/1.1 200 O\rK\r\n\r\n", 400},
    {"http/1.1 200 OK\r\n\r\n", 400},
    {"HTTP/2.0 200 OK\r\n\r\n", 505},
    {"ICY 200 OK well\r\n\r\n", 400},
    {"\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\nContent-Length: 3\n\n", -1},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\n\r\n", -1},
    {"HTTP/1.1 200 OK\r\nX : b\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\n folded: b\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nX: b\r\n\tc\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nX: \x7f\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nNo colon\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", 400},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"HTTP/1.1 200 "
     "OK\r\n1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n9:\r\n10:\r\n11:\r\n12:\r\n"
     "13:\r\n14:\r\n15:\r\n16:\r\n17:\r\n\r\n",
     431},
};

static void test_refused_responses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(bad_answers); i++) {
        for (size_t step = 1; step <= strlen(bad_answers[i].text); step++) {
            struct mr_header table[TABLE];
            struct mr_http1_head head = {0};
            char *copy;
            int rc = parse_response(bad_answers[i].text, step, false, &copy, table, &head);
            if (rc != bad_answers[i].status) {
                fail_msg("row %zu, steps of %zu: %d, not %d\n%s", i, step, rc,
                         bad_answers[i].status, bad_answers[i].text);
            }
            assert_true(rc < 0 || head.error);
            free(copy);
        }
    }
}

static void test_trailers(void **state)
{
    static const struct {
        const char *text; /* after the last chunk */
        int status;       /* -1: already the chunked coding is refused */
        size_t count;
    } rows[] = {
        {"\r\n", 0, 0},
        {"X-Sum: 19\r\n\r\n", 0, 1},
        {"X-Sum:\t19 \r\nB:\r\n\r\n", 0, 2},
        {"A:\r\nB:\r\nC:\r\n\r\n", 431, 0},
        {"X-Sum 19\r\n\r\n", 400, 0},
        {"X-Sum : 19\r\n\r\n", 400, 0},
        {"X-Sum: 19\r\n B: c\r\n\r\n", -1, 0},
        {"X-Sum: 19\n\r\n", -1, 0},
        {"X-Sum: \x01\r\n\r\n", -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[64];
        size_t n = (size_t)snprintf(text, sizeof text, "1\r\na\r\n0\r\n%s", rows[i].text);
        for (size_t step = 1; step <= n; step++) {
            char out[64];
            size_t len, used;
            struct mr_header table[2];
            struct mr_http1_head head;
            struct mr_buf trailers;
            mr_buf_init(&trailers, 0);
            int rc = -1;
            if (dechunk(text, n, step, &trailers, out, &len, &used)) {
                char *copy = exact_copy(trailers.ptr, trailers.len);
                rc = mr_http1_parse_trailers(copy, trailers.len, table, 2, &head);
                if (rc == 0 && rows[i].count > 0) {
                    assert_str(head.headers[0].name, "x-sum");
                    assert_str(head.headers[0].value, "19");
                }
                free(copy);
            }
            if (rc != rows[i].status || (rc == 0 && head.header_count != rows[i].count)) {
                fail_msg("row %zu, steps of %zu: %d", i, step, rc);
            }
            mr_buf_fini(&trailers);
        }
    }
}

static void test_incomplete_trailers(void **state)
{
    static const char *const rows[] = {"", "\r", "\n", "\n\n", "A: b\r\n", "A: b\n\r\n"};
    struct mr_header table[2];
    struct mr_http1_head head;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *copy = exact_copy(rows[i], strlen(rows[i]));
        assert_int_equal(mr_http1_parse_trailers(copy, strlen(rows[i]), table, 2, &head), 400);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_no_nul),
        cmocka_unit_test(test_scan_is_linear),
        cmocka_unit_test(test_plausible),
        cmocka_unit_test(test_each_byte_at_each_place),
        cmocka_unit_test(test_chunked),
        cmocka_unit_test(test_chunked_bounds),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_refused_responses),
        cmocka_unit_test(test_trailers),
        cmocka_unit_test(test_incomplete_trailers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
