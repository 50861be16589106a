/* From the name that a client asks for to the variant that answers. On network threads; no lock, and no allocation but for
 * the first request of an endpoint on a loop. */
#ifndef MR_SERVE_ENDPOINTS_ROUTE_H
#define MR_SERVE_ENDPOINTS_ROUTE_H

#include "endpoints.h"
#include "net/http.h"
#include "oip/oip.h"

/* The header and the parameter by which an answer names its variant, and a request asks for one. */
#define ROUTE_HEADER    "millrace-variant"
#define ROUTE_PARAMETER "variant"

/* A request's way; all-zero: it goes to a model. */
struct route {
    struct endpoint *endpoint; /* NULL: none; outlives the request */
    struct endpoint_cell *cell;
    unsigned variant;
    bool is_shadowed; /* its inputs are copied */
    mr_str asked;     /* the name that the client used; ptr NULL: the model's */
};

/* Whether a name is that of an endpoint or a service. es NULL: false. Thread: loop. */
bool route_is_taken(struct endpoints *es, mr_str name);
/* The error of a load of a model of such a name. */
int route_refuse_model(mr_str name, struct mr_err *err);
/* For questions that a request's variant does not matter for, such as metadata: replaces the name of an endpoint by the model
 * of the variant that gets most requests, and of a service by that of its default. A version that is a tag chooses that
 * variant. Other names stay. Thread: loop; valid for this iteration. Errors: MR_E_NOT_FOUND (no such tag). */
int route_main(struct endpoints *es, mr_str *model, mr_str *version, struct mr_err *err);
/* The variant of a request: `model` and `version` become those that answer it. If there is an endpoint, the request is open
 * until route_end. Thread: loop `slot`. Errors: MR_E_NOT_FOUND, MR_E_INVALID (a service without a value for this request). */
int route_begin(struct endpoints *es, unsigned slot, const struct mr_call *call,
                const struct mr_oip_request *q, mr_str *model, mr_str *version, struct route *out,
                struct mr_err *err);
/* Counts the request and closes it. Thread: as route_begin. */
void route_end(struct route *r, int status, int64_t latency_ns);
/* Of a route with an endpoint, until route_end; or a copy that lasts. */
mr_str route_tag(const struct route *r);
#define ROUTE_TAG_MAX 64u
mr_str route_copy_tag(const struct route *r, char out[ROUTE_TAG_MAX + 1]);
/* The tags of an endpoint, or the one that was asked for; none of a service. The name is taken. Thread: loop; valid for this
 * iteration. */
size_t route_tags(struct endpoints *es, mr_str name, mr_str asked, mr_str *out, size_t max);
/* Whether each variant that gets requests is ready; with a version, that of this tag; of a service, all that it leads to. The
 * name is taken. Thread: loop. */
bool route_is_ready(struct endpoints *es, mr_str name, mr_str version);

#endif
