/* Requests for models that are not ready here, in a mesh of servers: the mesh says whether they run here after all or go to another
 * server, as the bytes that came. On the network thread of the call. */
#ifndef MR_SERVE_MESH_HOP_H
#define MR_SERVE_MESH_HOP_H

#include "arrival.h"

#define HOP_FROM    "mr-mesh-from" /* header of a message: the sender's id */
#define HOP_MESSAGE "/v2/mesh/message"

/* False: the model is ready here: go on at once. True: go or fail is called, or the call is answered with what another
 * server said. */
bool hop_begin(struct serve_arrival *a, mr_str model, mr_str version);
/* A message of another server; answers the call. */
void hop_message(struct mr_server *s, struct mr_call *call);

#endif
