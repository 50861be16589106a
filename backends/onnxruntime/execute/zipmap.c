/* The output of a classifier with ZipMap: a sequence with a map of class to probability per row. It is
 * handed over as the matrix that it was made from, FP32 [rows, classes], columns in ascending order of
 * the class (numbers by value, text by bytes), which is the order that a map has. Thread: any. */
#include "onnxruntime/session/onnx.h"

struct matrix {
    float *data;
    size_t rows;
    size_t classes;
};

static int row_read(const struct onnx_backend *b, const OrtValue *sequence, size_t row,
                    OrtValue **out_values, size_t *out_count, struct mr_err *err)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtValue *map = NULL;
    OrtValue *values = NULL;
    int rc;
    ONNX_TRY(GetValue(sequence, (int)row, b->allocator, &map));
    ONNX_TRY(GetValue(map, 1, b->allocator, &values)); /* 0: keys, 1: values */
    ONNX_TRY(GetTensorTypeAndShape(values, &info));
    ONNX_TRY(GetTensorShapeElementCount(info, out_count));
    *out_values = values;
    values = NULL;
out:
    if (info) {
        onnx_api->ReleaseTensorTypeAndShapeInfo(info);
    }
    if (values) {
        onnx_api->ReleaseValue(values);
    }
    if (map) {
        onnx_api->ReleaseValue(map);
    }
    return rc;
}

/* Copies one row; the first one determines the number of classes and allocates the output. */
static int row_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t index,
                   const OrtValue *sequence, size_t row, struct matrix *m, struct mr_err *err)
{
    OrtValue *values = NULL;
    void *from = NULL;
    void *place = NULL;
    size_t count = 0;
    int rc = row_read(inst->model->backend, sequence, row, &values, &count, err);
    if (rc < 0) {
        return rc;
    }
    if (row == 0) {
        const int64_t shape[2] = {(int64_t)m->rows, (int64_t)count};
        m->classes = count;
        rc = onnx_host->output(exec, index, MR_DTYPE_FP32, 2, shape, 0, &place, err);
        m->data = place;
    } else if (count != m->classes) {
        rc = mr_backend_fail(err, MR_E_INTERNAL, "output '%s': rows have %zu and %zu classes",
                             inst->model->outputs[index].name, m->classes, count);
    }
    if (rc < 0) {
        goto out;
    }
    ONNX_TRY(GetTensorMutableData(values, &from));
    memcpy(m->data + row * m->classes, from, m->classes * sizeof *m->data);
out:
    onnx_api->ReleaseValue(values);
    return rc;
}

int onnx_zipmap_out(struct onnx_instance *inst, struct mr_exec *exec, uint32_t index,
                    const OrtValue *value, struct mr_err *err)
{
    struct matrix m = {0};
    int rc;
    ONNX_TRY(GetValueCount(value, &m.rows));
    if (m.rows == 0) {
        const int64_t shape[2] = {0, 0};
        void *place = NULL;
        return onnx_host->output(exec, index, MR_DTYPE_FP32, 2, shape, 0, &place, err);
    }
    for (size_t row = 0; row < m.rows && rc == MR_OK; row++) {
        rc = row_out(inst, exec, index, value, row, &m, err);
    }
out:
    return rc;
}
