/* The compiler of workflows and ensembles: any configuration, with models that have the tensors that it maps, of types and
 * shapes that follow from their names. What does not compile has an error with a text. */
#include "fuzz.h"

#include "base/mem.h"
#include "flow/plan/members.h"
#include "flow/plan/ops.h"
#include "model/config/config_priv.h"

/* What a tensor is, its name says: INT32 vectors of any length, but for these first letters. */
static void io_make(struct mr_model_io *io, const struct plan_port *port)
{
    static const int64_t any[] = {-1, -1}, one[] = {1, 3}, two[] = {2, 3};
    const char first = port->name.len ? port->name.ptr[0] : 0;

    io->name = port->name;
    io->dtype = first == 'f' ? MR_DTYPE_FP32 : first == 's' ? MR_DTYPE_BYTES : MR_DTYPE_INT32;
    io->optional = first == 'o';
    io->dims = first == 'l' ? one : first == 't' ? two : any;
    io->rank = first == 'r' || first == 'l' ? 2 : 1;
}

static struct mr_version *version_make(const struct plan_node *n)
{
    static const Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    struct mr_version *v = MR_NEW(struct mr_version);

    v->model_name = n->model;
    v->config = &config;
    v->max_batch_size = n->model.ptr[0] == 'b' ? 4 : 0;
    v->inputs = MR_NEW_ARRAY(struct mr_model_io, n->input_count + 1u);
    v->outputs = MR_NEW_ARRAY(struct mr_model_io, n->output_count + 1u);
    v->input_count = n->input_count;
    v->output_count = n->output_count;
    for (uint32_t i = 0; i < n->input_count; i++) {
        io_make(&v->inputs[i], &n->inputs[i]);
    }
    for (uint32_t i = 0; i < n->output_count; i++) {
        io_make(&v->outputs[i], &n->outputs[i]);
    }
    return v;
}

static int finish(struct plan *p, const Inference__ModelConfig *c, const struct mr_ops *ops,
                  struct mr_err *err)
{
    const struct plan_ops_from from = {ops, "/", "/"};
    struct plan_member *members = MR_NEW_ARRAY(struct plan_member, (size_t)p->node_count + 1);

    for (uint32_t n = 0; n < p->node_count; n++) {
        members[n].version = p->nodes[n].model.len ? version_make(&p->nodes[n]) : NULL;
    }
    int rc = plan_check_members(p, c, members, err);
    if (rc == MR_OK && p->is_workflow) {
        rc = plan_workflow_finish(p, c, &from, err);
    }
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (members[n].version) {
            mr_free(members[n].version->inputs);
            mr_free(members[n].version->outputs);
            mr_free(members[n].version);
        }
    }
    mr_free(members);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mr_ops *ops;
    struct mr_config_warning warnings[4];
    Inference__ModelConfig *c = NULL;
    struct plan *p = NULL;
    struct mr_err err = {0};
    size_t count = 0;

    if (!ops) {
        REQUIRE(mr_ops_open(NULL, 0, &ops, &err) == MR_OK);
    }
    if (mr_config_parse_text(mr_str_n((const char *)data, size), "f", &c, &err) < 0) {
        return 0;
    }
    if (mr_config_basics(c, MR_STR("w"), NULL, &err) == MR_OK &&
        mr_config_check_features(c, warnings, 4, &count, &err) == MR_OK &&
        (mr_config_is_workflow(c) || mr_config_is_ensemble(c))) {
        int rc = mr_config_is_workflow(c) ? plan_workflow(&p, c, &err) : plan_ensemble(&p, c, &err);
        rc = rc < 0 ? rc : finish(p, c, ops, &err);
        REQUIRE(rc == MR_OK || (err.status == rc && err.msg[0]));
        plan_free(&p);
    }
    mr_config_free(&c);
    return 0;
}
