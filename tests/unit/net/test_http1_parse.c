/* The HTTP/1 parser by tables: what is accepted, each refusal with its status, and every head again
 * with its bytes arriving one at a time. */
#include "net/frame/http1_parse.h"

#include "net_test.h"

#define TABLE 16

/* As a connection would: look for the end while bytes come in `step` at a time, then parse. Returns
 * the status, -1 when the scan refused, -2 when the head is incomplete. */
static int parse(const char *text, size_t n, size_t step, char **out_copy, struct mr_header *table,
                 struct mr_http1_head *head)
{
    struct mr_http1_scan scan = {0};
    enum mr_http1_found found = MR_HTTP1_MORE;

    for (size_t have = 0; found == MR_HTTP1_MORE && have < n;) {
        have = have + step < n ? have + step : n;
        char *part = exact_copy(text, have);
        found = mr_http1_scan(&scan, part, have);
        free(part);
    }
    *out_copy = NULL;
    if (found != MR_HTTP1_FOUND) {
        return found == MR_HTTP1_BAD ? -1 : -2;
    }
    *out_copy = exact_copy(text, scan.at);
    return mr_http1_parse_request(*out_copy, scan.at, table, TABLE, head);
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
        for (size_t step = 1; step <= n; step = step < 4 ? step + 1 : n + (step == n)) {
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
    int status; /* -1: already the search for the end says no */
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
        for (size_t step = 1; step <= n; step += n - 1) {
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
    /* Nobody waits for leave to send nothing, and HTTP/1.0 knows no 100. */
    static const char bodyless[] = "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    assert_int_equal(parse(bodyless, sizeof bodyless - 1, 99, &copy, table, &head), 0);
    assert_false(head.expects_continue);
    free(copy);
}

/* Each byte at each place of a target and of a value, whatever number of them is looked at in one go. */
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
    const char *rest; /* what is left behind the body */
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

/* Decode with the input cut into pieces of `step`; the result in out, or NULL. */
static bool dechunk(const char *text, size_t n, size_t step, char *out, size_t *out_len,
                    size_t *out_used)
{
    struct mr_http1_chunked c = {.max_overhead = 64, .max_chunks = 8};
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
            bool ok = dechunk(c->text, n, step, out, &len, &used);
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
    assert_true(dechunk(text, strlen(text), 7, out, &len, &used));
    snprintf(text, sizeof text, "%s1\r\na\r\n0\r\n\r\n", eight);
    assert_false(dechunk(text, strlen(text), 7, out, &len, &used));
    /* Extensions and trailers together have a limit too. */
    memset(text, 0, sizeof text);
    memcpy(text, "1;", 2);
    memset(text + 2, 'x', 64);
    memcpy(text + 66, "\r\na\r\n0\r\n\r\n", 10);
    assert_true(dechunk(text, 76, 76, out, &len, &used));
    memcpy(text + 66, "x\r\na\r\n0\r\n\r\n", 11);
    assert_false(dechunk(text, 77, 77, out, &len, &used));
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
