/* Signatures of requests, against the examples that the S3 documentation publishes with their results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "s3_priv.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HOST                                                                                       \
    {                                                                                              \
        MR_STR_INIT("host"), MR_STR_INIT("examplebucket.s3.amazonaws.com")                         \
    }
#define DATE                                                                                       \
    {                                                                                              \
        MR_STR_INIT("x-amz-date"), MR_STR_INIT("20130524T000000Z")                                 \
    }

static void signs(const char *method, const char *path, const char *query, const char *hash,
                  const struct mr_header *headers, size_t count, const char *names,
                  const char *signature)
{
    static char id[] = "AKIAIOSFODNN7EXAMPLE";
    static char secret[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const struct s3_credentials who = {.id = id, .secret = secret};
    const struct s3_signed r = {.method = method,
                                .path = mr_str_c(path),
                                .query = mr_str_c(query),
                                .headers = headers,
                                .header_count = count,
                                .payload_hash = hash,
                                .region = "us-east-1",
                                .service = "s3",
                                .time = "20130524T000000Z"};
    struct mr_buf got;
    struct mr_buf want;

    mr_buf_init(&got, 0);
    mr_buf_init(&want, 0);
    s3_sign(&who, &r, &got);
    mr_buf_printf(&want,
                  "AWS4-HMAC-SHA256 Credential=%s/20130524/us-east-1/s3/aws4_request, "
                  "SignedHeaders=%s, Signature=%s",
                  id, names, signature);
    assert_string_equal(mr_buf_cstr(&got), mr_buf_cstr(&want));
    mr_buf_fini(&got);
    mr_buf_fini(&want);
}

static void get_object(void **state)
{
    const struct mr_header h[] = {
        HOST,
        {MR_STR_INIT("range"), MR_STR_INIT("bytes=0-9")},
        {MR_STR_INIT("x-amz-content-sha256"), MR_STR_INIT(EMPTY)},
        DATE,
    };

    (void)state;
    signs("GET", "/test.txt", "", EMPTY, h, 4, "host;range;x-amz-content-sha256;x-amz-date",
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void put_object(void **state)
{
    static const char body[] = "Welcome to Amazon S3.";
    char hash[S3_HASH_TEXT];
    struct mr_buf path;

    (void)state;
    s3_hash(body, sizeof body - 1, hash);
    const struct mr_header h[] = {
        {MR_STR_INIT("date"), MR_STR_INIT("Fri, 24 May 2013 00:00:00 GMT")},
        HOST,
        {MR_STR_INIT("x-amz-content-sha256"), mr_str_c(hash)},
        DATE,
        {MR_STR_INIT("x-amz-storage-class"), MR_STR_INIT("REDUCED_REDUNDANCY")},
    };
    mr_buf_init(&path, 0);
    mr_buf_char(&path, '/');
    s3_encode(&path, MR_STR("test$file.text"), true);
    signs("PUT", mr_buf_cstr(&path), "", hash, h, 5,
          "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    mr_buf_fini(&path);
}

static void queries(void **state)
{
    const struct mr_header h[] = {
        HOST, {MR_STR_INIT("x-amz-content-sha256"), MR_STR_INIT(EMPTY)}, DATE};

    (void)state;
    signs("GET", "/", "lifecycle=", EMPTY, h, 3, "host;x-amz-content-sha256;x-amz-date",
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    signs("GET", "/", "max-keys=2&prefix=J", EMPTY, h, 3, "host;x-amz-content-sha256;x-amz-date",
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void times(void **state)
{
    char text[17];

    (void)state;
    s3_time_text(INT64_C(1369353600) * 1000000000, text);
    assert_string_equal(text, "20130524T000000Z");
}

static void encoding(void **state)
{
    static const struct {
        const char *text;
        const char *path;
        const char *query;
    } rows[] = {{"a/b c", "a/b%20c", "a%2Fb%20c"},
                {"~-._", "~-._", "~-._"},
                {"\xc3\xa9+&=", "%C3%A9%2B%26%3D", "%C3%A9%2B%26%3D"}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        s3_encode(&b, mr_str_c(rows[i].text), true);
        assert_string_equal(mr_buf_cstr(&b), rows[i].path);
        mr_buf_reset(&b);
        s3_encode(&b, mr_str_c(rows[i].text), false);
        assert_string_equal(mr_buf_cstr(&b), rows[i].query);
        b.len = s3_decode(b.ptr, b.len);
        assert_string_equal(mr_buf_cstr(&b), rows[i].text);
        mr_buf_fini(&b);
    }
    char odd[] = "%2%zz%41+%4";
    assert_int_equal(s3_decode(odd, 11), 9);
    assert_memory_equal(odd, "%2%zzA %4", 9);
}

static void uris(void **state)
{
    static const char *const wrong[] = {"s3://",           "s3:///key",    "s3://ab/key",
                                        "s3://Bucket/key", "s3://-ab/key", "s3://bucket_/key",
                                        "file:///x",       "s3:/b/k"};
    mr_str bucket;
    mr_str key;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_s3_uri_parse("s3://my.bucket-1/a//b c?", &bucket, &key, &err), MR_OK);
    assert_true(mr_str_eq_c(bucket, "my.bucket-1"));
    assert_true(mr_str_eq_c(key, "a//b c?"));
    assert_int_equal(mr_s3_uri_parse("s3://abc", &bucket, &key, &err), MR_OK);
    assert_int_equal(key.len, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(mr_s3_uri_parse(wrong[i], &bucket, &key, &err), MR_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_object), cmocka_unit_test(put_object), cmocka_unit_test(queries),
        cmocka_unit_test(times),      cmocka_unit_test(encoding),   cmocka_unit_test(uris),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
