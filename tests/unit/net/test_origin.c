/* Texts of Host and Origin by tables. What a server makes of them: tests/integration/30/test_web_pages.py. */
#include "net/server/origin.h"

#include "net_test.h"

static const char *const names[] = {"models.example.org", "Box"};

static const struct {
    const char *host;
    bool is_own;
} hosts[] = {
    {"127.0.0.1", true},
    {"127.0.0.1:8000", true},
    {"10.1.2.3:1", true},
    {"localhost", true},
    {"LocalHost:8000", true},
    {"localhost.", true},
    {"localhost.:8000", true},
    {"localhost:", true},
    {"[::1]", true},
    {"[::1]:8000", true},
    {"::1", true},
    {"[fe80::1%25eth0]:80", true},
    {"models.example.org", true},
    {"MODELS.example.org.:443", true},
    {"box:1", true},
    {"", true},
    {"evil.example", false},
    {"localhost.evil.example", false},
    {"notlocalhost", false},
    {"localhost..", false},
    {".", false},
    {"example.org", false},
    {"x.models.example.org", false},
    {"127.0.0.1.evil.example", false},
    {"127.0.0.256", false},
    {"[127.0.0.1]", false},
    {"[evil.example]", false},
    {"[::1", false},
    {"[::1]x", false},
    {"[]", false},
    {":8000", false},
    {"localhost:x", false},
    {"localhost:65536", false},
    {"localhost:8000:8000", false},
    {"evil.example@localhost", false},
};

static void host_is_an_address_or_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char *text = exact_copy(hosts[i].host, strlen(hosts[i].host));
        bool is_own = mr_origin_is_own_host(mr_str_n(text, strlen(hosts[i].host)), names, 2);
        free(text);
        if (is_own != hosts[i].is_own) {
            fail_msg("Host '%s': %d", hosts[i].host, is_own);
        }
    }
}

static const struct {
    const char *text;
    const char *host; /* NULL: no origin */
    int32_t port;
} origins[] = {
    {"http://a", "a", 80},
    {"HTTPS://a.b", "a.b", 443},
    {"http://a:8000", "a", 8000},
    {"http://[::1]:8000", "[::1]", 8000},
    {"http://127.0.0.1", "127.0.0.1", 80},
    {"chrome-extension://abcdef", "abcdef", -1},
    {"null", NULL, 0},
    {"", NULL, 0},
    {"a", NULL, 0},
    {"://a", NULL, 0},
    {"http://", NULL, 0},
    {"http:///", NULL, 0},
    {"http://a/", NULL, 0},
    {"http://a/b", NULL, 0},
    {"http://a?b", NULL, 0},
    {"http://a b", NULL, 0},
    {"http://a http://b", NULL, 0},
    {"http://u@a", NULL, 0},
    {"http://a:b", NULL, 0},
    {"http://a:99999", NULL, 0},
    {"http://[a]", NULL, 0},
    {"ht tp://a", NULL, 0},
};

static void origin_is_scheme_host_and_port(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++) {
        struct mr_origin o;
        size_t n = strlen(origins[i].text);
        char *text = exact_copy(origins[i].text, n);
        bool is_one = mr_origin_parse(mr_str_n(text, n), &o);
        if (is_one != (origins[i].host != NULL) ||
            (is_one && (!mr_str_eq_c(o.host, origins[i].host) || o.port != origins[i].port))) {
            fail_msg("Origin '%s': %d", origins[i].text, is_one);
        }
        free(text);
    }
}

static void options_are_checked(void **state)
{
    static const char *const bad_hosts[] = {"", "a:80", "http://a", "a b", "[::1]", "**"};
    static const char *const bad_origins[] = {"", "a", "https://a/", "NULL", "* "};
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_http_check_host(MR_STR("*"), &err), MR_OK);
    assert_int_equal(mr_http_check_host(MR_STR("a.b-c_d"), &err), MR_OK);
    assert_int_equal(mr_http_check_origin(MR_STR("*"), &err), MR_OK);
    assert_int_equal(mr_http_check_origin(MR_STR("null"), &err), MR_OK);
    assert_int_equal(mr_http_check_origin(MR_STR("https://a:1"), &err), MR_OK);
    for (size_t i = 0; i < sizeof bad_hosts / sizeof *bad_hosts; i++) {
        assert_int_equal(mr_http_check_host(mr_str_c(bad_hosts[i]), &err), MR_E_INVALID);
    }
    for (size_t i = 0; i < sizeof bad_origins / sizeof *bad_origins; i++) {
        assert_int_equal(mr_http_check_origin(mr_str_c(bad_origins[i]), &err), MR_E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_is_an_address_or_known),
        cmocka_unit_test(origin_is_scheme_host_and_port),
        cmocka_unit_test(options_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
