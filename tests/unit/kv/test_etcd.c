/* The semantics with a real etcd, and what becomes of a connection when etcd goes away, comes back, has lost its
 * data, wants a password or certificates. */
#include "../net/identity.h"
#include "conformance.h"
#include "etcd_fixture.h"

static struct etcd shared; /* of the tests that do not harm it */
static int prefix_number;

static void compact(struct kv_fixture *f, int64_t revision)
{
    etcd_compact(f, shared.address, revision);
}

static void text_of(const struct etcd *e, char out[128])
{
    snprintf(out, 128, "etcd://%s/test/%d", e->address, prefix_number);
}

static struct kv_fixture *fixture_of(const struct etcd *e)
{
    struct kv_fixture *f = kvt_loop_new();
    char text[128];

    prefix_number++;
    text_of(e, text);
    kvt_open(f, 0, text);
    kvt_open(f, 1, text);
    f->compact = compact;
    return f;
}

static int setup(void **state)
{
    *state = fixture_of(&shared);
    return 0;
}

static int teardown(void **state)
{
    kvt_loop_free(*state);
    return 0;
}

static int start_shared(void **state)
{
    (void)state;
    etcd_start(&shared);
    return 0;
}

static int end_shared(void **state)
{
    (void)state;
    etcd_end(&shared);
    return 0;
}

static void prefixes_are_apart(void **state)
{
    struct kv_fixture *f = *state, *other = fixture_of(&shared);
    struct mr_kv_range all = {.is_prefix = true};
    struct seen s;
    struct got g = {0};

    kvt_watch(f, 0, "", kvt_put(f, "k", "1"), &s);
    kvt_put(other, "k", "2");
    kvt_put(other, "j", "2");
    mr_kv_range(f->kv[0], &all, kvt_done, &g);
    kvt_ok(f, &g);
    assert_int_equal(g.result->count, 1);
    assert_true(mr_str_eq_c(g.item->key, "k"));
    kvt_fini(&g);
    kvt_put(f, "l", "3");
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 1, "l", "3");
    kvt_seen_fini(&s);
    kvt_loop_free(other);
}

/* ---- faults ---- */

static void wait_state(struct kv_fixture *f, unsigned i, enum mr_kv_state state)
{
    while (f->state[i] != state) {
        f->pump(f);
    }
}

static void calls_and_watches_survive_a_restart(void **state)
{
    struct etcd e;
    struct seen s;
    struct got read = {0}, put = {0};
    (void)state;

    etcd_start(&e);
    struct kv_fixture *f = fixture_of(&e);
    int64_t lease = kvt_grant(f, 3600);
    kvt_watch(f, 0, "", kvt_put_in(f, 0, "k", "1", lease), &s);
    kvt_wait_changes(f, &s, 1);
    etcd_kill(&e);
    wait_state(f, 0, MR_KV_LOST);
    wait_state(f, 1, MR_KV_LOST);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &read);
    mr_kv_put(f->kv[1], MR_STR("k"), kvt_bytes("2"), 0, kvt_done, &put);
    etcd_restart(&e);
    kvt_ok(f, &read);
    kvt_ok(f, &put);
    assert_int_equal(read.result->count, 1);
    kvt_wait_changes(f, &s, 2);
    kvt_change(&s, 1, "k", "2");
    wait_state(f, 0, MR_KV_READY);
    kvt_fini(&read);
    mr_kv_lease_keep(f->kv[0], lease, kvt_done, &read);
    kvt_ok(f, &read);
    kvt_fini(&read);
    kvt_fini(&put);
    kvt_seen_fini(&s);
    kvt_loop_free(f);
    etcd_end(&e);
}

static void a_watch_notices_that_the_data_is_lost(void **state)
{
    struct etcd e;
    struct seen s;
    (void)state;

    etcd_start(&e);
    struct kv_fixture *f = fixture_of(&e);
    kvt_put(f, "k", "1");
    kvt_watch(f, 0, "", kvt_put(f, "k", "2"), &s);
    kvt_wait_changes(f, &s, 1);
    etcd_kill(&e);
    etcd_wipe(&e);
    etcd_restart(&e);
    kvt_wait(f, &s.resync);
    assert_int_equal(s.why.status, MR_E_NOT_FOUND);
    kvt_has(f, "k", NULL);
    kvt_put(f, "k", "3");
    kvt_seen_fini(&s);
    kvt_loop_free(f);
    etcd_end(&e);
}

static void a_change_that_has_no_answer_fails(void **state)
{
    struct etcd e;
    struct got g = {0};
    (void)state;

    etcd_start(&e);
    struct kv_fixture *f = fixture_of(&e);
    kvt_put(f, "k", "1");
    child_stop(e.pid);
    mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes("2"), 0, kvt_done, &g);
    etcd_kill(&e);
    kvt_fails(f, &g, MR_E_UNAVAILABLE);
    etcd_restart(&e);
    kvt_has(f, "k", "1");
    kvt_loop_free(f);
    etcd_end(&e);
}

static void a_call_ends_at_its_deadline(void **state)
{
    struct etcd e;
    struct got g = {0};
    struct mr_kv_options options = {.timeout_ns = 50000000};
    char text[128];
    (void)state;

    etcd_start(&e);
    struct kv_fixture *f = fixture_of(&e);
    kvt_put(f, "k", "1");
    child_stop(e.pid);
    mr_kv_free(&f->kv[0]);
    text_of(&e, text);
    assert_int_equal(mr_kv_open(&f->kv[0], f->own, mr_str_c(text), &options, NULL), MR_OK);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LOCAL, kvt_done, &g);
    kvt_fails(f, &g, MR_E_DEADLINE);
    kill(e.pid, SIGCONT);
    kvt_loop_free(f);
    etcd_end(&e);
}

static void another_endpoint_is_used(void **state)
{
    struct kv_fixture *f = kvt_loop_new();
    char text[128];
    (void)state;

    for (int i = 0; i < 8; i++) { /* the first one is drawn */
        snprintf(text, sizeof text, "etcd://127.0.0.1:1,%s,127.0.0.1:2/e", shared.address);
        kvt_open(f, 0, text);
        kvt_put(f, "k", "v");
        assert_int_equal(f->state[0], MR_KV_READY);
        mr_kv_free(&f->kv[0]);
    }
    kvt_loop_free(f);
}

static void a_cut_connection_is_made_again(void **state)
{
    struct proxy p;
    struct kv_fixture *f = kvt_loop_new();
    struct got read = {0}, put = {0};
    struct seen s;
    char text[128];
    (void)state;

    proxy_new(&p, &shared);
    snprintf(text, sizeof text, "etcd://%s/cut", p.address);
    kvt_open(f, 0, text);
    snprintf(text, sizeof text, "etcd://%s/cut", shared.address);
    kvt_open(f, 1, text);
    kvt_watch(f, 0, "", kvt_put(f, "k", "1"), &s);
    kvt_wait_changes(f, &s, 1);
    proxy_kill(&p);
    wait_state(f, 0, MR_KV_LOST); /* its port still accepts, and says nothing */
    kvt_put_in(f, 1, "k", "2", 0);
    kvt_put_in(f, 1, "k", "3", 0);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &read);
    mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes("4"), 0, kvt_done, &put);
    proxy_start(&p, &shared);
    kvt_ok(f, &read);
    kvt_ok(f, &put);
    kvt_wait_changes(f, &s, 4); /* none twice, none left out */
    kvt_change(&s, 1, "k", "2");
    kvt_change(&s, 2, "k", "3");
    kvt_change(&s, 3, "k", "4");
    kvt_fini(&read);
    kvt_fini(&put);
    kvt_seen_fini(&s);
    kvt_loop_free(f);
    proxy_end(&p);
}

static void an_endpoint_that_hangs_is_left(void **state)
{
    struct proxy hangs, works;
    struct kv_fixture *f = kvt_loop_new();
    struct mr_kv_options options = {.timeout_ns = 500 * MR_NS_PER_MS};
    struct got g = {0};
    char text[128];
    (void)state;

    proxy_new(&hangs, &shared);
    proxy_new(&works, &shared);
    child_stop(hangs.pid);
    snprintf(text, sizeof text, "etcd://%s,%s/hang", hangs.address, works.address);
    for (int i = 0; i < 4; i++) { /* the first endpoint is drawn */
        assert_int_equal(mr_kv_open(&f->kv[0], f->own, mr_str_c(text), &options, NULL), MR_OK);
        do { /* the machine may be slower than the limit */
            g = (struct got){0};
            mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &g);
            kvt_wait(f, &g.done);
        } while (g.rc == MR_E_DEADLINE);
        assert_int_equal(g.rc, MR_OK);
        kvt_fini(&g);
        mr_kv_free(&f->kv[0]);
    }
    kvt_loop_free(f);
    proxy_end(&hangs);
    proxy_end(&works);
}

/* ---- rights ---- */

__attribute__((format(printf, 2, 3))) static void write_json(const char *path, const char *format,
                                                             ...)
{
    FILE *f = fopen(path, "w");
    va_list args;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

#define AUTH "/etcdserverpb.Auth/"

/* A call whose message has up to two texts. */
static void auth_call(struct kv_fixture *f, const struct etcd *e, const char *method,
                      const char *first, const char *second)
{
    char path[64];
    struct mr_buf b;

    snprintf(path, sizeof path, AUTH "%s", method);
    mr_buf_init(&b, 0);
    mr_pb_put_str(&b, 1, mr_str_c(first));
    mr_pb_put_str(&b, 2, mr_str_c(second));
    etcd_raw(f, e->address, path, &b);
    mr_buf_fini(&b);
}

static void auth_grant(struct kv_fixture *f, const struct etcd *e)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_pb_put_str(&b, 1, MR_STR("mesh"));
    size_t mark = mr_pb_begin(&b, 2);
    mr_pb_put_u64(&b, 1, 2); /* READWRITE */
    mr_pb_put_str(&b, 2, MR_STR("mine/"));
    mr_pb_put_str(&b, 3, MR_STR("mine0"));
    mr_pb_end(&b, mark);
    etcd_raw(f, e->address, AUTH "RoleGrantPermission", &b);
    mr_buf_fini(&b);
}

static void a_user_has_to_authenticate(void **state)
{
    struct etcd e;
    struct kv_fixture *f = kvt_loop_new();
    char path[200], text[256];
    struct seen s;
    struct got g = {0};
    (void)state;

    etcd_start(&e);
    auth_call(f, &e, "UserAdd", "root", "top");
    auth_call(f, &e, "UserGrantRole", "root", "root");
    auth_call(f, &e, "UserAdd", "millrace", "secret");
    auth_call(f, &e, "RoleAdd", "mesh", "");
    auth_grant(f, &e);
    auth_call(f, &e, "UserGrantRole", "millrace", "mesh");
    auth_call(f, &e, "AuthEnable", "", "");

    snprintf(path, sizeof path, "%s/kv.json", e.folder);
    snprintf(text, sizeof text, "etcd:%s", path);
    write_json(path,
               "{\"endpoints\": \"http://%s\", \"userid\": \"millrace\", "
               "\"password\": \"secret\", \"root_prefix\": \"mine\"}",
               e.address);
    kvt_open(f, 0, text);
    kvt_open(f, 1, text);
    assert_null(strstr(mr_kv_name(f->kv[0]), "secret"));
    kvt_watch(f, 0, "", 0, &s);
    kvt_put(f, "k", "v");
    kvt_has(f, "k", "v");
    etcd_kill(&e); /* tokens are not valid any more */
    etcd_restart(&e);
    kvt_has(f, "k", "v");
    kvt_seen_fini(&s);

    mr_kv_free(&f->kv[0]);
    write_json(path,
               "{\"endpoints\": \"%s\", \"userid\": \"millrace\", "
               "\"password\": \"secret\", \"root_prefix\": \"other\"}",
               e.address);
    kvt_open(f, 0, text);
    mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes("v"), 0, kvt_done, &g);
    kvt_fails(f, &g, MR_E_FORBIDDEN);
    kvt_watch(f, 0, "", 0, &s);
    kvt_wait(f, &s.resync);
    assert_int_equal(s.why.status, MR_E_FORBIDDEN);
    kvt_seen_fini(&s);

    mr_kv_free(&f->kv[0]);
    write_json(path, "{\"endpoints\": \"%s\", \"userid\": \"millrace\", \"password\": \"no\"}",
               e.address);
    kvt_open(f, 0, text);
    mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LOCAL, kvt_done, &g);
    kvt_fails(f, &g, MR_E_FORBIDDEN);
    kvt_loop_free(f);
    etcd_end(&e);
}

/* A member whose text is that of a file. */
static void put_member(FILE *out, const char *name, const char *path)
{
    FILE *in = fopen(path, "r");
    fprintf(out, ", \"%s\": \"", name);
    for (int c; (c = fgetc(in)) != EOF;) {
        fprintf(out, c == '\n' ? "\\n" : "%c", c);
    }
    fprintf(out, "\"");
    fclose(in);
}

static void write_inline_json(const char *path, const struct etcd *e, const struct tls_files *files)
{
    FILE *f = fopen(path, "w");
    fprintf(f, "{\"endpoints\": \"https://%s\", \"override_authority\": \"localhost\"", e->address);
    put_member(f, "certificate", files->ca);
    put_member(f, "client_certificate", files->cert);
    put_member(f, "client_key", files->key);
    fprintf(f, "}");
    fclose(f);
}

static void tls_checks_both_sides(void **state)
{
    struct tls_files files;
    struct etcd e;
    struct kv_fixture *f = kvt_loop_new();
    char path[100], text[128];
    struct mr_err err;
    (void)state;

    files_make(&files);
    etcd_start_with(&e, (const char *const[4]){files.cert, files.key, files.ca, NULL});
    snprintf(path, sizeof path, "%.60s/kv.json", files.dir);
    snprintf(text, sizeof text, "etcd:%s", path);
    write_json(path,
               "{\"endpoints\": \"https://%s\", \"certificate_file\": \"ca.crt\", "
               "\"client_certificate_file\": \"%s\", \"client_key_file\": \"s.key\", "
               "\"override_authority\": \"localhost\"}",
               e.address, files.cert);
    kvt_open(f, 0, text);
    kvt_open(f, 1, text);
    kvt_put(f, "k", "v");
    kvt_has(f, "k", "v");
    mr_kv_free(&f->kv[0]);

    write_json(path, "{\"endpoints\": \"https://%s\", \"certificate_file\": \"ca.crt\"}",
               e.address);
    kvt_open(f, 0, text); /* without a client certificate */
    wait_state(f, 0, MR_KV_LOST);
    mr_kv_free(&f->kv[0]);
    write_inline_json(path, &e, &files);
    kvt_open(f, 0, text);
    kvt_put(f, "k", "v");
    mr_kv_free(&f->kv[0]);
    write_json(path, "{\"endpoints\": \"https://%s\", \"certificate_file\": \"none\"}", e.address);
    assert_int_equal(mr_kv_open(&f->kv[0], f->own, mr_str_c(text), NULL, &err), MR_E_NOT_FOUND);
    unlink(path);
    kvt_loop_free(f);
    etcd_end(&e);
    files_free(&files);
}

#define SHARED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_TABLE(setup, teardown),
        SHARED(prefixes_are_apart),
        cmocka_unit_test(another_endpoint_is_used),
        cmocka_unit_test(a_cut_connection_is_made_again),
        cmocka_unit_test(an_endpoint_that_hangs_is_left),
        cmocka_unit_test(calls_and_watches_survive_a_restart),
        cmocka_unit_test(a_watch_notices_that_the_data_is_lost),
        cmocka_unit_test(a_change_that_has_no_answer_fails),
        cmocka_unit_test(a_call_ends_at_its_deadline),
        cmocka_unit_test(a_user_has_to_authenticate),
        cmocka_unit_test(tls_checks_both_sides),
    };
    signal(SIGPIPE, SIG_IGN);
    if (!etcd_program()) {
        print_message("etcd is not installed: tools/setup --test installs it\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, start_shared, end_shared);
}
