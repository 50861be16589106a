/* Models and instances of a backend: thin calls through the table, each result checked.
 *
 * A model keeps its own copy of the signature (exec/signature.c), so that nothing of the backend's memory
 * is read on the request path. Thread: as backend.h says; open and close block. */
#include <time.h>

#include <stdio.h>

#include "plugin_priv.h"

static int signature_fetch(struct mr_plugin_model *m, struct mr_err *err)
{
    struct mr_plugin *p = m->plugin;
    const struct mr_signature *s = NULL;
    struct mr_signature *copy;
    char who[120];
    int rc =
        mr_plugin_result(p, "model_signature", p->table.model_signature(m->model, &s, err), err);
    if (rc < 0) {
        return rc;
    }
    snprintf(who, sizeof who, "backend '%s', model '%.40s'", p->name, m->base.model);
    rc = mr_signature_copy(&copy, s, p->table.flags, MR_E_INTERNAL, who, err);
    if (rc == MR_OK) {
        m->base.signature = copy;
    }
    return rc;
}

static void model_free(struct mr_plugin_model *m)
{
    mr_free((void *)(uintptr_t)m->base.signature);
    mr_free((void *)(uintptr_t)m->base.model);
    mr_free(m);
}

static bool model_is_sending(const struct mr_executor *e)
{
    /* Acquire: pairs with the release in given_release. */
    return atomic_load_explicit(&mr_plugin_model_of(e)->given, memory_order_acquire) > 0;
}

static void model_close(struct mr_executor *e)
{
    struct mr_plugin_model *m = mr_plugin_model_of(e);
    struct mr_plugin *p = m->plugin;
    const struct timespec step = {0, 1000000};
    while (model_is_sending(e)) {
        nanosleep(&step, NULL);
    }
    p->table.model_close(m->model);
    atomic_fetch_sub_explicit(&p->models, 1, memory_order_relaxed);
    model_free(m);
}

static int model_configure(struct mr_executor *e, const struct mr_signature *s, struct mr_err *err)
{
    struct mr_plugin_model *m = mr_plugin_model_of(e);
    struct mr_plugin *p = m->plugin;
    struct mr_signature *copy = NULL;
    struct mr_err local = {0};
    char who[80];
    if (!e->signature->from_config) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%s': backend '%s' knows its inputs and outputs by itself", e->model,
                       p->name);
    }
    snprintf(who, sizeof who, "config of model '%.40s'", e->model);
    int rc = mr_signature_copy(&copy, s, e->signature->flags, MR_E_INVALID, who, &local);
    if (rc == MR_OK && p->table.model_configure) {
        rc = mr_plugin_result(p, "model_configure",
                              p->table.model_configure(m->model, copy, &local), &local);
    }
    if (rc < 0) {
        mr_free(copy);
        if (err) {
            *err = local;
        }
        return rc;
    }
    copy->from_config = 1;
    copy->max_pending = e->signature->max_pending;
    mr_free((void *)(uintptr_t)e->signature);
    e->signature = copy;
    return MR_OK;
}

static uint64_t model_bytes(const struct mr_executor *e)
{
    const struct mr_plugin_model *m = mr_plugin_model_of(e);
    return m->plugin->table.model_bytes ? m->plugin->table.model_bytes(m->model) : 0;
}

static struct mr_model_memory model_memory(const struct mr_executor *e)
{
    const struct mr_plugin_model *m = mr_plugin_model_of(e);
    struct mr_model_memory known = {.reason = ""};
    const struct mr_model_memory *reported =
        m->plugin->table.model_memory ? m->plugin->table.model_memory(m->model) : NULL;

    if (reported && reported->size >= sizeof known) {
        known = *reported;
        known.size = sizeof known;
        known.reason = reported->reason ? reported->reason : "";
    }
    return known;
}

static int instance_open(struct mr_executor *e, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err)
{
    struct mr_plugin_model *m = mr_plugin_model_of(e);
    struct mr_plugin *p = m->plugin;
    struct mr_instance_desc known = *desc;
    struct mr_err local = {0};
    void *instance = m->model;
    known.size = sizeof known;
    if (p->table.instance_open) {
        int rc =
            mr_plugin_result(p, "instance_open",
                             p->table.instance_open(m->model, &known, &instance, &local), &local);
        if (rc < 0) {
            if (err) {
                *err = local;
            }
            return rc;
        }
    }
    *out = instance;
    return MR_OK;
}

static void instance_close(struct mr_executor *e, void *instance)
{
    const struct mr_plugin *p = mr_plugin_model_of(e)->plugin;
    if (p->table.instance_open) {
        p->table.instance_close(instance);
    }
}

#define MODEL_OPS                                                                                  \
    .close = model_close, .configure = model_configure, .bytes = model_bytes,                      \
    .memory = model_memory, .instance_open = instance_open, .instance_close = instance_close,      \
    .execute = mr_plugin_execute, .is_sending = model_is_sending
static const struct mr_executor_ops model_ops = {MODEL_OPS};
static const struct mr_executor_ops model_ops_cancel = {MODEL_OPS, .cancel = mr_plugin_cancel};

int mr_plugin_model_open(struct mr_executor **out, struct mr_plugin *p,
                         const struct mr_model_desc *desc, struct mr_err *err)
{
    struct mr_err local = {0};
    struct mr_model_desc known = *desc;
    struct mr_plugin_model *m = mr_alloc(sizeof *m);
    m->base.ops = p->table.cancel ? &model_ops_cancel : &model_ops;
    m->base.backend = p->name;
    m->base.model = mr_strndup(desc->name, strlen(desc->name));
    m->plugin = p;
    known.size = sizeof known;
    int rc = mr_plugin_result(p, "model_open",
                              p->table.model_open(p->backend, &known, &m->model, &local), &local);
    if (rc == MR_OK) {
        rc = signature_fetch(m, &local);
        if (rc < 0) {
            p->table.model_close(m->model);
        }
    }
    if (rc < 0) {
        model_free(m);
        if (err) {
            *err = local;
        }
        return rc;
    }
    atomic_fetch_add_explicit(&p->models, 1, memory_order_relaxed);
    *out = &m->base;
    return MR_OK;
}
