/* Addresses as users write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "client/url.h"

static void forms(void **state)
{
    static const struct {
        const char *text;
        const char *address; /* NULL: refused */
        const char *path;
        bool is_grpc;
        bool is_tls;
        bool has_scheme;
    } rows[] = {
        {"localhost", "localhost:8000", "", false, false, false},
        {"localhost:9", "localhost:9", "", false, false, false},
        {"http://h:9/", "h:9", "", false, false, true},
        {"http://h:9/v1", "h:9", "/v1", false, false, true},
        {"https://h/a/b/", "h:8000", "/a/b", false, true, true},
        {"grpc://h", "h:8000", "", true, false, true},
        {"grpcs://h", "h:8000", "", true, true, true},
        {"[::1]", "[::1]:8000", "", false, false, false},
        {"[::1]:9", "[::1]:9", "", false, false, false},
        {"unix:/a/b", "unix:/a/b", "", false, false, false},
        {"http://unix:/a/b", "unix:/a/b", "", false, false, true},
        {"", NULL, NULL, false, false, false},
        {"/", NULL, NULL, false, false, false},
        {"http://", NULL, NULL, false, false, false},
        {"http:///x", NULL, NULL, false, false, false},
        {"ftp://h", NULL, NULL, false, false, false},
        {"http://grpc://h", NULL, NULL, false, false, false},
        {"h:9?x", NULL, NULL, false, false, false},
        {"h 9", NULL, NULL, false, false, false},
    };
    struct mr_url url;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = mr_url_parse(rows[i].text, &url, &err);
        if (rc == MR_OK) {
            rc = mr_url_default_port(&url, 8000, &err);
        }
        if ((rc == MR_OK) != (rows[i].address != NULL)) {
            fail_msg("'%s': %d", rows[i].text, rc);
        }
        if (rc < 0) {
            assert_non_null(strstr(err.msg, rows[i].text));
            continue;
        }
        assert_string_equal(url.address, rows[i].address);
        assert_string_equal(url.path, rows[i].path);
        assert_true(url.is_grpc == rows[i].is_grpc && url.is_tls == rows[i].is_tls);
        assert_true(url.has_scheme == rows[i].has_scheme && url.has_port);
    }
}

static void too_long(void **state)
{
    char text[600];
    struct mr_url url;
    struct mr_err err;

    (void)state;
    memset(text, 'h', sizeof text);
    for (size_t len = 250; len < 300; len++) {
        text[len] = '\0';
        int rc = mr_url_parse(text, &url, &err);
        if (rc == MR_OK) {
            rc = mr_url_default_port(&url, 8000, &err);
        }
        assert_int_equal(rc, len + 5 < sizeof url.address ? MR_OK : MR_E_INVALID);
        text[len] = 'h';
    }
    text[3] = '/';
    text[598] = '\0';
    assert_int_equal(mr_url_parse(text, &url, &err), MR_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(too_long)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
