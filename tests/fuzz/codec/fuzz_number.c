/* Numbers beside the C library: what we read as a number is one to strtod, strtof, strtoll and strtoull,
 * with the same bits, and what we print for a float reads back to it. Input: a text, and the bits of a
 * double and a float in front of it. */
#include "fuzz.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "codec/json.h"

#define TEXT_MAX 400

static bool same_double(double a, double b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static bool same_float(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* The C library reads more than a number by our grammar: blanks in front, "+", hexadecimal, "nan(…)". */
static bool is_plain(const char *text)
{
    return text[0] && !isspace((unsigned char)text[0]) && text[0] != '+' &&
           !strpbrk(text, "xXpP()");
}

static void floats(const char *text)
{
    char *end;
    double d = 0;
    float f = 0;
    double want = strtod(text, &end);
    bool is_number = is_plain(text) && *end == '\0';
    bool got = mr_text_double(mr_str_c(text), &d);

    REQUIRE(got == mr_text_float(mr_str_c(text), &f));
    REQUIRE(!got || is_number);
    REQUIRE(got == is_number);
    if (got) {
        REQUIRE(same_double(d, want));
        REQUIRE(same_float(f, strtof(text, NULL)));
    }
}

/* JSON's grammar is narrower; what it accepts has the same value. */
static void json(const char *text)
{
    struct mr_json j;
    double d = 0;
    float f = 0;
    int64_t i = 0;
    uint64_t u = 0;

    mr_json_init(&j, mr_str_c(text), NULL, 0, NULL);
    if (mr_json_double(&j, &d) == MR_OK) {
        char *end;
        double want = strtod(text, &end);
        REQUIRE(end - text >= j.pos - j.begin);
        REQUIRE(end - text > j.pos - j.begin || same_double(d, want));
    }
    mr_json_init(&j, mr_str_c(text), NULL, 0, NULL);
    if (mr_json_float(&j, &f) == MR_OK && mr_json_finish(&j) == MR_OK) {
        REQUIRE(same_float(f, strtof(text, NULL)));
    }
    mr_json_init(&j, mr_str_c(text), NULL, 0, NULL);
    if (mr_json_i64(&j, &i) == MR_OK) {
        errno = 0;
        REQUIRE(i == strtoll(text, NULL, 10) && errno == 0);
    }
    mr_json_init(&j, mr_str_c(text), NULL, 0, NULL);
    if (mr_json_u64(&j, &u) == MR_OK) {
        errno = 0;
        REQUIRE(u == strtoull(text, NULL, 10) && errno == 0);
    }
}

static void integers(const char *text)
{
    int64_t i = 0;
    uint64_t u = 0;
    char *end;

    errno = 0;
    long long want_i = strtoll(text, &end, 10);
    bool is_i = is_plain(text) && *end == '\0' && errno == 0;
    REQUIRE(mr_str_to_i64(mr_str_c(text), &i) == is_i);
    REQUIRE(!is_i || i == want_i);
    errno = 0;
    unsigned long long want_u = strtoull(text, &end, 10);
    bool is_u = is_plain(text) && *end == '\0' && errno == 0 && text[0] != '-';
    REQUIRE(mr_str_to_u64(mr_str_c(text), &u) == is_u);
    REQUIRE(!is_u || u == want_u);
}

/* The text was one number, twice, and not "1,2],". */
static bool is_whole(struct mr_json *j, uint64_t count)
{
    return count == 2 && mr_json_finish(j) == MR_OK;
}

/* Arrays take a way of their own through the reader. */
static void arrays(const char *text)
{
    char list[2 * TEXT_MAX + 8];
    double d[2] = {0, 0};
    float f[2] = {0, 0};
    uint64_t count = 0;
    struct mr_json j;
    int len = snprintf(list, sizeof list, "[%s,%s]", text, text);

    if (strchr(text, '[')) {
        return;
    }
    mr_json_init(&j, mr_str_n(list, (size_t)len), NULL, 0, NULL);
    if (mr_json_fill(&j, MR_JSON_FILL_F64, d, 2, &count) == MR_OK && is_whole(&j, count)) {
        REQUIRE(same_double(d[0], strtod(text, NULL)) && same_double(d[1], d[0]));
    }
    mr_json_init(&j, mr_str_n(list, (size_t)len), NULL, 0, NULL);
    if (mr_json_fill(&j, MR_JSON_FILL_F32, f, 2, &count) == MR_OK && is_whole(&j, count)) {
        REQUIRE(same_float(f[0], strtof(text, NULL)) && same_float(f[1], f[0]));
    }
}

static void printed(double d, float f)
{
    char text[40];

    text[mr_double_text(d, text)] = '\0';
    REQUIRE(same_double(strtod(text, NULL), d));
    REQUIRE(strlen(text) <= 26);
    text[mr_float_text(f, text)] = '\0';
    REQUIRE(same_float(strtof(text, NULL), f));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_MAX + 1];
    double d;
    float f;

    if (size < 12) {
        return 0;
    }
    memcpy(&d, data, 8);
    memcpy(&f, data + 8, 4);
    printed(d, f);
    size_t len = size - 12 < TEXT_MAX ? size - 12 : TEXT_MAX;
    memcpy(text, data + 12, len);
    text[len] = '\0';
    floats(text);
    json(text);
    integers(text);
    arrays(text);
    return 0;
}
