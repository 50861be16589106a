/* Calls of models in worker processes for the next message of their client's stream (exec/feed.h). Each is answered once, by
 * the watching thread: messages may be long. */
#include "engine_priv.h"
#include "tensor/tensor.h"

static void ready(void *call)
{
    mr_worker_call_later(call);
}

bool engine_is_feed(const struct mr_worker_call *c)
{
    return c->feed && c->args && strcmp(c->args->model, MR_FEED_MODEL) == 0;
}

void engine_feed_start(struct mr_worker_call *c)
{
    mr_feed_ask(c->feed, ready, c);
}

void engine_feed_answer(struct mr_worker_call *c)
{
    static const char *const names[] = {"message"};
    struct mr_worker_answer a = {.is_last = true, .names = names};
    struct mr_feed_item *i = NULL;
    struct mr_err err = {0};
    int64_t bytes = 0;
    struct mr_tensor t = {.dtype = MR_DTYPE_UINT8, .rank = 1, .shape = &bytes};

    a.status = mr_feed_take(c->feed, &i, &err);
    a.message = err.msg;
    if (i) {
        t.data = (void *)(uintptr_t)i->message.ptr;
        t.bytes = i->message.len;
        bytes = (int64_t)i->message.len;
        a.outputs = &t;
        a.count = 1;
    }
    struct call_answer *made = mr_worker_answer_make(c, &a);
    if (i) {
        i->done(i);
    }
    mr_worker_answer_send(made);
}

void engine_feed_cancel(struct mr_worker_call *c)
{
    const struct mr_worker_answer a = {
        .status = MR_E_CANCELLED, .message = "the request was cancelled", .is_last = true};

    if (mr_feed_withdraw(c->feed, c)) {
        mr_worker_answer_send(mr_worker_answer_make(c, &a));
    }
}
