/* What a request costs, counted: heap allocations, mutexes and system calls of the loop's thread,
 * for small requests on warm keep-alive connections. The functions below replace libc's;
 * a call counts when the thread that makes it is the server's. Not under sanitizers, which have
 * their own. */
#include <dlfcn.h>
#include <sys/epoll.h>

#include "h2_client.h"
#include "tls_fixture.h"

struct counts {
    _Atomic long allocations;
    _Atomic long locks;
    _Atomic long reads;
    _Atomic long writes;
    _Atomic long polls;
    _Atomic long others; /* eventfd, timerfd, epoll_ctl */
};

static struct counts counted;
static _Thread_local bool is_counting;

#define COUNT_CALL(what)                                                                           \
    do {                                                                                           \
        if (is_counting) {                                                                         \
            atomic_fetch_add(&counted.what, 1);                                                    \
        }                                                                                          \
    } while (0)

/* Seen by libuv too (the program is linked with its symbols exported). */
#pragma GCC visibility push(default)

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    COUNT_CALL(allocations);
    return __libc_malloc(n);
}

void *calloc(size_t count, size_t n)
{
    COUNT_CALL(allocations);
    return __libc_calloc(count, n);
}

void *realloc(void *p, size_t n)
{
    COUNT_CALL(allocations);
    return __libc_realloc(p, n);
}

/* The next definition of a function, looked up once. */
#define NEXT(type, name)                                                                           \
    static type *next;                                                                             \
    if (!next) {                                                                                   \
        next = (type *)dlsym(RTLD_NEXT, name);                                                     \
    }

typedef int(lock_fn)(pthread_mutex_t *m);
typedef ssize_t(recv_fn)(int fd, void *p, size_t n, int flags);
typedef ssize_t(send_fn)(int fd, const void *p, size_t n, int flags);
typedef ssize_t(sendmsg_fn)(int fd, const struct msghdr *m, int flags);
typedef int(epoll_wait_fn)(int fd, struct epoll_event *e, int n, int ms);
typedef int(epoll_pwait_fn)(int fd, struct epoll_event *e, int n, int ms, const sigset_t *mask);
typedef int(epoll_ctl_fn)(int fd, int op, int what, struct epoll_event *e);
typedef ssize_t(read_fn)(int fd, void *p, size_t n);
typedef ssize_t(write_fn)(int fd, const void *p, size_t n);

int pthread_mutex_lock(pthread_mutex_t *m)
{
    NEXT(lock_fn, "pthread_mutex_lock");
    COUNT_CALL(locks);
    return next(m);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    NEXT(recv_fn, "recv");
    COUNT_CALL(reads);
    return next(fd, p, n, flags);
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
    NEXT(send_fn, "send");
    COUNT_CALL(writes);
    return next(fd, p, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    NEXT(sendmsg_fn, "sendmsg");
    COUNT_CALL(writes);
    return next(fd, m, flags);
}

int epoll_wait(int fd, struct epoll_event *e, int n, int ms)
{
    NEXT(epoll_wait_fn, "epoll_wait");
    COUNT_CALL(polls);
    return next(fd, e, n, ms);
}

int epoll_pwait(int fd, struct epoll_event *e, int n, int ms, const sigset_t *mask)
{
    NEXT(epoll_pwait_fn, "epoll_pwait");
    COUNT_CALL(polls);
    return next(fd, e, n, ms, mask);
}

int epoll_ctl(int fd, int op, int what, struct epoll_event *e)
{
    NEXT(epoll_ctl_fn, "epoll_ctl");
    COUNT_CALL(others);
    return next(fd, op, what, e);
}

ssize_t read(int fd, void *p, size_t n)
{
    NEXT(read_fn, "read");
    COUNT_CALL(others);
    return next(fd, p, n);
}

ssize_t write(int fd, const void *p, size_t n)
{
    NEXT(write_fn, "write");
    COUNT_CALL(others);
    return next(fd, p, n);
}

#pragma GCC visibility pop

/* ---- the measurement ------------------------------------------------------------------------ */

static struct {
    struct mr_mail mail;
    bool on;
    _Atomic int done;
} switching;

static void on_switch(struct mr_mail *mail)
{
    (void)mail;
    is_counting = switching.on;
    atomic_fetch_add(&switching.done, 1);
}

/* Begin or end to count on the server's thread. */
static void counting(struct server *s, bool on)
{
    int before = atomic_load(&switching.done);

    if (on) {
        memset(&counted, 0, sizeof counted);
    }
    switching.on = on;
    switching.mail.run = on_switch;
    mr_loop_post(s->loops[0], &switching.mail);
    assert_true(wait_until(&switching.done, before + 1));
}

#define REQUESTS 100 /* of a round */
#define ROUNDS   10

/* The least of all rounds: what a request costs, each of them pays; what time brings (a tick of the
 * wheel, the ageing of the caches), a round that is quick enough does not. */
static struct {
    long allocations;
    long locks;
    long reads;
    long writes;
    long polls;
    long others;
} least;

#define TAKE_LEAST(what) least.what = MR_MIN(least.what, atomic_load(&counted.what))

/* Round 0 warms up and is not counted, 1 to ROUNDS are; ROUNDS + 1 is the end. */
static void round_begin(struct server *s, int round)
{
    if (round > 1) {
        counting(s, false);
        TAKE_LEAST(allocations);
        TAKE_LEAST(locks);
        TAKE_LEAST(reads);
        TAKE_LEAST(writes);
        TAKE_LEAST(polls);
        TAKE_LEAST(others);
    } else {
        memset(&least, 0x7f, sizeof least);
    }
    if (round > 0 && round <= ROUNDS) {
        counting(s, true);
    }
}

static void report(const char *what, long requests)
{
    double n = (double)requests;

    print_message(
        "%s: per request %.3f allocations, %.3f mutexes, %.2f reads, %.2f writes, %.2f polls, "
        "%.2f other system calls\n",
        what, (double)least.allocations / n, (double)least.locks / n, (double)least.reads / n,
        (double)least.writes / n, (double)least.polls / n, (double)least.others / n);
}

/* The switch itself costs one wake-up by eventfd. */
#define SLACK 3

static void test_http1(void **state)
{
    struct server s;
    static const char text[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: 200\r\n\r\n";
    char request[sizeof text - 1 + 200];

    (void)state;
    memcpy(request, text, sizeof text - 1);
    memset(request + sizeof text - 1, 'j', 200);
    server_start(&s);
    struct client c = dial(&s);
    for (int round = 0; round <= ROUNDS; round++) {
        round_begin(&s, round);
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(send_all(&c, request, sizeof request));
            expect_response(&c, 200, NULL);
        }
    }
    round_begin(&s, ROUNDS + 1);
    report("HTTP/1", REQUESTS);
    assert_int_equal(least.allocations, 0);
    assert_int_equal(least.locks, 0);
    assert_int_equal(least.reads, REQUESTS);
    assert_int_equal(least.writes, REQUESTS);
    assert_in_range(least.polls, 1, REQUESTS + SLACK);
    assert_in_range(least.others, 0, SLACK);
    hang_up(&c);
    server_stop(&s);
}

/* The allocations are OpenSSL's: two for its buffers, which it gives back when they are empty, and two
 * per record. */
static void test_http1_over_tls(void **state)
{
    static const char request[] = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    struct mr_http_options o;
    struct tls_files files;
    struct server s;

    (void)state;
    files_make(&files);
    struct mr_tls *tls = files_open(&files, false, false);
    SSL_CTX *ctx = client_context(&files, TLS1_3_VERSION, NULL);
    mr_http_options_init(&o);
    server_start_tls(&s, &o, 1, "127.0.0.1:0", tls);
    struct client c = tls_dial(&s, ctx, NULL);
    assert_non_null(c.tls);
    for (int round = 0; round <= ROUNDS; round++) {
        round_begin(&s, round);
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(send_all(&c, request, sizeof request - 1));
            expect_response(&c, 200, NULL);
        }
    }
    round_begin(&s, ROUNDS + 1);
    report("HTTP/1 over TLS", REQUESTS);
    assert_in_range(least.allocations, 0, 6 * REQUESTS);
    assert_int_equal(least.locks, 0);
    assert_int_equal(least.reads, REQUESTS);
    assert_int_equal(least.writes, REQUESTS);
    assert_in_range(least.others, 0, SLACK);
    tls_hang_up(&c);
    server_stop(&s);
    SSL_CTX_free(ctx);
    mr_tls_free(&tls);
    files_free(&files);
}

static void test_http1_pipelined(void **state)
{
    struct server s;
    char text[8192];
    size_t n = 0;

    (void)state;
    for (int i = 0; i < REQUESTS; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
    }
    server_start(&s);
    struct client c = dial(&s);
    for (int round = 0; round <= ROUNDS; round++) {
        round_begin(&s, round);
        assert_true(send_all(&c, text, n));
        for (int i = 0; i < REQUESTS; i++) {
            expect_response(&c, 200, NULL);
        }
    }
    round_begin(&s, ROUNDS + 1);
    report("HTTP/1 pipelined", REQUESTS);
    assert_int_equal(least.allocations, 0);
    assert_in_range(least.reads, 1, 10);
    assert_in_range(least.writes, 1, 10);
    hang_up(&c);
    server_stop(&s);
}

static void h2_counts(const char *what, int streams, const char *type)
{
    struct server s;
    uint8_t body[205] = {0, 0, 0, 0, 200};
    const char *headers[] = {"content-type", type, "te", "trailers", NULL};

    server_start(&s);
    struct h2_client *c = h2_dial(&s);
    long batches = H2_STREAMS / (ROUNDS + 1) / streams;
    long requests = batches * streams;
    for (int round = 0; round <= ROUNDS; round++) {
        round_begin(&s, round);
        for (long i = 0; i < batches; i++) {
            for (int k = 0; k < streams; k++) {
                h2_request(c, "POST", "/echo", headers, body, sizeof body);
            }
            h2_wait_closed(c, c->count);
        }
    }
    round_begin(&s, ROUNDS + 1);
    report(what, requests);
    assert_int_equal(least.allocations, 0);
    assert_int_equal(least.locks, 0);
    /* A client sends its windows as it likes; one read may see less than a batch. */
    assert_in_range(least.reads, 1, requests + batches + SLACK);
    assert_in_range(least.writes, 1, requests + SLACK);
    assert_in_range(least.others, 0, SLACK);
    h2_hang_up(&c);
    server_stop(&s);
}

static void test_http2(void **state)
{
    (void)state;
    h2_counts("HTTP/2, 1 stream", 1, "application/json");
    h2_counts("HTTP/2, 16 streams", 16, "application/json");
}

static void test_grpc(void **state)
{
    (void)state;
    h2_counts("gRPC, 1 stream", 1, "application/grpc");
    h2_counts("gRPC, 16 streams", 16, "application/grpc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1),
        cmocka_unit_test(test_http1_over_tls),
        cmocka_unit_test(test_http1_pipelined),
        cmocka_unit_test(test_http2),
        cmocka_unit_test(test_grpc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
