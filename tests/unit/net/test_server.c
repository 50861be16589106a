/* The server around the protocols: listening, limits, timeouts, draining, several loops. */
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "h2_client.h"

static void test_addresses(void **state)
{
    static const char *const bad[] = {
        "",       "8000",  "localhost", ":8000",       "1.2.3.4:", "a:b",         "a:-1", "a:65536",
        "::1:80", "[::1]", "unix:",     "[::1]:99999", "a b:1",    "1.2.3.4:80x", "[]:80"};
    struct mr_http_options o;
    struct mr_http_handler h = {0};
    struct mr_http_server *http;
    struct mr_loop *loop;
    struct mr_err err;
    uint16_t port;

    (void)state;
    mr_http_options_init(&o);
    assert_int_equal(mr_loop_new(&loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_http_server_new(&http, &o, &h, NULL), MR_OK);
    for (size_t i = 0; i < COUNT(bad); i++) {
        int rc = mr_http_listen(http, &loop, 1, bad[i], 0, false, &port, &err);
        if (rc != MR_E_INVALID) {
            fail_msg("'%s': %d %s", bad[i], rc, err.msg);
        }
    }
    assert_int_equal(mr_http_listen(http, &loop, 1, "localhost:0", 0, false, &port, &err), MR_OK);
    assert_true(port > 0);
    /* Never ran, closed all the same. */
    mr_http_server_close(http, NULL, NULL);
    mr_http_server_free(&http);
    mr_loop_free(&loop);
}

static void test_options(void **state)
{
    struct mr_http_options o;
    struct mr_http_handler h = {0};
    struct mr_http_server *http = NULL;
    struct mr_err err;

    (void)state;
    mr_http_options_init(&o);
    o.h2_window_bytes = 100;
    assert_int_equal(mr_http_server_new(&http, &o, &h, &err), MR_E_INVALID);
    mr_http_options_init(&o);
    o.server_name = "a\r\nb: c";
    assert_int_equal(mr_http_server_new(&http, &o, &h, &err), MR_E_INVALID);
    mr_http_options_init(&o);
    o.max_headers = 0;
    assert_int_equal(mr_http_server_new(&http, &o, &h, &err), MR_E_INVALID);
    assert_null(http);
}

static void ask(struct client *c, const char *path)
{
    char text[256];
    char expected[256];

    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    snprintf(expected, sizeof expected, "GET %s?", path);
    assert_true(say(c, text));
    expect_response(c, 200, expected);
}

static void test_two_loops(void **state)
{
    struct mr_http_options o;
    struct server s;
    struct client c[32];
    uint64_t accepted[2];

    (void)state;
    mr_http_options_init(&o);
    server_start_with(&s, &o, 2, "127.0.0.1:0");
    for (int i = 0; i < 32; i++) {
        c[i] = dial(&s);
        ask(&c[i], "/two");
    }
    assert_int_equal(mr_http_server_connections(s.http), 32);
    for (int i = 0; i < 2; i++) {
        accepted[i] = mr_count_get(&mr_loop_stats(s.loops[i])->accepted);
        assert_true(accepted[i] > 0);
    }
    assert_int_equal(accepted[0] + accepted[1], 32);
    for (int i = 0; i < 32; i++) {
        hang_up(&c[i]);
    }
    server_stop(&s);
}

static void test_port_in_use(void **state)
{
    struct mr_http_options o;
    struct mr_http_handler h = {0};
    struct mr_http_server *second;
    struct server s;
    char address[32];
    struct mr_err err;

    (void)state;
    mr_http_options_init(&o);
    server_start_with(&s, &o, 2, "127.0.0.1:0");
    snprintf(address, sizeof address, "127.0.0.1:%u", s.port);
    assert_int_equal(mr_http_server_new(&second, &o, &h, NULL), MR_OK);
    /* Although our own sockets share the port among them. */
    assert_int_equal(mr_http_listen(second, s.loops, 1, address, 0, false, NULL, &err), MR_E_IO);
    assert_non_null(strstr(err.msg, "in use"));
    mr_http_server_free(&second);
    server_stop(&s);
}

static struct client dial_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval tv = {.tv_sec = PATIENCE_NS / MR_NS_PER_S};
    struct client c = {.fd = socket(AF_UNIX, SOCK_STREAM, 0)};

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    return c;
}

static void test_unix(void **state)
{
    struct mr_http_options o;
    struct mr_http_handler h = {0};
    struct mr_http_server *second;
    struct server s;
    char address[96];
    struct mr_err err;
    struct stat st;

    (void)state;
    mr_http_options_init(&o);
    snprintf(address, sizeof address, "unix:/tmp/mr_net_test_%d.sock", (int)getpid());
    const char *path = address + 5;
    /* A file that is no socket stays. */
    FILE *f = fopen(path, "w");
    fclose(f);
    assert_int_equal(mr_http_server_new(&second, &o, &h, NULL), MR_OK);
    struct mr_loop *loop;
    assert_int_equal(mr_loop_new(&loop, NULL, NULL), MR_OK);
    assert_int_equal(mr_http_listen(second, &loop, 1, address, 0, false, NULL, &err), MR_E_IO);
    assert_int_equal(stat(path, &st), 0);
    unlink(path);
    /* A socket of a process that has died is replaced. */
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(left, (struct sockaddr *)&a, sizeof a), 0);
    close(left);
    server_start_with(&s, &o, 2, address);
    for (int i = 0; i < 20; i++) {
        struct client c = dial_unix(path);
        ask(&c, "/unix");
        hang_up(&c);
    }
    /* One that is alive is not. */
    assert_int_equal(mr_http_listen(second, &loop, 1, address, 0, false, NULL, &err), MR_E_IO);
    assert_non_null(strstr(err.msg, "in use"));
    mr_http_server_free(&second);
    mr_loop_free(&loop);
    server_stop(&s);
    assert_int_equal(stat(path, &st), -1);
}

static void test_max_connections(void **state)
{
    struct mr_http_options o;
    struct server s;
    struct client c[4];
    struct response r;

    (void)state;
    mr_http_options_init(&o);
    o.max_connections = 3;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    for (int i = 0; i < 3; i++) {
        c[i] = dial(&s);
        ask(&c[i], "/max");
    }
    c[3] = dial(&s);
    hear_response(&c[3], &r, false);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "{\"error\":\"too many connections"));
    free(r.body);
    expect_end(&c[3]);
    assert_int_equal(mr_count_get(&mr_loop_stats(s.loops[0])->refused), 1);
    hang_up(&c[3]);
    hang_up(&c[0]);
    assert_true(wait_connections(&s, 2));
    c[0] = dial(&s);
    ask(&c[0], "/again");
    for (int i = 0; i < 3; i++) {
        hang_up(&c[i]);
    }
    server_stop(&s);
}

/* False: this thread did not run for so long that the server may have taken those for slow that are
 * not meant to be; that proves nothing. */
static bool timeouts_are_kept(int64_t timeout_ns)
{
    struct mr_http_options o;
    struct server s;
    struct response r;

    mr_http_options_init(&o);
    o.header_timeout_ns = o.body_timeout_ns = o.idle_timeout_ns = timeout_ns;
    o.server_name = "millrace-test";
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    int64_t begin_ns = mr_now_ns();
    int64_t last_ns = begin_ns;
    struct client none = dial(&s);
    struct client sniffed = dial(&s);
    struct client head = dial(&s);
    struct client body = dial(&s);
    struct client idle = dial(&s);
    say(&sniffed, "PRI * HT");
    say(&head, "GET / HTTP/1.1\r\nHost: x\r\n");
    say(&body, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    say(&idle, "GET /idle HTTP/1.1\r\nHost: x\r\n\r\n");
    struct h2_client *h2 = h2_dial(&s);
    struct h2_stream *stuck = h2_request(h2, "POST", "/echo", NULL, "abc", 3);
    stuck->send_open = true;
    struct client fine = dial(&s);
    bool is_fair = mr_now_ns() - begin_ns < timeout_ns / 2;
    while (is_fair && last_ns - begin_ns < timeout_ns * 5 / 2) {
        ask(&fine, "/fine");
        last_ns = mr_now_ns();
        h2_turn(h2, 1);
        usleep((useconds_t)(timeout_ns / 4000));
        is_fair = mr_now_ns() - last_ns < timeout_ns / 2;
    }
    if (is_fair) {
        expect_response(&idle, 200, "GET /idle?");
        hear_response(&head, &r, false);
        assert_int_equal(r.status, 408);
        assert_non_null(strstr(r.head, "server: millrace-test\r\n"));
        free(r.body);
        expect_response(&body, 408, NULL);
        expect_end(&none);
        expect_end(&sniffed);
        expect_end(&idle);
        h2_wait_closed(h2, 1);
        assert_int_equal(stuck->error, NGHTTP2_CANCEL);
        while (!h2->ended && h2_turn(h2, 300000)) {
        }
        assert_int_equal(h2->goaway, NGHTTP2_NO_ERROR + 1);
    }
    h2_hang_up(&h2);
    hang_up(&none);
    hang_up(&sniffed);
    hang_up(&head);
    hang_up(&body);
    hang_up(&idle);
    hang_up(&fine);
    server_stop(&s);
    return is_fair;
}

static void test_timeouts(void **state)
{
    int64_t timeout_ns = 600 * MR_NS_PER_MS;

    (void)state;
    while (!timeouts_are_kept(timeout_ns)) {
        timeout_ns *= 2;
        assert_true(timeout_ns < 10 * MR_NS_PER_S);
    }
}

static void test_write_timeout(void **state)
{
    struct mr_http_options o;
    struct server s;
    char byte;

    (void)state;
    mr_http_options_init(&o);
    o.write_timeout_ns = 300 * MR_NS_PER_MS;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    struct client c = dial(&s);
    assert_true(say(&c, "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 60000000\r\n\r\n"));
    struct h2_client *h2 = h2_dial_window(&s, 10);
    const char *bytes[] = {"x-bytes", "1000", NULL};
    h2->hold_windows = true;
    h2_request(h2, "GET", "/bytes", bytes, NULL, 0);
    h2_turn(h2, 100);
    for (int i = 0; i < 3000 && mr_http_server_connections(s.http) > 0; i++) {
        usleep(100000);
    }
    assert_int_equal(mr_http_server_connections(s.http), 0);
    assert_true(recv(c.fd, &byte, 1, 0) >= 0);
    hang_up(&c);
    h2_hang_up(&h2);
    server_stop(&s);
}

/* Two pings come. Not so when this thread did not run for long enough to answer the first in time. */
static bool pings(int64_t interval_ns)
{
    struct mr_http_options o;
    struct server s;
    uint8_t payload[8];
    uint8_t frame[17];
    size_t len;
    int count = 0;

    mr_http_options_init(&o);
    o.h2_ping_interval_ns = interval_ns;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    struct client c = dial(&s);
    h2_raw_hello(&c);
    while (count < 2 && h2_raw_wait(&c, 6, payload, sizeof payload, &len) &&
           send_all(&c, frame, h2_frame(frame, 6, 1, 0, payload, 8))) {
        count++;
    }
    hang_up(&c);
    server_stop(&s);
    return count == 2;
}

static void test_ping(void **state)
{
    (void)state;
    assert_true(pings(300 * MR_NS_PER_MS) || pings(1200 * MR_NS_PER_MS) ||
                pings(4800 * MR_NS_PER_MS));
}

/* A peer that does not answer a ping, as the answer waits behind other frames, but says something is alive: it is pinged
 * again. */
static void test_ping_of_a_busy_peer(void **state)
{
    static const uint8_t none[8];
    struct mr_http_options o;
    struct server s;
    uint8_t payload[8];
    uint8_t frame[17];
    size_t len;
    int pings = 0;

    (void)state;
    mr_http_options_init(&o);
    o.h2_ping_interval_ns = MR_NS_PER_MS;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    struct client c = dial(&s);
    h2_raw_hello(&c);
    while (pings < 3) {
        assert_true(h2_raw_wait(&c, 6, payload, sizeof payload, &len));
        if (memcmp(payload, none, sizeof none) == 0) { /* not the answer to one of ours */
            pings++;
            assert_true(send_all(&c, frame, h2_frame(frame, 6, 0, 0, "12345678", 8)));
        }
    }
    hang_up(&c);
    server_stop(&s);
}

/* What else becomes due does not end bodies that may take any time. */
static void test_body_without_timeout(void **state)
{
    struct mr_http_options o;
    struct server s;

    (void)state;
    mr_http_options_init(&o);
    o.body_timeout_ns = 0;
    o.h2_ping_interval_ns = MR_NS_PER_MS;
    server_start_with(&s, &o, 1, "127.0.0.1:0");
    struct h2_client *c = h2_dial(&s);
    struct h2_stream *slow = h2_request(c, "POST", "/echo", NULL, "slow", 4);
    slow->send_open = true;
    /* The server had the head before it had the answer to the first one. */
    while (c->pings < 3 && !slow->closed && !c->ended) {
        h2_turn(c, 300000);
    }
    assert_false(slow->closed);
    slow->send_open = false;
    nghttp2_session_resume_data(c->session, slow->id);
    h2_wait_closed(c, 1);
    assert_string_equal((char *)slow->body, "slow");
    h2_hang_up(&c);
    server_stop(&s);
}

static void test_drain(void **state)
{
    struct server s;

    (void)state;
    server_start(&s);
    struct client idle = dial(&s);
    struct client fresh = dial(&s);
    struct client busy = dial(&s);
    ask(&idle, "/idle");
    assert_true(say(&busy, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    struct h2_client *h2 = h2_dial(&s);
    struct h2_client *h2_idle = h2_dial(&s);
    h2_request(h2_idle, "GET", "/x", NULL, NULL, 0);
    h2_wait_closed(h2_idle, 1);
    struct h2_stream *first = h2_request(h2, "POST", "/later", NULL, "x", 1);
    h2_flush(h2);
    assert_true(wait_until(&s.pending_count, 2));
    mr_http_server_drain(s.http);
    mr_http_server_drain(s.http);
    expect_end(&idle);
    expect_end(&fresh);
    while (!h2_idle->ended && h2_turn(h2_idle, 300000)) {
    }
    assert_int_equal(h2_idle->goaway, NGHTTP2_NO_ERROR + 1);
    /* Nothing listens any more. */
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(s.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), -1);
    close(fd);
    /* What was under way is answered, and then the connection ends. */
    while (!h2->goaway) {
        assert_true(h2_turn(h2, 300000));
    }
    release_later(&s);
    struct response r;
    hear_response(&busy, &r, false);
    assert_string_equal(r.body, "late");
    assert_true(r.close);
    free(r.body);
    expect_end(&busy);
    h2_wait_closed(h2, 1);
    assert_string_equal((char *)first->body, "late");
    while (!h2->ended && h2_turn(h2, 300000)) {
    }
    assert_true(h2->ended);
    hang_up(&idle);
    hang_up(&fresh);
    hang_up(&busy);
    h2_hang_up(&h2);
    h2_hang_up(&h2_idle);
    assert_true(wait_connections(&s, 0));
    server_stop(&s);
}

/* Keeps a loop from everything else. */
struct gate {
    struct mr_mail mail;
    sem_t reached;
    sem_t opened;
};

static void gate_run(struct mr_mail *mail)
{
    struct gate *g = MR_CONTAINER_OF(mail, struct gate, mail);

    sem_post(&g->reached);
    while (sem_wait(&g->opened) != 0) {
    }
}

static void gate_post(struct server *s, struct gate *g)
{
    g->mail.run = gate_run;
    sem_init(&g->reached, 0, 0);
    sem_init(&g->opened, 0, 0);
    mr_loop_post(s->loops[0], &g->mail);
}

static void gate_wait(struct gate *g)
{
    while (sem_wait(&g->reached) != 0) {
    }
}

/* A drain answers the requests of connections that wait to be accepted. */
static void test_drain_of_the_queue(void **state)
{
    struct server s;
    struct gate first, second;
    struct response r;

    (void)state;
    server_start(&s);
    gate_post(&s, &first);
    gate_wait(&first);
    gate_post(&s, &second); /* with the drain behind it: the loop accepts nothing between them */
    mr_http_server_drain(s.http);
    sem_post(&first.opened);
    gate_wait(&second);
    assert_true(mr_http_server_listens(s.http));
    struct client fresh = dial(&s);
    struct client quick = dial(&s);
    struct client slow = dial(&s);
    assert_true(say(&quick, "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert_true(say(&slow, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"));
    sem_post(&second.opened);
    hear_response(&quick, &r, false);
    assert_int_equal(r.status, 200);
    assert_true(r.close);
    free(r.body);
    expect_end(&quick);
    expect_end(&fresh);
    assert_true(wait_until(&s.pending_count, 1));
    release_later(&s);
    hear_response(&slow, &r, false);
    assert_string_equal(r.body, "late");
    free(r.body);
    expect_end(&slow);
    hang_up(&fresh);
    hang_up(&quick);
    hang_up(&slow);
    assert_true(wait_connections(&s, 0));
    assert_false(mr_http_server_listens(s.http));
    server_stop(&s);
    sem_destroy(&first.reached);
    sem_destroy(&first.opened);
    sem_destroy(&second.reached);
    sem_destroy(&second.opened);
}

static void test_close_under_load(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct server s;
        struct mr_http_options o;
        struct client c[8];
        struct h2_client *h2;
        mr_http_options_init(&o);
        server_start_with(&s, &o, 1, "127.0.0.1:0");
        h2 = h2_dial(&s);
        for (int i = 0; i < 8; i++) {
            c[i] = dial(&s);
            say(&c[i], i % 2 ? "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
                             : "GET /bytes HTTP/1.1\r\nHost: x\r\nx-bytes: 9000000\r\n\r\n");
            h2_request(h2, "POST", i % 2 ? "/later" : "/echo", NULL, "x", 1);
        }
        h2_flush(h2);
        usleep((unsigned)round * 1000);
        server_stop(&s);
        for (int i = 0; i < 8; i++) {
            hang_up(&c[i]);
        }
        h2_hang_up(&h2);
    }
}

static void test_out_of_descriptors(void **state)
{
    struct server s;
    int fds[2000];
    int count = 0;

    (void)state;
    server_start(&s);
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(s.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval tv = {.tv_sec = PATIENCE_NS / MR_NS_PER_S};
    setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    struct rlimit low = {.rlim_cur = 256, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    while (count < 2000 && (fds[count] = dup(0)) >= 0) {
        count++;
    }
    /* The connection waits in the kernel's queue, and the loop does not spin on it. */
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_true(say(&c, "GET /fd HTTP/1.1\r\nHost: x\r\n\r\n"));
    uint64_t before = mr_count_get(&mr_loop_stats(s.loops[0])->iterations);
    int64_t begin_ns = mr_now_ns();
    usleep(600000);
    uint64_t rounds = mr_count_get(&mr_loop_stats(s.loops[0])->iterations) - before;
    assert_true(rounds < 50 * (uint64_t)(mr_now_ns() - begin_ns) / (600 * MR_NS_PER_MS));
    while (count > 0) {
        close(fds[--count]);
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    expect_response(&c, 200, "GET /fd?");
    hang_up(&c);
    server_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_two_loops),
        cmocka_unit_test(test_port_in_use),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_max_connections),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_write_timeout),
        cmocka_unit_test(test_ping),
        cmocka_unit_test(test_ping_of_a_busy_peer),
        cmocka_unit_test(test_body_without_timeout),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_of_the_queue),
        cmocka_unit_test(test_close_under_load),
        cmocka_unit_test(test_out_of_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
