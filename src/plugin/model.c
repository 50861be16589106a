/* Models and instances of a backend: thin calls through the table, each result checked.
 *
 * A model keeps its own copy of the signature (signature.c), so that nothing of the backend's memory
 * is read on the request path. Thread: as backend.h says; open and close block. */
#include <time.h>

#include <stdio.h>

#include "internal.h"

static int signature_fetch(struct mr_plugin_model *m, struct mr_err *err)
{
    struct mr_plugin *p = m->plugin;
    const struct mr_signature *s = NULL;
    char who[120];
    int rc =
        mr_plugin_result(p, "model_signature", p->table.model_signature(m->model, &s, err), err);
    if (rc < 0) {
        return rc;
    }
    snprintf(who, sizeof who, "backend '%s', model '%.40s'", p->name, m->name);
    return mr_plugin_signature_copy(&m->signature, s, p->table.flags, MR_E_INTERNAL, who, err);
}

int mr_plugin_model_open(struct mr_plugin_model **out, struct mr_plugin *p,
                         const struct mr_model_desc *desc, struct mr_err *err)
{
    struct mr_err local = {0};
    struct mr_model_desc known = *desc;
    struct mr_plugin_model *m = mr_alloc(sizeof *m);
    m->plugin = p;
    m->name = mr_strndup(desc->name, strlen(desc->name));
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
        mr_free(m->name);
        mr_free(m);
        if (err) {
            *err = local;
        }
        return rc;
    }
    atomic_fetch_add_explicit(&p->models, 1, memory_order_relaxed);
    *out = m;
    return MR_OK;
}

void mr_plugin_model_close(struct mr_plugin_model **m)
{
    if (!*m) {
        return;
    }
    struct mr_plugin *p = (*m)->plugin;
    const struct timespec step = {0, 1000000};
    while (atomic_load_explicit(&(*m)->given, memory_order_acquire) > 0) {
        nanosleep(&step, NULL);
    }
    p->table.model_close((*m)->model);
    atomic_fetch_sub_explicit(&p->models, 1, memory_order_relaxed);
    mr_free((*m)->signature);
    mr_free((*m)->name);
    mr_freep(m);
}

const struct mr_signature *mr_plugin_model_signature(const struct mr_plugin_model *m)
{
    return m->signature;
}

int mr_plugin_model_set_signature(struct mr_plugin_model *m, const struct mr_signature *s,
                                  struct mr_err *err)
{
    struct mr_plugin *p = m->plugin;
    struct mr_signature *copy = NULL;
    struct mr_err local = {0};
    char who[80];
    if (!m->signature->from_config) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%s': backend '%s' knows its inputs and outputs by itself", m->name,
                       p->name);
    }
    snprintf(who, sizeof who, "config of model '%.40s'", m->name);
    int rc = mr_plugin_signature_copy(&copy, s, m->signature->flags, MR_E_INVALID, who, &local);
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
    mr_free(m->signature);
    m->signature = copy;
    return MR_OK;
}

uint64_t mr_plugin_model_bytes(const struct mr_plugin_model *m)
{
    return m->plugin->table.model_bytes ? m->plugin->table.model_bytes(m->model) : 0;
}

struct mr_model_memory mr_plugin_model_memory(const struct mr_plugin_model *m)
{
    struct mr_model_memory known = {.reason = ""};
    const struct mr_model_memory *told =
        m->plugin->table.model_memory ? m->plugin->table.model_memory(m->model) : NULL;

    if (told && told->size >= sizeof known) {
        known = *told;
        known.size = sizeof known;
        known.reason = told->reason ? told->reason : "";
    }
    return known;
}

struct mr_plugin *mr_plugin_model_plugin(const struct mr_plugin_model *m)
{
    return m->plugin;
}

int mr_plugin_instance_open(void **out, struct mr_plugin_model *m, uint32_t index,
                            struct mr_err *err)
{
    struct mr_plugin *p = m->plugin;
    struct mr_err local = {0};
    void *instance = m->model;
    if (p->table.instance_open) {
        int rc = mr_plugin_result(
            p, "instance_open", p->table.instance_open(m->model, index, &instance, &local), &local);
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

void mr_plugin_instance_close(struct mr_plugin_model *m, void **instance)
{
    if (*instance && m->plugin->table.instance_open) {
        m->plugin->table.instance_close(*instance);
    }
    *instance = NULL;
}
