#include "names.h"

#include <stdio.h>

#include "base/map.h"

struct check {
    struct mr_map endpoints, services;
    char model[256]; /* that has one of these names */
    struct mr_err *err;
};

static void see_model(void *ctx, const struct mr_model_report *r)
{
    struct check *k = ctx;

    if (!k->model[0] &&
        (mr_map_find(&k->endpoints, r->name) || mr_map_find(&k->services, r->name))) {
        snprintf(k->model, sizeof k->model, "%.*s", MR_STR_ARG(r->name));
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
    int rc = MR_OK;

    for (size_t i = 0; i < e->variant_count && rc == MR_OK; i++) {
        const struct mr_variant_config *v = &e->variants[i];
        rc = v->target.remote_count ? MR_OK
                                    : target_check(k, "variant", v->tag, v->target.model, false);
    }
    if (rc == MR_OK && e->shadow) {
        rc = target_check(k, "shadow", e->shadow->tag, e->shadow->target.model, false);
    }
    return rc < 0 ? MR_WRAP(k->err, rc, "endpoint '%s'", e->name.ptr) : MR_OK;
}

static int service_check(const struct check *k, const struct mr_service_config *s)
{
    int rc = MR_OK;

    for (size_t i = 0; i < s->case_count && rc == MR_OK; i++) {
        rc = target_check(k, "the value", s->cases[i].value, s->cases[i].model, true);
    }
    return rc < 0 ? MR_WRAP(k->err, rc, "service '%s'", s->name.ptr)
                  : target_check(k, "the default of service", s->name, s->otherwise, true);
}

int endpoint_names_check(const struct mr_service_file *f, struct mr_models *models,
                         struct mr_err *err)
{
    struct check k = {.err = err};
    int rc = MR_OK;

    for (size_t i = 0; i < f->endpoint_count; i++) {
        mr_map_put(&k.endpoints, f->endpoints[i].name, &k);
    }
    for (size_t i = 0; i < f->service_count; i++) {
        mr_map_put(&k.services, f->services[i].name, &k);
    }
    mr_models_visit(models, see_model, &k);
    if (k.model[0]) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "'%s' is the name of a model as well: it has to be that of an endpoint or of "
                     "a model",
                     k.model);
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
