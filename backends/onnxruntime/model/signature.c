/* Makes the signature from a session's inputs and outputs.
 *
 * Symbolic dimensions become -1. Only ONNX Runtime 1.24 and newer distinguishes a value without a known
 * shape from a scalar; with an older one both count as rank unknown. Initializers that a caller may
 * override are listed as optional inputs only when the config names them: exporters that keep all
 * weights among the inputs would fill the signature with them.
 *
 * `batchable` requires a free first dimension of every input and output, with one name if they have names: dimensions
 * with different names may have different sizes. */
#include "onnxruntime/session/onnx.h"

/* TensorTypeAndShape_HasShape: slot 390 of the interface since 1.24. The table only ever grows, so
 * the slot can be used with the header of an older release. */
#define SLOT_HAS_SHAPE 390
typedef bool(ORT_API_CALL has_shape_fn)(const OrtTensorTypeAndShapeInfo *info);

static int has_shape(const struct onnx_backend *b, const OrtTensorTypeAndShapeInfo *info)
{
    has_shape_fn *fn;
    if (!b->can_tell_shape) {
        return 0;
    }
    memcpy(&fn, (const void *const *)onnx_api + SLOT_HAS_SHAPE, sizeof fn);
    return fn(info);
}

static int unsupported(struct mr_err *err, const char *kind, const char *name, const char *what)
{
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "%s '%s' %s", kind, name, what);
}

/* Rank, dims and the name of the first dimension. */
static int shape_read(struct onnx_model *m, struct onnx_io *io, const char *kind,
                      const OrtTensorTypeAndShapeInfo *info, struct mr_err *err)
{
    struct mr_io_desc *d = io->desc;
    const char *symbols[MR_MAX_RANK] = {0};
    size_t rank = 0;
    int64_t *dims;
    int rc;
    ONNX_TRY(GetDimensionsCount(info, &rank));
    if (rank > MR_MAX_RANK) {
        return unsupported(err, kind, d->name, "has more than 32 dimensions");
    }
    d->rank = rank == 0 && !has_shape(m->backend, info) ? -1 : (int32_t)rank;
    dims = calloc(rank + 1, sizeof *dims);
    if (!dims) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    d->dims = dims;
    ONNX_TRY(GetDimensions(info, dims, rank));
    ONNX_TRY(GetSymbolicDimensions(info, symbols, rank));
    for (size_t i = 0; i < rank; i++) {
        dims[i] = dims[i] < 0 ? -1 : dims[i];
    }
    if (rank > 0 && dims[0] == -1 && symbols[0] && symbols[0][0]) {
        io->batch_symbol = strdup(symbols[0]);
    }
    if (io->kind == ONNX_KIND_TENSOR && d->rank >= 0) {
        const size_t unit = onnx_element_bytes(d->dtype);
        io->is_fixed = onnx_shape_bytes(dims, d->rank, unit, &io->row_bytes);
        io->has_batch = !io->is_fixed && rank > 0 && dims[0] == -1 &&
                        onnx_shape_bytes(dims + 1, d->rank - 1, unit, &io->row_bytes);
    }
out:
    return rc;
}

static int tensor_read(struct onnx_model *m, struct onnx_io *io, const char *kind,
                       const OrtTypeInfo *type, struct mr_err *err)
{
    const OrtTensorTypeAndShapeInfo *info = NULL;
    int rc;
    ONNX_TRY(CastTypeInfoToTensorInfo(type, &info));
    ONNX_TRY(GetTensorElementType(info, &io->type));
    io->desc->dtype = onnx_dtype(io->type);
    if (io->desc->dtype == MR_DTYPE_INVALID) {
        return mr_backend_fail(err, MR_E_UNSUPPORTED,
                               "%s '%s' has elements of type %s, which the protocol has not", kind,
                               io->desc->name, onnx_type_name(io->type));
    }
    io->kind = io->desc->dtype == MR_DTYPE_BYTES ? ONNX_KIND_STRING : ONNX_KIND_TENSOR;
    rc = shape_read(m, io, kind, info, err);
out:
    return rc;
}

/* sequence(map(int64 or string, float)), as a classifier with ZipMap gives it: a matrix of rows and
 * classes. Anything else in a sequence is refused. */
static int sequence_read(struct onnx_io *io, const OrtTypeInfo *type, struct mr_err *err)
{
    const OrtSequenceTypeInfo *sequence = NULL;
    const OrtMapTypeInfo *map = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    OrtTypeInfo *element = NULL;
    OrtTypeInfo *value = NULL;
    ONNXTensorElementDataType value_type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    int rc;
    ONNX_TRY(CastTypeInfoToSequenceTypeInfo(type, &sequence));
    ONNX_TRY(GetSequenceElementType(sequence, &element));
    ONNX_TRY(CastTypeInfoToMapTypeInfo(element, &map));
    if (map) {
        ONNX_TRY(GetMapValueType(map, &value));
        ONNX_TRY(CastTypeInfoToTensorInfo(value, &tensor));
        if (tensor) {
            ONNX_TRY(GetTensorElementType(tensor, &value_type));
        }
    }
    if (value_type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT) {
        rc = unsupported(
            err, "output", io->desc->name,
            "is a sequence; only ZipMap's (maps of class to float) is served, as a "
            "matrix. Convert the model so that it gives tensors (skl2onnx: zipmap=False)");
        goto out;
    }
    int64_t *dims = calloc(2, sizeof *dims);
    if (!dims) {
        rc = mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        goto out;
    }
    dims[0] = dims[1] = -1;
    io->kind = ONNX_KIND_ZIPMAP;
    io->desc->dtype = MR_DTYPE_FP32;
    io->desc->rank = 2;
    io->desc->dims = dims;
out:
    if (value) {
        onnx_api->ReleaseTypeInfo(value);
    }
    if (element) {
        onnx_api->ReleaseTypeInfo(element);
    }
    return rc;
}

/* Takes `type` always. */
static int io_read(struct onnx_model *m, struct onnx_io *io, const char *kind, OrtTypeInfo *type,
                   struct mr_err *err)
{
    enum ONNXType onnx_type = ONNX_TYPE_UNKNOWN;
    int rc;
    ONNX_TRY(GetOnnxTypeFromTypeInfo(type, &onnx_type));
    if (onnx_type == ONNX_TYPE_TENSOR) {
        rc = tensor_read(m, io, kind, type, err);
    } else if (onnx_type == ONNX_TYPE_SEQUENCE && strcmp(kind, "output") == 0) {
        rc = sequence_read(io, type, err);
    } else {
        rc = unsupported(
            err, kind, io->desc->name,
            onnx_type == ONNX_TYPE_MAP
                ? "is a map; convert the model so that it gives tensors (zipmap=False)"
                : "is neither a tensor nor a ZipMap output; the protocol has tensors only");
    }
out:
    onnx_api->ReleaseTypeInfo(type);
    return rc;
}

/* Copies a name allocated by ONNX Runtime. Always takes `name`. */
static int name_take(struct onnx_model *m, struct onnx_io *io, char *name, struct mr_err *err)
{
    io->desc->name = strdup(name);
    int rc = onnx_check(onnx_api->AllocatorFree(m->backend->allocator, name), err);
    return rc == MR_OK && !io->desc->name ? mr_backend_fail(err, MR_E_NOMEM, "out of memory") : rc;
}

static int input_add(struct onnx_model *m, size_t i, struct mr_err *err)
{
    struct onnx_io *io = &m->in[m->input_count];
    OrtTypeInfo *type = NULL;
    char *name = NULL;
    int rc;
    ONNX_TRY(SessionGetInputName(m->session, i, m->backend->allocator, &name));
    m->input_count++;
    if ((rc = name_take(m, io, name, err)) < 0) {
        goto out;
    }
    ONNX_TRY(SessionGetInputTypeInfo(m->session, i, &type));
    rc = io_read(m, io, "input", type, err);
out:
    return rc;
}

/* True if the config, which is JSON without spaces between its parts, names a tensor so. */
static int config_names(const struct mr_model_desc *desc, const char *name)
{
    char quoted[512];
    int n = snprintf(quoted, sizeof quoted, "\"name\":\"%s\"", name);
    return desc->config_json && n > 0 && (size_t)n < sizeof quoted &&
           strstr(desc->config_json, quoted) != NULL;
}

static int optional_add(struct onnx_model *m, const struct mr_model_desc *desc, size_t i,
                        struct mr_err *err)
{
    struct onnx_io *io = &m->in[m->input_count];
    OrtTypeInfo *type = NULL;
    char *name = NULL;
    int rc;
    ONNX_TRY(SessionGetOverridableInitializerName(m->session, i, m->backend->allocator, &name));
    if (!config_names(desc, name)) {
        return onnx_check(onnx_api->AllocatorFree(m->backend->allocator, name), err);
    }
    m->input_count++;
    io->desc->flags = MR_IO_OPTIONAL;
    if ((rc = name_take(m, io, name, err)) < 0) {
        goto out;
    }
    ONNX_TRY(SessionGetOverridableInitializerTypeInfo(m->session, i, &type));
    rc = io_read(m, io, "input", type, err);
out:
    return rc;
}

static int output_add(struct onnx_model *m, size_t i, struct mr_err *err)
{
    struct onnx_io *io = &m->out[i];
    OrtTypeInfo *type = NULL;
    char *name = NULL;
    int rc;
    ONNX_TRY(SessionGetOutputName(m->session, i, m->backend->allocator, &name));
    if ((rc = name_take(m, io, name, err)) < 0) {
        goto out;
    }
    ONNX_TRY(SessionGetOutputTypeInfo(m->session, i, &type));
    rc = io_read(m, io, "output", type, err);
out:
    return rc;
}

static int lists_make(struct onnx_model *m, size_t input_max, size_t output_count,
                      struct mr_err *err)
{
    m->inputs = calloc(input_max + 1, sizeof *m->inputs);
    m->outputs = calloc(output_count + 1, sizeof *m->outputs);
    m->in = calloc(input_max + 1, sizeof *m->in);
    m->out = calloc(output_count + 1, sizeof *m->out);
    if (!m->inputs || !m->outputs || !m->in || !m->out) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < input_max; i++) {
        m->in[i].desc = &m->inputs[i];
    }
    for (size_t i = 0; i < output_count; i++) {
        m->out[i].desc = &m->outputs[i];
    }
    m->output_count = (uint32_t)output_count;
    return MR_OK;
}

/* Returns 1 or 0; values of unknown rank are ignored. -1 if all ranks are unknown. */
static int batchable(const struct onnx_io *list, uint32_t count)
{
    int result = 1;
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_io_desc *d = list[i].desc;
        if (d->rank == 0 || (d->rank > 0 && d->dims[0] != -1)) {
            return 0;
        }
        result = d->rank < 0 ? -1 : result;
    }
    return result;
}

/* A dimension's name, unless an exporter has generated it. */
static const char *given_name(const struct onnx_io *io)
{
    static const char *const made_up[] = {"unk__", "_dynamic_axes_", "output_dim_"};

    for (size_t i = 0; io->batch_symbol && i < sizeof made_up / sizeof *made_up; i++) {
        if (strstr(io->batch_symbol, made_up[i])) {
            return NULL;
        }
    }
    return io->batch_symbol;
}

static const struct onnx_io *io_at(const struct onnx_model *m, uint32_t i)
{
    return i < m->input_count ? &m->in[i] : &m->out[i - m->input_count];
}

/* True if the first dimensions do not have different names. */
static int names_agree(const struct onnx_model *m, const struct mr_model_desc *desc)
{
    const struct onnx_io *named = NULL;
    char line[700];

    for (uint32_t i = 0; i < m->input_count + m->output_count; i++) {
        const struct onnx_io *io = io_at(m, i);
        const char *name = given_name(io);
        if (!name || !named) {
            named = name ? io : named;
        } else if (strcmp(name, named->batch_symbol) != 0) {
            snprintf(line, sizeof line,
                     "model=%.200s version=%lld it gets no max_batch_size by itself: the first "
                     "dimension of '%.64s' is called '%.64s', that of '%.64s' '%.64s'",
                     m->name, (long long)desc->version, named->desc->name, named->batch_symbol,
                     io->desc->name, name);
            if (desc->max_batch_size < 0) {
                onnx_host->log(onnx_host, 2, line);
            }
            return 0;
        }
    }
    return 1;
}

/* ONNX Runtime does not write an output that is also an input of the graph to its bound memory, so its shape is
 * treated as unknown. */
static void echoes_mark(struct onnx_model *m)
{
    for (uint32_t k = 0; k < m->output_count; k++) {
        for (uint32_t i = 0; i < m->input_count; i++) {
            if (strcmp(m->outputs[k].name, m->inputs[i].name) == 0) {
                m->out[k].is_fixed = 0;
                m->out[k].has_batch = 0;
            }
        }
    }
}

/* Sets the summary that executions use. */
static void totals_set(struct onnx_model *m)
{
    const char *symbol = m->input_count > 0 ? m->in[0].batch_symbol : NULL;
    uint64_t total = 0;
    m->rows_agree = symbol != NULL;
    m->can_stage = m->input_count > 0;
    for (uint32_t i = 0; i < m->input_count + m->output_count; i++) {
        const struct onnx_io *io = io_at(m, i);
        total += io->row_bytes;
        m->can_stage &= (io->has_batch || io->is_fixed) && io->row_bytes <= ONNX_PLAN_TENSOR &&
                        total <= ONNX_PLAN_BYTES && !(io->desc->flags & MR_IO_OPTIONAL);
        if (io->has_batch && m->rows_agree) {
            m->rows_agree = io->batch_symbol && strcmp(io->batch_symbol, symbol) == 0;
        }
    }
}

int onnx_signature_read(struct onnx_model *m, const struct mr_model_desc *desc, struct mr_err *err)
{
    size_t inputs = 0;
    size_t optional = 0;
    size_t outputs = 0;
    int rc;
    ONNX_TRY(SessionGetInputCount(m->session, &inputs));
    ONNX_TRY(SessionGetOverridableInitializerCount(m->session, &optional));
    ONNX_TRY(SessionGetOutputCount(m->session, &outputs));
    rc = lists_make(m, inputs + optional, outputs, err);
    for (size_t i = 0; rc == MR_OK && i < inputs; i++) {
        rc = input_add(m, i, err);
    }
    for (size_t i = 0; rc == MR_OK && i < optional; i++) {
        rc = optional_add(m, desc, i, err);
    }
    for (size_t i = 0; rc == MR_OK && i < outputs; i++) {
        rc = output_add(m, i, err);
    }
    if (rc < 0) {
        goto out;
    }
    echoes_mark(m);
    totals_set(m);
    const int in = batchable(m->in, m->input_count);
    const int out = batchable(m->out, m->output_count);
    const int is_none = in == 0 || out == 0 || m->input_count == 0;
    const int is_known = in > 0 && out > 0 && !is_none && names_agree(m, desc);
    m->signature = (struct mr_signature){
        .size = sizeof m->signature,
        .input_count = m->input_count,
        .output_count = m->output_count,
        .inputs = m->inputs,
        .outputs = m->outputs,
        .batchable = is_none    ? 0
                     : is_known ? 1
                                : -1,
        .flags = m->has_loop ? MR_BACKEND_NO_INLINE : 0,
    };
out:
    return rc;
}

static void list_free(struct onnx_io *io, struct mr_io_desc *list, uint32_t count)
{
    for (uint32_t i = 0; list && io && i < count; i++) {
        free((void *)(uintptr_t)list[i].name);
        free((void *)(uintptr_t)list[i].dims);
        free(io[i].batch_symbol);
    }
    free(list);
    free(io);
}

void onnx_signature_free(struct onnx_model *m)
{
    list_free(m->in, m->inputs, m->input_count);
    list_free(m->out, m->outputs, m->output_count);
    m->in = m->out = NULL;
    m->inputs = m->outputs = NULL;
    m->input_count = m->output_count = 0;
}
