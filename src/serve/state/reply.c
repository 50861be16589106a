/* REST answers that are not inference results. */
#include "reply.h"

#include <stdarg.h>
#include <stdio.h>

#include "oip/oip.h"

uint32_t reply_retry_ms(const struct mr_call *call)
{
    return call->retry_ms > 0 ? call->retry_ms : 1000;
}

void reply_json(struct mr_call *call, int http_status, mr_str body)
{
    struct mr_header json[2] = {{MR_STR("content-type"), MR_STR("application/json")}};
    const bool may_retry = http_status == 503;
    char seconds[12];

    if (may_retry) {
        int digits = snprintf(seconds, sizeof seconds, "%u", (reply_retry_ms(call) + 999) / 1000);
        json[1] = (struct mr_header){MR_STR("retry-after"), mr_str_n(seconds, (size_t)digits)};
    }
    struct mr_piece piece = {body.ptr, body.len, NULL};
    struct mr_reply reply = {.status = http_status,
                             .headers = json,
                             .header_count = may_retry ? 2 : 1,
                             .pieces = &piece,
                             .piece_count = body.len ? 1 : 0};

    mr_call_reply(call, &reply);
}

/* What an answer has lost must not look like a whole one. */
void reply_buf(struct mr_call *call, int http_status, const struct mr_buf *b)
{
    if (b->failed) {
        reply_json(call, 503, MR_STR("{\"error\":\"out of memory\"}"));
    } else {
        reply_json(call, http_status, mr_buf_view(b));
    }
}

void reply_empty(struct mr_call *call, int http_status)
{
    struct mr_reply reply = {.status = http_status};

    mr_call_reply(call, &reply);
}

void reply_status_text(struct mr_call *call, int http_status, const char *text)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);

    mr_buf_reset(b);
    mr_oip_rest_error(b, mr_str_c(text));
    reply_buf(call, http_status, b);
}

void reply_error(struct mr_call *call, const struct mr_err *err)
{
    reply_status_text(call, mr_status_http(err->status), err->msg);
}

void reply_error_text(struct mr_call *call, int status, const char *fmt, ...)
{
    struct mr_err err = {.status = status};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err.msg, sizeof err.msg, fmt, ap);
    va_end(ap);
    reply_error(call, &err);
}

void reply_method(struct mr_call *call, mr_str allowed, mr_str json)
{
    const struct mr_header headers[] = {
        {MR_STR("content-type"), MR_STR("application/json")},
        {MR_STR("allow"), allowed},
    };
    const struct mr_piece piece = {json.ptr, json.len, NULL};
    const struct mr_reply reply = {
        .status = 405, .headers = headers, .header_count = 2, .pieces = &piece, .piece_count = 1};

    mr_call_reply(call, &reply);
}
