/* Errors and status codes. Fixed-size, by value, no heap and no thread-local state: an error can be
 * filled while memory is out and can travel to another process. Everything here works in a
 * temporary first, because the arguments of a message may point into the error being filled. */
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base_priv.h"

#define MESSAGE_BYTES sizeof(((struct mr_err *)0)->msg)

/* Bytes that are no UTF-8, which would make an answer invalid later, become U+FFFD. What is left of a character where the
 * text was cut goes. */
static void text_tidy(char text[MESSAGE_BYTES])
{
    mr_str left = mr_str_n(text, strnlen(text, MESSAGE_BYTES - 1));
    char out[MESSAGE_BYTES] = {0};
    size_t n = 0;

    if (left.len == MESSAGE_BYTES - 1) {
        left.len = mr_utf8_whole(left);
    }
    while (left.len > 0) {
        const size_t step = mr_utf8_step(left);
        const mr_str one = step ? mr_str_n(left.ptr, step) : MR_STR("\xef\xbf\xbd");
        if (n + one.len >= sizeof out) {
            break;
        }
        memcpy(out + n, one.ptr, one.len);
        n += one.len;
        left = mr_str_sub(left, step ? step : 1, left.len);
    }
    memcpy(text, out, sizeof out);
}

void mr_err_tidy(struct mr_err *err)
{
    text_tidy(err->msg);
}

/* vsnprintf into the size of an error's message. */
__attribute__((format(printf, 2, 0))) static void format_message(char *out, const char *fmt,
                                                                 va_list ap)
{
    if (vsnprintf(out, MESSAGE_BYTES, fmt, ap) < 0) {
        out[0] = '\0';
    }
    text_tidy(out);
}

static uint32_t flags_of(int status)
{
    return status == MR_E_UNAVAILABLE || status == MR_E_EXHAUSTED ? MR_ERR_RETRYABLE : 0;
}

int mr_err_set(struct mr_err *err, int status, const char *where, const char *fmt, ...)
{
    char msg[sizeof err->msg];
    va_list ap;

    if (!err) {
        return status;
    }
    va_start(ap, fmt);
    format_message(msg, fmt, ap);
    va_end(ap);

    memset(err, 0, sizeof *err);
    err->status = status;
    err->flags = flags_of(status);
    snprintf(err->where, sizeof err->where, "%s", where ? where : "");
    memcpy(err->msg, msg, strlen(msg));
    return status;
}

int mr_err_wrap(struct mr_err *err, int status, const char *fmt, ...)
{
    char context[sizeof err->msg];
    char msg[sizeof err->msg];
    va_list ap;

    if (!err) {
        return status;
    }
    va_start(ap, fmt);
    format_message(context, fmt, ap);
    va_end(ap);

    const char *old = err->msg[0] ? err->msg : mr_status_text(status);
    size_t context_len = strlen(context);
    size_t old_len = strnlen(old, sizeof err->msg - 1);
    size_t room = sizeof msg - 1 - context_len;
    memcpy(msg, context, context_len);
    if (room > 2) {
        memcpy(msg + context_len, ": ", 2);
        room -= 2;
        context_len += 2;
    }
    size_t n = old_len < room ? old_len : room;
    memcpy(msg + context_len, old, n);
    memset(msg + context_len + n, 0, sizeof msg - context_len - n);
    text_tidy(msg);
    memcpy(err->msg, msg, sizeof msg);
    if (err->status != status) {
        err->status = status;
        err->flags = flags_of(status);
    }
    return status;
}

const char *mr_status_name(int status)
{
    switch (status) {
    case MR_OK: return "OK";
#define STATUS_CASE(name, value, text, http, grpc)                                                 \
    case (value): return #name;
        MR_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default: return "UNKNOWN";
    }
}

const char *mr_status_text(int status)
{
    switch (status) {
    case MR_OK: return "ok";
#define STATUS_CASE(name, value, text, http, grpc)                                                 \
    case (value): return text;
        MR_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default: return "unknown error";
    }
}

int mr_status_http(int status)
{
    switch (status) {
    case MR_OK: return 200;
#define STATUS_CASE(name, value, text, http, grpc)                                                 \
    case (value): return (http);
        MR_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default: return mr_status_http(MR_E_UNKNOWN);
    }
}

int mr_status_grpc(int status)
{
    switch (status) {
    case MR_OK: return 0;
#define STATUS_CASE(name, value, text, http, grpc)                                                 \
    case (value): return (grpc);
        MR_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    default: return mr_status_grpc(MR_E_UNKNOWN);
    }
}

_Noreturn void mr_assert_failed(const char *what, const char *where)
{
    fprintf(stderr, "millrace: assertion failed at %s: %s\n", where, what);
    abort();
}
