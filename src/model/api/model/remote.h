/* Models of other servers, which are models of this one as well: platform "remote", opened by the maker (model.h), without files.
 * One is made for each model with an address that a workflow or an endpoint names. */
#ifndef MR_MODEL_REMOTE_H
#define MR_MODEL_REMOTE_H

#include "base/err.h"
#include "model/config.h"

struct mr_models;

/** Which model it is, and where. Borrowed texts. */
struct mr_remote_model {
    mr_str model;
    mr_str version; /* "": the one that its server gives */
    mr_str hosts;   /* addresses as of the client library, separated by ';' */
};

/** "MODEL@HOSTS" or "MODEL:VERSION@HOSTS": the name of the model here, on the heap. Bytes that a name cannot have, and those that
 *  separate its parts, are "%XX", so that each has a name of its own. Thread: any. */
char *mr_remote_name(const struct mr_remote_model *r);
/** What a workflow names, if it has `remote`; number: room for the version's text. Thread: any. */
bool mr_remote_of(const Millrace__WorkflowModel *m, char number[24], struct mr_remote_model *out);
/** Calls `each` for the models of other servers that the workflow asks, perhaps several times for one. Thread: any. */
void mr_config_remotes(const Inference__ModelConfig *c,
                       void (*each)(void *ctx, const struct mr_remote_model *r), void *ctx);
/** Loads the model of that name, unless it serves or is being loaded. One that fails is tried again with the next call. In all
 *  control modes. Thread: any. */
void mr_models_remote(struct mr_models *m, const struct mr_remote_model *r);

#endif
