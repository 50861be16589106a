/* RepositoryModelLoad. Its files may have gigabytes: the message is read where it lies, by turns, and each file is
 * copied once. protobuf-c would copy everything, in one piece. */
#include "codec/pb.h"
#include "methods_priv.h"
#include "serve/endpoints/route.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

#define LOAD_STRING 3 /* string_param of ModelRepositoryParameter */
#define LOAD_BYTES  4 /* its last one, bytes_param */

struct load_call {
    struct serve_pending pending;
    struct mr_turn turn;
    struct mr_server *server;
    struct mr_grpc_call *g;
    mr_str repository;
    mr_str model;
    struct mr_load_request q;
    struct mr_load_file *files; /* of q */
    struct grpc_control control;
    struct mr_err err;
    bool is_submitted; /* the loader answers */
};

static int load_malformed(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL, "the request is not a valid protobuf message of its type");
}

static int load_text(const struct mr_pb_field *f, mr_str *out, struct mr_err *err)
{
    if (f->wire != MR_PB_LEN) {
        return load_malformed(err);
    }
    if (f->bytes.len > SERVE_SMALL_BODY) {
        return MR_FAIL(err, MR_E_INVALID, "a string of the request has %zu bytes, at most %llu",
                       f->bytes.len, (unsigned long long)SERVE_SMALL_BODY);
    }
    *out = f->bytes.len ? mr_str_n((const char *)f->bytes.ptr, f->bytes.len) : MR_STR("");
    if (memchr(out->ptr, 0, out->len)) {
        return MR_FAIL(err, MR_E_INVALID, "a string of the request contains a NUL character");
    }
    return MR_OK;
}

/* The last of a oneof counts; number 0: none. */
static int load_choice(mr_bytes value, struct mr_pb_field *out, struct mr_err *err)
{
    struct mr_pb_field f;
    int more;

    *out = (struct mr_pb_field){0};
    while ((more = mr_pb_next(&value, &f)) > 0) {
        if (f.number <= LOAD_BYTES) {
            *out = f;
        }
    }
    return more < 0 ? load_malformed(err) : MR_OK;
}

static int load_file(struct load_call *l, mr_str path, mr_bytes data, struct mr_err *err)
{
    if (l->q.file_count == SERVE_LOAD_FILES) {
        return MR_FAIL(err, MR_E_INVALID, "more than %d files in one load request",
                       SERVE_LOAD_FILES);
    }
    l->files[l->q.file_count++] = (struct mr_load_file){path, data};
    return MR_OK;
}

/* Where a parameter that is a string goes; NULL: there is none of that name. */
static mr_str *load_text_of(struct load_call *l, mr_str key)
{
    return mr_str_eq_c(key, "config")   ? &l->q.config_json
           : mr_str_eq_c(key, "url")    ? &l->q.url
           : mr_str_eq_c(key, "sha256") ? &l->q.sha256
                                        : NULL;
}

/* "file:<path>" is bytes, the others are strings; anything else is refused. */
static int load_parameter(struct load_call *l, mr_bytes entry, struct mr_err *err)
{
    struct mr_pb_field f, choice = {0};
    mr_str key = MR_STR("");
    int rc, more;

    while ((more = mr_pb_next(&entry, &f)) > 0) {
        if (f.number == 1) {
            MR_TRY(load_text(&f, &key, err));
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            MR_TRY(load_choice(f.bytes, &choice, err));
        }
    }
    if (more < 0) {
        return load_malformed(err);
    }
    mr_str *text = load_text_of(l, key);
    if (text && choice.number == LOAD_STRING) {
        return load_text(&choice, text, err);
    }
    if (mr_str_starts(key, MR_STR("file:")) && choice.number == LOAD_BYTES &&
        choice.wire == MR_PB_LEN) {
        return load_file(l, mr_str_sub(key, 5, key.len), choice.bytes, err);
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "invalid value type or name for load parameter '%.*s', expected a string "
                   "for 'config', 'url' and 'sha256', and bytes for 'file:...'",
                   MR_STR_ARG(mr_str_sub(key, 0, 100)));
out:
    return rc;
}

static int load_read(struct load_call *l, struct mr_err *err)
{
    struct mr_pb_field f;
    mr_bytes message;
    int rc, more;

    MR_TRY(mr_grpc_message(l->g, &message, err));
    while ((more = mr_pb_next(&message, &f)) > 0) {
        if (f.number == 1) {
            MR_TRY(load_text(&f, &l->repository, err));
        } else if (f.number == 2) {
            MR_TRY(load_text(&f, &l->model, err));
        } else if (f.number == 3 && f.wire == MR_PB_LEN) {
            MR_TRY(load_parameter(l, f.bytes, err));
        }
    }
    rc = more < 0 ? load_malformed(err) : MR_OK;
    if (rc == MR_OK && l->repository.len) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED, "'repository_name' specification is not supported");
    }
out:
    return rc;
}

static void load_work(struct mr_turn *t)
{
    struct load_call *l = MR_CONTAINER_OF(t, struct load_call, turn);

    l->err.status = load_read(l, &l->err);
    if (l->err.status < 0) {
        return;
    }
    if (route_is_taken(l->server->endpoints, l->model)) {
        route_refuse_model(l->model, &l->err);
        return;
    }
    mr_models_load(l->server->models, l->model, &l->q, grpc_control_done, &l->control);
    l->is_submitted = true;
}

static void load_done(struct mr_turn *t)
{
    struct load_call *l = MR_CONTAINER_OF(t, struct load_call, turn);

    l->g->call->user = NULL;
    if (l->is_submitted) {
        return;
    }
    if (t->status < 0) {
        serve_turn_error(t, &l->err);
    }
    grpc_fail_err(l->g, &l->err);
}

static void load_cancel(struct serve_pending *p)
{
    mr_turn_end(&MR_CONTAINER_OF(p, struct load_call, pending)->turn, MR_E_CANCELLED);
}

void grpc_model_load(struct mr_server *s, struct mr_grpc_call *g)
{
    struct load_call *l = MR_ARENA_NEW(g->call->arena, struct load_call);
    struct mr_load_file *files =
        MR_ARENA_ARRAY(g->call->arena, struct mr_load_file, SERVE_LOAD_FILES);

    if (!l || !files) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the call needs more memory than it may use"));
        return;
    }
    *l = (struct load_call){
        .pending.cancel = load_cancel,
        .turn = {.work = load_work, .done = load_done, .may_refuse = true},
        .server = s,
        .g = g,
        .repository = MR_STR(""),
        .model = MR_STR(""),
        .q.files = files,
        .files = files,
        .control = {.loop = serve_here(), .g = g},
    };
    g->call->user = &l->pending;
    mr_turns_add(mr_loop_turns(g->call->loop), &l->turn);
}
