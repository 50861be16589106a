/* A library of ops that misbehave, for test_host.c. */
#include <string.h>

#include "millrace/op.h"

static const struct mr_op_host *host;
static struct mr_op_metric *runs;
static const int64_t two[] = {2};
static const struct mr_op_io output = {
    .name = "y", .dims = two, .dtype = MR_DTYPE_INT32, .rank = 1};
static const struct mr_op_io strings = {
    .name = "y", .dims = two, .dtype = MR_DTYPE_BYTES, .rank = 1};
static const struct mr_op_io pair[] = {
    {.name = "y", .dims = two, .dtype = MR_DTYPE_INT32, .rank = 1},
    {.name = "z", .dims = two, .dtype = MR_DTYPE_INT32, .rank = 1}};
static const struct mr_op_io wrong = {.name = "y", .dims = two, .dtype = 99, .rank = 1};

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **op, struct mr_err *err)
{
    (void)d;
    (void)op;
    out->outputs = &output;
    return host->counter(node, "runs", &runs, err);
}

static int create_strings(const struct mr_op_desc *d, struct mr_op_node *node,
                          struct mr_op_signature *out, void **op, struct mr_err *err)
{
    (void)d;
    (void)node;
    (void)op;
    (void)err;
    out->outputs = &strings;
    return MR_OK;
}

static int create_pair(const struct mr_op_desc *d, struct mr_op_node *node,
                       struct mr_op_signature *out, void **op, struct mr_err *err)
{
    (void)d;
    (void)node;
    (void)op;
    (void)err;
    out->outputs = pair;
    return MR_OK;
}

static int create_wrong(const struct mr_op_desc *d, struct mr_op_node *node,
                        struct mr_op_signature *out, void **op, struct mr_err *err)
{
    (void)d;
    (void)node;
    (void)op;
    (void)err;
    out->outputs = &wrong;
    return MR_OK;
}

static int create_silent(const struct mr_op_desc *d, struct mr_op_node *node,
                         struct mr_op_signature *out, void **op, struct mr_err *err)
{
    (void)d;
    (void)node;
    (void)out;
    (void)op;
    (void)err;
    return MR_E_UNSUPPORTED;
}

/* The first element of the input says what goes wrong. */
static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    int32_t what;
    void *data;
    int rc;

    (void)op;
    host->count(runs, 1);
    memcpy(&what, run->inputs[0].data, 4);
    switch (what) {
    case 1: return 5;
    case 2: return MR_OK;
    case 3: return host->output(run, 0, MR_DTYPE_FP32, 1, two, 0, &data, err);
    case 4: return host->output(run, 1, MR_DTYPE_INT32, 1, two, 0, &data, err);
    case 5: return host->output(run, 0, MR_DTYPE_INT32, 2, run->inputs[0].shape, 0, &data, err);
    case 6: return host->output(run, 0, MR_DTYPE_INT32, 1, two, 12, &data, err);
    case 7:
        rc = host->output(run, 0, MR_DTYPE_INT32, 1, two, 0, &data, err);
        return rc < 0 ? rc : host->output(run, 0, MR_DTYPE_INT32, 1, two, 0, &data, err);
    case 8: return host->output_view(run, 0, 0, 4, MR_DTYPE_INT32, 1, two, 8, err);
    case 9: return host->output_view(run, 0, 3, 0, MR_DTYPE_INT32, 1, two, 8, err);
    case 10: return MR_E_UNSUPPORTED;
    default:
        rc = host->output_in_place(run, 0, 0, MR_DTYPE_INT32, 1, two, &data, err);
        if (rc == MR_OK) {
            memset(data, 7, 8);
        }
        return rc;
    }
}

static int run_strings(void *op, struct mr_op_run *run, struct mr_err *err)
{
    void *data;
    int rc = host->output(run, 0, MR_DTYPE_BYTES, 1, two, 8, &data, err);

    (void)op;
    if (rc == MR_OK) {
        memset(data, 0xff, 8);
    }
    return rc;
}

/* The input as it was, and in its place what is made of it. */
static int run_pair(void *op, struct mr_op_run *run, struct mr_err *err)
{
    void *data;
    int rc = host->output_view(run, 0, 0, 0, MR_DTYPE_INT32, 1, two, 8, err);

    (void)op;
    if (rc == MR_OK) {
        rc = host->output_in_place(run, 1, 0, MR_DTYPE_INT32, 1, two, &data, err);
    }
    if (rc == MR_OK) {
        memset(data, 7, 8);
    }
    return rc;
}

static const struct mr_op_kind odd = {
    .size = sizeof odd, .name = "test.odd", .create = create, .run = run};
static const struct mr_op_kind odd_strings = {.size = sizeof odd_strings,
                                              .name = "test.strings",
                                              .create = create_strings,
                                              .run = run_strings};
static const struct mr_op_kind odd_pair = {
    .size = sizeof odd_pair, .name = "test.pair", .create = create_pair, .run = run_pair};
static const struct mr_op_kind odd_wrong = {
    .size = sizeof odd_wrong, .name = "test.wrong", .create = create_wrong, .run = run};
static const struct mr_op_kind odd_silent = {
    .size = sizeof odd_silent, .name = "test.silent", .create = create_silent, .run = run};
static const struct mr_op_kind *const kinds[] = {&odd, &odd_strings, &odd_pair, &odd_wrong,
                                                 &odd_silent};
static const struct mr_op_library library = {.size = sizeof library,
                                             .abi_minor = MR_OP_ABI_MINOR,
                                             .version = "1",
                                             .kind_count = 5,
                                             .kinds = kinds};

int mr_op_entry_v1(const struct mr_op_host *h, const struct mr_op_library **out, struct mr_err *err)
{
    (void)err;
    host = h;
    *out = &library;
    return MR_OK;
}
