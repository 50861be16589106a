/* REST handlers of the model repository (http/routes.c). */
#ifndef MR_SERVE_ADMIN_REST_REPO_H
#define MR_SERVE_ADMIN_REST_REPO_H

#include "codec/json.h"
#include "serve/state/state.h"

void rest_index(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_load(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_unload(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_label(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_rollback(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Begins to read the members of a request's body; false if it has none. An error shows at mr_json_finish. */
bool rest_begin_body(struct mr_call *call, struct mr_json *out, struct mr_err *err);
/* A version in JSON, as text or as a number. */
int rest_parse_version(struct mr_json *j, mr_str *out);
/* Of all models where the path has none. */
void rest_stats(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
