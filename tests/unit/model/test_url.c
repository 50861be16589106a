/* Addresses of archives. */
#include "harness.h"
#include "model/archives/url.h"

#define SUM "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF"

static void test_parts(void **state)
{
    static const struct {
        const char *text;
        enum archive_url_kind kind;
        bool is_tls;
        const char *shown, *address, *target, *stem;
        bool has_sum;
    } rows[] = {
        {"https://h/a/b.tar.gz#sha256=" SUM, ARCHIVE_HTTP, true, "https://h/a/b.tar.gz", "h:443",
         "/a/b.tar.gz", "b", true},
        {"http://h:81/b.zip?x=/y.tar&z#sha256=" SUM, ARCHIVE_HTTP, false, "http://h:81/b.zip",
         "h:81", "/b.zip?x=/y.tar&z", "b", true},
        {"http://[::1]/b.tgz#sha256=" SUM, ARCHIVE_HTTP, false, "http://[::1]/b.tgz", "[::1]:80",
         "/b.tgz", "b", true},
        {"s3://bucket/deep/n.1.tar.zst", ARCHIVE_S3, false, "s3://bucket/deep/n.1.tar.zst", "", "",
         "n.1", false},
        {"file:/a/b.tar", ARCHIVE_FILE, false, "/a/b.tar", "", "", "b", false},
        {"file:///a/b.tar", ARCHIVE_FILE, false, "/a/b.tar", "", "", "b", false},
    };
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct archive_url u;
        assert_int_equal(MR_OK, archive_url_parse(rows[i].text, &u, &err));
        assert_int_equal(rows[i].kind, u.kind);
        assert_int_equal(rows[i].is_tls, u.is_tls);
        assert_string_equal(rows[i].shown, u.text);
        assert_string_equal(rows[i].address, u.address);
        assert_string_equal(rows[i].target, u.target);
        assert_string_equal(rows[i].stem, u.stem);
        assert_int_equal(rows[i].has_sum ? 64 : 0, strlen(u.sha256));
        assert_true(!rows[i].has_sum || strcmp(u.sha256 + 58, "abcdef") == 0);
    }
}

static void test_refused(void **state)
{
    static const char *const rows[] = {"/a/b.tar",
                                       "ftp://h/b.tar",
                                       "http://h/b.tar",
                                       "http:///b.tar#sha256=" SUM,
                                       "http://h#sha256=" SUM,
                                       "http://u@h/b.tar#sha256=" SUM,
                                       "http://h/b.tar#sha256=" SUM "0",
                                       "http://h/b.tar#md5=" SUM,
                                       "http://h/a b.tar#sha256=" SUM,
                                       "http://h/b.tar\n#sha256=" SUM,
                                       "http://h/.tar#sha256=" SUM,
                                       "http://h/b.txt#sha256=" SUM,
                                       "s3://bucket",
                                       "file:b.tar",
                                       "file://b.tar"};
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct archive_url u;
        assert_int_equal(MR_E_INVALID, archive_url_parse(rows[i], &u, &err));
    }
}

static void test_redirections(void **state)
{
    static const struct {
        const char *from, *to, *address, *target; /* address NULL: refused */
    } rows[] = {
        {"http://h/b.tar#sha256=" SUM, "/c?d", "h:80", "/c?d"},
        {"http://h/b.tar#sha256=" SUM, "https://k/c#d", "k:443", "/c"},
        {"https://h/b.tar#sha256=" SUM, "http://k/c", NULL, NULL},
        {"http://h/b.tar#sha256=" SUM, "//k/c", NULL, NULL},
        {"http://h/b.tar#sha256=" SUM, "file:/etc/passwd", NULL, NULL},
        {"http://h/b.tar#sha256=" SUM, "c", NULL, NULL},
        {"http://h/b.tar#sha256=" SUM, "/c\r\nx: y", NULL, NULL},
    };
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct archive_url from, u;
        assert_int_equal(MR_OK, archive_url_parse(rows[i].from, &from, &err));
        const int rc = archive_url_redirect(&from, mr_str_c(rows[i].to), &u, &err);
        assert_int_equal(rows[i].address ? MR_OK : MR_E_INVALID, rc);
        if (rows[i].address) {
            assert_string_equal(rows[i].address, u.address);
            assert_string_equal(rows[i].target, u.target);
            assert_string_equal(from.sha256, u.sha256);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_redirections)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
