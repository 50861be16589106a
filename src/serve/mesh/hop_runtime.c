/* Calls for the runtime of a mesh: any method of any service, as the bytes that came, with the id of the model among the headers and, where
 * the runtime wants it, in the message. Its answer goes back as it is.
 *
 * A runtime that says that it has not got the model may have lost it; the mesh then loads it again, once. Some say it
 * with other codes than NOT_FOUND. On the network thread of the call. */
#include "base/clock.h"
#include "hop_priv.h"
#include "mesh/plane.h"
#include "serve/plane/call_times.h"
#include "serve/plane/ids.h"

static struct mr_client *client_of(struct serve_loop *l)
{
    struct mr_client_options o = {.http2 = true, .never_repeat = true};

    if (!l->runtime) {
        mr_client_new(&l->runtime, l->loop, mr_mesh_runtime(l->server->mesh), &o, NULL);
    }
    return l->runtime;
}

/* ---- headers ---- */

static bool is_visible(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] <= ' ' || (unsigned char)s.ptr[i] > '~') {
            return false;
        }
    }
    return true;
}

/* Of gRPC's own headers the deadline alone goes there: what else they say is between this server and its client. */
static bool request_for(struct mr_call *call, const struct serve_route *route,
                        struct mr_client_request *q)
{
    size_t kept = 0;

    if (!hop_request(call, route->id, false, q)) {
        return false;
    }
    struct mr_header *h = (struct mr_header *)(uintptr_t)q->headers;
    for (size_t i = 0; i < q->header_count; i++) {
        if (!mr_str_starts(h[i].name, MR_STR("grpc-")) || mr_str_eq_c(h[i].name, "grpc-timeout")) {
            h[kept++] = h[i];
        }
    }
    if (is_visible(route->id)) {
        h[kept++] = (struct mr_header){MR_STR("mm-model-id"), route->id};
    }
    if (route->encoding.ptr) {
        h[kept++] = (struct mr_header){MR_STR("grpc-encoding"), route->encoding};
    }
    q->header_count = kept;
    return true;
}

/* ---- what comes back ---- */

void hop_count_run(const struct hop_attempt *at, int rc, const struct mr_client_response *r)
{
    struct hop *h = at->hop;
    uint64_t code = (uint64_t)mr_status_grpc(rc);

    if (rc == MR_OK) {
        mr_str status = mr_header_find(r->trailers, r->trailer_count, MR_STR("grpc-status"));
        status = status.ptr ? status
                            : mr_header_find(r->headers, r->header_count, MR_STR("grpc-status"));
        code = mr_str_to_u64(status, &code) ? code : MR_GRPC_UNKNOWN;
    }
    call_times_ran(h->loop->call_times, h->arrival->call,
                   (int)MR_MIN(code, (uint64_t)MR_GRPC_STATUSES), mr_now_ns() - at->sent_ns);
}

static bool has(mr_str text, const char *part)
{
    return text.len > 0 && memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

/* The place of the status among the headers of an answer; NULL: it says nothing about a model that is not there. */
static const struct mr_header *missing_status(const struct mr_header *headers, size_t count)
{
    mr_str text = mr_header_find(headers, count, MR_STR("grpc-message"));

    for (size_t i = 0; i < count; i++) {
        mr_str code = headers[i].value;
        if (!mr_str_eq_c(headers[i].name, "grpc-status")) {
            continue;
        }
        bool is_triton = mr_str_eq_c(code, "14") && has(text, "Request for unknown model");
        bool is_mlserver = mr_str_eq_c(code, "3") && mr_str_starts(text, MR_STR("Model ")) &&
                           has(text, "not found");
        return mr_str_eq_c(code, "5") || is_triton || is_mlserver ? &headers[i] : NULL;
    }
    return NULL;
}

static void send(struct hop *h, struct hop_attempt *at)
{
    struct serve_arrival *a = h->arrival;
    struct serve_route *route = a->route;
    struct mr_client *c = client_of(h->loop);
    struct mr_client_request q;
    struct mr_err err = {0};

    int rc = route->bind ? route->bind(a, &err) : MR_OK;
    if (rc == MR_OK && (!c || !request_for(a->call, route, &q))) {
        rc = MR_ARENA_FAIL(&err);
    }
    if (rc < 0) {
        hop_take_call(h);
        a->fail(a, &err);
        hop_result(h, at, MR_MESH_ENDED, (mr_str){0});
        return;
    }
    for (size_t i = 0; i < route->body_count; i++) {
        if (route->body[i].block) {
            mr_block_ref(route->body[i].block);
        }
    }
    q.pieces = route->body;
    q.piece_count = route->body_count;
    q.timeout_ns = route->deadline_ns ? MR_MAX(route->deadline_ns - mr_now_ns(), 1) : 0;
    at->sent_ns = mr_now_ns();
    h->calls++;
    hop_pass_begin(h, at, c, &q);
}

/* *out_status: the header that says that the model is missing; NULL: none. */
static enum mr_mesh_missing see_missing(struct hop *h, const struct hop_attempt *at, int rc,
                                        const struct mr_client_response *r,
                                        const struct mr_header **out_status)
{
    struct mr_mesh *m = h->loop->server->mesh;
    mr_str id = h->arrival->route->id;

    *out_status = NULL;
    if (rc == MR_E_UNAVAILABLE) {
        mr_mesh_runtime_broke(m, id);
        return MR_MESH_LOST;
    }
    const struct mr_header *status = r ? missing_status(r->trailers, r->trailer_count) : NULL;
    if (r && !status) {
        status = missing_status(r->headers, r->header_count);
    }
    *out_status = status;
    return status ? mr_mesh_runtime_missing(m, id, h->arrival->call->recv_start_ns, at->sent_ns)
                  : MR_MESH_OWN;
}

bool hop_is_lost(struct hop *h, const struct hop_attempt *at, int rc,
                 const struct mr_client_response *r)
{
    const struct mr_header *ignored;

    return see_missing(h, at, rc, r, &ignored) == MR_MESH_LOST;
}

bool hop_is_missing(struct hop *h, struct hop_attempt *at, int rc,
                    const struct mr_client_response *r)
{
    const struct mr_header *status;
    enum mr_mesh_missing what = see_missing(h, at, rc, r, &status);

    if (rc == MR_E_UNAVAILABLE && h->ticket.is_sequence) {
        hop_result(h, at, MR_MESH_BROKEN, (mr_str){0}); /* it may have run */
    } else if (what == MR_MESH_LOST || (what == MR_MESH_AGAIN && h->is_direct)) {
        hop_result(h, at, MR_MESH_NOT_HERE, (mr_str){0});
    } else if (what == MR_MESH_AGAIN) {
        send(h, at);
    } else if (status) { /* whatever it said before */
        ((struct mr_header *)(uintptr_t)status)->value = MR_STR("5");
    }
    return what != MR_MESH_OWN;
}

void hop_run_at_runtime(struct hop *h, unsigned attempt)
{
    struct hop_attempt *at = &h->attempt[attempt];

    *at =
        (struct hop_attempt){.hop = h, .number = attempt, .is_at_runtime = true, .text = at->text};
    send(h, at);
}
