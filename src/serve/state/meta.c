/* Facts about server and models that both protocols report. */
#include "meta.h"

#include "loops.h"
#include "places.h"
#include "serve/endpoints/route.h"
#include "state.h"
#include "tensor/tensor.h"

/* Only what works is claimed; Triton's order. */
const char *const serve_extensions[] = {
    "classification",     "sequence",
    "model_repository",   "model_repository(unload_dependents)",
    "schedule_policy",    "model_configuration",
    "binary_tensor_data", "parameters",
    "statistics",         "logging",
};
const size_t serve_extension_count = sizeof serve_extensions / sizeof *serve_extensions;

int meta_find(struct mr_server *s, mr_str name, mr_str version, struct mr_version **out,
              struct mr_err *err)
{
    int rc = route_main(s->endpoints, &name, &version, err);

    if (rc < 0) {
        return rc;
    }
    rc = mr_models_find(s->models, name, version, out, err);
    struct mr_version *found = rc < 0 ? places_found(serve_here(), name, version) : NULL;
    if (found) {
        *out = found;
        mr_err_clear(err);
        rc = MR_OK;
    }
    return rc;
}

bool meta_is_ready(struct mr_server *s, mr_str name, mr_str version, const struct mr_version *v)
{
    /* In a mesh the other variants come when they are asked. */
    if (!s->mesh && route_is_taken(s->endpoints, name)) {
        return route_is_ready(s->endpoints, name, version);
    }
    return mr_executor_is_ready(v->executor);
}

size_t meta_shape(const struct mr_version *v, const struct mr_model_io *io, int64_t *out)
{
    size_t n = 0;

    if (v->max_batch_size > 0) {
        out[n++] = -1;
    }
    for (int i = 0; i < io->rank; i++) {
        out[n++] = io->dims[i];
    }
    return n;
}

const char *meta_platform(const struct mr_version *v)
{
    return v->config->platform && v->config->platform[0] ? v->config->platform : v->config->backend;
}

size_t meta_versions(struct mr_server *s, const struct mr_version *v, mr_str name, mr_str asked,
                     mr_str out[META_VERSIONS_MAX])
{
    const struct mr_version *ready[META_VERSIONS_MAX];
    size_t n = 1;

    if (route_is_taken(s->endpoints, name)) {
        return route_tags(s->endpoints, name, asked, out, META_VERSIONS_MAX);
    }
    ready[0] = v;
    if (asked.len == 0) {
        n = mr_models_ready_versions(s->models, v->model_name, ready, META_VERSIONS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = ready[i]->number_text;
    }
    if (n == 0) { /* it is being unloaded */
        out[n++] = v->number_text;
    }
    return n;
}

const char *meta_mlserver_state(const struct mr_model_report *m, mr_str *out_reason)
{
    *out_reason = m->state == MR_VERSION_FAILED ? m->reason : MR_STR("");
    switch (m->state) {
    case MR_VERSION_READY: return "READY";
    case MR_VERSION_LOADING:
    case MR_VERSION_WARMING: return "UNKNOWN";
    default: return "UNAVAILABLE"; /* at once, also while requests that run are waited for */
    }
}

void meta_log_change_init(struct log_change *c)
{
    *c = (struct log_change){.info = -1, .warning = -1, .error = -1};
}

static int parse_format(mr_str name, enum mr_log_format *out, struct mr_err *err)
{
    for (int i = 0; i < MR_LOG_FORMATS; i++) {
        if (mr_str_eq_c(name, mr_log_format_name((enum mr_log_format)i))) {
            *out = (enum mr_log_format)i;
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "log_format is '%.*s', possible are default, ISO8601, text and json",
                   MR_STR_ARG(mr_str_sub(name, 0, 64)));
}

int meta_log_change_apply(const struct log_change *c, struct mr_err *err)
{
    enum mr_log_format format = mr_log_get_format();
    int rc = MR_OK;

    if (c->has_file) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "log file location can not be updated through network protocol");
    }
    if (c->format.ptr) {
        MR_TRY(parse_format(c->format, &format, err));
    }
    if (c->info >= 0) {
        mr_log_set_enabled(MR_LOG_INFO, c->info);
    }
    if (c->warning >= 0) {
        mr_log_set_enabled(MR_LOG_WARN, c->warning);
    }
    if (c->error >= 0) {
        mr_log_set_enabled(MR_LOG_ERROR, c->error);
    }
    if (c->has_verbose) {
        mr_log_set_verbose(c->verbose);
    }
    mr_log_set_format(format);
out:
    return rc;
}
