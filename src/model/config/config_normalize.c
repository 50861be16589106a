/* Triton's defaults, written into the config so that all readers, the config endpoint first, see
 * the effective values: one latest version, preferred sizes, instance groups with name, kind and
 * count. This server has no GPUs, so an instance group that leaves the kind open is one on the CPU.
 * Thread: any. */
#include <stdio.h>

#include "config_priv.h"

static void version_policy(Inference__ModelConfig *c)
{
    Inference__ModelVersionPolicy *p = c->version_policy;

    if (!p) {
        p = MR_NEW(Inference__ModelVersionPolicy);
        inference__model_version_policy__init(p);
        c->version_policy = p;
    }
    if (p->policy_choice_case == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE__NOT_SET) {
        p->latest = MR_NEW(Inference__ModelVersionPolicy__Latest);
        inference__model_version_policy__latest__init(p->latest);
        p->policy_choice_case = INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST;
    }
    if (p->policy_choice_case == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST &&
        p->latest->num_versions == 0) {
        p->latest->num_versions = 1;
    }
}

static void batching(Inference__ModelConfig *c)
{
    if (mr_config_has_dynamic_batching(c) && c->dynamic_batching->n_preferred_batch_size == 0 &&
        c->max_batch_size > 0) {
        mr_config_set_i32s(&c->dynamic_batching->preferred_batch_size,
                           &c->dynamic_batching->n_preferred_batch_size, &c->max_batch_size, 1);
    }
}

/* Backends whose sessions do not use all cores by themselves get two instances, as in Triton. */
static int32_t default_count(const Inference__ModelConfig *c)
{
    return strcmp(c->backend, "onnxruntime") == 0 || strcmp(c->backend, "tensorflow") == 0 ? 2 : 1;
}

static int instance_groups(Inference__ModelConfig *c, struct mr_err *err)
{
    char name[300];

    if (c->n_instance_group == 0) {
        mr_config_set_string(&mr_config_add_group(c)->name, c->name);
    }
    for (size_t i = 0; i < c->n_instance_group; i++) {
        Inference__ModelInstanceGroup *g = c->instance_group[i];
        if (!g->name[0]) {
            snprintf(name, sizeof name, "%s_%zu", c->name, i);
            mr_config_set_string(&g->name, name);
        }
        if (g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU && g->n_gpus > 0) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "instance group %.128s of model %.128s has kind KIND_CPU but specifies one "
                "or more GPUs",
                g->name, c->name);
        }
        if (g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_AUTO) {
            g->kind = INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU;
        }
        if (g->count == 0) {
            g->count =
                g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU ? default_count(c) : 1;
        }
    }
    return MR_OK;
}

static void pinned_memory(Inference__ModelOptimizationPolicy__PinnedMemoryBuffer **p)
{
    if (!*p) {
        *p = MR_NEW(Inference__ModelOptimizationPolicy__PinnedMemoryBuffer);
        inference__model_optimization_policy__pinned_memory_buffer__init(*p);
        (*p)->enable = true;
    }
}

static void optimization(Inference__ModelConfig *c)
{
    if (!c->optimization) {
        c->optimization = MR_NEW(Inference__ModelOptimizationPolicy);
        inference__model_optimization_policy__init(c->optimization);
    }
    pinned_memory(&c->optimization->input_pinned_memory);
    pinned_memory(&c->optimization->output_pinned_memory);
}

int mr_config_normalize(Inference__ModelConfig *c, struct mr_err *err)
{
    version_policy(c);
    if (mr_config_is_graph(c)) {
        return MR_OK; /* it has no instances of its own */
    }
    batching(c);
    mr_config_normalize_sequence(c);
    optimization(c);
    return instance_groups(c, err);
}
