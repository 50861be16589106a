/* Several answers to one request, on their way from the executor to the request's reply loop.
 *
 * Answers that the client has not read are bounded: the executor's thread waits in sched_respond while the reply loop
 * holds the maximum number of answers, or bytes of them, of a request. The reply loop calls mr_infer_response_end for
 * each answer that has left. A cancelled request releases the executor's thread at once. An executor without a
 * thread to block is not kept waiting: it offers the answer again when there is room (on_room of exec/exec.h).
 *
 * A request is over with its last answer, whatever others of its execution still wait for (exec_end_request).
 *
 * Thread: the executor's, any number of them; all shared state is guarded by the scheduler's mutex. */
#include "sched_priv.h"

#define UNREAD_MAX       64u
#define UNREAD_BYTES_MAX (UINT64_C(1) << 20)

static uint64_t bytes_of(const struct mr_response *q)
{
    uint64_t bytes = sizeof *q;

    for (uint32_t i = 0; q->outputs.list && i < q->outputs.executor->signature->output_count; i++) {
        bytes += q->outputs.list[i].tensor.bytes;
    }
    return bytes;
}

static bool has_room(const struct mr_infer *r)
{
    return r->unread < UNREAD_MAX && r->unread_bytes < UNREAD_BYTES_MAX;
}

static void run_on_response(struct mr_mail *mail)
{
    struct mr_response *q = MR_CONTAINER_OF(mail, struct mr_response, mail);
    struct mr_infer *r = q->user;

    r->on_response(r, q);
}

static int check_outputs(const struct mr_version *v, struct mr_response *q, struct mr_err *err)
{
    int rc = MR_OK;

    for (uint32_t i = 0; q->outputs.list && i < v->output_count && rc == MR_OK; i++) {
        struct mr_exec_output *o = &q->outputs.list[v->outputs[i].backend_index];
        if (o->is_set) {
            rc = exec_check_output(v, &v->outputs[i], &o->tensor, err);
            rc = rc < 0 ? rc : exec_reshape_output(v, &q->arena, &v->outputs[i], &o->tensor, err);
        }
    }
    return rc;
}

int sched_respond(struct mr_execution *x, struct mr_response *q, struct mr_err *err)
{
    struct exec_run *run = x->user;
    const uint32_t request = q->request;
    struct mr_sched *s = run->s;
    struct mr_infer *r, *ended = NULL;
    int rc = q->user ? MR_OK : check_outputs(s->version, q, err); /* not when offered again */

    if (rc < 0) {
        return rc;
    }
    bool is_here = false;

    pthread_mutex_lock(&s->mutex);
    while ((r = exec_open_request(run, request)) && !is_cancelled(r) && !has_room(r)) {
        if (x->on_room) {
            q->user = r;
            r->room_for = x;
            pthread_mutex_unlock(&s->mutex);
            return MR_PENDING;
        }
        s->waiting_responders++;
        pthread_cond_wait(&s->freed, &s->mutex);
        s->waiting_responders--;
    }
    if (!r) {
        rc = MR_FAIL(err, MR_E_INVALID, "request %u is final, no answer to it can follow", request);
    } else if (is_cancelled(r)) {
        rc = MR_FAIL(err, MR_E_CANCELLED, "no one waits for the answer");
    } else {
        const bool is_final = q->is_final;
        if (!r->on_response) { /* a warm-up */
            mr_response_free(&q);
        } else {
            r->unread++;
            r->unread_bytes += bytes_of(q);
            q->user = r;
            q->mail.run = run_on_response;
            is_here = !r->reply_loop->post;
            /* under the mutex: the request's end cannot come before its answers */
            if (!is_here) {
                r->reply_loop->post(r->reply_loop->ctx, &q->mail);
            }
        }
        ended = is_final ? exec_end_request(run, request) : NULL;
    }
    pthread_mutex_unlock(&s->mutex);
    if (is_here) { /* its end does not come before this returns: the execution goes on */
        r->on_response(r, q);
    }
    if (ended) {
        sched_deliver(ended);
    }
    return rc;
}

struct mr_execution *sched_take_offer(struct mr_sched *s, struct mr_infer *r)
{
    struct mr_execution *x = r->room_for;

    r->room_for = NULL;
    if (x) {
        instance_ending_begin(
            s); /* the execution may end, and the version with it, before on_room returns */
    }
    return x;
}

void sched_offer_again(struct mr_sched *s, struct mr_execution *x)
{
    if (x) {
        x->on_room(x);
        instance_ending_end(s);
    }
}

void mr_infer_response_end(struct mr_infer *r, struct mr_response **response)
{
    struct mr_sched *s = r->version->sched;
    struct mr_execution *again;

    pthread_mutex_lock(&s->mutex);
    r->unread--;
    r->unread_bytes -= bytes_of(*response);
    if (s->waiting_responders > 0) {
        pthread_cond_broadcast(&s->freed);
    }
    again = has_room(r) ? sched_take_offer(s, r) : NULL;
    pthread_mutex_unlock(&s->mutex);
    mr_response_free(response);
    sched_offer_again(s, again);
}
