/* A wait for a model, beside everything that the request itself will do: its names are looked up again afterwards, as
 * the model may have gone by then. A model that the resolver does not know is left to that look-up, which has the text
 * of the protocol. */
#include "arrival.h"

#include "hop.h"

#include "serve/endpoints/route.h"
#include "serve/state/places.h"

bool arrival_is_possible(const struct mr_server *s, enum mr_api api, bool asks_version_ready)
{
    return s->options.resolver.resolve && !serve_has_runtime(s) &&
           (api == MR_API_INFERENCE || api == MR_API_METADATA || api == MR_API_MODEL_CONFIG ||
            asks_version_ready);
}

static void settle(struct serve_arrival *a, int status, const struct mr_err *why)
{
    struct mr_err err = {0};

    if (a->is_cancelled) {
        status = MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
        why = &err;
    }
    if (status < 0 && status != MR_E_NOT_FOUND) {
        a->fail(a, why);
    } else {
        a->go(a);
    }
}

/* It may be unloaded once `go` has returned, and be looked up in a later turn. */
static void hold(struct serve_arrival *a)
{
    struct mr_target target;
    struct mr_err ignored;

    if (mr_engine_find(a->loop->server->engine, &a->loop->reply_loop, a->wanted, a->wanted_version,
                       &target, &ignored) == MR_OK) {
        places_put_found(a->loop, target.version);
    }
}

static void on_resolved(struct mr_resolve *q)
{
    struct serve_arrival *a = MR_CONTAINER_OF(q, struct serve_arrival, resolve);

    if (q->status == MR_OK) {
        hold(a);
    }

    if (a->pending.cancel) {
        a->call->user = NULL;
    }
    settle(a, q->status, &q->err);
}

static void on_cancel(struct serve_pending *p)
{
    struct serve_arrival *a = MR_CONTAINER_OF(p, struct serve_arrival, pending);

    a->is_cancelled = true;
    if (mr_engine_resolve_cancel(a->loop->server->engine, &a->resolve)) {
        a->call->user = NULL;
        settle(a, MR_E_CANCELLED, NULL);
    }
}

bool arrival_wait(struct serve_arrival *a, mr_str model, mr_str version, bool owns_call)
{
    struct mr_target target;
    struct mr_err err;
    int rc;

    a->loop = serve_here();
    mr_str name = model;
    if (!model.len || route_main(a->loop->server->endpoints, &model, &version, &err) < 0) {
        return false;
    }
    a->may_be_vmodel &= mr_str_eq(name, model);
    if (a->loop->server->mesh && owns_call) {
        return hop_begin(a, model, version);
    }
    a->resolve.done = on_resolved;
    a->wanted = model;
    a->wanted_version = version;
    rc = mr_engine_resolve(a->loop->server->engine, &a->loop->reply_loop, model, version,
                           &a->resolve, &target, &err);
    if (rc == MR_OK) {
        places_put_found(a->loop, target.version);
    } else if (rc == MR_PENDING && owns_call) {
        a->pending.cancel = on_cancel;
        a->call->user = &a->pending;
    } else if (rc < 0 && rc != MR_E_NOT_FOUND) {
        settle(a, rc, &err);
        return true;
    }
    return rc == MR_PENDING;
}
