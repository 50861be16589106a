/* Calls of the memory store.
 *
 * A call is a parcel that goes up, is carried out, and comes down as its answer. What ends a call earlier (its
 * deadline, a cancel, a cut) takes the parcel away from it, which travels on with no one to answer, and a local
 * notice ends the call. */
#include "base/clock.h"
#include "kv/state/copy.h"
#include "store.h"

/** Ends the call with that error, soon; its request goes on without it. */
void memory_call_end(struct memory_call *call, int rc, const char *text)
{
    struct memory_conn *c = (struct memory_conn *)call->base.kv;
    struct parcel *p = call->parcel;

    if (call->is_waiting) {
        memory_parcel_free(p);
    } else {
        p->call = NULL;
    }
    call->is_waiting = false;
    call->deadline_ns = INT64_MAX;
    call->parcel = memory_user_parcel(c, PARCEL_RESULT);
    call->parcel->call = call;
    call->parcel->rc = MR_FAIL(&call->parcel->err, rc, "%s", text);
    memory_send(c, &c->local, call->parcel, memory_time(c->memory));
}

void memory_call_send(struct memory_call *call)
{
    struct memory_conn *c = (struct memory_conn *)call->base.kv;

    call->is_waiting = c->is_cut;
    if (!c->is_cut) {
        memory_send(c, &c->up, call->parcel, memory_time(c->memory));
    } else if (c->memory->wake) {
        c->memory->wake(c->memory->wake_ctx);
    }
}

static int request_copy(const struct kv_request *request, struct parcel *p)
{
    struct mr_kv_txn all = request->txn;
    struct mr_kv_txn copy = {0};
    mr_str key = request->range.key, after = request->range.after;
    int rc = MR_OK;

    p->request = *request;
    if (request->ask == KV_ASK_PUT || request->ask == KV_ASK_DELETE) {
        all = (struct mr_kv_txn){.then = &request->op, .then_count = 1};
    }
    if (request->ask == KV_ASK_RANGE) {
        p->request.range.key = mr_arena_str(&p->arena, key);
        p->request.range.after = mr_arena_str(&p->arena, after);
    } else if ((rc = kv_txn_copy(&all, &p->arena, &copy, &p->err)) == MR_OK) {
        p->request.txn = copy;
        p->request.op = copy.then_count ? copy.then[0] : (struct mr_kv_op){0};
    }
    return rc;
}

struct mr_kv_call *memory_call_start(struct mr_kv *kv, const struct kv_request *request,
                                     const struct mr_err *refused, mr_kv_done_fn *done, void *ctx)
{
    struct memory_conn *c = (struct memory_conn *)kv;
    struct memory_call *call = MR_NEW(struct memory_call);

    call->base = (struct mr_kv_call){.kv = kv, .done = done, .ctx = ctx};
    call->deadline_ns = mr_ns_after(memory_time(c->memory), kv->options.timeout_ns);
    call->parcel = memory_user_parcel(c, PARCEL_REQUEST);
    call->parcel->call = call;
    TAILQ_INSERT_TAIL(&c->calls, call, link);
    call->is_waiting = true;
    if (++c->call_count > MR_KV_CALLS_MAX) {
        memory_call_end(call, MR_E_EXHAUSTED, "too many calls to the registry are under way");
    } else if (refused) {
        memory_call_end(call, refused->status, refused->msg);
    } else if (request_copy(request, call->parcel) < 0) {
        memory_call_end(call, MR_E_NOMEM, "no memory for a request to the registry");
    } else {
        memory_call_send(call);
    }
    return &call->base;
}

void memory_call_cancel(struct mr_kv_call *base)
{
    struct memory_call *call = (struct memory_call *)base;

    if (call->parcel->kind != PARCEL_RESULT) {
        memory_call_end(call, MR_E_CANCELLED, "the call was cancelled");
        return;
    }
    call->parcel->rc = MR_FAIL(&call->parcel->err, MR_E_CANCELLED, "the call was cancelled");
}

/** Gives the call its answer, and the call's end. */
void memory_call_answer(struct memory_conn *c, struct parcel *p)
{
    struct memory_call *call = p->call;
    struct mr_kv_call base = call->base;

    TAILQ_REMOVE(&c->calls, call, link);
    c->call_count--;
    mr_free(call);
    base.done(base.ctx, p->rc, p->rc < 0 ? &p->err : NULL, p->rc < 0 ? NULL : &p->reply);
}

/** The oldest call that may end by its deadline. The calls are in the order of their deadlines, but for those that
 *  end already. */
struct memory_call *memory_first_deadline(const struct memory_conn *c)
{
    struct memory_call *call;
    TAILQ_FOREACH (call, &c->calls, link) {
        if (call->deadline_ns != INT64_MAX) {
            return call;
        }
    }
    return NULL;
}

void memory_end_overdue(struct mr_kv_memory *m)
{
    struct memory_conn *c;
    struct memory_call *call;

    TAILQ_FOREACH (c, &m->conns, link) {
        while ((call = memory_first_deadline(c)) && call->deadline_ns <= m->now_ns) {
            memory_call_end(call, MR_E_DEADLINE, "the registry has not answered in time");
            call->parcel->of_step = 0;
        }
    }
}
