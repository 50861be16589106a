/* The meaning of error answers, and whether to retry. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "s3_priv.h"

static void text_find(mr_bytes body, const char *name, char *out, size_t room)
{
    struct mr_buf text;

    mr_buf_init(&text, 64 << 10);
    if (s3_xml_find(body, name, &text)) {
        snprintf(out, room, "%s", mr_buf_cstr(&text));
    }
    mr_buf_fini(&text);
}

void s3_refusal_read(struct s3_refusal *r, mr_bytes body)
{
    memset(r, 0, sizeof *r);
    text_find(body, "Code", r->code, sizeof r->code);
    text_find(body, "Message", r->message, sizeof r->message);
    text_find(body, "Region", r->region, sizeof r->region);
}

bool s3_refusal_passes(const struct s3_refusal *r, int status)
{
    static const char *const codes[] = {"RequestTimeout", "SlowDown", "InternalError",
                                        "OperationAborted", "ConditionalRequestConflict"};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(r->code, codes[i]) == 0) {
            return true;
        }
    }
    return status == 408 || status == 429 || status == 500 || (status > 501 && status < 600);
}

static int status_of(const struct s3_refusal *r, int status)
{
    return status == 404                          ? MR_E_NOT_FOUND
           : status == 401 || status == 403       ? MR_E_FORBIDDEN
           : strcmp(r->code, "ExpiredToken") == 0 ? MR_E_FORBIDDEN
           : status == 412                        ? MR_E_EXISTS
           : s3_refusal_passes(r, status)         ? MR_E_UNAVAILABLE
                                                  : MR_E_INVALID;
}

/* Advice for the user. */
static void advice_put(struct mr_buf *b, const struct s3_refusal *r, int status,
                       const struct s3_config *c, int64_t server_ns)
{
    const long long apart_s = (long long)((mr_wall_ns() - server_ns) / MR_NS_PER_S);

    if (strcmp(r->code, "RequestTimeTooSkewed") == 0 && server_ns != 0) {
        mr_buf_printf(b, "; this machine's clock is %lld s %s that of the storage", llabs(apart_s),
                      apart_s > 0 ? "ahead of" : "behind");
    } else if (r->region[0] && strcmp(r->region, c->region) != 0) {
        mr_buf_printf(b, "; the bucket is in the region %s, and %s was asked (AWS_REGION)",
                      r->region, c->region);
    } else if (status >= 300 && status < 400) {
        mr_buf_printf(b, "; the bucket is elsewhere: check the region (%s) and the endpoint (%s)",
                      c->region, c->host);
    } else if (strcmp(r->code, "InvalidAccessKeyId") == 0 && c->credentials.id) {
        mr_buf_printf(b, "; the key that was shown begins with %.4s", c->credentials.id);
    }
}

int s3_refusal_tell(const struct s3_refusal *r, int status, struct mr_s3_place at,
                    const struct s3_config *c, int64_t server_ns, struct mr_err *err)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_printf(&b, "s3://%.*s/%.*s: %s%sHTTP status %d%s%s", MR_STR_ARG(at.bucket),
                  MR_STR_ARG(mr_str_sub(at.key, 0, 200)), r->code, r->code[0] ? ", " : "", status,
                  r->message[0] ? ": " : "", r->message);
    advice_put(&b, r, status, c, server_ns);
    const int rc = MR_FAIL(err, status_of(r, status), "%s", mr_buf_cstr(&b));
    mr_buf_fini(&b);
    return rc;
}
