/* Several answers to one request: each is made separately, checked, and passed to the scheduler. Threads of an
 * executor may make answers to different requests at the same time; answers share nothing here. */
#include "exec_priv.h"

#define ARENA_FIRST 1024
#define ARENA_LIMIT (1u << 20)

int mr_response_new(struct mr_execution *x, uint32_t request, struct mr_response **out,
                    struct mr_err *err)
{
    struct mr_executor *e = x->outputs.executor;

    if (!(x->exec.flags & MR_EXEC_DECOUPLED) || request >= x->exec.request_count) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "model '%s': an answer to request %u of %u of an execution that is %sdecoupled",
            e->model, request, x->exec.request_count,
            x->exec.flags & MR_EXEC_DECOUPLED ? "" : "not ");
    }
    struct mr_response *r = mr_try_alloc(sizeof *r);
    if (!r) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    *r = (struct mr_response){.request = request, .outputs = {.executor = e, .arena = &r->arena}};
    mr_arena_init(&r->arena, ARENA_FIRST, ARENA_LIMIT);
    r->outputs.list =
        MR_ARENA_ARRAY(&r->arena, struct mr_exec_output, e->signature->output_count + 1u);
    if (!r->outputs.list) {
        mr_response_free(&r);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    *out = r;
    return MR_OK;
}

void mr_response_free(struct mr_response **r)
{
    if (*r) {
        mr_exec_outputs_drop(&(*r)->outputs);
        mr_arena_fini(&(*r)->arena);
        mr_freep(r);
    }
}

int mr_execution_respond(struct mr_execution *x, uint32_t request, struct mr_response **response,
                         uint32_t flags, struct mr_err *err)
{
    struct mr_response *r = response ? *response : NULL;
    const bool is_final = (flags & MR_RESPONSE_FINAL) != 0;
    int rc = MR_OK;

    if (!r && !is_final) {
        return MR_FAIL(err, MR_E_INVALID, "model '%s': neither an answer nor the end of a request",
                       x->outputs.executor->model);
    }
    if (!r) {
        MR_TRY(mr_response_new(x, request, &r, err));
        r->outputs.list = NULL;
    } else if (r->request != request) {
        rc = MR_FAIL(err, MR_E_INVALID, "model '%s': the answer is to request %u, not to %u",
                     x->outputs.executor->model, r->request, request);
    } else if (r->outputs.list) {
        rc = exec_outputs_complete(&r->outputs, x->exec.output_wanted, err);
    }
    r->is_final = is_final;
    if (response) {
        *response = r;
    }
    rc = rc == MR_OK ? x->respond(x, r, err) : rc;
    if (rc == MR_PENDING) {
        return rc; /* it may be another thread's by now */
    }
    if (response) {
        *response = NULL;
    }
    if (rc < 0) {
        mr_response_free(&r);
    }
out:
    return rc;
}
