/* `millrace workflow trace`: one request to a running server, with a trace of its nodes. */
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "cli/infer/infer.h"
#include "codec/json.h"
#include "trace.h"
#include "workflow.h"

/* Elements that zeros of an input may have, as many as a request from the shell should send. */
#define ZEROS_MAX (UINT64_C(1) << 28)

/* ---- the request ---- */

/* An input of zeros or empty strings; open dimensions are 1. */
static int zeros_add(struct infer *x, const struct mr_oip_io *io, struct mr_err *err)
{
    struct mr_array *a = infer_new_array(x);
    uint64_t count = 1;
    const size_t size = io->dtype == MR_DTYPE_BYTES ? 4 : mr_dtype_size(io->dtype);

    a->dtype = io->dtype;
    a->rank = io->rank;
    for (int i = 0; i < io->rank; i++) {
        a->shape[i] = io->shape[i] < 0 ? 1 : io->shape[i];
        if (__builtin_mul_overflow(count, (uint64_t)a->shape[i], &count) || count > ZEROS_MAX) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "input %.*s is large: give it by -i",
                           MR_STR_ARG(io->name));
        }
    }
    /* the four bytes of an empty string are its length, 0 */
    char *to = mr_buf_reserve(&a->data, MR_MAX(count * size, 1));
    if (!to || size == 0) {
        return MR_FAIL(err, MR_E_INVALID, "input %.*s has a type that is not known",
                       MR_STR_ARG(io->name));
    }
    memset(to, 0, count * size);
    a->data.len = count * size;
    const int rc = infer_add_input(x, io, a, err);
    return rc < 0 ? MR_WRAP(err, rc, "input %.*s", MR_STR_ARG(io->name)) : rc;
}

static int request_make(struct infer *x, struct mr_err *err)
{
    int rc;

    MR_TRY(infer_build(x, false, err));
    for (size_t i = 0; i < x->meta.input_count && x->opt.inputs.len == 0; i++) {
        MR_TRY(zeros_add(x, &x->meta.inputs[i], err));
    }
    rc = infer_add_parameter(x, "workflow.trace=true", err);
out:
    return rc;
}

/* ---- its answer ---- */

static int show(const struct workflow_options *o, mr_str text, struct mr_arena *arena,
                struct mr_err *err)
{
    const struct mr_term term = mr_term_of(stdout);
    struct trace t;
    struct mr_buf out;
    int rc;

    mr_buf_init(&out, 0);
    if (o->is_json) {
        mr_buf_str(&out, text);
        mr_buf_char(&out, '\n');
        rc = workflow_put(NULL, mr_buf_view(&out), err);
        goto out;
    }
    rc = trace_read(text, arena, &t, err);
    if (rc < 0) {
        rc = MR_WRAP(err, rc, "the trace cannot be read");
        goto out;
    }
    if (o->svg) {
        trace_svg(&t, &out);
        MR_TRY(workflow_put(o->svg, mr_buf_view(&out), err));
        mr_buf_reset(&out);
    }
    trace_text(&t, term.width, &out);
    rc = workflow_put(NULL, mr_buf_view(&out), err);
out:
    mr_buf_fini(&out);
    return rc;
}

static int find(const struct infer *x, const struct mr_oip_response *r, mr_str *out,
                struct mr_err *err)
{
    for (size_t i = 0; i < r->param_count; i++) {
        if (mr_str_eq_c(r->params[i].key, "workflow.trace") && r->params[i].kind == MR_OIP_STRING) {
            *out = r->params[i].s;
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_NOT_FOUND,
                   "the answer of %s has no trace: it is neither an ensemble nor a workflow of "
                   "this server",
                   x->opt.model);
}

/* The string member of an object that is the next value; the others are skipped. */
static mr_str member_of(struct mr_json *j, const char *name, bool is_inside)
{
    mr_str found = {0}, key;
    bool first = true;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        if (is_inside && mr_str_eq_c(key, "parameters") && mr_json_peek(j) == MR_JSON_OBJECT) {
            found = member_of(j, name, false);
        } else if (!is_inside && mr_str_eq_c(key, name) && mr_json_peek(j) == MR_JSON_STRING) {
            mr_json_string(j, &found);
        } else {
            mr_json_skip(j, NULL);
        }
    }
    return found;
}

/* The error of a workflow comes with its trace: over REST in the body, over gRPC it is the body. */
static void show_failed(const struct workflow_options *o, mr_bytes body, bool is_grpc,
                        struct mr_arena *arena)
{
    mr_str text = mr_str_n((const char *)body.ptr, body.len);
    struct mr_json j;
    struct mr_err ignored;

    mr_json_init(&j, text, arena, 0, &ignored);
    text = is_grpc ? text : member_of(&j, "workflow.trace", true);
    if (j.status == MR_OK && text.len) {
        show(o, text, arena, &ignored);
    }
}

int workflow_trace(const struct workflow_options *o, const char *model, struct mr_err *err)
{
    struct mr_remote_reply reply = {0};
    struct mr_oip_response response = {0};
    struct infer x;
    mr_str text = {0};
    int rc;

    infer_setup(&x);
    x.opt = (struct infer_options){.model = model,
                                   .version = o->version,
                                   .url = o->url,
                                   .protocol = o->protocol,
                                   .inputs = o->inputs,
                                   .parameters = o->parameters,
                                   .timeout_ns = o->timeout_ns};
    MR_TRY(mr_remote_protocol(o->url, &x.opt.protocol, err));
    const bool is_grpc = x.opt.protocol == INFER_GRPC;
    MR_TRY(mr_remote_open(&x.remote, o->url, is_grpc ? 8001 : 8000, is_grpc, o->timeout_ns,
                          &o->access, err));
    MR_TRY(infer_meta_get(&x, err));
    MR_TRY(request_make(&x, err));
    rc = infer_send(&x, &reply, err);
    if (rc < 0) {
        show_failed(o, reply.body, is_grpc, &x.arena);
        goto out;
    }
    MR_TRY(infer_decode(&x, &reply, &response, err));
    MR_TRY(find(&x, &response, &text, err));
    MR_TRY(show(o, text, &x.arena, err));
out:
    mr_remote_reply_fini(&reply);
    infer_fini(&x);
    return rc;
}
