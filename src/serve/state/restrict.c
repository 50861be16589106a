/* Which class an endpoint belongs to, and whether a call may use it.
 *
 * A call is judged when its head is there, before a byte of its body is read: who has not the header cannot make
 * the server take in a body either, and a stream is judged once, at its beginning. While any class is restricted,
 * each port speaks its own protocol only, as Triton's ports do: otherwise what is closed to one protocol could be
 * had over the other on the same port. On network threads; the table is constant after the start. */
#include "restrict.h"

#include "serve/restrict.h"

#include <stdio.h>

#include "reply.h"
#include "state.h"

static const char *const api_names[MR_API_COUNT] = {
    [MR_API_HEALTH] = "health",
    [MR_API_METADATA] = "metadata",
    [MR_API_INFERENCE] = "inference",
    [MR_API_SHARED_MEMORY] = "shared-memory",
    [MR_API_MODEL_CONFIG] = "model-config",
    [MR_API_MODEL_REPOSITORY] = "model-repository",
    [MR_API_STATISTICS] = "statistics",
    [MR_API_TRACE] = "trace",
    [MR_API_LOGGING] = "logging",
    [MR_API_METRICS] = "metrics",
    [MR_API_REFLECTION] = "reflection",
};

/* ---- the options ---- */

static bool is_key_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* The header's name for a key, in lower case. */
static bool make_header(const char *prefix, mr_str key, char out[MR_RESTRICTION_HEADER_MAX])
{
    size_t n = strlen(prefix);

    if (key.len == 0 || n + key.len >= MR_RESTRICTION_HEADER_MAX) {
        return false;
    }
    memcpy(out, prefix, n);
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        if (!is_key_char(c)) {
            return false;
        }
        out[n++] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    out[n] = '\0';
    return true;
}

/* What a header cannot carry, and what --dump-options prints for it, is no secret. */
static bool is_secret(mr_str value)
{
    bool has_other = false;

    for (size_t i = 0; i < value.len; i++) {
        if ((unsigned char)value.ptr[i] < 0x20 || value.ptr[i] == 0x7f) {
            return false;
        }
        has_other |= value.ptr[i] != '*';
    }
    return has_other && mr_str_eq(mr_str_trim(value), value);
}

static int restrict_one(struct mr_restrictions *r, mr_str name, const char *header, mr_str secret,
                        struct mr_err *err)
{
    const char *what = r->is_grpc ? "protocol" : "api";
    int other = r->is_grpc ? MR_API_METRICS : MR_API_REFLECTION;

    for (int i = 0; i < MR_API_COUNT; i++) {
        if (i == other || !mr_str_eq_c(name, api_names[i])) {
            continue;
        }
        if (r->of[i].header[0]) {
            return MR_FAIL(err, MR_E_INVALID,
                           "restricted %s '%s' can not be specified in multiple config groups",
                           what, api_names[i]);
        }
        snprintf(r->of[i].header, sizeof r->of[i].header, "%s", header);
        r->of[i].secret = secret;
        r->is_any = true;
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "unknown restricted %s '%.*s'", what,
                   MR_STR_ARG(mr_str_sub(name, 0, 40)));
}

int mr_restrictions_add(struct mr_restrictions *r, const char *group, struct mr_err *err)
{
    mr_str text = mr_str_c(group), name;
    ptrdiff_t colon = mr_str_find(text, ':'), equals = mr_str_find(text, '=');
    char header[MR_RESTRICTION_HEADER_MAX];
    int rc = MR_OK;

    if (colon <= 0 || equals < colon) {
        return MR_FAIL(err, MR_E_INVALID, "expected APIS:KEY=VALUE, as in health,metadata:%s",
                       "admin-key=VALUE");
    }
    mr_str names = mr_str_sub(text, 0, (size_t)colon);
    mr_str key = mr_str_sub(text, (size_t)colon + 1, (size_t)equals);
    mr_str secret = mr_str_sub(text, (size_t)equals + 1, text.len);

    if (!make_header(r->is_grpc ? "triton-grpc-protocol-" : "", key, header)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the key must have 1 to 100 letters, digits, '-', '_' and '.'");
    }
    if (!is_secret(secret)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the value must be one that a header can carry, and not asterisks alone");
    }
    while (rc == MR_OK && mr_str_split(&names, ',', &name)) {
        rc = restrict_one(r, name, header, secret, err);
    }
    return rc;
}

bool mr_restriction_allows(const struct mr_restriction *r, mr_str given)
{
    size_t different = given.len ^ r->secret.len;

    /* As many steps as the caller sent bytes, whatever they are. */
    for (size_t i = 0; i < given.len; i++) {
        different |=
            (size_t)((unsigned char)given.ptr[i] ^ (unsigned char)r->secret.ptr[i % r->secret.len]);
    }
    return different == 0;
}

/* ---- judging a call ---- */

static void refuse_grpc(struct mr_server *s, struct mr_call *call, int status, mr_str text)
{
    struct mr_grpc_call g;

    if (mr_grpc_begin(&g, call, (int64_t)s->options.grpc_max_message_bytes) == MR_OK) {
        mr_grpc_fail(&g, status, text);
    }
}

static bool refuse_foreign(struct mr_server *s, struct mr_call *call)
{
    bool is_grpc_port = mr_call_listener_tag(call) == LISTEN_GRPC;

    if (is_grpc_port == call->is_grpc) {
        return false;
    }
    if (call->is_grpc) {
        refuse_grpc(s, call, MR_GRPC_PERMISSION_DENIED,
                    MR_STR("APIs are restricted, so this port serves HTTP only (--grpc-port)"));
    } else {
        reply_error_text(call, MR_E_FORBIDDEN,
                         "APIs are restricted, so this port serves gRPC only (--http-port)");
    }
    return true;
}

bool serve_has_restrictions(const struct mr_server *s)
{
    return s->options.http_restricted.is_any || s->options.grpc_restricted.is_any;
}

bool serve_refuse_restricted(struct mr_server *s, struct mr_call *call, enum mr_api api)
{
    const struct mr_restrictions *r =
        call->is_grpc ? &s->options.grpc_restricted : &s->options.http_restricted;
    bool is_metrics = mr_call_listener_tag(call) == LISTEN_METRICS;

    if (is_metrics) {
        r = &s->options.http_restricted; /* whatever is asked there, the answer is the metrics */
    } else if (refuse_foreign(s, call)) {
        return true;
    }
    if (is_metrics) {
        api = MR_API_METRICS;
    }
    if (api == MR_API_COUNT || !r->of[api].header[0] ||
        mr_restriction_allows(&r->of[api], mr_call_header(call, r->of[api].header))) {
        return false;
    }
    if (!call->is_grpc) {
        reply_error_text(call, MR_E_FORBIDDEN, "This API is restricted, expecting header '%s'",
                         r->of[api].header);
        return true;
    }
    char text[MR_RESTRICTION_HEADER_MAX + 64];
    int n = snprintf(text, sizeof text, "This protocol is restricted, expecting header '%s'",
                     r->of[api].header);
    refuse_grpc(s, call, MR_GRPC_UNAVAILABLE, mr_str_n(text, (size_t)n));
    return true;
}

bool serve_guards_changes(const struct mr_server *s)
{
    return (s->mesh || s->options.models.placed) && !s->options.allow_remote_management;
}

bool serve_refuse_remote(struct mr_server *s, struct mr_call *call)
{
    static const char text[] =
        "calls that change models must come over TLS or from the server's own machine "
        "(--allow-remote-management=true: from others without TLS too)";

    if (mr_call_is_private(call)) {
        return false;
    }
    if (call->is_grpc) {
        refuse_grpc(s, call, MR_GRPC_PERMISSION_DENIED, mr_str_c(text));
    } else {
        reply_error_text(call, MR_E_FORBIDDEN, "%s", text);
    }
    return true;
}

static bool is_key_of(const struct mr_restrictions *r, mr_str name)
{
    for (int i = 0; r->is_any && i < MR_API_COUNT; i++) {
        if (r->of[i].header[0] && mr_str_eq_c(name, r->of[i].header)) {
            return true;
        }
    }
    return false;
}

bool serve_is_secret_header(const struct mr_server *s, mr_str lower_name)
{
    return is_key_of(&s->options.http_restricted, lower_name) ||
           is_key_of(&s->options.grpc_restricted, lower_name);
}
