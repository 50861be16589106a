/* HTTP/1 syntax.
 *
 * A head is read in two passes: mr_http1_scan finds its end line by line with memchr and remembers its position, so
 * that bytes that arrive one at a time cost no more than bytes that arrive at once; then mr_http1_parse_request or
 * mr_http1_parse_response parses the complete head. Framing fields that two readers could interpret differently (RFC
 * 9112 6.3, 11.2) are refused. Requests and responses differ in the first line, in Host and Expect, and in what a
 * missing length means.
 *
 * The chunk decoder is a state machine over the bytes of the framing; it returns data as slices.
 *
 * What it does not do: percent-decoding, field values as lists except where framing needs it. */
#include "http1_parse.h"

#ifdef __SSE2__
#    include <emmintrin.h>
#endif

/* Per byte: the lower-case form of a token character, 0 for any other. */
static const unsigned char token_lower[256] = {
    ['!'] = '!', ['#'] = '#', ['$'] = '$', ['%'] = '%', ['&'] = '&', ['\''] = '\'', ['*'] = '*',
    ['+'] = '+', ['-'] = '-', ['.'] = '.', ['^'] = '^', ['_'] = '_', ['`'] = '`',   ['|'] = '|',
    ['~'] = '~', ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4',   ['5'] = '5',
    ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9', ['a'] = 'a', ['b'] = 'b',   ['c'] = 'c',
    ['d'] = 'd', ['e'] = 'e', ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i',   ['j'] = 'j',
    ['k'] = 'k', ['l'] = 'l', ['m'] = 'm', ['n'] = 'n', ['o'] = 'o', ['p'] = 'p',   ['q'] = 'q',
    ['r'] = 'r', ['s'] = 's', ['t'] = 't', ['u'] = 'u', ['v'] = 'v', ['w'] = 'w',   ['x'] = 'x',
    ['y'] = 'y', ['z'] = 'z', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd',   ['E'] = 'e',
    ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k',   ['L'] = 'l',
    ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r',   ['S'] = 's',
    ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y',   ['Z'] = 'z',
};

#define METHOD_BYTES_MAX 32

/* First byte that is below `lowest`, DEL or `stop`. Every field value and target goes through this. */
static const char *visible_skip(const char *p, const char *end, unsigned char lowest, char stop)
{
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8((char)(lowest - 1));
    const __m128i del = _mm_set1_epi8(0x7f);
    const __m128i other = _mm_set1_epi8(stop);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(v, del), _mm_cmpeq_epi8(v, other));
        hit = _mm_or_si128(hit, _mm_cmpeq_epi8(_mm_min_epu8(v, low), v));
        unsigned at = (unsigned)_mm_movemask_epi8(hit);
        if (at) {
            return p + __builtin_ctz(at);
        }
        p += 16;
    }
#endif
    while (p < end && (unsigned char)*p >= lowest && *p != 0x7f && *p != stop) {
        p++;
    }
    return p;
}

/* The end of a field value: HTAB, visible characters, space and everything above ASCII. */
static const char *value_skip(const char *p, const char *end)
{
    while ((p = visible_skip(p, end, 0x20, 0x7f)) < end && *p == '\t') {
        p++;
    }
    return p;
}

/* In a request target: no space, no control character, no fragment. */
static bool is_target(mr_str s)
{
    return visible_skip(s.ptr, s.ptr + s.len, 0x21, '#') == s.ptr + s.len;
}

static bool is_value_char(unsigned char c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}

bool mr_http1_is_token(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!token_lower[(unsigned char)s.ptr[i]]) {
            return false;
        }
    }
    return s.len > 0;
}

bool mr_http1_is_value(mr_str s)
{
    return s.len == 0 || value_skip(s.ptr, s.ptr + s.len) == s.ptr + s.len;
}

bool mr_http1_is_plausible(const char *p, size_t n)
{
    for (size_t i = 0; i < n && i <= METHOD_BYTES_MAX; i++) {
        if (p[i] == ' ') {
            return i > 0;
        }
        if (!token_lower[(unsigned char)p[i]]) {
            return false;
        }
    }
    return n <= METHOD_BYTES_MAX;
}

enum mr_http1_found mr_http1_scan(struct mr_http1_scan *scan, const char *p, size_t n)
{
    while (scan->at < n) {
        const char *lf = memchr(p + scan->at, '\n', n - scan->at);
        if (!lf) {
            scan->at = n;
            return MR_HTTP1_MORE;
        }
        size_t end = (size_t)(lf - p);
        if (end == scan->line_start || p[end - 1] != '\r') {
            return MR_HTTP1_BAD;
        }
        scan->at = end + 1;
        if (end - 1 == scan->line_start) {
            return MR_HTTP1_FOUND;
        }
        scan->line_start = scan->at;
        scan->lines++;
    }
    return MR_HTTP1_MORE;
}

/* ---- request line --------------------------------------------------------------------------- */

static int refuse(struct mr_http1_head *out, int status, const char *text)
{
    out->error = text;
    return status;
}

/* "http://host[:port]rest": points *target at the rest. */
static bool skip_authority(mr_str *target, mr_str *out_authority)
{
    mr_str s = *target;
    size_t scheme = mr_str_ieq(mr_str_sub(s, 0, 7), MR_STR("http://"))    ? 7
                    : mr_str_ieq(mr_str_sub(s, 0, 8), MR_STR("https://")) ? 8
                                                                          : 0;
    if (scheme == 0) {
        return false;
    }
    size_t i = scheme;
    while (i < s.len && s.ptr[i] != '/' && s.ptr[i] != '?') {
        i++;
    }
    if (i == scheme) {
        return false;
    }
    *out_authority = mr_str_sub(s, scheme, i);
    *target = mr_str_sub(s, i, s.len);
    return true;
}

static int split_target(struct mr_http1_head *out)
{
    mr_str t = out->target;

    if (!is_target(t)) {
        return refuse(out, 400, "invalid character in the request target");
    }
    bool is_asterisk = mr_str_eq(t, MR_STR("*")) && mr_str_eq(out->method, MR_STR("OPTIONS"));
    bool is_connect = mr_str_eq(out->method, MR_STR("CONNECT"));
    if (t.len == 0 ||
        (t.ptr[0] != '/' && !is_asterisk && !is_connect && !skip_authority(&t, &out->authority))) {
        return refuse(out, 400, "invalid request target");
    }
    const char *mark = t.len ? memchr(t.ptr, '?', t.len) : NULL;
    size_t path_len = mark ? (size_t)(mark - t.ptr) : t.len;
    out->path = path_len ? mr_str_sub(t, 0, path_len) : MR_STR("/");
    out->query = mark ? mr_str_sub(t, path_len + 1, t.len) : MR_STR("");
    return 0;
}

static int parse_version(mr_str v, struct mr_http1_head *out)
{
    bool is_version = v.len == 8 && memcmp(v.ptr, "HTTP/", 5) == 0 && v.ptr[5] >= '0' &&
                      v.ptr[5] <= '9' && v.ptr[6] == '.' && v.ptr[7] >= '0' && v.ptr[7] <= '9';

    if (!is_version) {
        return refuse(out, 400, "invalid HTTP version");
    }
    if (v.ptr[5] != '1') {
        return refuse(out, 505, "HTTP version not supported");
    }
    out->minor = v.ptr[7] == '0' ? 0 : 1;
    return 0;
}

/* line: without its CR LF. */
static int parse_request_line(mr_str line, struct mr_http1_head *out)
{
    size_t i = 0;

    while (i < line.len && token_lower[(unsigned char)line.ptr[i]]) {
        i++;
    }
    if (i == 0 || i > METHOD_BYTES_MAX || i == line.len || line.ptr[i] != ' ') {
        return refuse(out, 400, "invalid request line");
    }
    out->method = mr_str_sub(line, 0, i);
    size_t from = i + 1;
    const char *space = from < line.len ? memchr(line.ptr + from, ' ', line.len - from) : NULL;
    if (!space) {
        return refuse(out, 400, "invalid request line");
    }
    size_t to = (size_t)(space - line.ptr);
    out->target = mr_str_sub(line, from, to);
    int rc = parse_version(mr_str_sub(line, to + 1, line.len), out);
    return rc ? rc : split_target(out);
}

/* "HTTP/1.1 200 OK", without its CR LF. The reason may be empty, its space may be missing. */
static int parse_status_line(mr_str line, struct mr_http1_head *out)
{
    uint64_t status;

    if (line.len < 12 || line.ptr[8] != ' ' || !mr_str_to_u64(mr_str_sub(line, 9, 12), &status) ||
        status < 100 || (line.len > 12 && line.ptr[12] != ' ') || !mr_http1_is_value(line)) {
        return refuse(out, 400, "invalid status line");
    }
    out->status = (int)status;
    return parse_version(mr_str_sub(line, 0, 8), out);
}

/* ---- fields that frame the message ---------------------------------------------------------- */

struct framing {
    bool is_request;
    bool has_length;
    bool has_coding;
    bool is_unknown_coding;
    bool wants_close;
    bool wants_keep_alive;
    int hosts;
};

static int take_length(mr_str v, struct framing *f, struct mr_http1_head *out)
{
    int64_t n = 0;

    if (v.len == 0) {
        return refuse(out, 400, "invalid Content-Length");
    }
    for (size_t i = 0; i < v.len; i++) {
        unsigned digit = (unsigned)(unsigned char)v.ptr[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(n, (int64_t)10, &n) ||
            __builtin_add_overflow(n, (int64_t)digit, &n)) {
            return refuse(out, 400, "invalid Content-Length");
        }
    }
    if (f->has_length && n != out->content_length) {
        return refuse(out, 400, "conflicting Content-Length");
    }
    f->has_length = true;
    out->content_length = n;
    return 0;
}

static int take_coding(mr_str v, struct framing *f, struct mr_http1_head *out)
{
    mr_str rest = v;
    mr_str item;

    f->has_coding = true;
    while (mr_str_split(&rest, ',', &item)) {
        item = mr_str_trim(item);
        /* A coding after "chunked" would make the end of the message ambiguous.
         */
        if (out->is_chunked || item.len == 0) {
            return refuse(out, 400, "invalid Transfer-Encoding");
        }
        if (mr_str_ieq(item, MR_STR("chunked"))) {
            out->is_chunked = true;
        } else {
            f->is_unknown_coding = true;
        }
    }
    return 0;
}

static void take_connection(mr_str v, struct framing *f)
{
    mr_str rest = v;
    mr_str item;

    while (mr_str_split(&rest, ',', &item)) {
        item = mr_str_trim(item);
        f->wants_close = f->wants_close || mr_str_ieq(item, MR_STR("close"));
        f->wants_keep_alive = f->wants_keep_alive || mr_str_ieq(item, MR_STR("keep-alive"));
    }
}

static bool is_host_char(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':') {
        return true;
    }
    return c > 0x20 && c < 0x7f && !strchr("\"#,/<>?@\\^`{|}", c);
}

static int take_host(mr_str v, struct framing *f, struct mr_http1_head *out)
{
    for (size_t i = 0; i < v.len; i++) {
        if (!is_host_char((unsigned char)v.ptr[i])) {
            return refuse(out, 400, "invalid Host");
        }
    }
    if (++f->hosts > 1) {
        return refuse(out, 400, "more than one Host");
    }
    return 0;
}

static int take_field(const struct mr_header *h, struct framing *f, struct mr_http1_head *out)
{
#define IS(lit) (memcmp(h->name.ptr, lit, sizeof(lit) - 1) == 0)
    switch (h->name.len) {
    case 4: return IS("host") && f->is_request ? take_host(h->value, f, out) : 0;
    case 6:
        if (IS("expect") && f->is_request) {
            if (!mr_str_ieq(h->value, MR_STR("100-continue"))) {
                return refuse(out, 417, "unknown expectation");
            }
            out->expects_continue = true;
        }
        return 0;
    case 10:
        if (IS("connection")) {
            take_connection(h->value, f);
        }
        return 0;
    case 14: return IS("content-length") ? take_length(h->value, f, out) : 0;
    case 17: return IS("transfer-encoding") ? take_coding(h->value, f, out) : 0;
    default: return 0;
    }
#undef IS
}

/* "... MUST ignore the received Host header field (if any) and instead use the host information of the
 * request-target" (RFC 9112 3.2.2). */
static int use_authority(struct mr_http1_head *out)
{
    for (size_t i = 0; i < out->authority.len; i++) {
        if (!is_host_char((unsigned char)out->authority.ptr[i])) {
            return refuse(out, 400, "invalid request target");
        }
    }
    for (size_t i = 0; i < out->header_count; i++) {
        if (mr_str_eq(out->headers[i].name, MR_STR("host"))) {
            out->headers[i].value = out->authority;
        }
    }
    return 0;
}

static int check_framing(const struct framing *f, struct mr_http1_head *out)
{
    if (f->has_coding && f->has_length) {
        return refuse(out, 400, "both Content-Length and Transfer-Encoding");
    }
    if (f->has_coding && out->minor == 0) {
        return refuse(out, 400, "Transfer-Encoding in HTTP/1.0");
    }
    if (f->is_unknown_coding) {
        return refuse(out, 501, "unknown Transfer-Encoding");
    }
    if (f->has_coding && !out->is_chunked) {
        return refuse(out, 400, "invalid Transfer-Encoding");
    }
    out->keep_alive = out->minor >= 1 ? !f->wants_close : f->wants_keep_alive && !f->wants_close;
    out->has_body = out->is_chunked || out->content_length > 0;
    return 0;
}

static int finish_request(const struct framing *f, struct mr_http1_head *out)
{
    int rc = check_framing(f, out);

    if (rc == 0 && f->hosts == 0 && out->minor >= 1) {
        return refuse(out, 400, "missing Host");
    }
    out->expects_continue = out->expects_continue && out->minor >= 1 && out->has_body;
    return rc == 0 && out->authority.len > 0 ? use_authority(out) : rc;
}

static int finish_response(const struct framing *f, bool is_head, struct mr_http1_head *out)
{
    int rc = check_framing(f, out);

    if (is_head || out->status < 200 || out->status == 204 || out->status == 304) {
        out->has_body = false;
    } else if (!f->has_coding && !f->has_length) {
        out->has_body = out->is_to_end = true;
        out->keep_alive = false;
    }
    return rc;
}

/* ---- header lines --------------------------------------------------------------------------- */

/* One line that begins at p[at]; *io_at moves past its CR LF. The head is complete, so the empty line stops every
 * loop here before the end of p. */
static int parse_field(char *p, size_t n, size_t *io_at, struct mr_header *h,
                       struct mr_http1_head *out)
{
    size_t at = *io_at;
    size_t name = at;
    unsigned char lower;

    while ((lower = token_lower[(unsigned char)p[at]]) != 0) {
        p[at++] = (char)lower;
    }
    if (p[at] != ':' || at == name) {
        return refuse(out, 400, "invalid header line");
    }
    h->name = (mr_str){p + name, at - name};
    at++;
    while (p[at] == ' ' || p[at] == '\t') {
        at++;
    }
    size_t from = at;
    at = (size_t)(value_skip(p + from, p + n) - p);
    if (p[at] != '\r' || p[at + 1] != '\n') {
        return refuse(out, 400, "invalid character in a header");
    }
    size_t to = at;
    while (to > from && (p[to - 1] == ' ' || p[to - 1] == '\t')) {
        to--;
    }
    h->value = (mr_str){p + from, to - from};
    *io_at = at + 2;
    return 0;
}

/* The header lines from p[at] to the empty line that ends p[0..n). */
static int parse_fields(char *p, size_t n, size_t at, size_t table_size, struct framing *f,
                        struct mr_http1_head *out)
{
    int rc = 0;

    while (rc == 0 && p[at] != '\r') {
        if (out->header_count == table_size) {
            return refuse(out, 431, "too many headers (--max-headers)");
        }
        struct mr_header *h = &out->headers[out->header_count++];
        rc = parse_field(p, n, &at, h, out);
        if (rc == 0) {
            rc = take_field(h, f, out);
        }
    }
    if (rc == 0 && at + 2 != n) {
        /* A CR without LF. */
        return refuse(out, 400, "invalid header line");
    }
    return rc;
}

/* The length of the first line with its CR LF; 0 if p[0..n) does not end in an empty line. The caller found one;
 * without it the loops over the header lines would have no guard. */
static size_t first_line(const char *p, size_t n, struct mr_header *table,
                         struct mr_http1_head *out)
{
    *out = (struct mr_http1_head){.headers = table, .content_length = -1};
    const char *lf = memchr(p, '\n', n);
    if (!lf || n < 4 || memcmp(p + n - 4, "\r\n\r\n", 4) != 0 || lf[-1] != '\r') {
        out->error = "incomplete head";
        return 0;
    }
    return (size_t)(lf - p) + 1;
}

int mr_http1_parse_request(char *p, size_t n, struct mr_header *table, size_t table_size,
                           struct mr_http1_head *out)
{
    struct framing f = {.is_request = true};
    size_t at = first_line(p, n, table, out);
    int rc = at ? parse_request_line(mr_str_n(p, at - 2), out) : 400;

    if (rc == 0) {
        rc = parse_fields(p, n, at, table_size, &f, out);
    }
    return rc ? rc : finish_request(&f, out);
}

int mr_http1_parse_response(char *p, size_t n, bool is_head, struct mr_header *table,
                            size_t table_size, struct mr_http1_head *out)
{
    struct framing f = {0};
    size_t at = first_line(p, n, table, out);
    int rc = at ? parse_status_line(mr_str_n(p, at - 2), out) : 400;

    if (rc == 0) {
        rc = parse_fields(p, n, at, table_size, &f, out);
    }
    return rc ? rc : finish_response(&f, is_head, out);
}

int mr_http1_parse_trailers(char *p, size_t n, struct mr_header *table, size_t table_size,
                            struct mr_http1_head *out)
{
    struct framing f = {0}; /* what a trailer says about framing comes too late */

    *out = (struct mr_http1_head){.headers = table, .content_length = -1};
    if (n == 2 ? memcmp(p, "\r\n", 2) != 0 : n < 4 || memcmp(p + n - 4, "\r\n\r\n", 4) != 0) {
        return refuse(out, 400, "incomplete trailers");
    }
    return parse_fields(p, n, 0, table_size, &f, out);
}

/* ---- chunked coding ------------------------------------------------------------------------- */

enum {
    CHUNK_SIZE,
    CHUNK_EXT,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF,
    CHUNK_DONE,
    CHUNK_BROKEN,
};

static int size_byte(struct mr_http1_chunked *c, unsigned char b)
{
    int digit = mr_hex_digit((char)b);

    if (digit >= 0) {
        /* 15 digits cannot overflow and exceed any real chunk. */
        if (++c->digits > 15) {
            return CHUNK_BROKEN;
        }
        c->left = c->left * 16 + (unsigned)digit;
        return CHUNK_SIZE;
    }
    if (c->digits == 0) {
        return CHUNK_BROKEN;
    }
    return b == ';' ? CHUNK_EXT : b == '\r' ? CHUNK_SIZE_LF : CHUNK_BROKEN;
}

static int size_end(struct mr_http1_chunked *c, unsigned char b)
{
    if (b != '\n') {
        return CHUNK_BROKEN;
    }
    c->digits = 0;
    c->line = 0;
    if (c->left == 0) {
        return CHUNK_TRAILER;
    }
    return ++c->chunks > c->max_chunks ? CHUNK_BROKEN : CHUNK_DATA;
}

static int trailer_byte(struct mr_http1_chunked *c, unsigned char b)
{
    if (c->trailers) {
        mr_buf_char(c->trailers, (char)b);
    }
    if (c->state == CHUNK_TRAILER_LF) {
        bool is_last = c->line == 0;
        c->line = 0;
        return b != '\n' ? CHUNK_BROKEN : is_last ? CHUNK_DONE : CHUNK_TRAILER;
    }
    if (b == '\r') {
        return CHUNK_TRAILER_LF;
    }
    /* A line must begin with a name; who skips the trailers cares for the characters of the rest alone. */
    if (++c->overhead > c->max_overhead || !is_value_char(b) || (c->line == 0 && !token_lower[b])) {
        return CHUNK_BROKEN;
    }
    c->line++;
    return CHUNK_TRAILER;
}

static int frame_byte(struct mr_http1_chunked *c, unsigned char b)
{
    switch (c->state) {
    case CHUNK_SIZE: return size_byte(c, b);
    case CHUNK_EXT:
        if (b == '\r') {
            return CHUNK_SIZE_LF;
        }
        return ++c->overhead > c->max_overhead || !is_value_char(b) ? CHUNK_BROKEN : CHUNK_EXT;
    case CHUNK_SIZE_LF: return size_end(c, b);
    case CHUNK_DATA_CR: return b == '\r' ? CHUNK_DATA_LF : CHUNK_BROKEN;
    case CHUNK_DATA_LF: return b == '\n' ? CHUNK_SIZE : CHUNK_BROKEN;
    case CHUNK_TRAILER:
    case CHUNK_TRAILER_LF: return trailer_byte(c, b);
    default: return CHUNK_BROKEN;
    }
}

uint64_t mr_http1_chunk_left(const struct mr_http1_chunked *c)
{
    return c->state == CHUNK_DATA ? c->left : 0;
}

void mr_http1_chunk_skip(struct mr_http1_chunked *c, size_t n)
{
    c->left -= n;
    c->state = c->left ? CHUNK_DATA : CHUNK_DATA_CR;
}

enum mr_http1_chunk mr_http1_chunk_next(struct mr_http1_chunked *c, const char *p, size_t n,
                                        size_t *out_used, mr_bytes *out_data)
{
    size_t at = 0;

    while (at < n && c->state != CHUNK_DONE) {
        if (c->state == CHUNK_DATA) {
            size_t part = n - at < c->left ? n - at : (size_t)c->left;
            *out_data = (mr_bytes){(const uint8_t *)p + at, part};
            *out_used = at + part;
            c->left -= part;
            c->state = c->left ? CHUNK_DATA : CHUNK_DATA_CR;
            return MR_CHUNK_DATA;
        }
        c->state = frame_byte(c, (unsigned char)p[at++]);
        if (c->state == CHUNK_BROKEN) {
            return MR_CHUNK_BAD;
        }
    }
    *out_used = at;
    return c->state == CHUNK_DONE ? MR_CHUNK_END : MR_CHUNK_MORE;
}
