/* The split of a workflow's node: choice, ramp driven by requests, threads. */
#include "variant/split.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "codec/pbtext.h"

#define S(n) ((int64_t)(n)*MR_NS_PER_S)

static struct mr_rollout_time at(int64_t ns)
{
    return (struct mr_rollout_time){ns, ns + 1};
}

static int make(const char *text, struct mr_split **out, struct mr_err *err)
{
    ProtobufCMessage *m = NULL;

    if (mr_pbtext_parse(&millrace__workflow_scheduling__split__descriptor, mr_str_c(text), &m,
                        err) < 0) {
        fail_msg("%s", err->msg);
    }
    int rc = mr_split_new(out, (const Millrace__WorkflowScheduling__Split *)m, at(0), err);
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}

static struct mr_split *split_of(const char *text)
{
    struct mr_split *s = NULL;
    struct mr_err err = {0};

    if (make(text, &s, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return s;
}

static void keys_and_shares(void **state)
{
    struct mr_split *s =
        split_of("key: 'parameter:user' salt: 's' sticky: true variant { name: 'a' weight: 3 } "
                 "variant { name: 'b' weight: 1 }");
    mr_str name;
    uint64_t spread = 0;
    (void)state;

    assert_int_equal(mr_split_count(s), 2);
    assert_string_equal(mr_split_tag(s, 1).ptr, "b");
    assert_int_equal(mr_split_key(s, &name), MR_STICKY_PARAMETER);
    assert_string_equal(name.ptr, "user");
    assert_string_equal(mr_split_salt(s).ptr, "s");
    assert_int_equal(mr_split_bucket(s, MR_STR("ann")),
                     mr_variant_bucket(MR_STR("s"), MR_STR("ann")));
    for (int i = 0; i < 100; i++) {
        const unsigned bucket = mr_split_bucket(s, (mr_str){NULL, 0});
        assert_int_equal(bucket, mr_variant_spread(&spread));
        assert_int_equal(mr_split_choose(s, bucket), bucket >= 7500);
    }
    mr_split_free(&s);
}

static void requests_drive_the_ramp(void **state)
{
    struct mr_split *s = split_of(
        "variant { name: 'a' weight: 90 } variant { name: 'b' weight: 10 ramp { to: 50 step: 20 "
        "every_s: 60 min_samples: 10 guard: 'err < 0.1' } }");
    (void)state;

    for (int i = 0; i < 50; i++) {
        assert_false(mr_split_end(s, i & 1, MR_OK, 1000, at(S(1))));
    }
    assert_true(mr_split_end(s, 0, MR_OK, 1000, at(S(61))));
    assert_int_equal(mr_split_choose(s, 6999), 0);
    assert_int_equal(mr_split_choose(s, 7000), 1);
    for (int i = 0; i < 20; i++) {
        mr_split_end(s, 1, MR_E_INTERNAL, 1000, at(S(61)));
    }
    assert_true(mr_split_end(s, 1, MR_E_INTERNAL, 1000, at(S(62))));
    assert_int_equal(mr_split_choose(s, 9999), 0);
    assert_false(mr_split_end(s, 0, MR_E_CANCELLED, 1000, at(S(70))));
    mr_split_free(&s);
}

static void what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"", "0 variants, possible are 1 to 32"},
        {"sticky: true variant { name: 'a' weight: 1 }", "key '': possible are header:NAME"},
        {"variant { name: '' weight: 1 }", "variant 1: tag '': possible are 1 to 64"},
        {"variant { name: 'a' weight: 1 } variant { name: 'a' }",
         "variant 2: variants 1 and 2 have the same name 'a'"},
        {"variant { name: 'a' }", "all weights are 0"},
        {"variant { name: 'a' weight: 1 } variant { name: 'b' ramp { to: 1 step: 1 every_s: 1 "
         "guard: "
         "'x' } }",
         "variant 'b': guard \"x\" column 1"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_split *s = NULL;
        struct mr_err err = {0};
        assert_int_equal(make(bad[i].text, &s, &err), MR_E_INVALID);
        assert_null(s);
        if (!strstr(err.msg, bad[i].error)) {
            fail_msg("'%s' is not in '%s'", bad[i].error, err.msg);
        }
    }
}

static void *requests(void *arg)
{
    struct mr_split *s = arg;

    for (int i = 0; i < 5000; i++) {
        const unsigned v = mr_split_choose(s, mr_split_bucket(s, (mr_str){NULL, 0}));
        mr_split_end(s, v, MR_OK, 1000, at(S(i)));
    }
    return NULL;
}

static void threads(void **state)
{
    struct mr_split *s = split_of("variant { name: 'a' weight: 90 } variant { name: 'b' weight: 10 "
                                  "ramp { to: 50 step: 1 every_s: 1 } }");
    pthread_t t[3];
    (void)state;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, requests, s), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(mr_split_choose(s, 4999), 0);
    assert_int_equal(mr_split_choose(s, 5000), 1);
    mr_split_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_shares),
        cmocka_unit_test(requests_drive_the_ramp),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
