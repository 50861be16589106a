/* REST handlers of health and metadata (routes.c). */
#ifndef MR_SERVE_HTTP_REST_META_H
#define MR_SERVE_HTTP_REST_META_H

#include "serve/state/state.h"

void rest_live(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_server_metadata(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
void rest_model_metadata(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_model_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_model_config(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
