/* GET /v2/endpoints[/NAME], POST /v2/endpoints/NAME/weights|promote|rollback|resume, answers of Millrace's own. On the
 * administration thread, as they wait for the lock of the endpoints. */
#include "rest_endpoints.h"

#include "admin.h"
#include "codec/pbtext.h"
#include "serve/endpoints/control.h"
#include "serve/state/reply.h"

#define REPORT_MAX ((size_t)64 << 20)

struct endpoints_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    mr_str name; /* in the call's arena; "": all */
    /* NULL: a report; its name and action are not those of `name` and `action` */
    ProtobufCMessage *change;
    Millrace__EndpointChangeRequest__Action action;
    struct mr_arena arena;
    struct mr_buf body;
    struct mr_err err;
    int rc;
};

static void print(struct endpoints_job *j, const Millrace__EndpointsResponse *m)
{
    if (j->name.len == 0) {
        mr_pbjson_print(&m->base, true, &j->body);
    } else {
        mr_pbjson_print(&m->endpoints[0]->base, true, &j->body);
    }
}

static void endpoints_run(struct admin_job *job)
{
    struct endpoints_job *j = MR_CONTAINER_OF(job, struct endpoints_job, job);
    struct endpoints *es = j->server->endpoints;
    Millrace__EndpointsResponse m;

    if (j->change) {
        Millrace__EndpointChangeRequest q = *(Millrace__EndpointChangeRequest *)j->change;
        q.name = (char *)(uintptr_t)mr_arena_str(&j->arena, j->name).ptr;
        q.action = j->action;
        j->rc = q.name ? endpoints_change(es, &q, &j->arena, &m, &j->err)
                       : MR_FAIL(&j->err, MR_E_EXHAUSTED, "no memory for the change");
    } else {
        j->rc = endpoints_status(es, j->name, &j->arena, &m, &j->err);
    }
    if (j->rc == MR_OK) {
        print(j, &m);
    }
}

static void endpoints_done(struct admin_job *job)
{
    struct endpoints_job *j = MR_CONTAINER_OF(job, struct endpoints_job, job);

    if (j->rc < 0) {
        reply_error(j->call, &j->err);
    } else if (j->body.failed) {
        reply_error_text(j->call, MR_E_EXHAUSTED, "the report is larger than the server allows");
    } else {
        reply_json(j->call, 200, mr_buf_view(&j->body));
    }
    if (j->change) {
        protobuf_c_message_free_unpacked(j->change, NULL);
    }
    mr_buf_fini(&j->body);
    mr_arena_fini(&j->arena);
    mr_free(j);
}

static void submit(struct mr_server *s, struct mr_call *call, mr_str name, ProtobufCMessage *change,
                   Millrace__EndpointChangeRequest__Action action)
{
    struct endpoints_job *j = MR_NEW(struct endpoints_job);

    j->server = s;
    j->call = call;
    j->name = name;
    j->change = change;
    j->action = action;
    j->job.run = endpoints_run;
    j->job.done = endpoints_done;
    mr_arena_init(&j->arena, 4096, REPORT_MAX);
    mr_buf_init(&j->body, REPORT_MAX);
    admin_submit(s, &j->job);
}

void rest_endpoints(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    submit(s, call, path->model, NULL, 0);
}

static void change(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path,
                   Millrace__EndpointChangeRequest__Action action)
{
    mr_str body = mr_str_trim(mr_str_n((const char *)call->body.ptr, call->body.len));
    ProtobufCMessage *m;
    struct mr_err err = {0};

    if (mr_pbjson_parse(&millrace__endpoint_change_request__descriptor,
                        body.len ? body : MR_STR("{}"), &m, &err) < 0) {
        reply_error(call, &err);
        return;
    }
    submit(s, call, path->model, m, action);
}

void rest_endpoint_weights(struct mr_server *s, struct mr_call *call,
                           const struct mr_oip_path *path)
{
    change(s, call, path, MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__WEIGHTS);
}

void rest_endpoint_promote(struct mr_server *s, struct mr_call *call,
                           const struct mr_oip_path *path)
{
    change(s, call, path, MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__PROMOTE);
}

void rest_endpoint_rollback(struct mr_server *s, struct mr_call *call,
                            const struct mr_oip_path *path)
{
    change(s, call, path, MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__ROLLBACK);
}

void rest_endpoint_resume(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    change(s, call, path, MILLRACE__ENDPOINT_CHANGE_REQUEST__ACTION__RESUME);
}
