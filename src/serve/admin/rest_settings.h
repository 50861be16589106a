/* REST handlers of log settings (http/routes.c). */
#ifndef MR_SERVE_ADMIN_REST_SETTINGS_H
#define MR_SERVE_ADMIN_REST_SETTINGS_H

#include "serve/state/state.h"

void rest_logging(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);

#endif
