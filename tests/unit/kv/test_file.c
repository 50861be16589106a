/* The semantics with a file; its processes that die, its disk that fails, what is left of it in either case. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "etcd_fixture.h"
#include "kv/etcd/etcd.h"
#include "kv/file/log.h"
#include "kv/wire/reply_read.h"
#include "kv/wire/request_write.h"

static char *folder; /* of the test that runs */
static char path[200];
static char text[220];

static void compact(struct kv_fixture *f, int64_t revision)
{
    char address[220];
    snprintf(address, sizeof address, "unix:%s.sock", path);
    etcd_compact(f, address, revision);
}

static struct kv_fixture *fixture_of_file(void)
{
    struct kv_fixture *f = kvt_loop_new();

    kvt_open(f, 0, text);
    kvt_open(f, 1, text);
    f->compact = compact;
    return f;
}

static void make_folder(void)
{
    assert_int_equal(mr_folder_new(&folder, NULL), MR_OK);
    snprintf(path, sizeof path, "%s/registry", folder);
    snprintf(text, sizeof text, "file:%s", path);
}

static void remove_folder(void)
{
    mr_folder_remove(folder);
    free(folder);
}

static int setup(void **state)
{
    make_folder();
    *state = fixture_of_file();
    return 0;
}

static int teardown(void **state)
{
    kvt_loop_free(*state);
    remove_folder();
    return 0;
}

/* Ends the fixture and makes another one of the same file. */
static void reopen(void **state)
{
    kvt_loop_free(*state);
    *state = fixture_of_file();
}

static off_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 ? st.st_size : -1;
}

/* ---- what is kept ---- */

static void all_is_there_again(void **state)
{
    struct kv_fixture *f = *state;
    struct got g = {0};
    struct seen s;
    int64_t lease = kvt_grant(f, 60), gone = kvt_grant(f, 60);

    int64_t first = kvt_put_in(f, 0, "leased", "1", lease);
    kvt_put_in(f, 0, "gone", "1", gone);
    kvt_put(f, "k", "1");
    kvt_put(f, "k", "2");
    kvt_put(f, "deleted", "1");
    kvt_delete(f, "deleted", false, 1);
    mr_kv_lease_revoke(f->kv[0], gone, kvt_done, &g);
    kvt_ok(f, &g);
    int64_t last = g.reply.revision;
    kvt_fini(&g);
    reopen(state);
    f = *state;
    kvt_get(f, 0, "k", &g);
    assert_int_equal(g.item->version, 2);
    assert_int_equal(g.reply.revision, last);
    kvt_fini(&g);
    kvt_has(f, "deleted", NULL);
    kvt_has(f, "gone", NULL);
    kvt_watch(f, 0, "", first, &s); /* the history, too */
    kvt_wait_changes(f, &s, 7);
    kvt_change(&s, 6, "gone", NULL);
    kvt_seen_fini(&s);
    mr_kv_lease_keep(f->kv[1], lease, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    mr_kv_lease_revoke(f->kv[1], lease, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_has(f, "leased", NULL);
    assert_int_equal(kvt_put(f, "k", "3"), last + 2);
}

static void the_file_is_for_its_user_alone(void **state)
{
    struct stat st;
    char name[220];

    kvt_put(*state, "k", "v");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(name, sizeof name, "%s.sock", path);
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* Appends that. */
static void append(const char *name, const void *bytes, size_t n)
{
    int fd = open(name, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void an_incomplete_end_is_cut_off(void **state)
{
    char name[220];
    off_t whole;

    kvt_put(*state, "k", "1");
    kvt_loop_free(*state);
    whole = size_of(path);
    append(path, "\x40\0\0\0\x01\x02\x03\x04partial", 15);
    *state = fixture_of_file();
    kvt_has(*state, "k", "1");
    assert_int_equal(size_of(path), whole);
    snprintf(name, sizeof name, "%s.cut", path);
    assert_int_equal(size_of(name), 15);
    kvt_put(*state, "k", "2");
    kvt_loop_free(*state);
    append(path, "\x40\0\0", 3);
    *state = fixture_of_file();
    kvt_has(*state, "k", "2");
    assert_int_equal(size_of(name), 18); /* both are kept */
}

static void a_file_cut_anywhere_has_what_was_whole(void **state)
{
    struct kv_fixture *f = *state;
    struct kv_state s;
    struct kv_log_found found;
    static char file[65536];
    char value[16];

    for (int i = 0; i < 20; i++) {
        snprintf(value, sizeof value, "%d", i);
        kvt_put(f, "k", value);
    }
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, file, sizeof file);
    close(fd);
    int64_t revision = 0;
    for (ssize_t i = KV_LOG_HEADER_BYTES; i <= n; i++) {
        kv_state_init(&s, NULL);
        assert_int_equal(kv_log_read((mr_bytes){(uint8_t *)file, (size_t)i}, 0, &s, &found, NULL),
                         MR_OK);
        assert_true(s.revision == revision || s.revision == revision + 1 || revision == 0);
        assert_true(found.bytes <= (size_t)i);
        revision = s.revision;
        kv_state_fini(&s);
    }
    assert_int_equal(revision, 21);
    for (ssize_t i = 0; i < KV_LOG_HEADER_BYTES; i++) { /* no header, no registry */
        kv_state_init(&s, NULL);
        assert_int_equal(kv_log_read((mr_bytes){(uint8_t *)file, (size_t)i}, 0, &s, &found, NULL),
                         MR_E_INVALID);
        kv_state_fini(&s);
    }
}

static void wait_state(struct kv_fixture *f, unsigned i, enum mr_kv_state state)
{
    while (f->state[i] != state) {
        f->pump(f);
    }
}

static void what_is_no_registry_is_left_alone(void **state)
{
    kvt_loop_free(*state);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "my diary, which is long enough", 30), 30);
    close(fd);
    struct kv_fixture *f = *state = fixture_of_file();
    wait_state(f, 0, MR_KV_LOST);
    assert_int_equal(size_of(path), 30);
    unlink(path); /* and then it works */
    kvt_put(f, "k", "v");
}

static void the_file_does_not_grow_for_ever(void **state)
{
    struct kv_fixture *f = *state;
    static struct got got[64];
    static char value[64 * 1024];
    struct got g = {0};
    off_t largest = 0;

    int64_t lease = kvt_grant(f, 3600);
    kvt_put_in(f, 0, "leased", "x", lease);
    memset(value, 'v', sizeof value - 1);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT(got); i++) {
            got[i] = (struct got){0};
            mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes(value), 0, kvt_done, &got[i]);
        }
        for (size_t i = 0; i < COUNT(got); i++) {
            kvt_ok(f, &got[i]);
            kvt_fini(&got[i]);
        }
        largest = size_of(path) > largest ? size_of(path) : largest;
    }
    assert_true(largest < 10 * 1024 * 1024); /* 16 MiB were written */
    struct seen s;
    kvt_watch(f, 1, "k", kvt_put(f, "k", "last"), &s);
    kvt_wait_changes(f, &s, 1);
    kvt_seen_fini(&s);
    reopen(state);
    f = *state;
    kvt_has(f, "k", "last");
    kvt_get(f, 0, "leased", &g);
    assert_int_equal(g.item->lease, lease);
    kvt_fini(&g);
}

static ino_t inode_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    return st.st_ino;
}

/* Whoever takes the file over knows how large it was then. */
static void a_large_file_is_not_written_anew_at_once(void **state)
{
    struct kv_fixture *f = *state;
    static struct got got[80]; /* 5 MiB, which the file is written anew for */
    static char value[64 * 1024];
    char key[16];

    memset(value, 'v', sizeof value - 1);
    for (size_t i = 0; i < COUNT(got); i++) {
        got[i] = (struct got){0};
        snprintf(key, sizeof key, "k%zu", i);
        mr_kv_put(f->kv[0], mr_str_c(key), kvt_bytes(value), 0, kvt_done, &got[i]);
    }
    for (size_t i = 0; i < COUNT(got); i++) {
        kvt_ok(f, &got[i]);
        kvt_fini(&got[i]);
    }
    kvt_put(f, "k", "1");
    reopen(state);
    f = *state;
    kvt_has(f, "k", "1");
    ino_t before = inode_of(path);
    kvt_put(f, "k", "2");
    assert_int_equal(inode_of(path), before);
    kvt_has(f, "k79", value);
}

static void a_file_that_cannot_be_written_anew_grows(void **state)
{
    struct kv_fixture *f = *state;
    static struct got got[64];
    static char value[64 * 1024];
    char name[220];

    memset(value, 'v', sizeof value - 1);
    snprintf(name, sizeof name, "%s.new", path);
    kvt_put(f, "k", "v");
    assert_int_equal(mkdir(name, 0700), 0);
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < COUNT(got); i++) {
            got[i] = (struct got){0};
            mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes(value), 0, kvt_done, &got[i]);
        }
        for (size_t i = 0; i < COUNT(got); i++) {
            kvt_ok(f, &got[i]);
            kvt_fini(&got[i]);
        }
    }
    assert_true(size_of(path) > 16 * 1000 * 1000);
    kvt_put(f, "k", "last");
    reopen(state);
    f = *state;
    kvt_has(f, "k", "last");
    assert_int_equal(rmdir(name), 0);
    kvt_put(f, "k", "after"); /* and now it can be */
    kvt_has(f, "k", "after");
    assert_true(size_of(path) < 1000 * 1000);
}

static void a_full_disk_fails_changes_and_loses_nothing(void **state)
{
    struct kv_fixture *f = *state;
    static char value[64 * 1024];
    struct rlimit old, small = {0};
    struct got g = {0};
    struct seen s;

    memset(value, 'v', sizeof value - 1);
    kvt_put(f, "k", "1");
    kvt_watch(f, 1, "k", kvt_put(f, "k", "2"), &s);
    kvt_wait_changes(f, &s, 1);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){(rlim_t)size_of(path) + 100, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes(value), 0, kvt_done, &g);
    kvt_wait(f, &g.done);
    assert_non_null(strstr(g.err.msg, "File too large"));
    kvt_fails(f, &g, MR_E_UNAVAILABLE);
    kvt_has(f, "k", "2");
    setrlimit(RLIMIT_FSIZE, &old);
    while (!g.done || g.rc != MR_OK) { /* once the connection is up again */
        g = (struct got){0};
        mr_kv_put(f->kv[0], MR_STR("k"), kvt_bytes("3"), 0, kvt_done, &g);
        kvt_wait(f, &g.done);
    }
    kvt_fini(&g);
    while (s.changes.len < 2) {
        f->pump(f);
    }
    kvt_change(&s, 1, "k", "3"); /* and never what was not kept */
    kvt_seen_fini(&s);
}

/* ---- the connection ---- */

/* As a call that has waited for the connection nearly until its deadline. */
static void a_call_that_was_sent_late_leaves_the_connection(void **state)
{
    struct kv_fixture *f = *state;
    const struct kv_etcd *e = (const struct kv_etcd *)f->kv[0];
    struct got late = {0};

    kvt_put(f, "k", "1");
    struct etcd_call *call =
        (struct etcd_call *)mr_kv_get(f->kv[0], MR_STR("k"), MR_KV_LINEARIZABLE, kvt_done, &late);
    mr_timer_start(f->own, &call->timer, 0, 0, call->timer.fn);
    kvt_fails(f, &late, MR_E_DEADLINE);
    assert_int_equal(e->phase, ETCD_UP);
}

/* As with a member of an etcd that lags behind: the watch has seen more than the server, which hears of it by then. */
static void a_watch_goes_on_at_a_server_that_lags(void **state)
{
    struct kv_fixture *f = *state;
    struct seen s;

    int64_t at = kvt_put(f, "k", "1");
    kvt_watch(f, 0, "k", at + 2, &s);
    kvt_put(f, "k", "2");
    kvt_put(f, "k", "3");
    kvt_wait_changes(f, &s, 1);
    kvt_change(&s, 0, "k", "3");
    kvt_seen_fini(&s);
}

/* ---- others on the socket ---- */

struct refused {
    bool done;
    int status;
};

static void on_refused(void *ctx, int rc, const struct mr_err *err,
                       const struct mr_client_response *response)
{
    struct refused *r = ctx;
    (void)err;
    r->done = true;
    r->status = response ? response->grpc_status : rc;
}

/* What a request to the socket is answered: a status of gRPC. */
static int status_of_raw(struct kv_fixture *f, const char *method, const void *bytes, size_t n)
{
    struct mr_client_options options = {.http2 = true};
    struct mr_piece piece = {bytes, n, NULL};
    struct mr_client_grpc_request request = {.path = method, .pieces = &piece, .piece_count = 1};
    struct refused r = {0};
    struct mr_client *c;
    char address[220];

    snprintf(address, sizeof address, "unix:%s.sock", path);
    assert_int_equal(mr_client_new(&c, f->own, address, &options, NULL), MR_OK);
    mr_client_grpc(c, &request, on_refused, &r);
    kvt_wait(f, &r.done);
    mr_client_free(&c);
    return r.status;
}

static void foreign_requests_are_refused(void **state)
{
    struct kv_fixture *f = *state;
    static char large[17 * 1024 * 1024];

    kvt_put(f, "k", "v");
    assert_int_equal(status_of_raw(f, ETCD_PUT, "\xff\xff", 2), MR_GRPC_INVALID_ARGUMENT);
    assert_int_equal(status_of_raw(f, ETCD_PUT, "", 0), MR_GRPC_INVALID_ARGUMENT);
    assert_int_equal(status_of_raw(f, ETCD_PUT, "\x0a\x01k\x20\x01", 5), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, ETCD_RANGE, "\x0a\x01k\x12\x01z", 6), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, ETCD_RANGE, "\x0a\x01k\x20\x01", 5), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, ETCD_TXN, "\x0a\x03\x1a\x01k", 5), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, "/etcdserverpb.Auth/UserAdd", "", 0), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, ETCD_AUTHENTICATE, "", 0), MR_GRPC_UNIMPLEMENTED);
    assert_int_equal(status_of_raw(f, ETCD_PUT, large, sizeof large), MR_GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(status_of_raw(f, ETCD_RANGE, "\x0a\x01k", 3), MR_GRPC_OK);
    kvt_has(f, "k", "v");
}

/* ---- watches ---- */

static void a_watch_without_changes_has_progress(void **state)
{
    struct kv_fixture *f = *state;
    static struct got got[600];
    struct seen s;
    char key[16];

    int64_t from = kvt_put(f, "quiet", "");
    kvt_watch(f, 1, "quiet", from + 1, &s);
    for (size_t i = 0; i < COUNT(got); i++) {
        got[i] = (struct got){0};
        snprintf(key, sizeof key, "k%zu", i);
        mr_kv_put(f->kv[0], mr_str_c(key), kvt_bytes("v"), 0, kvt_done, &got[i]);
    }
    for (size_t i = 0; i < COUNT(got); i++) {
        kvt_ok(f, &got[i]);
        kvt_fini(&got[i]);
    }
    while (!s.calls.len) {
        f->pump(f);
    }
    assert_int_equal(s.changes.len, 0);
    assert_true(s.calls.at[0] > from + 200);
    f->compact(f, s.calls.at[0]); /* what it knows of is not needed any more */
    int64_t seen = s.calls.at[0];
    kvt_seen_fini(&s);
    kvt_watch(f, 1, "quiet", seen + 1, &s);
    kvt_put(f, "quiet", "now");
    kvt_wait_changes(f, &s, 1);
    kvt_seen_fini(&s);
}

struct slow {
    size_t changes;
    int64_t last;
    bool is_created;
    bool is_over;
};

static void on_slow_message(void *ctx, mr_bytes message)
{
    struct slow *s = ctx;
    struct kv_wire_watched w;
    struct mr_arena arena;

    mr_arena_init(&arena, 0, SIZE_MAX);
    assert_int_equal(kv_wire_watched(message, MR_STR(""), &arena, &w, NULL), MR_OK);
    assert_false(w.is_canceled);
    s->is_created |= w.is_created;
    for (size_t i = 0; i < w.count; i++) {
        assert_true(w.changes[i].item.mod_revision > s->last);
        s->last = w.changes[i].item.mod_revision;
    }
    s->changes += w.count;
    mr_arena_fini(&arena);
}

static void on_slow_end(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct slow *s = ctx;
    (void)rc;
    (void)err;
    (void)response;
    s->is_over = true;
}

static void a_watch_that_does_not_read_gets_all_later(void **state)
{
    static const struct mr_client_stream_events events = {on_slow_message, on_slow_end};
    enum { PUTS = 400 }; /* of 64 KiB: more than waits for a reader, less than the history */
    struct kv_fixture *f = *state;
    static char value[64 * 1024];
    struct mr_client_options options = {.http2 = true};
    struct mr_client_grpc_request request = {.path = ETCD_WATCH};
    struct slow slow = {0};
    struct mr_client *c;
    struct mr_buf b;
    char address[220];

    memset(value, 'v', sizeof value - 1);
    kvt_put(f, "k", "first");
    snprintf(address, sizeof address, "unix:%s.sock", path);
    assert_int_equal(mr_client_new(&c, f->own, address, &options, NULL), MR_OK);
    struct mr_client_stream *stream = mr_client_grpc_stream(c, &request, &events, &slow);
    mr_buf_init(&b, 0);
    kv_wire_watch(&b, MR_STR(""), MR_STR("k"), 0);
    mr_client_stream_send(stream, &(struct mr_piece){b.ptr, b.len, NULL}, 1, NULL);
    mr_buf_fini(&b);
    kvt_wait(f, &slow.is_created);
    mr_client_stream_pause(stream, true);
    for (int i = 0; i < PUTS; i++) {
        kvt_put(f, "k", value);
    }
    assert_true(slow.changes < PUTS);
    mr_client_stream_pause(stream, false);
    while (slow.changes < PUTS) {
        assert_false(slow.is_over);
        f->pump(f);
    }
    mr_client_stream_cancel(stream);
    kvt_wait(f, &slow.is_over);
    mr_client_free(&c);
}

/* ---- processes ---- */

/* Another process that serves the file and counts "count" up in it, until it is killed. It writes each number, when
 * it has the answer, to the descriptor. */
static void count_up(int round, int out)
{
    struct kv_fixture *f = kvt_loop_new();
    char value[16];

    (void)round;
    kvt_open(f, 0, text);
    for (int i = 1;; i++) {
        snprintf(value, sizeof value, "%d", i);
        kvt_put(f, "count", value);
        if (write(out, &i, sizeof i) != sizeof i) {
            _exit(1);
        }
    }
}

static int read_number(int fd)
{
    int i;
    return read(fd, &i, sizeof i) == sizeof i ? i : -1;
}

/* Kills the process; returns the last number that it was answered. */
static int end_counting(pid_t pid, int fd)
{
    int last = -1, i;

    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while ((i = read_number(fd)) > 0) {
        last = i;
    }
    close(fd);
    return last;
}

static int count_of(struct kv_fixture *f)
{
    struct got g;
    char value[16] = "";

    kvt_get(f, 0, "count", &g);
    if (g.item) {
        memcpy(value, g.item->value.ptr, g.item->value.len);
    }
    kvt_fini(&g);
    return atoi(value);
}

static void another_takes_over_when_the_server_dies(void **state)
{
    int fd;
    (void)state;

    make_folder();
    for (int round = 0; round < 5; round++) {
        pid_t pid = kvt_child(count_up, 0, &fd);
        assert_true(read_number(fd) > 0); /* it has the file */
        struct kv_fixture *f = fixture_of_file();
        struct seen s;
        int at = count_of(f);
        assert_true(at > 0);
        kvt_watch(f, 1, "mine", kvt_put(f, "mine", "first"), &s);
        kvt_wait_changes(f, &s, 1);
        int last = end_counting(pid, fd);
        wait_state(f, 0, MR_KV_LOST);
        int now = count_of(f);
        assert_true(now == last || now == last + 1); /* the one whose answer did not arrive */
        kvt_put(f, "mine", "second");
        kvt_wait_changes(f, &s, 2); /* the watch goes on with the new server */
        kvt_change(&s, 1, "mine", "second");
        kvt_seen_fini(&s);
        kvt_loop_free(f);
    }
    remove_folder();
}

static void a_client_of_another_process_keeps_its_lease(void **state)
{
    int fd;
    struct got g = {0};
    (void)state;

    make_folder();
    pid_t pid = kvt_child(count_up, 0, &fd);
    assert_true(read_number(fd) > 0);
    struct kv_fixture *f = fixture_of_file();
    int64_t lease = kvt_grant(f, 3600);
    kvt_put_in(f, 0, "leased", "v", lease);
    mr_kv_get(f->kv[1], MR_STR("leased"), MR_KV_LOCAL, kvt_done, &g); /* may be under way */
    end_counting(pid, fd);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_has(f, "leased", "v");
    mr_kv_lease_keep(f->kv[0], lease, kvt_done, &g);
    kvt_ok(f, &g);
    kvt_fini(&g);
    kvt_loop_free(f);
    remove_folder();
}

/* The conformance once more, with another process that serves. */
static pid_t serving;
static int serving_fd;

static void serve_only(int out)
{
    struct kv_fixture *f = kvt_loop_new();
    int ready = 1;

    kvt_open(f, 0, text);
    wait_state(f, 0, MR_KV_READY);
    if (write(out, &ready, sizeof ready) != sizeof ready) {
        _exit(1);
    }
    for (;;) {
        f->pump(f);
    }
}

static int setup_two(void **state)
{
    int fds[2];

    make_folder();
    assert_int_equal(pipe(fds), 0);
    serving = fork();
    if (serving == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        serve_only(fds[1]);
    }
    close(fds[1]);
    serving_fd = fds[0];
    assert_int_equal(read_number(serving_fd), 1);
    *state = fixture_of_file();
    return 0;
}

static int teardown_two(void **state)
{
    end_counting(serving, serving_fd);
    return teardown(state);
}

#define OWN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFORMANCE_TABLE(setup, teardown),
        OWN(all_is_there_again),
        OWN(the_file_is_for_its_user_alone),
        OWN(an_incomplete_end_is_cut_off),
        OWN(a_file_cut_anywhere_has_what_was_whole),
        OWN(what_is_no_registry_is_left_alone),
        OWN(the_file_does_not_grow_for_ever),
        OWN(a_large_file_is_not_written_anew_at_once),
        OWN(a_file_that_cannot_be_written_anew_grows),
        OWN(a_full_disk_fails_changes_and_loses_nothing),
        OWN(a_call_that_was_sent_late_leaves_the_connection),
        OWN(a_watch_goes_on_at_a_server_that_lags),
        OWN(foreign_requests_are_refused),
        OWN(a_watch_without_changes_has_progress),
        OWN(a_watch_that_does_not_read_gets_all_later),
        cmocka_unit_test(another_takes_over_when_the_server_dies),
        cmocka_unit_test(a_client_of_another_process_keeps_its_lease),
    };
    const struct CMUnitTest two[] = {CONFORMANCE_TABLE(setup_two, teardown_two)};
    signal(SIGPIPE, SIG_IGN);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("two processes", two, NULL, NULL);
}
