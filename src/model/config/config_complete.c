/* The config and the opened model, brought together.
 *
 * What the model says fills what the config leaves out, and what both say must agree. The batch
 * dimension is the delicate part: the model's shapes have it, the config's do not when
 * max_batch_size > 0. For a config that does not give max_batch_size, its own dims say what it
 * meant: as long as the model's shape, and the batch dimension is written out (no batching by us);
 * one shorter, and it is left out.
 *
 * A shape of which nothing is left without the batch dimension is written [ 1 ] with an empty
 * reshape, as Triton writes it: ModelConfig has no other way to say "a scalar". Without batching
 * Triton refuses that reshape, so it is left out and understood. Texts follow Triton's where it has
 * one. Thread: any. */
#include <stdio.h>

#include "config_priv.h"
#include "tensor/tensor.h"

struct joint {
    Inference__ModelConfig *c;
    const struct mr_signature *s;
    bool fill;
    struct mr_err *err;
};

static const struct mr_io_desc *io_named(const struct mr_io_desc *list, uint32_t count,
                                         const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

/* Dims of the shape that the backend sees, without the batch dimension. */
static size_t config_rank(const struct mr_config_io *io)
{
    return *io->reshape ? (*io->reshape)->n_shape : *io->n_dims;
}

static const int64_t *config_dims(const struct mr_config_io *io)
{
    return *io->reshape ? (*io->reshape)->shape : *io->dims;
}

/* ---- max_batch_size ---- */

/* What the config's own dims mean: -1, some input or output is written with all dims of the model's shape; 1, some is
 * one shorter, so the batch dimension is left out; 0, they do not say. */
static int dims_say(const struct joint *j)
{
    int say = 0;

    for (size_t i = 0; i < j->c->n_input + j->c->n_output; i++) {
        bool is_input = i < j->c->n_input;
        struct mr_config_io io = is_input ? mr_config_input_io(j->c->input[i])
                                          : mr_config_output_io(j->c->output[i - j->c->n_input]);
        const struct mr_io_desc *d = is_input
                                         ? io_named(j->s->inputs, j->s->input_count, io.name)
                                         : io_named(j->s->outputs, j->s->output_count, io.name);
        if (!d || d->rank < 0 || *io.n_dims == 0) {
            continue;
        }
        if (config_rank(&io) == (size_t)d->rank) {
            return -1;
        }
        say = config_rank(&io) + 1 == (size_t)d->rank ? 1 : say;
    }
    return say;
}

/* A model that can batch does unless the dims say otherwise, and one of which that is not known if they say so. */
static bool batches(const struct joint *j)
{
    return j->s->batchable != 0 && dims_say(j) >= (j->s->batchable == 1 ? 0 : 1);
}

static int batch_settle(const struct joint *j, bool given, int default_max_batch)
{
    Inference__ModelConfig *c = j->c;

    if (j->s->batchable == 0 && c->max_batch_size > 0) {
        return MR_FAIL(j->err, MR_E_INVALID,
                       "autofill failed for model '%.128s': model does not support batching while "
                       "non-zero max_batch_size is specified",
                       c->name);
    }
    if (j->fill && c->max_batch_size == 0 && j->s->max_batch_size > 0) {
        c->max_batch_size = (int32_t)j->s->max_batch_size;
        return MR_OK;
    }
    if (!j->fill || given || default_max_batch <= 0 || !batches(j)) {
        return MR_OK;
    }
    c->max_batch_size = default_max_batch;
    if (default_max_batch > 1 &&
        c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET) {
        mr_config_add_dynamic_batching(c);
    }
    return MR_OK;
}

/* What the model says about its scheduling. */
static void scheduling_fill(const struct joint *j)
{
    Inference__ModelConfig *c = j->c;

    if ((j->s->flags & MR_BACKEND_DYNAMIC_BATCHING) &&
        c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET) {
        mr_config_add_dynamic_batching(c);
    }
    if ((j->s->flags & MR_BACKEND_IS_DECOUPLED) && !c->model_transaction_policy) {
        c->model_transaction_policy = MR_NEW(Inference__ModelTransactionPolicy);
        inference__model_transaction_policy__init(c->model_transaction_policy);
        c->model_transaction_policy->decoupled = 1;
    }
}

/* ---- one input or output ---- */

static void io_fill(const struct joint *j, struct mr_config_io *io, const struct mr_io_desc *d)
{
    int lead = j->c->max_batch_size > 0 ? 1 : 0;
    static const int64_t one = 1;

    if (*io->data_type == INFERENCE__DATA_TYPE__TYPE_INVALID) {
        *io->data_type = (Inference__DataType)d->dtype;
    }
    if (*io->n_dims > 0 || *io->reshape || d->rank < lead) {
        return;
    }
    if (d->rank > lead) {
        mr_config_set_i64s(io->dims, io->n_dims, d->dims + lead, (size_t)(d->rank - lead));
        return;
    }
    mr_config_set_i64s(io->dims, io->n_dims, &one, 1);
    if (lead == 0) {
        return;
    }
    *io->reshape = MR_NEW(Inference__ModelTensorReshape);
    inference__model_tensor_reshape__init(*io->reshape);
}

static int shapes_fail(const struct joint *j, const struct mr_config_io *io,
                       const struct mr_io_desc *d, const int64_t *full, int rank)
{
    char model[200];
    char config[200];
    const char *why = j->c->max_batch_size > 0
                          ? "an initial batch dimension because max_batch_size > 0 followed by the "
                            "explicit tensor shape, making complete "
                          : "";

    mr_shape_text(d->dims, d->rank, model, sizeof model);
    mr_shape_text(full, rank, config, sizeof config);
    return MR_FAIL(j->err, MR_E_INVALID,
                   "model '%.100s', tensor '%.100s': the model expects %d dimensions (shape %.60s) "
                   "but the model configuration specifies %d dimensions (%sshape %.60s)",
                   j->c->name, io->name, d->rank, model, rank, why, config);
}

/* The config's shape with the batch dimension, against the model's; -1 agrees with anything. */
static int shapes_agree(const struct joint *j, const struct mr_config_io *io,
                        const struct mr_io_desc *d)
{
    int64_t full[MR_MAX_RANK + 1];
    size_t lead = j->c->max_batch_size > 0 ? 1 : 0;
    size_t rank = lead + config_rank(io);

    if (rank > MR_MAX_RANK) {
        return MR_FAIL(j->err, MR_E_INVALID,
                       "model '%.100s', tensor '%.100s': %zu dimensions, allowed are %d",
                       j->c->name, io->name, rank, MR_MAX_RANK);
    }
    if (d->rank < 0 || *io->n_dims == 0 || mr_config_is_scalar(io, j->c->max_batch_size, d->rank)) {
        return MR_OK; /* the model does not say; what the config lacks is found later */
    }
    if (lead > 0 && (d->rank == 0 || d->dims[0] != -1)) {
        char model[200];
        return MR_FAIL(j->err, MR_E_INVALID,
                       "model '%.100s', tensor '%.100s': for the model to support batching the "
                       "shape should have at least 1 dimension and the first dimension must be -1; "
                       "but shape expected by the model is %s",
                       j->c->name, io->name, mr_shape_text(d->dims, d->rank, model, sizeof model));
    }
    full[0] = -1;
    for (size_t i = lead; i < rank; i++) {
        full[i] = config_dims(io)[i - lead];
    }
    for (size_t i = 0; i < rank && (int)rank == d->rank; i++) {
        if (full[i] != d->dims[i] && full[i] != -1 && d->dims[i] != -1) {
            return shapes_fail(j, io, d, full, (int)rank);
        }
    }
    return (int)rank == d->rank ? MR_OK : shapes_fail(j, io, d, full, (int)rank);
}

static int io_join(const struct joint *j, struct mr_config_io io, const struct mr_io_desc *d)
{
    if (j->fill) {
        io_fill(j, &io, d);
    }
    if (*io.data_type != INFERENCE__DATA_TYPE__TYPE_INVALID && (int)*io.data_type != d->dtype) {
        return MR_FAIL(j->err, MR_E_INVALID,
                       "unable to load model '%.100s', configuration expects datatype %s for %s "
                       "'%.100s', model provides %s",
                       j->c->name, mr_dtype_config_name((int)*io.data_type), io.kind, io.name,
                       mr_dtype_config_name(d->dtype));
    }
    return shapes_agree(j, &io, d);
}

/* ---- the lists ---- */

static int name_unknown(const struct joint *j, const char *kind, const char *name,
                        const struct mr_io_desc *list, uint32_t count)
{
    char allowed[200] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < count && used < sizeof allowed - 1; i++) {
        int n =
            snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", list[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return MR_FAIL(j->err, MR_E_INVALID,
                   "unable to load model '%.100s', unexpected inference %s '%.100s', allowed %ss "
                   "are: %.180s",
                   j->c->name, kind, name, kind, allowed);
}

static int inputs_join(const struct joint *j)
{
    Inference__ModelConfig *c = j->c;
    const struct mr_signature *s = j->s;

    if (c->n_input == 0 && j->fill) {
        for (uint32_t k = 0; k < s->input_count; k++) {
            if (mr_config_is_sequence_io(c, s->inputs[k].name, true)) {
                continue;
            }
            Inference__ModelInput *in = mr_config_add_input(c);
            mr_config_set_string(&in->name, s->inputs[k].name);
            in->optional = (s->inputs[k].flags & MR_IO_OPTIONAL) != 0;
        }
    }
    if (c->n_input > s->input_count) {
        return MR_FAIL(j->err, MR_E_INVALID,
                       "unable to load model '%.100s', configuration expects %zu inputs, model "
                       "provides %u",
                       c->name, c->n_input, s->input_count);
    }
    for (size_t i = 0; i < c->n_input; i++) {
        const char *name = c->input[i]->name;
        const struct mr_io_desc *d = io_named(s->inputs, s->input_count, name);
        if (!d) {
            return name_unknown(j, "input", name, s->inputs, s->input_count);
        }
        int rc = io_join(j, mr_config_input_io(c->input[i]), d);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

/* Every input that the model cannot run without is in the config. */
static int inputs_complete(const struct joint *j)
{
    for (uint32_t i = 0; i < j->s->input_count; i++) {
        const struct mr_io_desc *d = &j->s->inputs[i];
        bool found =
            (d->flags & MR_IO_OPTIONAL) != 0 || mr_config_is_sequence_io(j->c, d->name, true);
        for (size_t k = 0; k < j->c->n_input && !found; k++) {
            found = strcmp(j->c->input[k]->name, d->name) == 0;
        }
        if (!found) {
            return MR_FAIL(j->err, MR_E_INVALID,
                           "unable to load model '%.100s', configuration expects %zu inputs, model "
                           "provides %u; input '%.100s' is missing",
                           j->c->name, j->c->n_input, j->s->input_count, d->name);
        }
    }
    return MR_OK;
}

static int outputs_join(const struct joint *j)
{
    Inference__ModelConfig *c = j->c;
    const struct mr_signature *s = j->s;

    if (c->n_output == 0 && j->fill) {
        for (uint32_t k = 0; k < s->output_count; k++) {
            const bool is_extra = (s->outputs[k].flags & MR_IO_OPTIONAL) != 0;
            if (!is_extra && !mr_config_is_sequence_io(c, s->outputs[k].name, false)) {
                mr_config_set_string(&mr_config_add_output(c)->name, s->outputs[k].name);
            }
        }
    }
    for (size_t i = 0; i < c->n_output; i++) {
        const char *name = c->output[i]->name;
        const struct mr_io_desc *d = io_named(s->outputs, s->output_count, name);
        if (!d) {
            return name_unknown(j, "output", name, s->outputs, s->output_count);
        }
        int rc = io_join(j, mr_config_output_io(c->output[i]), d);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

int mr_config_complete(Inference__ModelConfig *c, const struct mr_signature *s, bool auto_complete,
                       bool max_batch_given, int default_max_batch, struct mr_err *err)
{
    const struct joint j = {.c = c, .s = s, .fill = auto_complete && !s->from_config, .err = err};
    int rc = batch_settle(&j, max_batch_given || c->max_batch_size != 0, default_max_batch);

    if (rc < 0) {
        return rc;
    }
    if (s->from_config) {
        if (c->n_input == 0 || c->n_output == 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "model '%.100s' must specify '%s': backend '%.64s' takes inputs and "
                           "outputs from the configuration",
                           c->name, c->n_input == 0 ? "input" : "output", c->backend);
        }
        return MR_OK;
    }
    if (j.fill) {
        scheduling_fill(&j);
    }
    MR_TRY(inputs_join(&j));
    MR_TRY(inputs_complete(&j));
    MR_TRY(outputs_join(&j));
    MR_TRY(mr_config_join_sequence(c, s, err));
out:
    return rc;
}
