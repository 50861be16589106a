/* Calls that need a secret header (--http-restricted-api, --grpc-restricted-protocol), and those that need a private way here. */
#ifndef MR_SERVE_STATE_RESTRICT_H
#define MR_SERVE_STATE_RESTRICT_H

#include "state.h"

bool serve_has_restrictions(const struct mr_server *s);
/* Checks a call by its head; rest_api is the class of a REST path. True: the call was refused and has ended. */
bool serve_refuse_restricted(struct mr_server *s, struct mr_call *call, enum mr_api rest_api);
/* True in a mesh and for the runtime of a ModelMesh, unless --allow-remote-management is given: calls that change models choose files and
 * addresses that servers load, so they must come from this machine, a socket file or over TLS. */
bool serve_guards_changes(const struct mr_server *s);
/* True: the call came in another way, was refused and has ended. */
bool serve_refuse_remote(struct mr_server *s, struct mr_call *call);
/* True for a header that models do not get. */
bool serve_is_secret_header(const struct mr_server *s, mr_str lower_name);

#endif
