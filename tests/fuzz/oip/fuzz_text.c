/* Small texts that come with a request: paths, header values of gRPC and compression, base64, UTF-8. The
 * first byte of the input chooses. */
#include "fuzz.h"

#include <ctype.h>

#include "base/buf.h"
#include "codec/json.h"
#include "net/compress.h"
#include "net/frame/grpc_frame.h"
#include "oip/oip.h"

static void within(mr_str part, mr_str whole)
{
    REQUIRE(part.len == 0 ||
            (part.ptr >= whole.ptr && part.ptr + part.len <= whole.ptr + whole.len));
}

static bool matches(mr_str s, struct mr_oip_path *p)
{
    static const char *const patterns[] = {
        "/v2/models/{model}[/versions/{version}]/infer",
        "/v2/models/{model}[/versions/{version}]",
        "/v2/repository[/{repository}]/models/{model}/load",
        "/v2/systemsharedmemory[/region/{region}]/status",
    };

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (mr_oip_path_match(patterns[i], s, p)) {
            return true;
        }
    }
    return false;
}

static void path(mr_str s)
{
    struct mr_oip_path p;
    bool is_one = matches(s, &p);

    within(p.model, s);
    within(p.version, s);
    within(p.region, s);
    within(p.repository, s);
    REQUIRE(mr_str_find(p.model, '/') < 0 && mr_str_find(p.version, '/') < 0);
    REQUIRE(!is_one || mr_str_starts(s, MR_STR("/v2")));
    bool is_number = p.version.len > 0 && p.version.ptr[0] >= '0' && p.version.ptr[0] <= '9';
    for (size_t i = 0; i < p.version.len; i++) {
        unsigned char c = (unsigned char)p.version.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        /* Else it is a label, which goes into answers and file names as it is. */
        REQUIRE(is_digit ||
                (!is_number && (isalpha(c) || c == '_' || (i > 0 && (c == '-' || c == '.')))));
    }
    if (is_one) {
        /* A trailing slash matches nothing. */
        char *longer = malloc(s.len + 1);
        memcpy(longer, s.ptr, s.len);
        longer[s.len] = '/';
        REQUIRE(!matches(mr_str_n(longer, s.len + 1), &p));
        free(longer);
    }
}

static void base64(mr_str s)
{
    uint8_t *out = malloc(s.len + 4);
    struct mr_buf again;
    size_t len = 0;

    mr_buf_init(&again, 0);
    if (mr_base64_decode(s, out, &len)) {
        REQUIRE(len <= s.len / 4 * 3);
        mr_base64_encode((mr_bytes){out, len}, &again);
        REQUIRE(mr_str_eq(mr_buf_view(&again), s)); /* one text per value */
    }
    mr_buf_reset(&again);
    mr_base64_encode((mr_bytes){(const uint8_t *)s.ptr, s.len}, &again);
    char *more = realloc(out, again.len + 4);
    REQUIRE(more && mr_base64_decode(mr_buf_view(&again), (uint8_t *)more, &len));
    REQUIRE(len == s.len && (len == 0 || memcmp(more, s.ptr, len) == 0));
    free(more);
    mr_buf_fini(&again);
}

static void grpc_values(mr_str s)
{
    char *encoded = malloc(MR_GRPC_ENCODED_MAX(s.len) + 1);
    enum mr_grpc_compression c;
    int64_t ns = -1;
    size_t n = mr_grpc_percent_encode(s, encoded);

    REQUIRE(n <= MR_GRPC_ENCODED_MAX(s.len) && n >= s.len);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(encoded[i] >= 0x20 && encoded[i] <= 0x7e);
    }
    free(encoded);
    if (mr_grpc_timeout_parse(s, &ns)) {
        REQUIRE(ns >= 0 && s.len <= 9);
    }
    if (mr_grpc_encoding_parse(s, &c)) {
        REQUIRE(s.len == 0 || mr_str_eq(mr_grpc_encoding_name(c), s));
        REQUIRE(mr_grpc_accept_parse(s) & (1u << c));
    }
    REQUIRE(mr_grpc_accept_parse(s) & 1u);
    REQUIRE(mr_coding_accept(s) != MR_CODING_UNKNOWN);
    (void)mr_coding_from_name(s);
}

/* Of the definition in RFC 3629, beside the one that skips ahead in words. */
static bool utf8_by_the_book(mr_str s)
{
    for (size_t i = 0; i < s.len;) {
        unsigned char c = (unsigned char)s.ptr[i++];
        int more = c < 0x80 ? 0 : c >> 5 == 6 ? 1 : c >> 4 == 14 ? 2 : c >> 3 == 30 ? 3 : -1;
        uint32_t value = more <= 0 ? c : c & (0x3fu >> more);
        static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (more < 0 || (size_t)more > s.len - i) {
            return false;
        }
        for (int k = 0; k < more; k++, i++) {
            if ((s.ptr[i] & 0xc0) != 0x80) {
                return false;
            }
            value = value << 6 | ((unsigned char)s.ptr[i] & 0x3f);
        }
        if (value < least[more] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) {
            return false;
        }
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    mr_str s = mr_str_n((const char *)data + 1, size - 1);
    switch (data[0] % 4) {
    case 0: path(s); break;
    case 1: base64(s); break;
    case 2: grpc_values(s); break;
    default: REQUIRE(mr_utf8_valid(s) == utf8_by_the_book(s));
    }
    return 0;
}
