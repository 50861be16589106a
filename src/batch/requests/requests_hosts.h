/* The hosts of `millrace mlserver infer`: which one gets the next call. Private. */
#ifndef MR_BATCH_REQUESTS_HOSTS_H
#define MR_BATCH_REQUESTS_HOSTS_H

#include "batch/requests.h"
#include "net/client.h"

struct requests_host {
    struct mr_client *client;
    struct mr_tls_client *tls;
    char address[256];
    char prefix[256]; /* of paths */
    uint32_t under_way;
    uint32_t failures; /* in a row */
    int64_t rests_until_ns;
};

/** *h is zero. The client goes before the loop, its TLS after that. Errors: MR_E_INVALID (the address), those of TLS. */
int requests_host_open(struct requests_host *h, struct mr_loop *loop, const char *url,
                       const struct mr_requests_options *o, size_t max_response_bytes,
                       struct mr_err *err);
/** Another one than `failed` (NULL: none did), if there is one; one that does not rest; the one with the least to do. */
struct requests_host *requests_host_pick(struct requests_host *hosts, size_t count,
                                         const struct requests_host *failed);
/** What became of a call. A host that fails several times in a row rests, each time longer. */
void requests_host_report(struct requests_host *h, bool is_well);

#endif
