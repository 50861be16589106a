/* Answers: tags and entities, listings, errors; and what is none of that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "s3_priv.h"

static mr_bytes bytes(const char *text)
{
    return (mr_bytes){(const uint8_t *)text, strlen(text)};
}

static void tags(void **state)
{
    static const char document[] =
        "<?xml version=\"1.0\"?>\n<A x='>'><!-- <no> --><B>1 &lt; 2</B><C/><D a=\"/\">t</D></A> ";
    static const char *const events[] = {"+A",  "+B", "-B=1 &lt; 2", "+C",
                                         "-C=", "+D", "-D=t",        "-A="};
    struct s3_xml x;
    size_t n = 0;

    (void)state;
    s3_xml_init(&x, bytes(document));
    for (; s3_xml_next(&x); n++) {
        char got[64];
        assert_true(n < sizeof events / sizeof *events);
        snprintf(got, sizeof got, "%c%.*s%s%.*s", x.is_close ? '-' : '+', MR_STR_ARG(x.name),
                 x.is_close ? "=" : "", MR_STR_ARG(x.text));
        assert_string_equal(got, events[n]);
    }
    assert_int_equal(n, sizeof events / sizeof *events);
    assert_true(s3_xml_is_whole(&x));
}

static void no_xml(void **state)
{
    static const char *const wrong[] = {
        "<a>",          "<a></b>",  "</a>",    "<a",
        "<a><",         "<>",       "<a b='>", "<!DOCTYPE a><a></a>",
        "<!-- <a></a>", "<?x <a/>", "<a></a",  "<a <b/></a>"};
    struct mr_buf deep;
    struct s3_xml x;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        s3_xml_init(&x, bytes(wrong[i]));
        while (s3_xml_next(&x)) {
        }
        if (s3_xml_is_whole(&x)) {
            fail_msg("'%s' was taken for a document", wrong[i]);
        }
    }
    mr_buf_init(&deep, 0);
    for (unsigned i = 0; i < S3_XML_DEPTH + 1; i++) {
        mr_buf_c(&deep, "<a>");
    }
    s3_xml_init(&x, bytes(mr_buf_cstr(&deep)));
    while (s3_xml_next(&x)) {
    }
    assert_false(s3_xml_is_whole(&x));
    mr_buf_fini(&deep);
}

static void entities(void **state)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: wrong */
    } rows[] = {{"a&amp;b&lt;&gt;&quot;&apos;", "a&b<>\"'"},
                {"&#65;&#x42;&#xe9;&#x20ac;&#x1F600;", "AB\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
                {"&nbsp;", NULL},
                {"&#0;", NULL},
                {"&#xd800;", NULL},
                {"&#x110000;", NULL},
                {"&#99999999999999999999;", NULL},
                {"&amp", NULL},
                {"&#;", NULL},
                {"&#x;", NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        assert_int_equal(s3_xml_text(mr_str_c(rows[i].text), &b), rows[i].want != NULL);
        if (rows[i].want) {
            assert_string_equal(mr_buf_cstr(&b), rows[i].want);
        }
        mr_buf_fini(&b);
    }
}

/* ---- listings ---- */

static int object_note(void *ctx, const struct mr_s3_object *o, struct mr_err *err)
{
    struct mr_buf *b = ctx;

    (void)err;
    mr_buf_str(b, o->key);
    mr_buf_printf(b, " %llu %s;", (unsigned long long)o->bytes, o->etag);
    return MR_OK;
}

static int objects(const char *document, struct mr_buf *got, struct mr_buf *next)
{
    struct mr_err err;

    mr_buf_reset(got);
    return s3_objects_read(bytes(document), MR_STR("bucket"), next, object_note, got, &err);
}

static void listings(void **state)
{
    struct mr_buf got;
    struct mr_buf next;

    (void)state;
    mr_buf_init(&got, 0);
    mr_buf_init(&next, 0);
    assert_int_equal(
        objects("<ListBucketResult xmlns='x'><Name>bucket</Name><NextContinuationToken>a&amp;b"
                "</NextContinuationToken><Contents><Key>k&amp;%41</Key><Size>7</Size><ETag>"
                "&quot;e&quot;</ETag><Owner><ID>Key</ID></Owner></Contents></ListBucketResult>",
                &got, &next),
        MR_OK);
    assert_string_equal(mr_buf_cstr(&got), "k&%41 7 \"e\";");
    assert_string_equal(mr_buf_cstr(&next), "a&b");
    assert_int_equal(
        objects("<L><Contents><Key>a%2Fb+c</Key><Size>0</Size><ETag>e</ETag></Contents>"
                "<EncodingType>url</EncodingType></L>",
                &got, &next),
        MR_OK);
    assert_string_equal(mr_buf_cstr(&got), "a/b c 0 e;");
    assert_int_equal(next.len, 0);
    static const char *const wrong[] = {
        "",
        "no xml",
        "<L><Contents><Key>a</Key><Size>0</Size><ETag>e</ETag></Contents>",
        "<L><Contents><Size>0</Size><ETag>e</ETag></Contents></L>",
        "<L><Contents><Key>a</Key><Size>0</Size></Contents></L>",
        "<L><Contents><Key></Key><Size>0</Size><ETag>e</ETag></Contents></L>",
        "<L><Contents><Key>a</Key><Size>-1</Size><ETag>e</ETag></Contents></L>",
        "<L><Contents><Key>a</Key><Size>99999999999999999999</Size><ETag>e</ETag></Contents></L>",
        "<L><EncodingType>url</EncodingType><Contents><Key>%00</Key><ETag>e</ETag></Contents></L>",
        "<L><Contents><Key>&none;</Key><Size>0</Size><ETag>e</ETag></Contents></L>"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(objects(wrong[i], &got, &next), MR_E_INVALID);
    }
    mr_buf_fini(&got);
    mr_buf_fini(&next);
}

/* ---- errors ---- */

static void refusals(void **state)
{
    static char host[] = "s3.example";
    static char region[] = "us-east-1";
    static char id[] = "AKIASECRETSECRET";
    static char secret[] = "wholly secret";
    const struct s3_config c = {
        .host = host, .region = region, .credentials = {.id = id, .secret = secret}};
    static const struct {
        const char *body;
        int http;
        int status;
        bool passes;
        const char *part; /* of the text */
    } rows[] = {
        {"<Error><Code>NoSuchBucket</Code><Message>not &amp; there</Message></Error>", 404,
         MR_E_NOT_FOUND, false, "s3://b/k: NoSuchBucket, HTTP status 404: not & there"},
        {"<Error><Code>AccessDenied</Code></Error>", 403, MR_E_FORBIDDEN, false, "AccessDenied"},
        {"<Error><Code>SlowDown</Code></Error>", 503, MR_E_UNAVAILABLE, true, "SlowDown"},
        {"<Error><Code>RequestTimeout</Code></Error>", 400, MR_E_UNAVAILABLE, true, "RequestTim"},
        {"", 502, MR_E_UNAVAILABLE, true, "HTTP status 502"},
        {"<html>busy", 429, MR_E_UNAVAILABLE, true, "HTTP status 429"},
        {"", 501, MR_E_INVALID, false, "HTTP status 501"},
        {"<Error><Code>PermanentRedirect</Code></Error>", 301, MR_E_INVALID, false, "us-east-1"},
        {"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>", 400,
         MR_E_INVALID, false, "in the region eu-west-1"},
        {"<Error><Code>ExpiredToken</Code></Error>", 400, MR_E_FORBIDDEN, false, "ExpiredToken"},
        {"<Error><Code>RequestTimeTooSkewed</Code></Error>", 403, MR_E_FORBIDDEN, false,
         "s ahead of that of the storage"},
        {"<Error><Code>InvalidAccessKeyId</Code></Error>", 403, MR_E_FORBIDDEN, false,
         "begins with AKIA"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct s3_refusal r;
        struct mr_err err;
        s3_refusal_read(&r, bytes(rows[i].body));
        assert_int_equal(s3_refusal_passes(&r, rows[i].http), rows[i].passes);
        assert_int_equal(s3_refusal_tell(&r, rows[i].http,
                                         (struct mr_s3_place){MR_STR("b"), MR_STR("k")}, &c,
                                         1000000000, &err),
                         rows[i].status);
        if (!strstr(err.msg, rows[i].part) || strstr(err.msg, secret) || strstr(err.msg, id)) {
            fail_msg("%s", err.msg);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags),     cmocka_unit_test(no_xml),   cmocka_unit_test(entities),
        cmocka_unit_test(listings), cmocka_unit_test(refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
