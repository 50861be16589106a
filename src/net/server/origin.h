/* Which requests of web pages a server accepts: the host names it answers to, and the origins of allowed pages. */
#ifndef MR_NET_ORIGIN_H
#define MR_NET_ORIGIN_H

#include <stdbool.h>

#include "net/http.h"

struct mr_call_impl;

/** An origin as browsers send it: scheme://host[:port]. Slices of the parsed text. */
struct mr_origin {
    mr_str scheme;
    mr_str host;  /* as written, an IPv6 address with its brackets */
    int32_t port; /* the scheme's default if the text has none, -1 if that is unknown */
};

/** The options for origins and hosts, parsed. Borrows the options' texts. */
struct mr_origin_rules {
    bool any_host;
    bool any_origin;
    bool null_origin; /* pages without an origin of their own: files, sandboxes */
    size_t origin_count;
    struct mr_origin *origins;
};

/** The last Host that was accepted. Most clients send the same one in each request, and the result depends on its
 *  bytes and the options only. Zeroed: the empty Host, which is accepted. */
struct mr_good_host {
    size_t len;
    char text[64];
};

/** Reads the options. Errors: MR_E_INVALID. */
int mr_origin_rules_init(struct mr_origin_rules *out, const struct mr_http_options *o,
                         struct mr_err *err);
void mr_origin_rules_fini(struct mr_origin_rules *rules);

/** Checks a call by its head, before its handler sees it. True: the call was answered (refused, or a browser's
 *  preflight) and is gone. False: it continues; call->own_headers are the headers for its answer. Thread: loop. */
bool mr_origin_judge(struct mr_call_impl *call);

/** scheme://host[:port] and nothing more; false for anything else. */
bool mr_origin_parse(mr_str text, struct mr_origin *out);
/** True if the Host of a request is an address, "localhost", or one of the names. Case, a port and one dot at the end
 *  do not matter. An empty Host is accepted too, as browsers never send one. */
bool mr_origin_is_own_host(mr_str host, const char *const *names, size_t count);

#endif
