/* Headers of a connection, and the mesh's own, are left out both ways; the time that the client allows is reduced by what was spent. Origin
 * is left out as well: whether a web page may ask was decided where its request came in, and its answer gets the headers of CORS there. */
#include "hop_send.h"

#include <stdio.h>

#include "net/grpc.h"
#include "serve/plane/ids.h"
#include "serve/state/infer.h"

#define HEADERS_OWN 5 /* that are added, here or by the caller */

struct mr_client *hop_client(struct serve_loop *l, const char *address)
{
    struct mr_client *c = mr_map_find(&l->peers, mr_str_c(address));
    /* Answers are bounded by the memory budget, as they are where they are made. */
    struct mr_client_options o = {.http2 = true,
                                  .never_repeat = true,
                                  .max_response_bytes = INT64_MAX,
                                  .tls = l->server->mesh_tls};

    if (!c && mr_client_new(&c, l->loop, address, &o, NULL) == MR_OK) {
        mr_map_put(&l->peers, mr_str_c(address), c);
    }
    return c;
}

static bool is_of_connection(mr_str name)
{
    static const char *const names[] = {"connection", "content-length",    "date",    "expect",
                                        "host",       "keep-alive",        "origin",  "server",
                                        "te",         "transfer-encoding", "upgrade", "user-agent"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (mr_str_eq_c(name, names[i])) {
            return true;
        }
    }
    return mr_str_starts(name, MR_STR("mr-mesh-")) || mr_str_starts(name, MR_STR("proxy-"));
}

/* With room for `more` after them; NULL without memory. */
static struct mr_header *copy_headers(struct mr_call *call, const struct mr_header *from,
                                      size_t count, size_t more, size_t *out_count)
{
    struct mr_header *to = MR_ARENA_ARRAY(call->arena, struct mr_header, count + more + 1);
    size_t n = 0;

    for (size_t i = 0; i < count && to; i++) {
        if (!is_of_connection(from[i].name)) {
            to[n++] = from[i];
        }
    }
    *out_count = n;
    return to;
}

/* ---- the request ---- */

static void reduce_timeout(struct mr_call *call, struct mr_header *h)
{
    int64_t timeout_ns;

    if (!mr_str_eq_c(h->name, "grpc-timeout") || !mr_grpc_timeout_parse(h->value, &timeout_ns)) {
        return;
    }
    int64_t left_ns = mr_ns_after(call->recv_start_ns, timeout_ns) - mr_now_ns();
    long long us = MR_MAX(left_ns, MR_NS_PER_MS) / MR_NS_PER_US;
    mr_str text = us < 100000000 ? mr_arena_printf(call->arena, "%lldu", us)
                                 : mr_arena_printf(call->arena, "%lldS", us / 1000000);
    h->value = text.ptr && us / 1000000 < 100000000 ? text : h->value;
}

/* The id takes the place of those that the client sent, a vmodel's included: what it stands for may change on the way. Those of a REST
 * request, which mean nothing here, go in any case, as they would mean something there. */
static bool put_id(struct mr_call *call, mr_str id, struct mr_header *headers, size_t *io_count)
{
    size_t kept = 0;

    for (size_t i = 0; i < *io_count; i++) {
        if (!plane_is_id_header(headers[i].name)) {
            headers[kept++] = headers[i];
        }
    }
    if (id.len) {
        headers[kept++] = plane_id_header(call->arena, id);
    }
    *io_count = kept;
    return !id.len || headers[kept - 1].value.ptr != NULL;
}

bool hop_request(struct mr_call *call, mr_str id, bool load_here, struct mr_client_request *out)
{
    size_t n = 0;
    struct mr_header *headers =
        copy_headers(call, call->headers, call->header_count, HEADERS_OWN, &n);
    mr_str method = mr_arena_printf(call->arena, "%.*s", MR_STR_ARG(call->method));
    mr_str path = call->path;

    if (call->query.len) {
        path = mr_arena_printf(call->arena, "%.*s?%.*s", MR_STR_ARG(call->path),
                               MR_STR_ARG(call->query));
    }
    if (!headers || !method.ptr || !path.ptr ||
        ((id.len || !call->is_grpc) && !put_id(call, id, headers, &n))) {
        return false;
    }
    for (size_t i = 0; call->is_grpc && i < n; i++) {
        reduce_timeout(call, &headers[i]);
    }
    if (call->is_grpc) {
        headers[n++] = (struct mr_header){MR_STR("te"), MR_STR("trailers")};
    }
    if (load_here) {
        headers[n++] = (struct mr_header){MR_STR(HOP_LOAD), MR_STR("1")};
    }
    *out = (struct mr_client_request){
        .method = method.ptr, .path = path, .headers = headers, .header_count = n};
    return true;
}

bool hop_spent(const struct mr_call *call, struct mr_client_request *io)
{
    struct mr_header *h = (struct mr_header *)(uintptr_t)io->headers; /* of hop_request */
    int64_t ns = mr_now_ns() - call->recv_start_ns;
    mr_str us = mr_arena_printf(call->arena, "%lld", (long long)(ns / MR_NS_PER_US));

    h[io->header_count++] = (struct mr_header){MR_STR(SERVE_SPENT), us};
    return us.ptr != NULL;
}

/* ---- the answer ---- */

bool hop_refuses(const struct mr_client_response *r, enum mr_mesh_result *out_why, int *out_status)
{
    static const int statuses[] = {MR_E_UNAVAILABLE, MR_E_EXHAUSTED, MR_E_TOO_LARGE};
    mr_str why = mr_header_find(r->headers, r->header_count, MR_STR(HOP_WHY));
    mr_str status = mr_header_find(r->headers, r->header_count, MR_STR(HOP_STATUS));

    if (!why.len) {
        return false;
    }
    *out_why = mr_str_eq_c(why, "not-here") ? MR_MESH_NOT_HERE
               : mr_str_eq_c(why, "failed") ? MR_MESH_LOAD_FAILED
                                            : MR_MESH_REFUSED;
    *out_status = MR_E_INTERNAL;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (mr_str_eq_c(status, mr_status_name(statuses[i]))) {
            *out_status = statuses[i];
        }
    }
    return true;
}

bool hop_answer(struct mr_call *call, const struct mr_client_response *r, struct hop_answer *out)
{
    struct hop_answer a;

    a.headers = copy_headers(call, r->headers, r->header_count, 0, &a.count);
    a.trailers = copy_headers(call, r->trailers, r->trailer_count, 0, &a.trailer_count);
    if (!a.headers || !a.trailers) {
        return false;
    }
    *out = a;
    return true;
}
