/* millrace.EndpointControl: the calls of admin/rest_endpoints.c over gRPC. */
#include "methods_priv.h"
#include "serve/admin/admin.h"
#include "serve/endpoints/control.h"
#include "serve/state/grpc_reply.h"

struct endpoints_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_grpc_call *g;
    const Millrace__EndpointsRequest *question; /* NULL: a change. Both in the call's arena */
    const Millrace__EndpointChangeRequest *change;
    struct mr_arena arena;
    Millrace__EndpointsResponse answer;
    struct mr_err err;
    int rc;
};

static void endpoints_run(struct admin_job *job)
{
    struct endpoints_job *j = MR_CONTAINER_OF(job, struct endpoints_job, job);
    struct endpoints *es = j->server->endpoints;

    j->rc = j->question
                ? endpoints_status(es, mr_str_c(j->question->name), &j->arena, &j->answer, &j->err)
                : endpoints_change(es, j->change, &j->arena, &j->answer, &j->err);
}

static void endpoints_done(struct admin_job *job)
{
    struct endpoints_job *j = MR_CONTAINER_OF(job, struct endpoints_job, job);

    if (j->rc < 0) {
        grpc_fail_err(j->g, &j->err);
    } else {
        grpc_reply_message(j->g, j->question ? &j->answer.base : &j->answer.endpoints[0]->base);
    }
    mr_arena_fini(&j->arena);
    mr_free(j);
}

static void submit(struct mr_server *s, struct mr_grpc_call *g,
                   const Millrace__EndpointsRequest *question,
                   const Millrace__EndpointChangeRequest *change)
{
    struct endpoints_job *j = MR_NEW(struct endpoints_job);

    j->server = s;
    j->g = g;
    j->question = question;
    j->change = change;
    j->job.run = endpoints_run;
    j->job.done = endpoints_done;
    mr_arena_init(&j->arena, 4096, 64u << 20);
    admin_submit(s, &j->job);
}

void grpc_endpoints(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__EndpointsRequest *q = grpc_request(g, &millrace__endpoints_request__descriptor);

    if (q) {
        submit(s, g, q, NULL);
    }
}

void grpc_endpoint_change(struct mr_server *s, struct mr_grpc_call *g)
{
    Millrace__EndpointChangeRequest *q =
        grpc_request(g, &millrace__endpoint_change_request__descriptor);

    if (q) {
        submit(s, g, NULL, q);
    }
}
