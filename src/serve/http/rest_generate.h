/* REST handlers of the generate extension (routes.c). */
#ifndef MR_SERVE_HTTP_REST_GENERATE_H
#define MR_SERVE_HTTP_REST_GENERATE_H

#include "serve/state/state.h"

void rest_generate(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_generate_stream(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
/* Of models that take messages only. */
void rest_infer_stream(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
