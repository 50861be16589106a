/* How much has to arrive before a connection is read: the settings of the kernel, and their duration. The test sets the
 * time. */
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "h2_client.h"
#include "net/server/conn.h"

#define MIB  ((size_t)1024 * 1024)
#define PART ((size_t)10 * 16384) /* enough frames for the estimate of the server */

/* In front of libc's: how often more than one byte was asked for. */
static _Atomic int asked;

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    if (level == SOL_SOCKET && name == SO_RCVLOWAT && *(const int *)value > 1) {
        atomic_fetch_add(&asked, 1);
    }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, len);
}

struct fixture {
    struct mr_loop *loop;
    struct mr_conn conn; /* of which only what gathers is used */
    int peer;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(mr_loop_new(&f->loop, NULL, NULL), MR_OK);
    f->loop->now_ns = MR_NS_PER_S;
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    f->peer = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(f->peer, (struct sockaddr *)&at, sizeof at), 0);
    f->conn.fd = accept(listener, NULL, NULL);
    assert_true(f->conn.fd >= 0);
    close(listener);
    f->conn.loop = f->loop;
    mr_gather_init(&f->conn.gather);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    mr_timer_stop(&f->conn.gather.timer);
    close(f->conn.fd);
    close(f->peer);
    mr_loop_free(&f->loop);
    free(f);
    return 0;
}

static size_t told(const struct fixture *f)
{
    int n = 0;
    socklen_t len = sizeof n;

    assert_int_equal(getsockopt(f->conn.fd, SOL_SOCKET, SO_RCVLOWAT, &n, &len), 0);
    assert_int_equal(n, f->conn.gather.bytes);
    return (size_t)n;
}

/* One turn: a read of `got` bytes that took all there was, and `coming` to come. */
static size_t turn(struct fixture *f, size_t got, size_t coming)
{
    mr_gather_note(&f->conn, MIB, got);
    mr_gather_settle(&f->conn, coming);
    return told(f);
}

static void pass(struct fixture *f, int64_t ns)
{
    f->loop->now_ns += ns;
    mr_timers_run(f->loop);
}

static void test_never_more_than_what_comes(void **state)
{
    struct fixture *f = *state;
    size_t most = turn(f, 16384, 4 * MIB);

    assert_in_range(most, 64 * 1024, MIB);
    assert_int_equal(turn(f, most, most - 1), most - 1);
    assert_int_equal(turn(f, most, 5000), 1);
    assert_int_equal(turn(f, 16384, 4 * MIB), most);
    assert_int_equal(turn(f, 4 * MIB, 0), 1);
}

static void test_nothing_where_more_lies_ready(void **state)
{
    struct fixture *f = *state;

    mr_gather_note(&f->conn, 16384, 16384);
    mr_gather_settle(&f->conn, 4 * MIB);
    assert_int_equal(told(f), 1);
    assert_false(f->conn.gather.timer.active);
    assert_true(turn(f, 100, 4 * MIB) > 1);
}

static void test_slow_peers_are_not_waited_for(void **state)
{
    struct fixture *f = *state;
    size_t last = turn(f, 100, 4 * MIB);

    for (int i = 0; i < 10; i++) {
        pass(f, 2 * MR_NS_PER_MS);
        assert_int_equal(told(f), 1);
        size_t now = turn(f, 100, 4 * MIB);
        assert_true(now == 1 || now == last / 2);
        last = now;
    }
    assert_int_equal(last, 1);
    /* And again when it has become a fast one. */
    assert_true(turn(f, 64 * 1024, 4 * MIB) > 1);
    assert_true(turn(f, 256 * 1024, 4 * MIB) > 64 * 1024);
}

static void test_reads_begin_the_time_anew(void **state)
{
    struct fixture *f = *state;
    size_t most = turn(f, 100, 4 * MIB);

    for (int i = 0; i < 10; i++) {
        pass(f, MR_NS_PER_MS * 3 / 4);
        assert_int_equal(told(f), most);
        turn(f, most, 4 * MIB);
    }
    /* Work on the connection that reads nothing does not. */
    for (int i = 0; i < 10; i++) {
        pass(f, MR_NS_PER_MS / 4);
        mr_gather_settle(&f->conn, i < 5 ? 4 * MIB : 0);
    }
    assert_int_equal(f->conn.gather.most, most / 2);
}

static bool is_readable(const struct fixture *f)
{
    struct pollfd p = {.fd = f->conn.fd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* The kernel follows the settings: some bytes wake no thread until the timeout or the end of the peer. */
static void test_what_came_is_read_in_the_end(void **state)
{
    struct fixture *f = *state;
    char bytes[10000] = {0};
    int have = 0;

    turn(f, 100, 4 * MIB);
    assert_int_equal(send(f->peer, bytes, sizeof bytes, 0), sizeof bytes);
    while (have < (int)sizeof bytes) {
        assert_int_equal(ioctl(f->conn.fd, FIONREAD, &have), 0);
    }
    assert_false(is_readable(f));
    pass(f, 2 * MR_NS_PER_MS);
    assert_true(is_readable(f));
    turn(f, 100, 4 * MIB);
    assert_false(is_readable(f));
    shutdown(f->peer, SHUT_WR);
    struct pollfd p = {.fd = f->conn.fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 60000), 1);
}

/* ---- connections ---------------------------------------------------------------------------- */

static void test_http1_body(void **state)
{
    struct server server = {0};
    char *body = calloc(1, MIB);
    struct response r;

    (void)state;
    server_start(&server);
    struct client c = dial(&server);
    atomic_store(&asked, 0);
    assert_true(say(&c, "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1048576\r\n\r\n"));
    fill_pattern(body, MIB);
    assert_true(send_all(&c, body, 100000));
    assert_true(wait_until(&asked, 1));
    assert_true(send_all(&c, body + 100000, MIB - 100000));
    hear_response(&c, &r, false);
    assert_int_equal(r.len, MIB);
    assert_memory_equal(r.body, body, MIB);
    free(r.body);
    hang_up(&c);
    free(body);
    server_stop(&server);
}

static void test_http2_body(void **state)
{
    struct server server = {0};
    char *body = calloc(1, MIB);
    const char *length[] = {"content-length", "1048576", NULL};

    (void)state;
    server_start(&server);
    struct h2_client *c = h2_dial(&server);
    fill_pattern(body, MIB);
    atomic_store(&asked, 0);
    struct h2_stream *s = h2_request(c, "POST", "/echo", length, body, PART);
    s->send_open = true;
    for (int i = 0; i < 2000 && atomic_load(&asked) == 0; i++) {
        h2_turn(c, 10);
    }
    assert_true(atomic_load(&asked) > 0);
    s->send_left = MIB - PART;
    s->send_open = false;
    nghttp2_session_resume_data(c->session, s->id);
    h2_wait_closed(c, 1);
    assert_int_equal(s->len, MIB);
    assert_memory_equal(s->body, body, MIB);
    h2_hang_up(&c);
    free(body);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_never_more_than_what_comes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_where_more_lies_ready, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_peers_are_not_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_begin_the_time_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_came_is_read_in_the_end, setup, teardown),
        cmocka_unit_test(test_http1_body),
        cmocka_unit_test(test_http2_body),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
