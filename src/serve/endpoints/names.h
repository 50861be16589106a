/* What the names in a file of endpoints mean. */
#ifndef MR_SERVE_ENDPOINTS_NAMES_H
#define MR_SERVE_ENDPOINTS_NAMES_H

#include "model/model.h"
#include "variant/config.h"

/* Whether each name has one meaning: an endpoint and a service have that of no model, variants and shadows of this server name
 * models, and services models or endpoints. Before endpoint_remotes_settle. Errors: MR_E_INVALID. */
int endpoint_names_check(const struct mr_service_file *f, struct mr_models *models,
                         struct mr_err *err);

#endif
