/* Small helpers for authors of backends: errors and settings. Everything is inline, so that a backend needs no
 * library of Millrace. Optional: the ABI is backend.h alone. Plain C11 and C++11. */
#ifndef MILLRACE_BACKEND_UTIL_H
#define MILLRACE_BACKEND_UTIL_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millrace/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Takes a part of a UTF-8 character from the end of a text that was cut. */
static inline void mr_text_end_whole(char *text)
{
    const size_t len = strlen(text);
    size_t at = len; /* where the last character begins */
    while (at > 0 && len - at < 4 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) {
        at--;
    }
    const unsigned char first = at > 0 ? (unsigned char)text[at - 1] : 0;
    const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
    if (len - at + 1 < bytes) {
        text[at - 1] = '\0';
    }
}

/** Fills *err with a message, as much of it as there is room for, and returns `status`:
 *  return mr_backend_fail(err, MR_E_INVALID, "..."). */
__attribute__((format(printf, 3, 4))) static inline int mr_backend_fail(struct mr_err *err,
                                                                        int status, const char *fmt,
                                                                        ...)
{
    va_list args;
    memset(err, 0, sizeof *err);
    err->status = status;
    va_start(args, fmt);
    if (vsnprintf(err->msg, sizeof err->msg, fmt, args) >= (int)sizeof err->msg) {
        mr_text_end_whole(err->msg);
    }
    va_end(args);
    return status;
}

/** Value of a setting, NULL if missing. The last one of a name wins. */
static inline const char *mr_setting_find(const struct mr_setting *settings, uint32_t count,
                                          const char *key)
{
    while (count > 0) {
        count--;
        if (strcmp(settings[count].key, key) == 0) {
            return settings[count].value;
        }
    }
    return NULL;
}

/** Reads a whole decimal number within [min, max]. Writes *out only if the setting exists. Errors: MR_E_INVALID
 *  naming the setting, its value and the range. */
static inline int mr_setting_i64(const struct mr_setting *settings, uint32_t count, const char *key,
                                 int64_t min, int64_t max, int64_t *out, struct mr_err *err)
{
    const char *text = mr_setting_find(settings, count, key);
    char *end = NULL;
    long long value;
    if (!text) {
        return MR_OK;
    }
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < min || value > max) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "parameter '%s' is '%s', expected a whole number %lld..%lld", key,
                               text, (long long)min, (long long)max);
    }
    *out = value;
    return MR_OK;
}

/** "1", "true", "on" or "0", "false", "off". As mr_setting_i64 otherwise. */
static inline int mr_setting_bool(const struct mr_setting *settings, uint32_t count,
                                  const char *key, int *out, struct mr_err *err)
{
    const char *text = mr_setting_find(settings, count, key);
    if (!text) {
        return MR_OK;
    }
    if (strcmp(text, "1") == 0 || strcmp(text, "true") == 0 || strcmp(text, "on") == 0) {
        *out = 1;
        return MR_OK;
    }
    if (strcmp(text, "0") == 0 || strcmp(text, "false") == 0 || strcmp(text, "off") == 0) {
        *out = 0;
        return MR_OK;
    }
    return mr_backend_fail(err, MR_E_INVALID, "parameter '%s' is '%s', expected true or false", key,
                           text);
}

/** Rows [begin, begin + count) of a tensor of the host, as a view; `shape` is the caller's room for its shape. With
 *  count 0 the whole tensor: the requests of a model without batching have no rows. An input that was not sent stays so. */
static inline struct mr_tensor mr_tensor_rows(const struct mr_tensor *t, int64_t begin,
                                              int64_t count, int64_t shape[MR_MAX_RANK])
{
    struct mr_tensor out = *t;
    uint64_t per_row = 1;
    uint64_t from = 0;
    uint64_t to;
    if (count == 0 || t->dtype == MR_DTYPE_INVALID) {
        return out;
    }
    for (int i = 1; i < t->rank; i++) {
        per_row *= (uint64_t)t->shape[i];
    }
    if (t->dtype == MR_DTYPE_BYTES) {
        uint64_t first = (uint64_t)begin * per_row;
        uint64_t end = first + (uint64_t)count * per_row;
        uint64_t at = 0;
        uint32_t len;
        for (uint64_t i = 0; i < end; i++) {
            from = i == first ? at : from;
            memcpy(&len, (const uint8_t *)t->data + at, 4);
            at += 4u + (uint64_t)len;
        }
        to = at;
    } else {
        const uint64_t row_bytes = t->shape[0] > 0 ? t->bytes / (uint64_t)t->shape[0] : 0;
        from = (uint64_t)begin * row_bytes;
        to = from + (uint64_t)count * row_bytes;
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    shape[0] = count;
    out.shape = shape;
    out.data = t->bytes > 0 ? (uint8_t *)t->data + from : t->data;
    out.bytes = to - from;
    return out;
}

#ifdef __cplusplus
}
#endif
#endif
