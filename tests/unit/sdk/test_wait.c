/* Calls that are waited for in steps (mr_sdk_call_wait), beside a host that answers when the test wants it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "millrace/client.h"

#define ANSWER                                                                                     \
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 51\r\n\r\n"              \
    "{\"model_name\":\"m\",\"model_version\":\"7\",\"outputs\":[]}"

static const struct mr_sdk_request request = {
    .size = sizeof request, .model = "m", .timeout_ms = 600000};

/* ---- the host ---- */

struct host {
    int listener;
    char url[64];
};

static void host_open(struct host *h)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;

    h->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(h->listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(h->listener, 16), 0);
    assert_int_equal(getsockname(h->listener, (struct sockaddr *)&at, &size), 0);
    snprintf(h->url, sizeof h->url, "http://127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
}

/* Answers the request of one connection, which has been sent or will be. Returns the connection. */
static int host_answer(struct host *h)
{
    char head[4096];
    const int fd = accept(h->listener, NULL, NULL);

    assert_true(fd >= 0 && read(fd, head, sizeof head) > 0);
    assert_int_equal(write(fd, ANSWER, sizeof ANSWER - 1), sizeof ANSWER - 1);
    return fd;
}

static struct mr_sdk *client_new(const struct host *h, uint32_t delivery)
{
    const char *url = h->url;
    const struct mr_sdk_options o = {.size = sizeof o,
                                     .delivery = delivery,
                                     .urls = &url,
                                     .url_count = 1,
                                     .attempt_timeout_ms = 600000};
    struct mr_sdk *client = NULL;
    struct mr_err err;

    assert_int_equal(mr_sdk_create(&client, &o, &err), MR_OK);
    return client;
}

static struct mr_sdk_call *call_new(struct mr_sdk *client)
{
    struct mr_sdk_call *call = NULL;
    struct mr_err err;

    assert_int_equal(mr_sdk_infer_start(client, &request, NULL, NULL, &call, &err), MR_OK);
    return call;
}

static void waits_in_vain(struct mr_sdk_call *call, int64_t wait_ms)
{
    struct mr_sdk_result *result = NULL;

    assert_int_equal(mr_sdk_call_wait(call, wait_ms, &result, NULL), 0);
    assert_null(result);
}

/* Twice: the end of a call stays. */
static void is_cancelled(struct mr_sdk_call *call)
{
    struct mr_sdk_result *result = NULL;
    struct mr_err err;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_sdk_call_wait(call, -1, &result, &err), MR_E_CANCELLED);
        assert_string_equal(err.msg, "the call was cancelled");
    }
    assert_null(result);
}

/* ---- tests ---- */

static void answered(void **state)
{
    struct mr_sdk_result *result = NULL;
    struct host h;
    struct mr_err err;

    (void)state;
    host_open(&h);
    for (uint32_t delivery = MR_SDK_THREAD; delivery <= MR_SDK_PROCESS; delivery++) {
        struct mr_sdk *client = client_new(&h, delivery);
        struct mr_sdk_call *call = call_new(client), *beside = call_new(client);
        waits_in_vain(call, 0);
        waits_in_vain(call, 1);
        const int fd = host_answer(&h), other = host_answer(&h);
        assert_int_equal(mr_sdk_call_wait(call, -1, &result, &err), 1);
        assert_string_equal(mr_sdk_result_version(result), "7");
        mr_sdk_result_free(&result);
        assert_int_equal(mr_sdk_call_wait(call, -1, &result, &err), MR_E_CLOSED);
        assert_int_equal(mr_sdk_call_wait(beside, -1, &result, &err), 1);
        mr_sdk_result_free(&result);
        mr_sdk_call_free(&call);
        mr_sdk_call_free(&beside);
        mr_sdk_free(&client);
        close(fd);
        close(other);
    }
    close(h.listener);
}

static void cancelled(void **state)
{
    struct host h;

    (void)state;
    host_open(&h);
    struct mr_sdk *client = client_new(&h, MR_SDK_THREAD);
    struct mr_sdk_call *begun = call_new(client), *fresh = call_new(client);
    waits_in_vain(begun, 1);
    mr_sdk_call_cancel(begun);
    is_cancelled(begun);
    mr_sdk_call_cancel(fresh);
    is_cancelled(fresh);
    mr_sdk_call_free(&begun);
    mr_sdk_call_free(&fresh);
    mr_sdk_free(&client);
    close(h.listener);
}

/* The client ends its calls, waited for or not, and those whose handles were given back. */
static void freed_client(void **state)
{
    struct host h;

    (void)state;
    host_open(&h);
    struct mr_sdk *client = client_new(&h, MR_SDK_THREAD);
    struct mr_sdk_call *begun = call_new(client), *fresh = call_new(client),
                       *dropped = call_new(client);
    waits_in_vain(begun, 1);
    mr_sdk_call_free(&dropped);
    mr_sdk_free(&client);
    mr_sdk_call_cancel(begun);
    is_cancelled(begun);
    is_cancelled(fresh);
    mr_sdk_call_free(&begun);
    mr_sdk_call_free(&fresh);
    close(h.listener);
}

#define WAITERS 4
#define ROUNDS  20

struct waiter {
    struct mr_sdk *client;
    struct mr_sdk_call *call; /* NULL: it infers */
    int rc;
};

static void *waiter_main(void *arg)
{
    struct waiter *w = arg;
    struct mr_sdk_result *result = NULL;

    w->rc = w->call ? mr_sdk_call_wait(w->call, -1, &result, NULL)
                    : mr_sdk_infer(w->client, &request, &result, NULL);
    return NULL;
}

/* Threads that wait, one of which runs the loop, while another one frees the client. */
static void freed_beside(void **state)
{
    struct waiter waiters[WAITERS];
    pthread_t threads[WAITERS];
    int fds[WAITERS];
    struct host h;

    (void)state;
    host_open(&h);
    for (int round = 0; round < ROUNDS; round++) {
        struct mr_sdk *client = client_new(&h, MR_SDK_THREAD);
        for (int i = 0; i < WAITERS; i++) {
            waiters[i] = (struct waiter){client, i % 2 ? call_new(client) : NULL, 0};
            pthread_create(&threads[i], NULL, waiter_main, &waiters[i]);
        }
        for (int i = 0; i < WAITERS; i++) {
            fds[i] = accept(h.listener, NULL, NULL); /* all calls have begun */
        }
        mr_sdk_free(&client);
        for (int i = 0; i < WAITERS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].rc, MR_E_CANCELLED);
            mr_sdk_call_free(&waiters[i].call);
            close(fds[i]);
        }
    }
    close(h.listener);
}

static _Atomic bool is_signalled;

static void on_signal(int number)
{
    (void)number;
    atomic_store(&is_signalled, true);
}

static void on_done(void *ctx, int status, const struct mr_err *err, struct mr_sdk_result *result)
{
    (void)err;
    (void)result;
    atomic_store((_Atomic int *)ctx, status);
}

struct waiting {
    struct mr_sdk_call *call;
    _Atomic bool is_back;
};

static void *wait_main(void *arg)
{
    struct waiting *w = arg;

    waits_in_vain(w->call, 3600000);
    atomic_store(&w->is_back, true);
    return NULL;
}

/* While the client's own thread runs the loop, as it does for the call with a callback, a signal ends a wait of an hour. */
static void signalled(void **state)
{
    const struct sigaction action = {.sa_handler = on_signal};
    _Atomic int status = 0;
    struct waiting w = {0};
    struct host h;
    pthread_t thread;
    struct mr_err err;

    (void)state;
    host_open(&h);
    struct mr_sdk *client = client_new(&h, MR_SDK_THREAD);
    assert_int_equal(mr_sdk_infer_start(client, &request, on_done, &status, NULL, &err), MR_OK);
    const int fd = accept(h.listener, NULL, NULL); /* the client's thread is at it */
    assert_true(fd >= 0);
    w.call = call_new(client);
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, wait_main, &w);
    while (!atomic_load(&w.is_back)) {
        pthread_kill(thread, SIGUSR1);
        sched_yield(); /* one that comes before the wait ends nothing */
    }
    pthread_join(thread, NULL);
    assert_true(atomic_load(&is_signalled));
    mr_sdk_call_free(&w.call);
    mr_sdk_free(&client);
    assert_int_equal(atomic_load(&status), MR_E_CANCELLED);
    close(fd);
    close(h.listener);
}

static void refused(void **state)
{
    struct mr_sdk_result *result = NULL;
    struct mr_sdk_call *call = NULL;
    _Atomic int status = 0;
    struct host h;
    struct mr_err err;

    (void)state;
    host_open(&h);
    struct mr_sdk *client = client_new(&h, MR_SDK_THREAD);
    assert_int_equal(mr_sdk_call_wait(NULL, 0, &result, &err), MR_E_INVALID);
    assert_int_equal(mr_sdk_infer_start(client, &request, NULL, NULL, NULL, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "out_call"));
    assert_int_equal(mr_sdk_infer_start(client, &request, on_done, &status, &call, &err), MR_OK);
    assert_int_equal(mr_sdk_call_wait(call, -1, &result, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "callback"));
    mr_sdk_free(&client);
    assert_int_equal(atomic_load(&status), MR_E_CANCELLED);
    mr_sdk_call_free(&call);
    close(h.listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answered),  cmocka_unit_test(cancelled), cmocka_unit_test(freed_client),
        cmocka_unit_test(signalled), cmocka_unit_test(refused),   cmocka_unit_test(freed_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
