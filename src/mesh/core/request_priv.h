/* Between request.c and request_find.c. Thread: the core's. */
#ifndef MESH_CORE_REQUEST_PRIV_H
#define MESH_CORE_REQUEST_PRIV_H

#include "core_priv.h"

#define RETRY_NS 1000000000ll

/* request.c */
/** At the end of the model's line. */
void request_wait_add(struct mesh_local *l, struct mesh_req *r);
/** Out of the line, or the turns, in which it is. */
void request_wait_remove(struct mesh_req *r);
/** The end: the request is gone afterwards. */
void request_reply(struct mesh_core *c, struct mesh_req *r, int status, enum mesh_why why,
                   mr_str text, int64_t retry_ns);
/** As request_reply, unless an attempt may still be answered: it waits for that then. Of a model that is there the last failure counts. */
void request_give_up(struct mesh_core *c, struct mesh_req *r, int status, mr_str text,
                     int64_t retry_ns);
/** Its model is known, and the view has it: the request goes to a copy, or waits. It may be gone afterwards. */
void request_send_on(struct mesh_core *c, struct mesh_req *r);
/** The request was sent to that address without the core, and there is no answer yet: what follows is as if it had sent it. */
void request_adopt(struct mesh_core *c, struct mesh_req *r, mr_str address);

/* request_find.c */
/** A new request: finds its model and has it routed, now or when the registry has answered. It may be gone afterwards. */
void request_find(struct mesh_core *c, struct mesh_req *r, const struct mesh_ask *ask);
/** The text for its model, or vmodel, that is not there. */
mr_str request_none_of(const struct mesh_req *r);

#endif
