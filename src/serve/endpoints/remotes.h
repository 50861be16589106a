/* Variants on other servers: each is a model of this one (model/remote.h), which is loaded when the file has been read and, as long as
 * its server does not answer, again and again. */
#ifndef MR_SERVE_ENDPOINTS_REMOTES_H
#define MR_SERVE_ENDPOINTS_REMOTES_H

#include "model/remote.h"
#include "variant/config.h"

/* In the arena of the file. */
struct endpoint_remotes {
    size_t count;
    struct mr_remote_model *list;
};

/* Gives variants with `remote` the names of their models here. Errors, with line and endpoint: MR_E_INVALID (what is no address,
 * or more of it than a name has room for), MR_E_UNSUPPORTED (other ways to find hosts, and those of a shadow); MR_E_EXHAUSTED. */
int endpoint_remotes_settle(struct mr_service_file *f, struct endpoint_remotes *out,
                            struct mr_err *err);
/* Loads those that are not there. Thread: any; does not block. */
void endpoint_remotes_ask(const struct endpoint_remotes *r, struct mr_models *models);

#endif
