/* Defaults, ranges, contradictions, features; and the table of fields against the descriptor. */
#include "harness.h"
#include "model/config/config_priv.h"

#define X        "input { name: 'X' data_type: TYPE_FP32 dims: 16 } "
#define Y        "output { name: 'Y' data_type: TYPE_FP32 dims: 16 } "
#define DYN(s)   X Y "max_batch_size: 8 dynamic_batching { " s " }"
#define GROUP(s) X Y "instance_group { " s " }"
#define IN(s)    Y "input { name: 'X' data_type: TYPE_FP32 " s " }"

static Inference__ModelConfig *config_of(const char *text)
{
    Inference__ModelConfig *c = NULL;
    struct mr_err err = {0};
    if (mr_config_parse_text(mr_str_c(text), "f", &c, &err) < 0) {
        fail_msg("%s: %s", text, err.msg);
    }
    mr_config_set_string(&c->name, "m");
    return c;
}

static void test_defaults(void **state)
{
    Inference__ModelConfig *c = config_of(DYN(""));
    (void)state;
    assert_int_equal(mr_config_normalize(c, NULL), MR_OK);
    assert_int_equal(c->version_policy->latest->num_versions, 1);
    assert_int_equal(c->n_instance_group, 1);
    assert_string_equal(c->instance_group[0]->name, "m");
    assert_int_equal(c->instance_group[0]->count, 1);
    assert_int_equal(c->instance_group[0]->kind, INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU);
    assert_int_equal(c->dynamic_batching->n_preferred_batch_size, 1);
    assert_int_equal(c->dynamic_batching->preferred_batch_size[0], 8);
    assert_true(c->optimization->input_pinned_memory->enable);
    assert_true(c->optimization->output_pinned_memory->enable);
    assert_int_equal(mr_config_normalize(c, NULL), MR_OK); /* twice changes nothing */
    assert_int_equal(c->n_instance_group, 1);
    assert_int_equal(c->dynamic_batching->n_preferred_batch_size, 1);
    mr_config_free(&c);

    c = config_of(X Y "backend: 'onnxruntime' version_policy { } instance_group [ { count: 3 name: "
                      "'g' }, { kind: KIND_MODEL }, { } ] optimization { input_pinned_memory { } } "
                      "dynamic_batching { preferred_batch_size: 2 }");
    assert_int_equal(mr_config_normalize(c, NULL), MR_OK);
    assert_int_equal(c->version_policy->latest->num_versions, 1);
    assert_string_equal(c->instance_group[0]->name, "g");
    assert_int_equal(c->instance_group[0]->count, 3);
    assert_string_equal(c->instance_group[1]->name, "m_1");
    assert_int_equal(c->instance_group[1]->count, 1);
    assert_int_equal(c->instance_group[2]->count, 2);
    assert_false(c->optimization->input_pinned_memory->enable);
    assert_int_equal(c->dynamic_batching->preferred_batch_size[0], 2);
    mr_config_free(&c);
}

#define CONTROL(name, text) X Y "sequence_batching { control_input { name: '" name "' " text " } }"
#define KIND(kind, text)    " control { kind: CONTROL_SEQUENCE_" kind " " text " }"
#define STATE(text)                                                                                \
    X Y "sequence_batching { state { input_name: 'i' output_name: 'o' data_type: TYPE_INT32 " text \
        " } }"
#define INITIAL(text) STATE("dims: [ 2, -1 ] initial_state { " text " }")

#define INM(key, value)      " input_map { key: '" key "' value: '" value "' }"
#define OUTM(key, value)     " output_map { key: '" key "' value: '" value "' }"
#define STEP(model, in, out) "ensemble_scheduling { step { model_name: '" model "'" in out " } }"

static const struct row {
    const char *text;
    int rc;
    const char *error; /* or the warning */
} rows[] = {
    {X Y, MR_OK, NULL},
    {X, MR_E_INVALID, "must specify at least one 'output'"},
    {Y, MR_OK, NULL},
    {X Y "max_batch_size: -1", MR_E_INVALID, "'max_batch_size' must be non-negative value for m"},
    {X Y "max_batch_size: 2000000000", MR_E_INVALID, "'max_batch_size'"},
    /* inputs and outputs */
    {Y "input { data_type: TYPE_FP32 dims: 1 }", MR_E_INVALID,
     "model input must specify 'name' for m"},
    {Y "input { name: 'X' dims: 1 }", MR_E_INVALID,
     "model input 'X' must specify 'data_type' for m"},
    {IN(""), MR_E_INVALID, "model input 'X' must specify 'dims' for m"},
    {IN("dims: 0"), MR_E_INVALID,
     "model input 'X' dimension must be integer >= 1, or -1 to indicate a variable-size dimension "
     "for m"},
    {IN("dims: -2"), MR_E_INVALID, "it is -2"},
    {IN("dims: [ -1, 1, 9 ]"), MR_OK, NULL},
    {X X Y, MR_E_INVALID, "two model inputs are named 'X' for m"},
    {X Y Y, MR_E_INVALID, "two model outputs are named 'Y' for m"},
    {IN("dims: [ 2, 3 ] reshape { shape: 6 }"), MR_OK, NULL},
    {IN("dims: 1 reshape { }"), MR_OK, NULL},
    {IN("dims: [ 2, 4, -1, 6 ] reshape { shape: [ 8, -1, 1, 6 ] }"), MR_OK, NULL},
    {IN("dims: [ 2, 3 ] reshape { shape: 5 }"), MR_E_INVALID,
     "different size for dims and reshape"},
    {IN("dims: 2 reshape { }"), MR_E_INVALID, "different size for dims and reshape"},
    {IN("dims: [ 2, -1 ] reshape { shape: [ -1, 2 ] }"), MR_E_INVALID, "different size"},
    {IN("dims: [ 2, -1 ] reshape { shape: 2 }"), MR_E_INVALID,
     "model input 'X' has different size for dims and reshape for m"},
    {IN("dims: [ 2, -1 ] reshape { shape: [ -1, 1, -1 ] }"), MR_E_INVALID,
     "model input 'X' has different number of variable-size dimensions for dims and reshape for m"},
    {IN("dims: 2 reshape { shape: 0 }"), MR_E_INVALID,
     "model input 'X' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size "
     "dimension for m"},
    {IN("dims: [ 9223372036854775807, 4 ] reshape { shape: [ 9223372036854775807, 4 ] }"),
     MR_E_INVALID, "different size"},
    {IN("dims: [ 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 ]"),
     MR_E_INVALID, "has 33 dimensions in its dims, allowed are 32, for m"},
    {IN("dims: 1 format: FORMAT_NHWC"), MR_E_INVALID, "NHWC/NCHW require 3 dims"},
    {IN("dims: [ 1, 2, 3 ] format: FORMAT_NCHW"), MR_OK, NULL},
    /* batching */
    {DYN("preferred_batch_size: [ 1, 8 ]"), MR_OK, NULL},
    {DYN("preferred_batch_size: 0"), MR_E_INVALID, "preferred size must be positive for m"},
    {DYN("preferred_batch_size: 9"), MR_E_INVALID,
     "preferred size must be <= max batch size for m"},
    {DYN("priority_levels: 2 default_priority_level: 2"), MR_OK, NULL},
    {DYN("priority_levels: 2"), MR_E_INVALID,
     "default priority level must be in range [1, 2] for m"},
    {DYN("priority_levels: 2 default_priority_level: 3"), MR_E_INVALID, "range [1, 2]"},
    {DYN("priority_levels: 1000000000000"), MR_E_INVALID, "'priority_levels' must be at most"},
    {DYN("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } }"),
     MR_E_INVALID, "priority queue policy must have priority level in range [1, 2]"},
    {DYN("preserve_ordering: true priority_levels: 2 default_priority_level: 1"), MR_E_INVALID,
     "Only one priority level is allowed when 'preserve_ordering' is true"},
    {DYN("preserve_ordering: true default_queue_policy { timeout_action: DELAY "
         "default_timeout_microseconds: 1 }"),
     MR_E_INVALID, "Queue policy can not have DELAY"},
    {DYN("preserve_ordering: true priority_levels: 1 default_priority_level: 1 "
         "priority_queue_policy { key: 1 value { timeout_action: DELAY "
         "default_timeout_microseconds: 1 } }"),
     MR_E_INVALID, "Queue policy can not have DELAY"},
    /* instances */
    {GROUP("count: 5 kind: KIND_CPU"), MR_OK, NULL},
    {GROUP("count: -1"), MR_E_INVALID, "has count -1"},
    {GROUP("count: 100000"), MR_E_INVALID, "has count 100000"},
    {X Y "instance_group [ { count: 1000 }, { count: 1000 } ]", MR_E_INVALID, "1..1024"},
    {GROUP("kind: KIND_GPU"), MR_E_INVALID,
     "instance group m_0 of model m has kind KIND_GPU but server does not support GPUs"},
    {GROUP("kind: KIND_MODEL"), MR_OK, NULL},
    {GROUP("kind: KIND_CPU gpus: 0"), MR_E_INVALID, "KIND_CPU but specifies one or more GPUs"},
    {GROUP("gpus: [ 0, 1 ]"), MR_OK, "'instance_group.gpus' has no effect: this server"},
    {GROUP("rate_limiter { resources { name: 'R' count: 1 } }"), MR_OK,
     "'instance_group.rate_limiter' has no effect"},
    {GROUP("passive: true"), MR_E_UNSUPPORTED, "passive instances ('instance_group.passive')"},
    {X Y "version_policy { specific { versions: [ 1, 0 ] } }", MR_E_INVALID, "0 is no version"},
    /* sequences */
    {X Y "sequence_batching { }", MR_OK, NULL},
    {X Y "sequence_batching { iterative_sequence: true } backend: 'identity'", MR_E_UNSUPPORTED,
     "iterative sequences ('sequence_batching.iterative_sequence')"},
    {X Y "sequence_batching { iterative_sequence: true } backend: 'python'", MR_OK, NULL},
    {X Y "sequence_batching { iterative_sequence: true oldest { } } backend: 'python'",
     MR_E_UNSUPPORTED, "with a strategy, direct or oldest"},
    {X Y "sequence_batching { direct { minimum_slot_utilization: -0.5 } }", MR_E_INVALID,
     "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
    {X Y "sequence_batching { direct { minimum_slot_utilization: nan } }", MR_E_INVALID,
     "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m"},
    {X Y "sequence_batching { direct { minimum_slot_utilization: 1 } }", MR_OK, NULL},
    {X Y "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 5 } }", MR_E_INVALID,
     "sequence batching preferred batch size must be <= max batch size for m"},
    {X Y "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 0 } }", MR_E_INVALID,
     "sequence batching preferred batch size must be positive for m"},
    {X Y "sequence_batching { oldest { max_candidate_sequences: -1 } }", MR_E_INVALID,
     "'max_candidate_sequences' must not be negative for m; it is -1"},
    {X Y "sequence_batching { oldest { max_candidate_sequences: 1048576 } }", MR_OK, NULL},
    {X Y "sequence_batching { oldest { max_candidate_sequences: 1048577 } }", MR_E_INVALID,
     "sequence batching has 1048577 places for sequences"},
    {CONTROL("", KIND("START", "int32_false_true: [ 0, 1 ]")), MR_E_INVALID,
     "sequence batching control tensor must have a name for m"},
    {CONTROL("c", ""), MR_E_INVALID, "sequence batching control tensor 'c' has no 'control' for m"},
    {CONTROL("c", KIND("START", "int32_false_true: [ 0, 1 ]") KIND("END", "int32_false_true: 0")),
     MR_E_INVALID,
     "sequence batching control tensor 'c' is specified for multiple control kinds for m"},
    {CONTROL("c", KIND("START", "int32_false_true: [ 0, 1 ]") "} control_input { name: 'c'" KIND(
                      "END", "int32_false_true: [ 0, 1 ]")),
     MR_E_INVALID,
     "sequence batching control tensor 'c' is specified for multiple control kinds for m"},
    {CONTROL("c", KIND("START", "int32_false_true: [ 0, 1 ]") "} control_input { name: 'd'" KIND(
                      "START", "int32_false_true: [ 0, 1 ]")),
     MR_E_INVALID, "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m"},
    {CONTROL("c", KIND("READY", "")), MR_E_INVALID,
     "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
     "'bool_false_true' for CONTROL_SEQUENCE_READY for m"},
    {CONTROL("c", KIND("END", "int32_false_true: [ 0, 1 ] bool_false_true: [ false, true ]")),
     MR_E_INVALID,
     "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
     "'bool_false_true' for CONTROL_SEQUENCE_END for m"},
    {CONTROL("c", KIND("END", "fp32_false_true: [ 0, 1, 2 ]")), MR_E_INVALID,
     "sequence batching control 'fp32_false_true' must have exactly 2 entries for "
     "CONTROL_SEQUENCE_END for m"},
    {CONTROL("c", KIND("CORRID", "int32_false_true: [ 0, 1 ] data_type: TYPE_UINT64")),
     MR_E_INVALID, "sequence batching must not specify either 'int32_false_true'"},
    {CONTROL("c", KIND("CORRID", "data_type: TYPE_FP32")), MR_E_INVALID,
     "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are "
     "TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"},
    {CONTROL("c", KIND("CORRID", "data_type: TYPE_STRING")), MR_OK, NULL},
    {CONTROL("X", KIND("CORRID", "data_type: TYPE_STRING")), MR_E_INVALID,
     "control input 'X' of sequence_batching is an input of clients, too, for m"},
    {STATE("dims: [ 2, -1 ]"), MR_OK, NULL},
    {STATE(""), MR_E_INVALID, "sequence batching state 'i' has 0 dims"},
    {STATE("dims: 0"), MR_E_INVALID, "sequence batching state 'i' dimension must be integer >= 1"},
    {STATE("dims: 1 } state { input_name: 'i' output_name: 'p' data_type: TYPE_FP32 dims: 1"),
     MR_E_INVALID, "State input name 'i' specified more than once."},
    {STATE("dims: 1 } state { input_name: 'j' output_name: 'o' data_type: TYPE_FP32 dims: 1"),
     MR_E_INVALID, "State output name 'o' specified more than once."},
    {X Y "sequence_batching { state { input_name: 'i' data_type: TYPE_FP32 dims: 1 } }",
     MR_E_INVALID, "sequence batching state must have an 'output_name' for m"},
    {X Y "sequence_batching { state { output_name: 'o' data_type: TYPE_FP32 dims: 1 } }",
     MR_E_INVALID, "sequence batching state must have an 'input_name' for m"},
    {X Y "sequence_batching { state { input_name: 'i' output_name: 'o' dims: 1 } }", MR_E_INVALID,
     "sequence batching state 'i' must specify 'data_type' for m"},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 2, 3 ] zero_data: true"), MR_OK, NULL},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 2, 3 ] data_file: 'f'"), MR_OK, NULL},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 2, 3 ] data_file: '../f'"), MR_E_INVALID,
     "'data_file' of model m"},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 2, 3 ]"), MR_E_INVALID,
     "initial_state setting expects state'i' to have state_data set"},
    {INITIAL("name: 'n' data_type: TYPE_FP32 dims: [ 2, 3 ] zero_data: true"), MR_E_INVALID,
     "The data type used for 'initial_state' field of state 'i' does not match the state data "
     "type."},
    {INITIAL("data_type: TYPE_INT32 dims: [ 2, 3 ] zero_data: true"), MR_E_INVALID,
     "Field 'name' must be set when using initial_state for state input 'i'."},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: 2 zero_data: true"), MR_E_INVALID,
     "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for "
     "state input 'i'. 1 != 2"},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 2, -1 ] zero_data: true"), MR_E_INVALID,
     "'initial_state' field for state input name 'i' contains variable dimensions."},
    {INITIAL("name: 'n' data_type: TYPE_INT32 dims: [ 3, 1 ] zero_data: true"), MR_E_INVALID,
     "'initial_state' dim for input name 'i' doesn't match 'state' dim description. 3 != 2"},
    {INITIAL("name: 'n' } initial_state { name: 'm'"), MR_E_INVALID,
     "initial_state field for state input 'i' must contain exactly one or zero element. Found '2' "
     "elements."},
    {STATE("dims: 1") "model_transaction_policy { decoupled: true }", MR_E_UNSUPPORTED,
     "implicit state of a decoupled model"},
    {STATE("dims: 1 use_growable_memory: true"), MR_OK,
     "'sequence_batching.state.use_growable_memory' has no effect"},
    /* features */
    {X Y "ensemble_scheduling { }", MR_E_INVALID, "must specify 'step' for ensemble 'm'"},
    {X Y "ensemble_scheduling { step { } }", MR_E_INVALID,
     "must specify 'model_name' in step 0 of ensemble 'm'"},
    {X Y STEP("a", "", OUTM("o", "Y")), MR_E_INVALID,
     "must specify 'input_map' in step 0 of ensemble 'm'"},
    {X Y STEP("a", INM("i", "X"), ""), MR_E_INVALID,
     "must specify 'output_map' in step 0 of ensemble 'm'"},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Y")), MR_OK, NULL},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Y") OUTM("p", "Y")), MR_E_INVALID,
     "ensemble tensor 'Y' can appear in an output map only once for ensemble 'm' step 0"},
    {X Y STEP("a", INM("i", "Z"), OUTM("o", "Y")), MR_E_INVALID,
     "ensemble input 'X' for ensemble m' is not used"},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Z")), MR_E_INVALID,
     "ensemble output 'Y' for ensemble m' is not used"},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Y")) "instance_group { count: 1 }", MR_E_INVALID,
     "instance group should not be specified for ensemble 'm'"},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Y")) "optimization { }", MR_E_INVALID,
     "optimization should not be specified for ensemble 'm'"},
    {X Y STEP("a", INM("i", "X"), OUTM("o", "Y")) "model_warmup { name: 'w' }", MR_E_INVALID,
     "model_warmup can not be specified for ensemble 'm'"},
    {X Y "model_transaction_policy { decoupled: true }", MR_OK, NULL},
    {X Y "model_transaction_policy { decoupled: false }", MR_OK, NULL},
    {X Y "response_cache { enable: true }", MR_E_UNSUPPORTED, "the response cache"},
    {X Y "response_cache { enable: false }", MR_OK, NULL},
    {X Y "model_repository_agents { agents { name: 'checksum' } }", MR_E_UNSUPPORTED,
     "repository agents"},
    {X Y "model_operations { op_library_filename: 'x.so' }", MR_E_UNSUPPORTED,
     "libraries of custom operators"},
    {X Y "batch_input { kind: BATCH_ITEM_SHAPE }", MR_E_UNSUPPORTED, "ragged batching"},
    {X Y "batch_output { }", MR_E_UNSUPPORTED, "ragged batching"},
    {IN("dims: 1 allow_ragged_batch: true"), MR_E_UNSUPPORTED, "ragged batching"},
    {IN("dims: 1 is_shape_tensor: true"), MR_E_UNSUPPORTED, "shape tensors"},
    {IN("dims: 1 is_non_linear_format_io: true"), MR_E_UNSUPPORTED, "non-linear tensor formats"},
    {X Y "parameters { key: 'TRITON_BATCH_STRATEGY_PATH' value { string_value: 'x' } }",
     MR_E_UNSUPPORTED, "custom batching strategy"},
    {X Y "parameters { key: 'intra_op_thread_count' value { string_value: '2' } }", MR_OK, NULL},
    {X Y
     "optimization { execution_accelerators { cpu_execution_accelerator { name: 'openvino' } } }",
     MR_E_UNSUPPORTED, "CPU execution accelerators"},
    {X Y "optimization { execution_accelerators { gpu_execution_accelerator { name: 'tensorrt' "
         "parameters { key: 'a' value: 'b' } } } }",
     MR_OK, "gpu_execution_accelerator' has no effect"},
    {X Y "optimization { cuda { graphs: true graph_spec { batch_size: 1 } } }", MR_OK,
     "'optimization.cuda' has no effect"},
    {X Y "optimization { priority: PRIORITY_MAX }", MR_OK, "'optimization.priority' has no effect"},
    {X Y "optimization { graph { level: 1 } }", MR_OK, NULL},
    {X Y "cc_model_filenames { key: '7.5' value: 'x' }", MR_OK, "'cc_model_filenames' has no"},
    {X Y "metric_tags { key: 'a_B2' value: '\"b\"' }", MR_OK, NULL},
    {X Y "metric_tags { key: 'a=\"' value: 'b' }", MR_E_INVALID, "cannot be the name of a label"},
    {X Y "metric_tags { key: '' value: 'b' }", MR_E_INVALID, "metric_tags key ''"},
    {X Y "metric_tags { key: '1a' value: 'b' }", MR_E_INVALID, "metric_tags key '1a'"},
    {X Y "metric_tags { key: 'version' value: 'b' }", MR_E_INVALID, "metric_tags key 'version'"},
    {X Y "model_warmup { name: 'w' batch_size: 1 }", MR_OK, NULL},
    {X Y "runtime: 'x.so'", MR_OK, "'runtime' has no effect"},
};

static void test_check(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct mr_config_warning warnings[4];
        size_t count = 0;
        struct mr_err err = {0};
        Inference__ModelConfig *c = config_of(r->text);
        int rc = mr_config_normalize(c, &err);
        if (rc == MR_OK) {
            rc = mr_config_check(c, true, warnings, 4, &count, &err);
        }
        const char *said = rc < 0 ? err.msg : count > 0 ? warnings[0].text : "";
        if (rc != r->rc || (r->error && !strstr(said, r->error)) || (!r->error && said[0]) ||
            (rc == MR_OK && count > 1)) {
            fail_msg("row %zu (%s): %d '%s', %zu warnings", i, r->text, rc, said, count);
        }
        mr_config_free(&c);
    }
}

static void test_warnings_bounded(void **state)
{
    struct mr_config_warning one[1];
    size_t count = 0;
    (void)state;
    Inference__ModelConfig *c =
        config_of(X Y "runtime: 'x' optimization { priority: PRIORITY_MIN eager_batching: true }");
    assert_int_equal(mr_config_normalize(c, NULL), MR_OK);
    assert_int_equal(mr_config_check(c, true, one, 1, &count, NULL), MR_OK);
    assert_int_equal(count, 1);
    assert_int_equal(mr_config_check(c, true, NULL, 0, &count, NULL), MR_OK);
    assert_int_equal(count, 0);
    mr_config_free(&c);
}

/* ---- the table of fields ---- */

static bool is_map_entry(const ProtobufCMessageDescriptor *d)
{
    size_t len = strlen(d->name);
    return len > 5 && strcmp(d->name + len - 5, "Entry") == 0 && d->n_fields == 2;
}

/* Every leaf of the message must be covered; `seen` marks the entries that cover something. */
static void leaves_walk(const ProtobufCMessageDescriptor *d, const char *prefix, bool *seen)
{
    size_t count;
    const struct mr_config_field *table = mr_config_fields(&count);
    char path[512];

    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        const ProtobufCMessageDescriptor *below =
            f->type == PROTOBUF_C_TYPE_MESSAGE ? f->descriptor : NULL;
        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", f->name);
        const struct mr_config_field *entry = mr_config_field_find(mr_str_c(path));
        if (entry) {
            seen[entry - table] = true;
        }
        if (below && below->n_fields > 0 && !is_map_entry(below) && strlen(path) < 300) {
            leaves_walk(below, path, seen);
        } else if (!entry) {
            fail_msg("field '%s' is not in the table of config_fields.c", path);
        }
    }
}

static void test_fields_complete(void **state)
{
    size_t count;
    const struct mr_config_field *table = mr_config_fields(&count);
    bool *seen = MR_NEW_ARRAY(bool, count);
    (void)state;
    leaves_walk(&inference__model_config__descriptor, "", seen);
    for (size_t i = 0; i < count; i++) {
        if (!seen[i]) {
            fail_msg("'%s' of the table names no field", table[i].path);
        }
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(table[i].path, table[k].path);
        }
        if (table[i].kind != MR_CONFIG_HONOURED) {
            assert_true(table[i].note[0] != '\0');
        }
    }
    mr_free(seen);
    assert_null(mr_config_field_find(MR_STR("input")));
    assert_null(mr_config_field_find(MR_STR("inputs")));
    assert_null(mr_config_field_find(MR_STR("nam")));
    assert_non_null(mr_config_field_find(MR_STR("parameters.string_value")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_warnings_bounded),
        cmocka_unit_test(test_fields_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
