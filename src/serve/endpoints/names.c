#include "names.h"

#include <stdio.h>

#include "base/map.h"

struct check {
    struct mr_map endpoints, services; /* to their lines */
    char model[256];                   /* that has one of these names */
    uint32_t model_line;
    struct mr_err *err;
};

static void see_model(void *ctx, const struct mr_model_report *r)
{
    struct check *k = ctx;
    const uint32_t *endpoint = mr_map_find(&k->endpoints, r->name);
    const uint32_t *line = endpoint ? endpoint : mr_map_find(&k->services, r->name);

    if (!k->model[0] && line) {
        snprintf(k->model, sizeof k->model, "%.*s", MR_STR_ARG(r->name));
        k->model_line = *line;
    }
}

/* Requests go from a service to an endpoint and from that to a model. */
static int target_check(const struct check *k, const char *what, mr_str of, mr_str target,
                        bool may_be_endpoint)
{
    const bool is_service = mr_map_find(&k->services, target) != NULL;

    if (!is_service && (may_be_endpoint || !mr_map_find(&k->endpoints, target))) {
        return MR_OK;
    }
    return MR_FAIL(k->err, MR_E_INVALID, "%s '%s' names '%s', which is %s: possible %s", what,
                   of.ptr, target.ptr, is_service ? "a service" : "an endpoint",
                   may_be_endpoint ? "are models, workflows and endpoints"
                                   : "are models and workflows");
}

static int endpoint_check(const struct check *k, const struct mr_endpoint_config *e)
{
    uint32_t line = e->line;
    int rc = MR_OK;

    for (size_t i = 0; i < e->variant_count && rc == MR_OK; i++) {
        const struct mr_variant_config *v = &e->variants[i];
        line = v->line;
        rc = v->target.remote_count ? MR_OK
                                    : target_check(k, "variant", v->tag, v->target.model, false);
    }
    if (rc == MR_OK && e->shadow) {
        line = e->shadow->line;
        rc = target_check(k, "shadow", e->shadow->tag, e->shadow->target.model, false);
    }
    return rc < 0 ? MR_WRAP(k->err, rc, "line %u: endpoint '%s'", line, e->name.ptr) : MR_OK;
}

static int service_check(const struct check *k, const struct mr_service_config *s)
{
    uint32_t line = s->line;
    int rc = target_check(k, "the default of service", s->name, s->otherwise, true);

    if (rc < 0) {
        return MR_WRAP(k->err, rc, "line %u", line);
    }
    for (size_t i = 0; i < s->case_count && rc == MR_OK; i++) {
        line = s->cases[i].line;
        rc = target_check(k, "the value", s->cases[i].value, s->cases[i].model, true);
    }
    return rc < 0 ? MR_WRAP(k->err, rc, "line %u: service '%s'", line, s->name.ptr) : MR_OK;
}

static void *line_of(const uint32_t *line)
{
    return (void *)(uintptr_t)line;
}

int endpoint_names_check(const struct mr_service_file *f, struct mr_models *models,
                         struct mr_err *err)
{
    struct check k = {.err = err};
    int rc = MR_OK;

    for (size_t i = 0; i < f->endpoint_count; i++) {
        mr_map_put(&k.endpoints, f->endpoints[i].name, line_of(&f->endpoints[i].line));
    }
    for (size_t i = 0; i < f->service_count; i++) {
        mr_map_put(&k.services, f->services[i].name, line_of(&f->services[i].line));
    }
    mr_models_visit(models, see_model, &k);
    if (k.model[0]) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "line %u: '%s' is the name of a model as well: it has to be that of an "
                     "endpoint or of a model",
                     k.model_line, k.model);
    }
    for (size_t i = 0; i < f->endpoint_count && rc == MR_OK; i++) {
        rc = endpoint_check(&k, &f->endpoints[i]);
    }
    for (size_t i = 0; i < f->service_count && rc == MR_OK; i++) {
        rc = service_check(&k, &f->services[i]);
    }
    mr_map_fini(&k.endpoints);
    mr_map_fini(&k.services);
    return rc;
}
