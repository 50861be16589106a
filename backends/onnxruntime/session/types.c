/* Status codes and element types between ONNX Runtime and Millrace. Thread: any. */
#include "message.h"
#include "onnx.h"

/* Both are set when the backend is loaded, before anything else. */
const struct mr_host *onnx_host;
const OrtApi *onnx_api;

static int status_of(OrtErrorCode code, const char *message)
{
    if (strstr(message, "bad_alloc") || strstr(message, "ailed to allocate memory")) {
        return MR_E_NOMEM;
    }
    switch (code) {
    case ORT_INVALID_ARGUMENT:
    case ORT_NO_MODEL:
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH: return MR_E_INVALID;
    case ORT_NO_SUCHFILE: return MR_E_NOT_FOUND;
    case ORT_NOT_IMPLEMENTED: return MR_E_UNSUPPORTED;
    default: return MR_E_INTERNAL;
    }
}

int onnx_check_in(OrtStatus *status, struct mr_err *err, const char *context)
{
    if (!status) {
        return MR_OK;
    }
    char message[sizeof err->msg];
    const char *text = onnx_api->GetErrorMessage(status);
    onnx_message_clean(text, message, sizeof message);
    int rc = mr_backend_fail(err, status_of(onnx_api->GetErrorCode(status), text), "%s%s%s",
                             context, context[0] ? ": " : "", message);
    onnx_api->ReleaseStatus(status);
    return rc;
}

int onnx_check(OrtStatus *status, struct mr_err *err)
{
    return status ? onnx_check_in(status, err, "") : MR_OK;
}

static const struct {
    int dtype;
    const char *name;
} types[] = {
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED] = {MR_DTYPE_INVALID, "undefined"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT] = {MR_DTYPE_FP32, "float"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8] = {MR_DTYPE_UINT8, "uint8"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8] = {MR_DTYPE_INT8, "int8"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16] = {MR_DTYPE_UINT16, "uint16"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16] = {MR_DTYPE_INT16, "int16"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32] = {MR_DTYPE_INT32, "int32"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64] = {MR_DTYPE_INT64, "int64"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING] = {MR_DTYPE_BYTES, "string"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL] = {MR_DTYPE_BOOL, "bool"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16] = {MR_DTYPE_FP16, "float16"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE] = {MR_DTYPE_FP64, "double"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32] = {MR_DTYPE_UINT32, "uint32"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64] = {MR_DTYPE_UINT64, "uint64"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64] = {MR_DTYPE_INVALID, "complex64"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128] = {MR_DTYPE_INVALID, "complex128"},
    [ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16] = {MR_DTYPE_BF16, "bfloat16"},
};

int onnx_dtype(ONNXTensorElementDataType type)
{
    return (size_t)type < sizeof types / sizeof *types ? types[type].dtype : MR_DTYPE_INVALID;
}

const char *onnx_type_name(ONNXTensorElementDataType type)
{
    return (size_t)type < sizeof types / sizeof *types ? types[type].name : "float8, int4 or newer";
}

size_t onnx_element_bytes(int dtype)
{
    switch (dtype) {
    case MR_DTYPE_BOOL:
    case MR_DTYPE_UINT8:
    case MR_DTYPE_INT8: return 1;
    case MR_DTYPE_UINT16:
    case MR_DTYPE_INT16:
    case MR_DTYPE_FP16:
    case MR_DTYPE_BF16: return 2;
    case MR_DTYPE_UINT32:
    case MR_DTYPE_INT32:
    case MR_DTYPE_FP32: return 4;
    case MR_DTYPE_UINT64:
    case MR_DTYPE_INT64:
    case MR_DTYPE_FP64: return 8;
    default: return 0;
    }
}

int onnx_shape_bytes(const int64_t *dims, int32_t rank, size_t unit, uint64_t *out)
{
    uint64_t n = unit;
    for (int32_t d = 0; d < rank; d++) {
        if (dims[d] < 0 || __builtin_mul_overflow(n, (uint64_t)dims[d], &n)) {
            return 0;
        }
    }
    *out = n;
    return 1;
}
