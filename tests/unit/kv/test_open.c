#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kv/etcd/config.h"
#include "kv/file/local.h"
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
        "",          "memory",          "memory:x",    "http://x",      "x:",
        "etcd:",     "etcd://",         "etcd://host", "etcd://host:0", "etcd://a:1,https://b:2",
        "etcd://:1", "etcd:http://host"};
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
    static const char *const right[] = {"memory:",
                                        "file:/a/b",
                                        "file:c",
                                        "etcd:host:2379",
                                        "etcd://[::1]:2379",
                                        "etcd://a:1,b:2,c:3/some/prefix/",
                                        "etcd:http://host:2379",
                                        "etcd:https://a:1,https://b:2"};
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

/* ---- the registry that no one has to name ---- */

static void path_is(const char *service, const char *user, const char *home, const char *wanted)
{
    static const char *const names[] = {"STATE_DIRECTORY", "XDG_STATE_HOME", "HOME"};
    const char *const values[] = {service, user, home};
    char path[KV_LOCAL_ROOM];
    struct mr_err err;

    for (size_t i = 0; i < COUNT(names); i++) {
        if (values[i]) {
            setenv(names[i], values[i], 1);
        } else {
            unsetenv(names[i]);
        }
    }
    int rc = kv_local_path(path, &err);
    if (wanted) {
        assert_int_equal(rc, MR_OK);
        assert_string_equal(path, wanted);
    } else {
        assert_int_equal(rc, MR_E_INVALID);
        assert_int_equal(mr_kv_check(MR_STR("local"), &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, service ? service : "$STATE_DIRECTORY"));
    }
}

static void local_is_in_the_first_folder_that_there_is(void **state)
{
    const bool is_root = geteuid() == 0;
    const char *const roots = "/var/lib/millrace/mesh/registry";
    char large[KV_LOCAL_ROOM];
    (void)state;

    path_is("/s:/t", "/x", "/h", "/s/mesh/registry");
    path_is("s", "/x", "/h", "/x/millrace/mesh/registry");
    path_is(NULL, "", "/h", is_root ? roots : "/h/.local/state/millrace/mesh/registry");
    path_is("", NULL, NULL, is_root ? roots : NULL);
    memset(large, 'x', 150);
    snprintf(large + 150, sizeof large - 150, "%s", "");
    large[0] = '/';
    path_is(large, NULL, NULL, NULL);
}

static void make_fails(const char *file, int status, const char *names)
{
    struct mr_err err;

    assert_int_equal(kv_local_make(file, &err), status);
    assert_non_null(strstr(err.msg, names));
}

static void local_has_a_folder_of_its_user_alone(void **state)
{
    char top[] = "/tmp/mr_kv_XXXXXX", folder[64], file[80], below[100];
    struct mr_err err;
    struct stat st;
    (void)state;

    assert_non_null(mkdtemp(top));
    snprintf(folder, sizeof folder, "%s/a/b", top);
    snprintf(file, sizeof file, "%s/registry", folder);
    snprintf(below, sizeof below, "%s/c/registry", file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kv_local_make(file, &err), MR_OK);
        assert_int_equal(stat(folder, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
    }
    assert_int_equal(stat(file, &st), -1); /* the folder only */
    const int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    make_fails(below, MR_E_IO, file);
    assert_int_equal(chmod(folder, 0722), 0);
    make_fails(file, MR_E_FORBIDDEN, folder);
    unlink(file);
    rmdir(folder);
    *strrchr(folder, '/') = '\0';
    rmdir(folder);
    rmdir(top);
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
        cmocka_unit_test(local_is_in_the_first_folder_that_there_is),
        cmocka_unit_test(local_has_a_folder_of_its_user_alone),
    };
    close(mkstemp(json_path));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
