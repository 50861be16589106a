#include "requests_hosts.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/url.h"

#define REST_NS          MR_NS_PER_S
#define REST_NS_MOST     (30 * MR_NS_PER_S)
#define FAILURES_ALLOWED 3 /* in a row, before a host rests */

int requests_host_open(struct requests_host *h, struct mr_loop *loop, const char *url,
                       const struct mr_requests_options *o, size_t max_response_bytes,
                       struct mr_err *err)
{
    struct mr_client_options options = {.max_connections = o->workers,
                                        .connect_timeout_ns = o->timeout_ns,
                                        .max_response_bytes = max_response_bytes,
                                        .headers = o->headers,
                                        .header_count = o->header_count};
    struct mr_url parts;
    int rc;

    MR_TRY(mr_url_parse(url, &parts, err));
    const bool is_tls = parts.is_tls || (o->is_tls && !parts.has_scheme);
    if (parts.is_grpc) {
        MR_TRY(MR_FAIL(err, MR_E_UNSUPPORTED, "host '%.100s': requests are sent by http and https",
                       url));
    }
    MR_TRY(mr_url_default_port(&parts, is_tls ? 443 : 80, err));
    snprintf(h->prefix, sizeof h->prefix, "%s", parts.path);
    snprintf(h->address, sizeof h->address, "%s", parts.address);
    if (is_tls) {
        MR_TRY(mr_tls_client_new(&h->tls, &o->tls, err));
        options.tls = h->tls;
    }
    rc = mr_client_new(&h->client, loop, h->address, &options, err);
out:
    return rc;
}

static bool is_better(const struct requests_host *a, const struct requests_host *b,
                      const struct requests_host *failed, int64_t now_ns)
{
    const bool a_rests = a->rests_until_ns > now_ns;
    const bool b_rests = b->rests_until_ns > now_ns;

    if ((a == failed) != (b == failed)) {
        return b == failed;
    }
    if (a_rests != b_rests) {
        return b_rests;
    }
    return a->under_way < b->under_way;
}

struct requests_host *requests_host_pick(struct requests_host *hosts, size_t count,
                                         const struct requests_host *failed)
{
    struct requests_host *best = &hosts[0];

    for (size_t i = 1; i < count; i++) {
        if (is_better(&hosts[i], best, failed, mr_now_ns())) {
            best = &hosts[i];
        }
    }
    return best;
}

void requests_host_report(struct requests_host *h, bool is_well)
{
    h->failures = is_well ? 0 : MR_MIN(h->failures + 1, 16u);
    if (h->failures >= FAILURES_ALLOWED) {
        const int64_t rest_ns = REST_NS << (h->failures - FAILURES_ALLOWED);
        h->rests_until_ns = mr_now_ns() + MR_MIN(rest_ns, REST_NS_MOST);
    } else if (is_well) {
        h->rests_until_ns = 0;
    }
}
