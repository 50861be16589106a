/* The file of endpoints. */
#include "variant/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"

static const char whole[] =
    "endpoint { name: 'ocr'\n"
    "  sticky { key: 'header:X-User-Id' salt: 's' }\n"
    "  variant { tag: 'stable' model: 'rec' version: 3 weight: 95 }\n"
    "  variant { tag: 'cand' model: 'rec' label: 'next' weight: 5\n"
    "    ramp { to: 50 step: 5 every_s: 600 guard: 'err < 0.002 && p99_ms < 1.2*stable.p99_ms'\n"
    "           on_breach: HOLD } }\n"
    "  shadow { model: 'rec_xl' percent: 2.5 compare: 'tolerance:1e-3' max_queue: 7 } }\n"
    "endpoint { name: 'plain' variant { tag: 'a' model: 'm' weight: 1 remote: 'grpc://h:1'\n"
    "  remote: 'grpc://h:2' } }\n"
    "service { name: 'svc' request_field_key: 'lang'\n"
    "  value_mapped_workflows { request_field_value: 'zh' workflow: 'ocr' } default: 'plain' }\n";

static void a_file_is_read(void **state)
{
    struct mr_service_file *f = NULL;
    struct mr_err err = {0};
    (void)state;

    assert_int_equal(mr_service_file_parse(mr_str_c(whole), &f, &err), MR_OK);
    assert_int_equal(f->endpoint_count, 2);
    const struct mr_endpoint_config *e = &f->endpoints[0];
    assert_string_equal(e->name.ptr, "ocr");
    assert_int_equal(e->sticky, MR_STICKY_HEADER);
    assert_string_equal(e->key.ptr, "x-user-id");
    assert_string_equal(e->salt.ptr, "s");
    assert_int_equal(e->variant_count, 2);
    assert_string_equal(e->variants[0].target.version.ptr, "3");
    assert_string_equal(e->variants[1].target.version.ptr, "next");
    assert_int_equal(e->ramp->variant, 1);
    assert_int_equal(e->ramp->min_samples, 100);
    assert_int_equal(e->ramp->every_ns, 600 * MR_NS_PER_S);
    assert_int_equal(e->ramp->on_breach, MR_RAMP_HOLD);
    assert_int_equal(e->ramp->guard.uses, 3);
    assert_string_equal(e->shadow->tag.ptr, "shadow");
    assert_int_equal(e->shadow->compare, MR_COMPARE_TOLERANCE);
    assert_int_equal(e->shadow->max_queue, 7);
    e = &f->endpoints[1];
    assert_int_equal(e->sticky, MR_STICKY_NONE);
    assert_null(e->ramp);
    assert_null(e->shadow);
    assert_int_equal(e->variants[0].target.remote_count, 2);
    assert_string_equal(e->variants[0].target.remotes[1].ptr, "grpc://h:2");
    assert_int_equal(e->variants[0].target.version.len, 0);
    assert_int_equal(f->service_count, 1);
    assert_string_equal(f->services[0].cases[0].model.ptr, "ocr");
    assert_string_equal(f->services[0].otherwise.ptr, "plain");
    assert_int_equal(f->endpoints[0].line, 1);
    assert_int_equal(f->endpoints[0].variants[1].line, 4);
    assert_int_equal(f->endpoints[0].shadow->line, 7);
    assert_int_equal(f->services[0].line, 10);
    assert_int_equal(f->services[0].cases[0].line, 11);
    mr_service_file_free(&f);
    assert_int_equal(mr_service_file_parse(MR_STR(""), &f, &err), MR_OK);
    assert_int_equal(f->endpoint_count, 0);
    mr_service_file_free(&f);
}

#define ONE(text) "endpoint { name: 'e' variant { tag: 'a' model: 'm' weight: 1 } " text " }"

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"endpoint { nam: 'e' }", "line 1 column 12: "},
        {"endpoint { }",
         "endpoint 1: name '': possible are 1 to 255 bytes of UTF-8 without blanks"},
        {"endpoint { name: 'a/b' }", "endpoint 1: name 'a/b': possible are"},
        {"endpoint { name: 'e' }", "endpoint 'e': 0 variants, possible are 1 to 32"},
        {ONE("") ONE(""), "endpoint 'e': there are two of this name"},
        {ONE("variant { tag: 'a' model: 'm' }"), "variants 1 and 2 have the same tag 'a'"},
        {ONE("variant { tag: 'a b' model: 'm' }"), "endpoint 'e': variant 2: tag 'a b': possible"},
        {ONE("variant { tag: 'b' }"), "variant 2: model: a name of 1 to 255 bytes is needed"},
        {ONE("variant { tag: 'b' model: 'm' version: -2 }"), "variant 2: version: -2, possible"},
        {ONE("variant { tag: 'b' model: 'm' weight: nan }"), "variant 2 'b' has weight NaN"},
        {ONE("sticky { key: 'cookie:x' }"),
         "key 'cookie:x': possible are header:NAME and parameter"},
        {ONE("shadow { model: 'm' percent: 101 }"), "shadow: percent: 101, possible is 0 to 100"},
        {ONE("shadow { model: 'm' compare: 'same' }"), "shadow: compare 'same': possible are"},
        {ONE("shadow { model: 'm' compare: 'tolerance:x' }"),
         "compare 'tolerance:x': possible are"},
        {ONE("shadow { model: 'm' max_queue: 5000 }"), "max_queue: 5000, possible is 1 to 4096"},
        {ONE("variant { tag: 'b' model: 'm' ramp { to: 2 step: 1 every_s: 1 } }"),
         "variant 'b': ramp.to is 2, possible is 0 (the weight of the variant) to 1"},
        {ONE("variant { tag: 'b' model: 'm' ramp { to: 1 step: 1 every_s: 1 guard: 'x' } }"),
         "endpoint 'e': variant 'b': guard \"x\" column 1: no such metric"},
        {ONE("variant { tag: 'b' model: 'm' ramp { to: 1 step: 1 every_s: 1 } } "
             "variant { tag: 'c' model: 'm' ramp { to: 1 step: 1 every_s: 1 } }"),
         "variants 'b' and 'c' have a ramp, but only one at a time may change"},
        {"service { name: 's' request_field_key: 'k' }",
         "service 's': neither value_mapped_workflows nor default"},
        {"service { name: 's' default: 'm' }",
         "service 's': request_field_key: a name of 1 to 255"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_service_file *f = NULL;
        struct mr_err err = {0};
        assert_int_equal(mr_service_file_parse(mr_str_c(bad[i].text), &f, &err), MR_E_INVALID);
        assert_null(f);
        if (!strstr(err.msg, bad[i].error)) {
            fail_msg("'%s' is not in '%s'", bad[i].error, err.msg);
        }
    }
}

/* Line 3 is that of the second variant, line 6 that of the case. */
#define LINES(sticky, second, rest, value)                                                         \
    "endpoint { name: 'e' " sticky "\n"                                                            \
    "  variant { tag: 'a' model: 'm' weight: 1 }\n"                                                \
    "  variant { tag: 'b' model: 'm' " second " }\n"                                               \
    "  " rest " }\n"                                                                               \
    "service { name: 's' request_field_key: 'k'\n"                                                 \
    "  value_mapped_workflows { request_field_value: 'v' workflow: '" value "' } }\n"

static void what_is_wrong_has_a_line(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {LINES("sticky {\n }", "", "", "m"), "line 1: endpoint 'e': key ''"},
        {LINES("", "version: -2", "", "m"), "line 3: endpoint 'e': variant 2: version: -2"},
        {LINES("", "weight: -1", "", "m"), "line 1: endpoint 'e': variant 2 'b' has weight -1"},
        {LINES("", "remote: 'a'\n remote:\n ''", "", "m"),
         "line 5: endpoint 'e': variant 2: remote: a name of 1 to 255 bytes"},
        {LINES("", "\n\nramp { to: 2 step: 1 every_s: 1 }", "", "m"),
         "line 5: endpoint 'e': variant 'b': ramp.to is 2"},
        {LINES("", "", "variant { tag: 'a' model: 'm' }", "m"),
         "line 4: endpoint 'e': variants 1 and 3 have the same tag 'a'"},
        {LINES("", "", "shadow { model: 'm' percent: -1 }", "m"),
         "line 4: endpoint 'e': shadow: percent: -1"},
        {LINES("", "", "", ""), "line 6: service 's': workflow: a name of 1 to 255 bytes"},
        {LINES("", "", "} endpoint { name: 'e'", "m"), "line 4: endpoint 'e': there are two"},
        {LINES("", "", "} service {", "m"), "line 4: service 1: name ''"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_service_file *f = NULL;
        struct mr_err err = {0};
        assert_int_equal(mr_service_file_parse(mr_str_c(bad[i].text), &f, &err), MR_E_INVALID);
        if (strncmp(err.msg, bad[i].error, strlen(bad[i].error)) != 0) {
            fail_msg("'%s' does not begin with '%s'", err.msg, bad[i].error);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_wrong_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
