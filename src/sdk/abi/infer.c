/* Calls of the C interface: from the caller's thread to the loop and back. */
#include <errno.h>
#include <unistd.h>

#include "abi.h"
#include "base/clock.h"

/* ---- the end of a call ---- */

void infer_unref(struct mr_sdk_call *c)
{
    if (atomic_fetch_sub(&c->refs, 1) == 1) {
        mr_sdk_result_free(&c->result);
        mr_sdk_result_free(&c->taken);
        memory_unref(&c->call.memory);
        sem_destroy(&c->over);
        client_unref(c->client);
        mr_free(c);
    }
}

/* What the call found becomes the result, which leaves it. */
static struct mr_sdk_result *result_take(struct mr_sdk_call *c)
{
    struct mr_sdk_result *r = c->result;

    r->response = c->call.response;
    r->body = c->call.body;
    c->call.body = NULL;
    r->host = c->call.host;
    r->attempts = c->call.attempts;
    r->text = c->call.text.ptr;
    r->is_yes = c->call.is_yes;
    result_names_end(r);
    c->result = NULL;
    return r;
}

static void deliver(struct mr_sdk_call *c)
{
    struct mr_sdk_result *result = c->taken;

    c->taken = NULL;
    c->done(c->ctx, c->call.rc, c->call.rc < 0 ? &c->call.err : NULL, result);
}

static void on_deliver(struct mr_mail *mail)
{
    struct mr_sdk_call *c = MR_CONTAINER_OF(mail, struct mr_sdk_call, deliver);

    deliver(c);
    infer_unref(c);
}

/* The result is made here and now: the call drops its answer when nothing else refers to it. */
static void on_done(struct call *call)
{
    struct mr_sdk_call *c = MR_CONTAINER_OF(call, struct mr_sdk_call, call);

    if (call->rc == MR_OK) {
        shadow_copy(c);
    }
    c->taken = call->rc == MR_OK ? result_take(c) : NULL;
    if (!c->done) {
        atomic_store(&c->is_over, true);
        sem_post(&c->over);
    } else if (c->client->delivery == MR_SDK_PROCESS) {
        atomic_fetch_add(&c->refs, 1);
        c->deliver.run = on_deliver;
        mr_mailbox_post(&c->client->over, &c->deliver);
    } else {
        deliver(c);
    }
}

static void on_freed(struct call *call)
{
    struct mr_sdk_call *c = MR_CONTAINER_OF(call, struct mr_sdk_call, call);

    LIST_REMOVE(c, link);
    driver_end(&c->client->driver);
    infer_unref(c);
}

/* ---- the beginning ---- */

void infer_begin(struct mr_sdk_call *c)
{
    LIST_INSERT_HEAD(&c->client->calls, c, link);
    c->call.freed = on_freed;
    call_start(&c->call);
    if (c->client->is_closing || atomic_load(&c->is_cancelled)) {
        call_cancel(&c->call);
    }
}

static void on_start(struct mr_mail *mail)
{
    struct mr_sdk_call *c = MR_CONTAINER_OF(mail, struct mr_sdk_call, start);

    request_route(c);
    if (c->call.deadline_ns == 0) {
        c->call.deadline_ns =
            mr_ns_after(mr_now_ns(), c->call.cluster->policy.timeout_ms * MR_NS_PER_MS);
    }
    c->call.done = on_done;
    infer_begin(c);
}

static int start_check(mr_sdk_done_fn *done, struct mr_sdk_call *const *out_call,
                       struct mr_err *err)
{
    return done || out_call
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "done and out_call are NULL: one is needed");
}

/* A call that is waited for leaves the loop to the thread that will wait. */
static void start(struct mr_sdk_call *c, mr_sdk_done_fn *done, void *ctx,
                  struct mr_sdk_call **out_call)
{
    struct driver *d = &c->client->driver;

    c->done = done;
    c->ctx = ctx;
    c->start.run = on_start;
    if (out_call) {
        atomic_fetch_add(&c->refs, 1);
        *out_call = c;
    }
    driver_begin(d);
    if (done) {
        driver_post(d, &c->start);
    } else {
        mr_loop_post(d->loop, &c->start);
    }
}

int mr_sdk_infer_start(struct mr_sdk *client, const struct mr_sdk_request *request,
                       mr_sdk_done_fn *done, void *ctx, struct mr_sdk_call **out_call,
                       struct mr_err *err)
{
    struct mr_sdk_call *c;
    int rc = start_check(done, out_call, err);

    rc = rc < 0 ? rc : request_take(client, request, &c, err);
    if (rc == MR_OK) {
        start(c, done, ctx, out_call);
    }
    return rc;
}

int mr_sdk_ask_start(struct mr_sdk *client, const struct mr_sdk_question *question,
                     mr_sdk_done_fn *done, void *ctx, struct mr_sdk_call **out_call,
                     struct mr_err *err)
{
    struct mr_sdk_call *c;
    int rc = start_check(done, out_call, err);

    rc = rc < 0 ? rc : request_ask_take(client, question, &c, err);
    if (rc == MR_OK) {
        start(c, done, ctx, out_call);
    }
    return rc;
}

/* ---- waiting ---- */

/* Another thread runs the loop. A signal ends a wait that has an end. */
static void wait_elsewhere(struct mr_sdk_call *c, int64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ns / MR_NS_PER_S),
                                .tv_nsec = (long)(at_ns % MR_NS_PER_S)};

    if (at_ns != INT64_MAX) {
        sem_clockwait(&c->over, CLOCK_MONOTONIC, &at);
        return;
    }
    while (sem_wait(&c->over) < 0 && errno == EINTR) {
    }
}

/* Another thread runs mr_sdk_free. It has ended the calls that have begun. */
static void end_unbegun(struct mr_sdk_call *c)
{
    c->call.rc = MR_FAIL(&c->call.err, MR_E_CANCELLED, "the client was freed");
    atomic_store(&c->is_over, true);
    driver_end(&c->client->driver);
    infer_unref(c); /* the reference of the loop */
}

/* False: the call is not over yet. first: begins the call; NULL: that is posted already. */
static bool wait_until_over(struct mr_sdk_call *c, struct mr_mail *first, int64_t wait_ms)
{
    struct driver *d = &c->client->driver;

    if (atomic_load(&c->is_over)) {
        return true;
    }
    if (!driver_enter(d)) {
        if (first) {
            end_unbegun(c);
        } else {
            wait_elsewhere(c, driver_wait_end(d, wait_ms));
        }
        return atomic_load(&c->is_over);
    }
    const int64_t at_ns = driver_wait_end(d, wait_ms);
    if (!driver_run(d, first, &c->is_over, at_ns) && first) {
        driver_post(d, first);
    }
    if (!atomic_load(&c->is_over)) {
        wait_elsewhere(c, at_ns);
    }
    driver_leave(d);
    return atomic_load(&c->is_over);
}

/* Of a call that is over. */
static int result_give(struct mr_sdk_call *c, struct mr_sdk_result **out, struct mr_err *err)
{
    if (c->call.rc < 0) {
        if (err) {
            *err = c->call.err;
        }
        return c->call.rc;
    }
    if (!c->taken) {
        return MR_FAIL(err, MR_E_CLOSED, "the result of the call was taken already");
    }
    *out = c->taken;
    c->taken = NULL;
    return MR_OK;
}

int mr_sdk_call_wait(struct mr_sdk_call *c, int64_t wait_ms, struct mr_sdk_result **out,
                     struct mr_err *err)
{
    if (!c || c->done) {
        return MR_FAIL(err, MR_E_INVALID, "%s", c ? "the call ends in a callback" : "call: NULL");
    }
    if (!wait_until_over(c, NULL, wait_ms)) {
        return 0;
    }
    const int rc = result_give(c, out, err);
    return rc < 0 ? rc : 1;
}

static int here_check(const struct mr_sdk *client, const char *name, struct mr_err *err)
{
    return client && mr_loop_is_here(client->driver.loop)
               ? MR_FAIL(err, MR_E_INVALID,
                         "%s would wait for itself in a callback: %s_start does not", name, name)
               : MR_OK;
}

static int wait_for(struct mr_sdk_call *c, struct mr_sdk_result **out, struct mr_err *err)
{
    c->start.run = on_start;
    atomic_fetch_add(&c->refs, 1);
    driver_begin(&c->client->driver);
    wait_until_over(c, &c->start, -1);
    const int rc = result_give(c, out, err);
    infer_unref(c);
    return rc;
}

int mr_sdk_infer(struct mr_sdk *client, const struct mr_sdk_request *request,
                 struct mr_sdk_result **out, struct mr_err *err)
{
    struct mr_sdk_call *c;
    int rc = here_check(client, "mr_sdk_infer", err);

    rc = rc < 0 ? rc : request_take(client, request, &c, err);
    return rc < 0 ? rc : wait_for(c, out, err);
}

int mr_sdk_ask(struct mr_sdk *client, const struct mr_sdk_question *question,
               struct mr_sdk_result **out, struct mr_err *err)
{
    struct mr_sdk_call *c;
    int rc = here_check(client, "mr_sdk_ask", err);

    rc = rc < 0 ? rc : request_ask_take(client, question, &c, err);
    return rc < 0 ? rc : wait_for(c, out, err);
}

/* ---- cancel ---- */

static void on_cancel(struct mr_mail *mail)
{
    struct mr_sdk_call *c = MR_CONTAINER_OF(mail, struct mr_sdk_call, cancel);

    if (!c->call.is_reported || c->call.at[0].host || c->call.at[1].host) {
        call_cancel(&c->call);
    }
    driver_end(&c->client->driver);
    infer_unref(c);
}

void mr_sdk_call_cancel(struct mr_sdk_call *c)
{
    struct driver *d = &c->client->driver;

    if (atomic_exchange(&c->is_cancelled, true) || !driver_enter(d)) {
        return; /* or mr_sdk_free cancels it */
    }
    atomic_fetch_add(&c->refs, 1);
    c->cancel.run = on_cancel;
    driver_begin(d);
    driver_post(d, &c->cancel);
    driver_leave(d);
}

void mr_sdk_call_free(struct mr_sdk_call **c)
{
    if (*c) {
        infer_unref(*c);
    }
    *c = NULL;
}

/* ---- delivery by mr_sdk_process ---- */

int mr_sdk_process(struct mr_sdk *client)
{
    uint64_t times;

    if (!client || client->over_fd < 0) {
        return 0;
    }
    (void)!read(client->over_fd, &times, sizeof times);
    return (int)mr_mailbox_drain(&client->over);
}

void infer_close(struct mr_sdk *client)
{
    struct mr_sdk_call *c, *next;

    client->is_closing = true;
    for (c = LIST_FIRST(&client->calls); c; c = next) {
        next = LIST_NEXT(c, link);
        call_cancel(&c->call);
    }
}
