/* The C side of float_text.cc: exact decimal conversions from the C++ standard library. Private. */
#ifndef MR_CODEC_FLOAT_TEXT_H
#define MR_CODEC_FLOAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Shortest text that reads back to the same finite value; bytes written to out[32], no NUL. */
size_t mr_codec_double_put(double v, char *out);
size_t mr_codec_float_put(float v, char *out);
/** As "%.17g" of the C locale; any value. */
size_t mr_codec_double_put_17(double v, char *out);

/** Correctly rounded value of [begin, end), which must be one decimal number whole: optional '-',
 *  digits with at most one '.', optional exponent. Overflow gives infinity, underflow zero. False
 *  if it is not. */
bool mr_codec_double_get(const char *begin, const char *end, double *out);
bool mr_codec_float_get(const char *begin, const char *end, float *out);

#ifdef __cplusplus
}
#endif
#endif
