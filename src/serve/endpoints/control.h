/* Endpoints as operators see and change them: proto/endpoints.proto, which REST prints as JSON. Thread: any that may wait for
 * a lock, as the administration thread. */
#ifndef MR_SERVE_ENDPOINTS_CONTROL_H
#define MR_SERVE_ENDPOINTS_CONTROL_H

#include "endpoints.h"
#include "endpoints.pb-c.h"

/* One endpoint, or with name "" all of them, in `arena`. es NULL: there are none. Errors: MR_E_NOT_FOUND, MR_E_EXHAUSTED. */
int endpoints_status(struct endpoints *es, mr_str name, struct mr_arena *arena,
                     Millrace__EndpointsResponse *out, struct mr_err *err);
/* Changes an endpoint, and reports it afterwards. Errors: as above, MR_E_INVALID. */
int endpoints_change(struct endpoints *es, const Millrace__EndpointChangeRequest *q,
                     struct mr_arena *arena, Millrace__EndpointsResponse *out, struct mr_err *err);

/* Metrics in Prometheus' text format, of bounded length for each endpoint; `seal` is called between two of them. */
struct endpoint_metrics {
    uint64_t endpoints;
    uint64_t reloads, reload_failures;
};
void endpoints_count(struct endpoints *es, struct endpoint_metrics *out);
/* Calls `each` for every endpoint, with its sums, under the mutex. */
void endpoints_visit(struct endpoints *es,
                     void (*each)(void *ctx, const struct endpoint *e,
                                  const struct mr_variant_sums *sums),
                     void *ctx);

#endif
