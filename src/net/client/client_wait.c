/* How long a server wants to be left alone, by its answer. Pure. Source: RFC 9110 sections 5.6.7 and 10.2.3; gRPC's A6 for
 * the pushback. */
#include "base/clock.h"
#include "net/client.h"

#define WAIT_MAX_NS (86400 * MR_NS_PER_S)

/* A header's number of units, in ns; 0: it is not there, or no number above 0. */
static int64_t wait_of(const struct mr_header *list, size_t count, const char *name,
                       int64_t unit_ns)
{
    int64_t n;

    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq_c(list[i].name, name) && mr_str_to_i64(list[i].value, &n) && n > 0) {
            return MR_MIN(n, WAIT_MAX_NS / unit_ns) * unit_ns;
        }
    }
    return 0;
}

/* Two digits, or -1. */
static int two_digits(mr_str text, size_t at)
{
    const char a = text.ptr[at], b = text.ptr[at + 1];

    return a >= '0' && a <= '9' && b >= '0' && b <= '9' ? (a - '0') * 10 + (b - '0') : -1;
}

/* 0 to 11, or -1. */
static int month_of(mr_str name)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (int i = 0; i < 12; i++) {
        if (memcmp(names + 3 * i, name.ptr, 3) == 0) {
            return i;
        }
    }
    return -1;
}

/* strptime would read the names of days and months in the language of the process. */
int64_t mr_http_date_ns(mr_str text)
{
    static const char form[] = "___, __ ___ ____ __:__:__ GMT";

    if (text.len != sizeof form - 1) {
        return -1;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (form[i] != '_' && form[i] != text.ptr[i]) {
            return -1;
        }
    }
    const int century = two_digits(text, 12), year = two_digits(text, 14);
    struct tm t = {.tm_mday = two_digits(text, 5),
                   .tm_mon = month_of(mr_str_sub(text, 8, 11)),
                   .tm_year = century * 100 + year - 1900,
                   .tm_hour = two_digits(text, 17),
                   .tm_min = two_digits(text, 20),
                   .tm_sec = two_digits(text, 23)};
    if (t.tm_mday < 0 || t.tm_mon < 0 || century < 0 || year < 0 || t.tm_year < 70 ||
        t.tm_year > 300 || t.tm_hour < 0 || t.tm_min < 0 || t.tm_sec < 0) {
        return -1;
    }
    return (int64_t)timegm(&t) * MR_NS_PER_S;
}

/* Of a header that has no number. */
static int64_t wait_until(const struct mr_header *list, size_t count, const char *name)
{
    const int64_t at_ns = mr_http_date_ns(mr_header_find(list, count, mr_str_c(name)));

    return at_ns < 0 ? 0 : MR_MAX(at_ns - mr_wall_ns(), INT64_C(0));
}

int64_t mr_client_retry_after_ns(const struct mr_client_response *r)
{
    static const char pushback[] = "grpc-retry-pushback-ms", after[] = "retry-after";
    int64_t ns = wait_of(r->headers, r->header_count, after, MR_NS_PER_S);

    ns = ns > 0 ? ns : wait_until(r->headers, r->header_count, after);
    ns = ns > 0 ? ns : wait_of(r->trailers, r->trailer_count, pushback, MR_NS_PER_MS);
    ns = ns > 0 ? ns : wait_of(r->headers, r->header_count, pushback, MR_NS_PER_MS);
    return MR_MIN(ns, WAIT_MAX_NS);
}
