#include <sys/stat.h>
#include <unistd.h>

#include "kv/etcd/config.h"
#include "loop_fixture.h"

static void memory_is_stepped_by_the_loop(void **state)
{
    struct kv_fixture *f = kvt_loop_new();
    struct got g;
    (void)state;

    kvt_open(f, 0, "memory:");
    int64_t revision = kvt_put(f, "k", "v");
    kvt_get(f, 0, "k", &g);
    assert_int_equal(g.item->mod_revision, revision);
    kvt_fini(&g);
    assert_int_equal(f->state[0], MR_KV_READY);
    kvt_loop_free(f);
}

static void memory_ends_leases_by_the_loops_clock(void **state)
{
    struct kv_fixture *f = kvt_loop_new();
    struct seen s;
    (void)state;

    kvt_open(f, 0, "memory:");
    int64_t before = kvt_put(f, "before", "");
    kvt_put_short_lived(f, "k", "v");
    kvt_watch(f, 0, "k", before + 1, &s);
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 1, "k", NULL);
    kvt_seen_fini(&s);
    kvt_loop_free(f);
}

static void other_texts_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",         "memory",  "memory:x",    "http://x",      "x:",
        "etcd:",    "etcd://", "etcd://host", "etcd://host:0", "etcd://a:1,https://b:2",
        "etcd://:1"};
    struct mr_err err;
    (void)state;

    for (size_t i = 0; i < COUNT(wrong); i++) {
        print_message("%s\n", wrong[i]);
        assert_int_equal(mr_kv_check(mr_str_c(wrong[i]), &err), MR_E_INVALID);
        assert_true(err.msg[0]);
    }
    assert_int_equal(mr_kv_check(MR_STR("etcd:/no/such/file"), &err), MR_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/no/such/file"));
}

static void texts_are_taken(void **state)
{
    static const char *const right[] = {
        "memory:",        "file:/a/b",         "file:c",
        "etcd:host:2379", "etcd://[::1]:2379", "etcd://a:1,b:2,c:3/some/prefix/"};
    struct mr_err err;
    (void)state;

    for (size_t i = 0; i < COUNT(right); i++) {
        if (mr_kv_check(mr_str_c(right[i]), &err) != MR_OK) {
            fail_msg("%s: %s", right[i], err.msg);
        }
    }
}

static char json_path[] = "/tmp/mr_kv_XXXXXX";

static int read_json(const char *text, struct kv_etcd_config *out, struct mr_err *err)
{
    char name[64];
    FILE *f = fopen(json_path, "w");
    fputs(text, f);
    fclose(f);
    snprintf(name, sizeof name, "etcd:%s", json_path);
    return kv_etcd_config_read(out, mr_str_c(name), err);
}

static void a_json_file_says_all(void **state)
{
    struct kv_etcd_config c;
    struct mr_err err;
    struct stat st;
    (void)state;

    assert_int_equal(read_json("{\"endpoints\": \"https://a:1, https://b:2/\", \"userid\": \"u\","
                               "\"password\": \"p\", \"root_prefix\": \"/r/p//\","
                               "\"certificate\": \"PEM\", \"client_key_file\": \"/k\","
                               "\"client_certificate_file\": \"c\", \"override_authority\": \"o\","
                               "\"compose_deployment\": [1, {}]}",
                               &c, &err),
                     MR_OK);
    assert_int_equal(c.endpoints.len, 2);
    assert_string_equal(c.endpoints.at[1], "b:2");
    assert_true(c.is_tls);
    assert_string_equal(c.root, "/r/p/");
    assert_string_equal(c.user, "u");
    assert_string_equal(c.password, "p");
    assert_string_equal(c.authority, "o");
    assert_string_equal(c.key_file, "/k");
    assert_string_equal(c.cert_file, "/tmp/c");
    assert_int_equal(stat(c.ca_file, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_string_equal(c.name, "etcd://a:1,b:2//r/p/");
    assert_int_equal(kv_etcd_config_below(&c, MR_STR("/mm/svc"), &err), MR_OK);
    assert_string_equal(c.root, "/r/p/mm/svc/");
    assert_string_equal(c.name, "etcd://a:1,b:2//r/p/mm/svc/");
    assert_int_equal(kv_etcd_config_below(&c, MR_STR("/"), &err), MR_OK);
    assert_string_equal(c.root, "/r/p/mm/svc/");
    kv_etcd_config_fini(&c);
    unlink(json_path);
}

static void other_json_files_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"endpoints\": 1}",
                                        "{\"endpoints\": \"a:1\"} x",
                                        "{\"endpoints\": \"a\"}",
                                        "{\"endpoints\": \"a:1\", \"certificate\": \"x\"}",
                                        "{\"endpoints\": \"a:1\", \"userid\": \"x\"}",
                                        "{\"endpoints\": \"https://a:1\", \"client_key\": \"x\"}",
                                        "{\"endpoints\": \"a:1\", \"userid\": \"x\\u0000\"}"};
    struct kv_etcd_config c;
    struct mr_err err;
    (void)state;

    for (size_t i = 0; i < COUNT(wrong); i++) {
        print_message("%s\n", wrong[i]);
        assert_int_equal(read_json(wrong[i], &c, &err), MR_E_INVALID);
        assert_true(err.msg[0]);
    }
    unlink(json_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_stepped_by_the_loop),
        cmocka_unit_test(memory_ends_leases_by_the_loops_clock),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(texts_are_taken),
        cmocka_unit_test(a_json_file_says_all),
        cmocka_unit_test(other_json_files_are_refused),
    };
    close(mkstemp(json_path));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
