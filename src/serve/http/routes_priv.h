/* The REST endpoints. On network threads; constant. */
#ifndef MR_SERVE_ROUTES_PRIV_H
#define MR_SERVE_ROUTES_PRIV_H

#include "serve/state/state.h"

enum { REST_GET = 1, REST_POST = 2 }; /* HEAD is answered like GET, without the body */

enum rest_body {
    REST_SMALL, /* up to SERVE_SMALL_BODY */
    REST_DATA   /* tensors or files, up to --http-max-input-size */
};

struct rest_route {
    const char *pattern; /* of mr_oip_path_match() */
    uint8_t methods;     /* REST_GET | REST_POST */
    uint8_t body;        /* enum rest_body */
    enum mr_api api;     /* its class for --http-restricted-api */
    void (*handle)(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
};

/* The route of a path, and the path's parts; NULL for an unknown path. */
const struct rest_route *route_find(mr_str path, struct mr_oip_path *out);
/* Whether its answers come piece by piece. */
bool route_is_stream(const struct rest_route *route);
bool route_allows(const struct rest_route *route, mr_str method);
/* 405 with the methods that the route has. */
void route_refuse_method(const struct mr_server *s, struct mr_call *call,
                         const struct rest_route *route);

#endif
