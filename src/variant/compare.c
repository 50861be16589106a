#include "variant/compare.h"

#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

static double element(const struct mr_tensor *t, uint64_t i)
{
    switch (t->dtype) {
    case MR_DTYPE_FP64: return ((const double *)t->data)[i];
    case MR_DTYPE_FP32: return (double)((const float *)t->data)[i];
    case MR_DTYPE_FP16: return (double)mr_fp16_to_float(((const uint16_t *)t->data)[i]);
    default: return (double)mr_bf16_to_float(((const uint16_t *)t->data)[i]);
    }
}

static bool is_float(int dtype)
{
    return dtype == MR_DTYPE_FP64 || dtype == MR_DTYPE_FP32 || dtype == MR_DTYPE_FP16 ||
           dtype == MR_DTYPE_BF16;
}

static bool is_near(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b)) {
        return isnan(a) && isnan(b);
    }
    if (isinf(a) || isinf(b)) {
        return isinf(a) && isinf(b) && signbit(a) == signbit(b);
    }
    return fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

bool mr_shadow_outputs_agree(const struct mr_shadow_config *config, const struct mr_tensor *a,
                             const struct mr_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank || a->bytes != b->bytes) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] != b->shape[i]) {
            return false;
        }
    }
    if (config->compare == MR_COMPARE_EQUAL || !is_float(a->dtype)) {
        return a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0;
    }
    const uint64_t count = a->bytes / mr_dtype_size(a->dtype);
    for (uint64_t i = 0; i < count; i++) {
        if (!is_near(element(b, i), element(a, i), config->tolerance)) {
            return false;
        }
    }
    return true;
}
