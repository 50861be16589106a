/* sequence_batching: the judgement of its settings, its defaults, and the tensors that it adds to those of clients.
 *
 * Control inputs and states are inputs and outputs of the model that clients do not send or ask for: the scheduler
 * makes and keeps them. Texts follow Triton's where it has one. Thread: any. */
#include <stdio.h>

#include "config_priv.h"
#include "tensor/tensor.h"

typedef Inference__ModelSequenceBatching__Control control;
typedef Inference__ModelSequenceBatching__State state;

#define IDLE_DEFAULT_US UINT64_C(1000000)

/* Places of all instances together: each is a pointer, and a sequence when it is taken. */
#define PLACES_MAX (1 << 20)

static const int64_t one[] = {1};

const Inference__ModelDynamicBatching *mr_config_dynamic_batching(const Inference__ModelConfig *c)
{
    return mr_config_has_dynamic_batching(c) ? c->dynamic_batching : NULL;
}

const Inference__ModelSequenceBatching *mr_config_sequences(const Inference__ModelConfig *c)
{
    const bool has =
        c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;

    return has && !c->sequence_batching->iterative_sequence ? c->sequence_batching : NULL;
}

int mr_config_check_iterative(const Inference__ModelConfig *c, struct mr_err *err)
{
    const bool has =
        c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
    const Inference__ModelSequenceBatching *s = has ? c->sequence_batching : NULL;

    if (!s || !s->iterative_sequence) {
        return MR_OK;
    }
    if (c->backend[0] && strcmp(c->backend, "python") != 0) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "model '%.128s' asks for iterative sequences "
                       "('sequence_batching.iterative_sequence'), which this server has for "
                       "backend 'python' only",
                       c->name);
    }
    if (s->n_control_input || s->n_state || s->strategy_choice_case) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "model '%.128s' asks for iterative sequences "
                       "('sequence_batching.iterative_sequence') with %s, which this server does "
                       "not have",
                       c->name,
                       s->n_control_input ? "control_input"
                       : s->n_state       ? "state"
                                          : "a strategy, direct or oldest");
    }
    return MR_OK;
}

static const Inference__ModelSequenceBatching__StrategyOldest *oldest_of(
    const Inference__ModelSequenceBatching *s)
{
    return s->strategy_choice_case == INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST
               ? s->oldest
               : NULL;
}

int64_t mr_config_sequence_places(const Inference__ModelConfig *c)
{
    const Inference__ModelSequenceBatching *s = mr_config_sequences(c);
    int64_t rows = MR_MAX(1, c->max_batch_size);

    if (s && oldest_of(s) && s->oldest->max_candidate_sequences > 0) {
        return s->oldest->max_candidate_sequences;
    }
    return rows;
}

/* ---- the tensors ---- */

int32_t mr_config_control_dtype(const Inference__ModelSequenceBatching__Control *k)
{
    if (k->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID) {
        return (int32_t)k->data_type;
    }
    if (k->n_int32_false_true > 0) {
        return MR_DTYPE_INT32;
    }
    return k->n_fp32_false_true > 0 ? MR_DTYPE_FP32 : MR_DTYPE_BOOL;
}

static void state_io(const state *it, bool is_input, struct mr_config_sequence_io *out)
{
    *out = (struct mr_config_sequence_io){.name = is_input ? it->input_name : it->output_name,
                                          .what = is_input ? "state input" : "state output",
                                          .dtype = (int32_t)it->data_type,
                                          .dims = it->dims,
                                          .rank = it->n_dims};
}

bool mr_config_sequence_input(const Inference__ModelConfig *c, size_t i,
                              struct mr_config_sequence_io *out)
{
    const Inference__ModelSequenceBatching *s = mr_config_sequences(c);

    if (!s || i >= s->n_control_input + s->n_state) {
        return false;
    }
    if (i >= s->n_control_input) {
        state_io(s->state[i - s->n_control_input], true, out);
        return true;
    }
    const Inference__ModelSequenceBatching__ControlInput *in = s->control_input[i];
    *out = (struct mr_config_sequence_io){
        .name = in->name,
        .what = "control input",
        .dtype = in->n_control > 0 ? mr_config_control_dtype(in->control[0]) : MR_DTYPE_INVALID,
        .dims = one,
        .rank = 1};
    return true;
}

bool mr_config_sequence_output(const Inference__ModelConfig *c, size_t i,
                               struct mr_config_sequence_io *out)
{
    const Inference__ModelSequenceBatching *s = mr_config_sequences(c);

    if (!s || i >= s->n_state) {
        return false;
    }
    state_io(s->state[i], false, out);
    return true;
}

bool mr_config_is_sequence_io(const Inference__ModelConfig *c, const char *name, bool is_input)
{
    struct mr_config_sequence_io io;

    for (size_t i = 0;
         is_input ? mr_config_sequence_input(c, i, &io) : mr_config_sequence_output(c, i, &io);
         i++) {
        if (strcmp(io.name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- against the model ---- */

static const struct mr_io_desc *desc_named(const struct mr_io_desc *list, uint32_t count,
                                           const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

static int io_agrees(const Inference__ModelConfig *c, const struct mr_config_sequence_io *io,
                     const struct mr_io_desc *d, struct mr_err *err)
{
    size_t lead = c->max_batch_size > 0 ? 1 : 0;
    char shape[200];
    bool fits = d && d->rank == (int32_t)(io->rank + lead) && (!lead || d->dims[0] == -1);

    if (!d) {
        return MR_FAIL(err, MR_E_INVALID,
                       "unable to load model '%.100s', it does not have the %s '%.100s' of "
                       "sequence_batching",
                       c->name, io->what, io->name);
    }
    if (io->dtype != d->dtype) {
        return MR_FAIL(err, MR_E_INVALID,
                       "unable to load model '%.100s', configuration expects datatype %s for %s "
                       "'%.100s', model provides %s",
                       c->name, mr_dtype_config_name(io->dtype), io->what, io->name,
                       mr_dtype_config_name(d->dtype));
    }
    for (size_t i = 0; fits && i < io->rank; i++) {
        int64_t has = d->dims[i + lead];
        fits = has == io->dims[i] || has == -1 || io->dims[i] == -1;
    }
    return fits || d->rank < 0
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "unable to load model '%.100s', the %s '%.100s' of sequence_batching has "
                         "%zu dims%s, the model's has the shape %s",
                         c->name, io->what, io->name, io->rank,
                         lead ? " after the batch dimension" : "",
                         mr_shape_text(d->dims, d->rank, shape, sizeof shape));
}

int mr_config_join_sequence(const Inference__ModelConfig *c, const struct mr_signature *s,
                            struct mr_err *err)
{
    struct mr_config_sequence_io io;
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && mr_config_sequence_input(c, i, &io); i++) {
        rc = io_agrees(c, &io, desc_named(s->inputs, s->input_count, io.name), err);
    }
    for (size_t i = 0; rc == MR_OK && mr_config_sequence_output(c, i, &io); i++) {
        rc = io_agrees(c, &io, desc_named(s->outputs, s->output_count, io.name), err);
    }
    return rc;
}

/* ---- the judgement ---- */

struct judged {
    const Inference__ModelConfig *c;
    const Inference__ModelSequenceBatching *s;
    struct mr_err *err;
};

#define BAD(k, ...) MR_FAIL((k)->err, MR_E_INVALID, __VA_ARGS__)

static const char *kind_name(int kind)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(
        &inference__model_sequence_batching__control__kind__descriptor, kind);

    return v ? v->name : "";
}

static int pair_check(const struct judged *k, const control *it, const char *list, size_t n)
{
    return n == 0 || n == 2 ? MR_OK
                            : BAD(k,
                                  "sequence batching control '%s' must have exactly 2 entries for "
                                  "%s for %.128s",
                                  list, kind_name((int)it->kind), k->c->name);
}

static int values_check(const struct judged *k, const control *it)
{
    int lists =
        (it->n_int32_false_true > 0) + (it->n_fp32_false_true > 0) + (it->n_bool_false_true > 0);
    const char *kind = kind_name((int)it->kind);
    int rc;

    if (it->kind == INFERENCE__MODEL_SEQUENCE_BATCHING__CONTROL__KIND__CONTROL_SEQUENCE_CORRID) {
        int d = (int)it->data_type;
        if (lists > 0) {
            return BAD(k,
                       "sequence batching must not specify either 'int32_false_true', "
                       "'fp32_false_true' or 'bool_false_true' for %s for %.128s",
                       kind, k->c->name);
        }
        return d == MR_DTYPE_UINT64 || d == MR_DTYPE_INT64 || d == MR_DTYPE_UINT32 ||
                       d == MR_DTYPE_INT32 || d == MR_DTYPE_BYTES
                   ? MR_OK
                   : BAD(k,
                         "unexpected data type for control %s for %.128s. Allowed data types are "
                         "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
                         kind, k->c->name);
    }
    if (lists != 1) {
        return lists == 0 ? BAD(k,
                                "sequence batching must specify either 'int32_false_true', "
                                "'fp32_false_true' or 'bool_false_true' for %s for %.128s",
                                kind, k->c->name)
                          : BAD(k,
                                "sequence batching specifies more than one from "
                                "'int32_false_true', 'fp32_false_true' and 'bool_false_true' for "
                                "%s for %.128s",
                                kind, k->c->name);
    }
    MR_TRY(pair_check(k, it, "int32_false_true", it->n_int32_false_true));
    MR_TRY(pair_check(k, it, "fp32_false_true", it->n_fp32_false_true));
    MR_TRY(pair_check(k, it, "bool_false_true", it->n_bool_false_true));
out:
    return rc;
}

static bool is_client_io(const Inference__ModelConfig *c, const char *name, bool is_input)
{
    size_t n = is_input ? c->n_input : c->n_output;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(is_input ? c->input[i]->name : c->output[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Inputs of the scheduler have names of their own; an output may be a client's, too. */
static int names_check(const struct judged *k)
{
    struct mr_config_sequence_io io, other;

    for (size_t i = 0; mr_config_sequence_input(k->c, i, &io); i++) {
        if (!io.name[0]) {
            return i < k->s->n_control_input
                       ? BAD(k, "sequence batching control tensor must have a name for %.128s",
                             k->c->name)
                       : BAD(k, "sequence batching state must have an 'input_name' for %.128s",
                             k->c->name);
        }
        if (is_client_io(k->c, io.name, true)) {
            return BAD(k,
                       "%s '%.128s' of sequence_batching is an input of clients, too, for %.128s",
                       io.what, io.name, k->c->name);
        }
        for (size_t n = 0; n < i && mr_config_sequence_input(k->c, n, &other); n++) {
            if (strcmp(io.name, other.name) != 0) {
                continue;
            }
            return i < k->s->n_control_input
                       ? BAD(k,
                             "sequence batching control tensor '%.128s' is specified for multiple "
                             "control kinds for %.128s",
                             io.name, k->c->name)
                       : BAD(k, "State input name '%.128s' specified more than once.", io.name);
        }
    }
    for (size_t i = 0; mr_config_sequence_output(k->c, i, &io); i++) {
        if (!io.name[0]) {
            return BAD(k, "sequence batching state must have an 'output_name' for %.128s",
                       k->c->name);
        }
        for (size_t n = 0; n < i && mr_config_sequence_output(k->c, n, &other); n++) {
            if (strcmp(io.name, other.name) == 0) {
                return BAD(k, "State output name '%.128s' specified more than once.", io.name);
            }
        }
    }
    return MR_OK;
}

static int controls_check(const struct judged *k)
{
    unsigned seen = 0;

    for (size_t i = 0; i < k->s->n_control_input; i++) {
        const Inference__ModelSequenceBatching__ControlInput *in = k->s->control_input[i];
        if (in->n_control > 1) {
            return BAD(k,
                       "sequence batching control tensor '%.128s' is specified for multiple "
                       "control kinds for %.128s",
                       in->name, k->c->name);
        }
        if (in->n_control == 0) {
            return BAD(k, "sequence batching control tensor '%.128s' has no 'control' for %.128s",
                       in->name, k->c->name);
        }
        const control *it = in->control[0];
        if (seen & (1u << it->kind)) {
            return BAD(k, "sequence batching specifies multiple %s tensors for %.128s",
                       kind_name((int)it->kind), k->c->name);
        }
        seen |= 1u << it->kind;
        int rc = values_check(k, it);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int initial_check(const struct judged *k, const state *it)
{
    const Inference__ModelSequenceBatching__InitialState *first =
        it->n_initial_state > 0 ? it->initial_state[0] : NULL;

    if (!first) {
        return MR_OK;
    }
    if (it->n_initial_state > 1) {
        return BAD(k,
                   "initial_state field for state input '%.128s' must contain exactly one or zero "
                   "element. Found '%zu' elements.",
                   it->input_name, it->n_initial_state);
    }
    if (first->data_type != it->data_type) {
        return BAD(k,
                   "The data type used for 'initial_state' field of state '%.128s' does not match "
                   "the state data type.",
                   it->input_name);
    }
    if (!first->name[0]) {
        return BAD(k, "Field 'name' must be set when using initial_state for state input '%.128s'.",
                   it->input_name);
    }
    if (first->n_dims != it->n_dims) {
        return BAD(k,
                   "Number of dimensions in 'initial_state' doesn't match the size of 'state' "
                   "dimensions for state input '%.128s'. %zu != %zu",
                   it->input_name, first->n_dims, it->n_dims);
    }
    for (size_t i = 0; i < it->n_dims; i++) {
        if (first->dims[i] < 0) {
            return BAD(k,
                       "'initial_state' field for state input name '%.128s' contains variable "
                       "dimensions.",
                       it->input_name);
        }
        if (it->dims[i] != -1 && first->dims[i] != it->dims[i]) {
            return BAD(k,
                       "'initial_state' dim for input name '%.128s' doesn't match 'state' dim "
                       "description. %lld != %lld",
                       it->input_name, (long long)first->dims[i], (long long)it->dims[i]);
        }
    }
    return first->state_data_case !=
                   INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA__NOT_SET
               ? MR_OK
               : BAD(k, "initial_state setting expects state'%.128s' to have state_data set",
                     it->input_name);
}

static int states_check(const struct judged *k)
{
    size_t most = (size_t)MR_MAX_RANK - (k->c->max_batch_size > 0);
    int rc = MR_OK;

    for (size_t i = 0; i < k->s->n_state && rc == MR_OK; i++) {
        const state *it = k->s->state[i];
        if (it->data_type == INFERENCE__DATA_TYPE__TYPE_INVALID) {
            return BAD(k, "sequence batching state '%.128s' must specify 'data_type' for %.128s",
                       it->input_name, k->c->name);
        }
        if (it->n_dims == 0 || it->n_dims > most) {
            return BAD(k,
                       "sequence batching state '%.128s' has %zu dims, allowed are 1..%zu, for "
                       "%.128s",
                       it->input_name, it->n_dims, most, k->c->name);
        }
        for (size_t n = 0; n < it->n_dims; n++) {
            if (it->dims[n] < 1 && it->dims[n] != -1) {
                return BAD(k,
                           "sequence batching state '%.128s' dimension must be integer >= 1, or "
                           "-1 to indicate a variable-size dimension for %.128s; it is %lld",
                           it->input_name, k->c->name, (long long)it->dims[n]);
            }
        }
        rc = initial_check(k, it);
    }
    if (rc == MR_OK && k->s->n_state > 0 && k->c->model_transaction_policy &&
        k->c->model_transaction_policy->decoupled) {
        return MR_FAIL(k->err, MR_E_UNSUPPORTED,
                       "model '%.128s' asks for implicit state of a decoupled model "
                       "('sequence_batching.state'), a feature that this server does not have",
                       k->c->name);
    }
    return rc;
}

static int strategy_check(const struct judged *k, bool is_complete)
{
    const Inference__ModelSequenceBatching__StrategyOldest *oldest = oldest_of(k->s);
    bool may_grow = !is_complete && k->c->max_batch_size == 0;

    for (size_t i = 0; oldest && i < oldest->n_preferred_batch_size; i++) {
        int32_t size = oldest->preferred_batch_size[i];
        if (size <= 0) {
            return BAD(k, "sequence batching preferred batch size must be positive for %.128s",
                       k->c->name);
        }
        if (size > k->c->max_batch_size && !may_grow) {
            return BAD(k,
                       "sequence batching preferred batch size must be <= max batch size for "
                       "%.128s",
                       k->c->name);
        }
    }
    if (oldest && oldest->max_candidate_sequences < 0) {
        return BAD(k, "'max_candidate_sequences' must not be negative for %.128s; it is %d",
                   k->c->name, oldest->max_candidate_sequences);
    }
    if (!oldest && k->s->direct) {
        float share = k->s->direct->minimum_slot_utilization;
        if (!(share >= 0.0f && share <= 1.0f)) {
            return BAD(k,
                       "sequence batching minimum slot utilization must be in range (0.0, 1.0] for "
                       "%.128s",
                       k->c->name);
        }
    }
    return MR_OK;
}

static int places_check(const struct judged *k)
{
    int64_t instances = 0;

    for (size_t i = 0; i < k->c->n_instance_group; i++) {
        instances += k->c->instance_group[i]->count;
    }
    int64_t places = mr_config_sequence_places(k->c) * MR_MAX(1, instances);
    return places <= PLACES_MAX
               ? MR_OK
               : BAD(k,
                     "sequence batching has %lld places for sequences (max_candidate_sequences or "
                     "max_batch_size, of %lld instances), allowed are %d, for %.128s",
                     (long long)places, (long long)instances, PLACES_MAX, k->c->name);
}

int mr_config_check_sequence(const Inference__ModelConfig *c, bool is_complete, struct mr_err *err)
{
    const struct judged k = {c, mr_config_sequences(c), err};
    int rc = MR_OK;

    if (!k.s) {
        return MR_OK;
    }
    MR_TRY(strategy_check(&k, is_complete));
    MR_TRY(controls_check(&k));
    MR_TRY(states_check(&k));
    MR_TRY(names_check(&k));
    MR_TRY(places_check(&k));
out:
    return rc;
}

/* ---- defaults ---- */

void mr_config_normalize_sequence(Inference__ModelConfig *c)
{
    Inference__ModelSequenceBatching *s = mr_config_sequences(c) ? c->sequence_batching : NULL;

    if (!s) {
        return;
    }
    if (s->max_sequence_idle_microseconds == 0) {
        s->max_sequence_idle_microseconds = IDLE_DEFAULT_US;
    }
    if (oldest_of(s) && s->oldest->n_preferred_batch_size == 0 && c->max_batch_size > 0) {
        mr_config_set_i32s(&s->oldest->preferred_batch_size, &s->oldest->n_preferred_batch_size,
                           &c->max_batch_size, 1);
    }
}
