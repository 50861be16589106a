/* Values of the model and of the config: completed, equal, or refused. Results are compared as text
 * format. */
#include "codec/pbtext.h"
#include "harness.h"
#include "model/config/config_priv.h"
#include "tensor/tensor.h"

static const int64_t batch_16[] = {-1, 16};
static const int64_t fixed_16[] = {1, 16};
static const int64_t any_any[] = {-1, -1};
static const int64_t batch_only[] = {-1};

#define IO(n, d, t, r, f)                                                                          \
    {                                                                                              \
        .name = (n), .dims = (d), .dtype = (t), .rank = (r), .flags = (f)                          \
    }

static const struct mr_io_desc in_16[] = {IO("X", batch_16, MR_DTYPE_FP32, 2, 0)};
static const struct mr_io_desc out_16[] = {IO("Y", batch_16, MR_DTYPE_FP32, 2, 0)};
static const struct mr_io_desc in_fixed[] = {IO("X", fixed_16, MR_DTYPE_FP32, 2, 0)};
static const struct mr_io_desc out_fixed[] = {IO("Y", fixed_16, MR_DTYPE_FP32, 2, 0)};
static const struct mr_io_desc in_two[] = {IO("A", any_any, MR_DTYPE_INT64, 2, 0),
                                           IO("B", batch_16, MR_DTYPE_BYTES, 2, MR_IO_OPTIONAL)};
static const struct mr_io_desc out_flat[] = {IO("label", batch_only, MR_DTYPE_INT64, 1, 0)};
static const struct mr_io_desc out_extra[] = {IO("Y", batch_16, MR_DTYPE_FP32, 2, 0),
                                              IO("Z", any_any, MR_DTYPE_INT64, 2, MR_IO_OPTIONAL)};
static const struct mr_io_desc in_scalar[] = {IO("X", NULL, MR_DTYPE_FP32, 0, 0)};
static const struct mr_io_desc in_unknown[] = {IO("X", NULL, MR_DTYPE_FP32, -1, 0)};

#define SIGNATURE(i, o, b)                                                                         \
    {                                                                                              \
        .size = sizeof(struct mr_signature), .input_count = sizeof(i) / sizeof *(i),               \
        .output_count = sizeof(o) / sizeof *(o), .inputs = (i), .outputs = (o), .batchable = (b)   \
    }

static const struct mr_signature batchable = SIGNATURE(in_16, out_16, 1);
static const struct mr_signature unbatchable = SIGNATURE(in_fixed, out_fixed, 0);
static const struct mr_signature undecided = SIGNATURE(in_16, out_16, -1);
static const struct mr_signature undecided_fixed = SIGNATURE(in_fixed, out_fixed, -1);
static const struct mr_signature two = SIGNATURE(in_two, out_flat, 1);
static const struct mr_signature extra = SIGNATURE(in_16, out_extra, 1);
static const struct mr_signature scalar = SIGNATURE(in_scalar, out_fixed, 0);
static const struct mr_signature unknown = SIGNATURE(in_unknown, out_fixed, 0);
static const struct mr_signature from_config = {
    .size = sizeof from_config, .from_config = 1, .batchable = -1};

/* Text format without line breaks. */
static const char *flat(const Inference__ModelConfig *c)
{
    static char text[8192];
    struct mr_buf b;
    size_t n = 0;
    mr_buf_init(&b, sizeof text);
    mr_pbtext_print(&c->base, &b);
    for (const char *p = mr_buf_cstr(&b); *p; p++) {
        bool is_blank = *p == '\n' || *p == ' ';
        if (!is_blank || (n > 0 && text[n - 1] != ' ')) {
            text[n++] = is_blank ? ' ' : *p;
        }
    }
    text[n > 0 && text[n - 1] == ' ' ? n - 1 : n] = '\0';
    mr_buf_fini(&b);
    return text;
}

struct row {
    const char *config;
    const struct mr_signature *s;
    bool no_fill;
    int default_max; /* 0 = 4, -1 = 0 */
    const char *result;
    const char *error;
};

#define X_16   "input { name: \"X\" data_type: TYPE_FP32 dims: [16] }"
#define Y_16   "output { name: \"Y\" data_type: TYPE_FP32 dims: [16] }"
#define X_B16  "input { name: \"X\" data_type: TYPE_FP32 dims: [-1, 16] }"
#define Y_B16  "output { name: \"Y\" data_type: TYPE_FP32 dims: [-1, 16] }"
#define X_1_16 "input { name: \"X\" data_type: TYPE_FP32 dims: [1, 16] }"
#define Y_1_16 "output { name: \"Y\" data_type: TYPE_FP32 dims: [1, 16] }"
#define MAX    "max_batch_size: "
#define DYN    "dynamic_batching { }"

static const struct row rows[] = {
    /* Nothing given. */
    {"", &batchable, 0, 0, MAX "4 " X_16 " " Y_16 " " DYN, NULL},
    {"", &batchable, 0, 1, MAX "1 " X_16 " " Y_16, NULL},
    {"", &batchable, 0, -1, X_B16 " " Y_B16, NULL},
    {"", &unbatchable, 0, 0, X_1_16 " " Y_1_16, NULL},
    {"", &undecided, 0, 0, X_B16 " " Y_B16, NULL},
    {"", &two, 0, 0,
     MAX "4 input { name: \"A\" data_type: TYPE_INT64 dims: [-1] } input { name: \"B\" data_type: "
         "TYPE_STRING dims: [16] optional: true } output { name: \"label\" data_type: TYPE_INT64 "
         "dims: [1] "
         "reshape { } } " DYN,
     NULL},
    /* An optional output is there if it is named. */
    {"", &extra, 0, 0, MAX "4 " X_16 " " Y_16 " " DYN, NULL},
    {"output { name: 'Z' }", &extra, 0, 0,
     MAX "4 " X_16 " output { name: \"Z\" data_type: TYPE_INT64 dims: [-1] } " DYN, NULL},
    {"input { name: 'X' dims: 1 }", &scalar, 0, 0,
     "input { name: \"X\" data_type: TYPE_FP32 dims: [1] } " Y_1_16, NULL},
    {"input { name: 'X' dims: 1 reshape { } }", &scalar, 0, 0,
     "input { name: \"X\" data_type: TYPE_FP32 dims: [1] reshape { } } " Y_1_16, NULL},
    {"input { name: 'X' dims: 2 }", &scalar, 0, 0, NULL,
     "the model expects 0 dimensions (shape []) but the model configuration specifies 1 dimensions "
     "(shape [2])"},
    {"", &scalar, 0, 0, "input { name: \"X\" data_type: TYPE_FP32 dims: [1] } " Y_1_16, NULL},
    {"", &unknown, 0, 0, "input { name: \"X\" data_type: TYPE_FP32 } " Y_1_16, NULL},
    /* max_batch_size given, also as 0. */
    {"max_batch_size: 0", &batchable, 0, 0, X_B16 " " Y_B16, NULL},
    {"max_batch_size: 8", &batchable, 0, 0, MAX "8 " X_16 " " Y_16, NULL},
    {"max_batch_size: 8", &undecided, 0, 0, MAX "8 " X_16 " " Y_16, NULL},
    {"max_batch_size: 8", &unbatchable, 0, 0, NULL,
     "autofill failed for model 'm': model does not support batching while non-zero max_batch_size "
     "is specified"},
    {"max_batch_size: 8", &undecided_fixed, 0, 0, NULL,
     "for the model to support batching the shape should have at least 1 dimension and the first "
     "dimension must be -1; but shape expected by the model is [1,16]"},
    /* A scheduler given is kept. */
    {"dynamic_batching { preserve_ordering: true }", &batchable, 0, 0,
     MAX "4 " X_16 " " Y_16 " dynamic_batching { preserve_ordering: true }", NULL},
    {"sequence_batching { }", &batchable, 0, 0, MAX "4 " X_16 " " Y_16 " sequence_batching { }",
     NULL},
    /* Dims show whether they include the batch dimension. */
    {X_16, &batchable, 0, 0, MAX "4 " X_16 " " Y_16 " " DYN, NULL},
    {X_B16, &batchable, 0, 0, X_B16 " " Y_B16, NULL},
    {Y_B16, &batchable, 0, 0, X_B16 " " Y_B16, NULL},
    {"input { name: 'X' }", &batchable, 0, 0, MAX "4 " X_16 " " Y_16 " " DYN, NULL},
    {"input { name: 'X' dims: [-1, 4, 4] reshape { shape: [-1, 16] } }", &batchable, 0, 0,
     "input { name: \"X\" data_type: TYPE_FP32 dims: [-1, 4, 4] reshape { shape: [-1, 16] } "
     "} " Y_B16,
     NULL},
    /* Both are equal, or differ. */
    {"input { name: 'X' dims: [-1] } max_batch_size: 2", &batchable, 0, 0,
     MAX "2 input { name: \"X\" data_type: TYPE_FP32 dims: [-1] } " Y_16, NULL},
    {"input { name: 'X' dims: [15] } max_batch_size: 2", &batchable, 0, 0, NULL,
     "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,16]) but the model "
     "configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 "
     "followed by the explicit tensor shape, making complete shape [-1,15])"},
    {"input { name: 'X' dims: [1, 15] }", &unbatchable, 0, 0, NULL,
     "the model expects 2 dimensions (shape [1,16]) but the model configuration specifies 2 "
     "dimensions (shape [1,15])"},
    {"input { name: 'X' dims: [4, 4] } max_batch_size: 2", &batchable, 0, 0, NULL,
     "model 'm', tensor 'X': the model expects 2 dimensions (shape [-1,16]) but the model "
     "configuration specifies 3 dimensions"},
    {"input [ { name: 'X' }, { name: 'Z' } ]", &batchable, 0, 0, NULL,
     "unable to load model 'm', configuration expects 2 inputs, model provides 1"},
    {"output { name: 'Y' data_type: TYPE_INT8 dims: [16] } max_batch_size: 2", &batchable, 0, 0,
     NULL, "configuration expects datatype TYPE_INT8 for output 'Y', model provides TYPE_FP32"},
    {"input { name: 'Z' dims: [16] }", &batchable, 0, 0, NULL,
     "unexpected inference input 'Z', allowed inputs are: X"},
    {"output { name: 'Z' dims: [16] }", &batchable, 0, 0, NULL,
     "unexpected inference output 'Z', allowed outputs are: Y"},
    {"input { name: 'B' } max_batch_size: 2", &two, 0, 0, NULL,
     "configuration expects 1 inputs, model provides 2; input 'A' is missing"},
    {"input { name: 'A' } max_batch_size: 2", &two, 0, 0,
     MAX
     "2 input { name: \"A\" data_type: TYPE_INT64 dims: [-1] } output { name: \"label\" data_type: "
     "TYPE_INT64 dims: [1] reshape { } }",
     NULL},
    {"input { name: 'X' dims: [ 3, 4, 5 ] }", &unknown, 0, 0,
     "input { name: \"X\" data_type: TYPE_FP32 dims: [3, 4, 5] } " Y_1_16, NULL},
    /* Nothing is filled in. */
    {"", &batchable, 1, 0, NULL, "input 'X' is missing"},
    {MAX "2 " X_16 " " Y_16, &batchable, 1, 0, MAX "2 " X_16 " " Y_16, NULL},
    {X_B16 " " Y_B16, &batchable, 1, 0, X_B16 " " Y_B16, NULL},
    /* The backend has no opinion. */
    {"", &from_config, 0, 0, NULL, "must specify 'input'"},
    {X_16, &from_config, 0, 0, NULL, "must specify 'output'"},
    {X_16 " " Y_16, &from_config, 0, 0, X_16 " " Y_16, NULL},
};

static void test_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        Inference__ModelConfig *c = NULL;
        struct mr_err err = {0};
        mr_str text = mr_str_c(r->config);
        int most = r->default_max == 0 ? 4 : MR_MAX(r->default_max, 0);
        assert_int_equal(mr_config_parse_text(text, "f", &c, NULL), MR_OK);
        mr_config_set_string(&c->name, "m");
        int rc = mr_config_complete(c, r->s, !r->no_fill,
                                    mr_config_text_has(text, MR_STR("max_batch_size")), most, &err);
        if (r->error && (rc != MR_E_INVALID || !strstr(err.msg, r->error))) {
            fail_msg("row %zu: %d '%s'", i, rc, err.msg);
        }
        if (r->result) {
            char want[2048];
            snprintf(want, sizeof want, "name: \"m\"%s%s", r->result[0] ? " " : "", r->result);
            if (rc < 0 || strcmp(flat(c), want) != 0) {
                fail_msg("row %zu: %d '%s'\n is    %s\n wants %s", i, rc, err.msg, flat(c), want);
            }
        }
        mr_config_free(&c);
    }
}

static void test_too_many_dims(void **state)
{
    static const struct mr_io_desc wide[] = {IO("X", NULL, MR_DTYPE_FP32, -1, 0)};
    const struct mr_signature s = SIGNATURE(wide, out_16, -1);
    Inference__ModelConfig *c = mr_config_new();
    int64_t dims[MR_MAX_RANK + 1];
    (void)state;
    for (size_t i = 0; i <= MR_MAX_RANK; i++) {
        dims[i] = 1;
    }
    mr_config_set_string(&c->name, "m");
    Inference__ModelInput *in = mr_config_add_input(c);
    mr_config_set_string(&in->name, "X");
    mr_config_set_i64s(&in->dims, &in->n_dims, dims, MR_MAX_RANK + 1);
    assert_int_equal(mr_config_complete(c, &s, true, true, 4, NULL), MR_E_INVALID);
    mr_config_set_i64s(&in->dims, &in->n_dims, dims, MR_MAX_RANK);
    assert_int_equal(mr_config_complete(c, &s, true, true, 4, NULL), MR_OK);
    mr_config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_too_many_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
