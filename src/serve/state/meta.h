/* Facts that both protocols report. */
#ifndef MR_SERVE_STATE_META_H
#define MR_SERVE_STATE_META_H

#include "state.h"

extern const char *const serve_extensions[];
extern const size_t serve_extension_count;
/* As mr_models_find, and the version that a mesh has just shown ready; of an endpoint or service, the version that answers most of its requests.
 * Thread: a network thread. */
int meta_find(struct mr_server *s, mr_str name, mr_str version, struct mr_version **out,
              struct mr_err *err);
/* v: what meta_find has found. Of an endpoint, all variants that get requests. */
bool meta_is_ready(struct mr_server *s, mr_str name, mr_str version, const struct mr_version *v);
/* Shape as metadata shows it: -1 first when the model batches. out has room for MR_MAX_RANK + 1. */
size_t meta_shape(const struct mr_version *v, const struct mr_model_io *io, int64_t *out);
const char *meta_platform(const struct mr_version *v);
/* Versions for the metadata of a model: the one asked for, or all ready ones. Those of an endpoint are its tags. */
#define META_VERSIONS_MAX 256u
size_t meta_versions(struct mr_server *s, const struct mr_version *v, mr_str name, mr_str asked,
                     mr_str out[META_VERSIONS_MAX]);
/* A model's state in MLServer's index, and the reason, which is "" unless the model has failed. */
const char *meta_mlserver_state(const struct mr_model_report *m, mr_str *out_reason);
/* Changes of log settings; every value is optional. Errors: MR_E_INVALID, MR_E_UNSUPPORTED (log_file). */
struct log_change {
    int8_t info, warning, error; /* -1 = leave */
    bool has_verbose;
    uint32_t verbose;
    mr_str format; /* ptr NULL = leave */
    bool has_file;
};
void meta_log_change_init(struct log_change *c);
int meta_log_change_apply(const struct log_change *c, struct mr_err *err);

#endif
