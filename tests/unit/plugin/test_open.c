/* Finding, loading and refusing backend libraries. The libraries are made from odd_backend.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "plugin_priv.h"

static char odd_dir[1024];

static int open_odd(const char *name, struct mr_plugin **out, struct mr_err *err)
{
    const char *dirs[] = {"/nonexistent", odd_dir};
    *err = (struct mr_err){0};
    return mr_plugin_open(out, mr_str_c(name), dirs, 2, NULL, 0, err);
}

static void names(void **state)
{
    static const char *const bad[] = {"", "../x", "a/b", "a b", "x.y", "\xc3\xa4"};
    struct mr_plugin *p = NULL;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_odd(bad[i], &p, &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "backend name"));
    }
    assert_null(p);
}

static void not_found(void **state)
{
    struct mr_plugin *p = NULL;
    struct mr_err err;

    (void)state;
    assert_int_equal(open_odd("absent", &p, &err), MR_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "libmillrace_absent.so"));
    assert_non_null(strstr(err.msg, "/nonexistent"));
    assert_int_equal(mr_plugin_open(&p, MR_STR("x"), NULL, 0, NULL, 0, &err), MR_E_NOT_FOUND);
    assert_null(p);
}

static void refused(void **state)
{
    static const struct {
        const char *name;
        int status;
        const char *says;
    } rows[] = {
        {"text", MR_E_UNSUPPORTED, "cannot load"},
        {"noentry", MR_E_UNSUPPORTED, MR_BACKEND_ENTRY},
        {"future", MR_E_UNSUPPORTED, "another version of the server"},
        {"notable", MR_E_UNSUPPORTED, "table has 0 bytes"},
        {"short", MR_E_UNSUPPORTED, "table has 88 bytes"},
        {"noexecute", MR_E_UNSUPPORTED, "lacks execute"},
        {"noclose", MR_E_UNSUPPORTED, "lacks instance_close"},
        {"entryfails", MR_E_UNSUPPORTED, "host of 2031"},
        {"entrymute", MR_E_IO, "without saying why"},
        {"initfails", MR_E_EXHAUSTED, "init says no"},
        {"initodd", MR_E_INTERNAL, "returned 7"},
    };
    struct mr_plugin *p = NULL;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int rc = open_odd(rows[i].name, &p, &err);
        if (rc != rows[i].status || !strstr(err.msg, rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].name, rc, err.msg);
        }
        assert_int_equal(err.status, rc);
        assert_null(p);
        assert_int_equal(
            mr_plugin_open(&p, mr_str_c(rows[i].name), (const char *[]){odd_dir}, 1, NULL, 0, NULL),
            rows[i].status);
    }
}

static void other_sizes(void **state)
{
    struct mr_plugin *p = NULL;
    struct mr_err err;

    (void)state;
    assert_int_equal(open_odd("newer", &p, &err), MR_OK);
    assert_string_equal(mr_plugin_name(p), "newer");
    assert_string_equal(mr_plugin_version(p), "1");
    assert_int_equal(mr_plugin_flags(p), MR_BACKEND_DETERMINISTIC);
    mr_plugin_close(&p);
    assert_null(p);
    mr_plugin_close(&p);

    assert_int_equal(open_odd("older", &p, &err), MR_OK);
    assert_null(p->table.model_bytes);
    assert_null(p->table.model_configure);
    mr_plugin_close(&p);
}

static void settings(void **state)
{
    const struct mr_setting s = {"depth", "3"};
    struct mr_plugin *p = NULL;
    struct mr_err err = {0};

    (void)state;
    assert_int_equal(
        mr_plugin_open(&p, MR_STR("nosettings"), (const char *[]){odd_dir}, 1, &s, 1, &err),
        MR_E_INVALID);
    assert_non_null(strstr(err.msg, "'depth'"));
    /* in a folder of its own */
    assert_int_equal(open_odd("nosettings", &p, &err), MR_OK);
    mr_plugin_close(&p);
}

static void model_fails(void **state)
{
    const struct mr_model_desc desc = {.size = sizeof desc, .name = "m"};
    struct mr_executor *m = NULL;
    struct mr_plugin *p = NULL;
    struct mr_err err;

    (void)state;
    assert_int_equal(open_odd("newer", &p, &err), MR_OK);
    assert_int_equal(mr_plugin_model_open(&m, p, &desc, &err), MR_E_UNSUPPORTED);
    assert_string_equal(err.msg, "no models here");
    assert_int_equal(mr_plugin_model_open(&m, p, &desc, NULL), MR_E_UNSUPPORTED);
    assert_null(m);
    mr_plugin_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),       cmocka_unit_test(not_found), cmocka_unit_test(refused),
        cmocka_unit_test(other_sizes), cmocka_unit_test(settings),  cmocka_unit_test(model_fails),
    };
    const char *build = getenv("MR_BUILD_DIR");
    snprintf(odd_dir, sizeof odd_dir, "%s/tests/unit/odd_backends", build ? build : ".");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
