/* Requests of web pages. A browser lets any page send requests to any address that the browser's machine reaches,
 * loopback included: the page cannot read the answer, but a POST takes effect. And a page whose owner points its name
 * to 127.0.0.1 (DNS rebinding) has the same origin as a server there, and can also read.
 *
 * Two headers that pages cannot choose identify such requests. `Origin` names the page: one other than the server's
 * own (the Host of the same request) is refused unless an option allows it. `Host` is the name in the browser's URL:
 * on a loopback listener one that is neither an address nor a known name is refused. An address is always accepted,
 * as no name service is involved.
 *
 * Allowed origins get the headers of the CORS protocol (WHATWG Fetch), and preflights are answered here, before a
 * handler could require keys, which browsers do not send with them.
 *
 * Thread: loop. Credentials of browsers (cookies, client certificates) are never requested. */
#include "origin.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "base/log.h"
#include "call.h"
#include "net/grpc.h"
#include "server.h"

#define ECHO_MAX          ((size_t)100)
#define ENHANCE_YOUR_CALM 11 /* of HTTP/2 */

/* ---- texts ---------------------------------------------------------------------------------- */

static bool is_digits(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
    }
    return true;
}

/* host[:port], [v6][:port]; *out_port -1 = none. An IPv6 address without brackets is all host. */
static bool split_authority(mr_str text, mr_str *out_host, int32_t *out_port)
{
    const char *end = text.len && text.ptr[0] == '[' ? memchr(text.ptr, ']', text.len) : NULL;
    size_t at = end ? (size_t)(end - text.ptr) + 1 : 0;
    uint64_t port = 0;

    while (!end && at < text.len && text.ptr[at] != ':') {
        at++;
    }
    mr_str rest = mr_str_sub(text, at + 1, text.len);
    *out_host = mr_str_sub(text, 0, at);
    *out_port = -1;
    if (at == text.len) {
        return true;
    }
    if (text.ptr[at] != ':' || !is_digits(rest)) {
        *out_host = text;
        return !end && memchr(rest.ptr, ':', rest.len);
    }
    if (rest.len > 0) {
        if (rest.len > 5 || !mr_str_to_u64(rest, &port) || port > 65535) {
            return false;
        }
        *out_port = (int32_t)port;
    }
    return true;
}

static int32_t usual_port(mr_str scheme)
{
    return mr_str_ieq(scheme, MR_STR("https")) ? 443 : mr_str_ieq(scheme, MR_STR("http")) ? 80 : -1;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

static bool is_name(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (!is_name_char(s.ptr[i])) {
            return false;
        }
    }
    return s.len > 0;
}

bool mr_http_is_address(mr_str host)
{
    char text[INET6_ADDRSTRLEN];
    struct in6_addr to;
    bool has_brackets = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    mr_str s = has_brackets ? mr_str_sub(host, 1, host.len - 1) : host;
    ptrdiff_t zone = mr_str_find(s, '%');

    s = zone > 0 ? mr_str_sub(s, 0, (size_t)zone) : s;
    if (s.len == 0 || s.len >= sizeof text) {
        return false;
    }
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    return (!has_brackets && inet_pton(AF_INET, text, &to) == 1) ||
           inet_pton(AF_INET6, text, &to) == 1;
}

bool mr_origin_parse(mr_str text, struct mr_origin *out)
{
    ptrdiff_t at = mr_str_find_str(text, MR_STR("://"));
    struct mr_origin o = {0};

    if (at <= 0) {
        return false;
    }
    o.scheme = mr_str_sub(text, 0, (size_t)at);
    for (size_t i = 0; i < o.scheme.len; i++) {
        if (!is_name_char(o.scheme.ptr[i]) && o.scheme.ptr[i] != '+') {
            return false;
        }
    }
    if (!split_authority(mr_str_sub(text, (size_t)at + 3, text.len), &o.host, &o.port) ||
        (!is_name(o.host) && !mr_http_is_address(o.host))) {
        return false;
    }
    o.port = o.port < 0 ? usual_port(o.scheme) : o.port;
    *out = o;
    return true;
}

bool mr_origin_is_own_host(mr_str text, const char *const *names, size_t count)
{
    mr_str host;
    int32_t port;

    if (!split_authority(text, &host, &port)) {
        return false;
    }
    if (host.len == 0 || mr_http_is_address(host)) {
        return port < 0 || host.len > 0;
    }
    host.len -= host.ptr[host.len - 1] == '.';
    if (mr_str_ieq(host, MR_STR("localhost"))) {
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        if (mr_str_ieq(host, mr_str_c(names[i]))) {
            return true;
        }
    }
    return false;
}

/* ---- options -------------------------------------------------------------------------------- */

int mr_http_check_host(mr_str name, struct mr_err *err)
{
    if (mr_str_eq(name, MR_STR("*")) || is_name(name)) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "'%.*s' is not the name of a host: expected one as in models.example.org, "
                   "without scheme and port, or *",
                   MR_STR_ARG(mr_str_sub(name, 0, ECHO_MAX)));
}

int mr_http_check_origin(mr_str text, struct mr_err *err)
{
    struct mr_origin o;

    if (mr_str_eq(text, MR_STR("*")) || mr_str_eq(text, MR_STR("null")) ||
        mr_origin_parse(text, &o)) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "'%.*s' is not the origin of a page: expected scheme://host[:port] as in "
                   "https://app.example.org, without a path, or null, or *",
                   MR_STR_ARG(mr_str_sub(text, 0, ECHO_MAX)));
}

int mr_origin_rules_init(struct mr_origin_rules *out, const struct mr_http_options *o,
                         struct mr_err *err)
{
    struct mr_origin_rules r = {0};
    int rc = MR_OK;

    for (size_t i = 0; i < o->allowed_host_count; i++) {
        mr_str name = mr_str_c(o->allowed_hosts[i]);
        MR_TRY(mr_http_check_host(name, err));
        r.any_host = r.any_host || mr_str_eq(name, MR_STR("*"));
    }
    r.origins = MR_NEW_ARRAY(struct mr_origin, o->allowed_origin_count + 1);
    for (size_t i = 0; i < o->allowed_origin_count; i++) {
        mr_str text = mr_str_c(o->allowed_origins[i]);
        MR_TRY(mr_http_check_origin(text, err));
        r.any_origin = r.any_origin || mr_str_eq(text, MR_STR("*"));
        r.null_origin = r.null_origin || mr_str_eq(text, MR_STR("null"));
        r.origin_count += mr_origin_parse(text, &r.origins[r.origin_count]);
    }
    *out = r;
    return MR_OK;
out:
    mr_origin_rules_fini(&r);
    return rc;
}

void mr_origin_rules_fini(struct mr_origin_rules *rules)
{
    mr_freep(&rules->origins);
}

/* ---- checking a call ------------------------------------------------------------------------- */

/* The relevant headers of a call. */
struct asker {
    mr_str host;   /* ptr NULL: none */
    mr_str origin; /* the same */
    bool is_doubtful;
};

/* A repeated equal value is allowed. */
static void take(struct asker *a, mr_str *to, mr_str value)
{
    a->is_doubtful = a->is_doubtful || (to->ptr && !mr_str_eq(*to, value));
    *to = value;
}

static struct asker asker_of(const struct mr_call *call)
{
    struct asker a = {0};

    for (size_t i = 0; i < call->header_count; i++) {
        const struct mr_header *h = &call->headers[i];
        if (h->name.len == 4 && memcmp(h->name.ptr, "host", 4) == 0) {
            take(&a, &a.host, h->value);
        } else if (h->name.len == 6 && memcmp(h->name.ptr, "origin", 6) == 0) {
            take(&a, &a.origin, h->value);
        }
    }
    return a;
}

/* `what` comes from outside: it is put into the answer only if it needs no escape. */
static void refuse(struct mr_call_impl *call, const char *before, mr_str what, const char *after)
{
    char text[512];
    char shown[ECHO_MAX];
    size_t n = MR_MIN(what.len, ECHO_MAX);
    struct mr_grpc_call g;

    for (size_t i = 0; i < n; i++) {
        shown[i] =
            (char)(is_name_char(what.ptr[i]) || strchr(":/[]", what.ptr[i]) ? what.ptr[i] : '?');
    }
    mr_log(MR_LOG_WARN, "request.foreign", "peer=%s %s'%.*s'%s", mr_conn_peer(call->conn), before,
           (int)n, shown, after);
    if (call->pub.is_grpc) {
        int len = snprintf(text, sizeof text, "%s'%.*s'%s", before, (int)n, shown, after);
        if (mr_grpc_begin(&g, &call->pub, 0) == MR_OK) {
            mr_grpc_fail(&g, MR_GRPC_PERMISSION_DENIED, mr_str_n(text, (size_t)len));
        }
        return;
    }
    int len =
        snprintf(text, sizeof text, "{\"error\":\"%s'%.*s'%s\"}", before, (int)n, shown, after);
    struct mr_header type = {MR_STR("content-type"), MR_STR("application/json")};
    struct mr_piece piece = {.ptr = text, .len = (size_t)len};
    struct mr_reply reply = {
        .status = 403, .headers = &type, .header_count = 1, .pieces = &piece, .piece_count = 1};
    mr_call_reply(&call->pub, &reply);
}

static bool is_host_good(const struct mr_conn *c, mr_str host)
{
    const struct mr_http_options *o = c->part->options;
    const struct mr_origin_rules *r = &c->part->server->origins;
    struct mr_good_host *last = &c->part->good_host;

    if (!host.ptr || c->over_unix || r->any_host ||
        (!c->on_loopback && o->allowed_host_count == 0) ||
        (mr_conn_is_relay(c) && c->transport == &mr_transport_tls)) {
        return true;
    }
    if (mr_str_eq(host, mr_str_n(last->text, last->len))) {
        return true;
    }
    if (!mr_origin_is_own_host(host, o->allowed_hosts, o->allowed_host_count)) {
        return false;
    }
    if (host.len <= sizeof last->text) {
        last->len = host.len;
        memcpy(last->text, host.ptr, host.len);
    }
    return true;
}

/* True if the page came from the request's own host. The scheme is not compared, as a proxy may change it. */
static bool is_same_origin(const struct mr_conn *c, const struct mr_origin *o, mr_str host)
{
    bool is_https = mr_str_ieq(o->scheme, MR_STR("https"));
    bool is_http = mr_str_ieq(o->scheme, MR_STR("http"));
    mr_str name;
    int32_t port;

    if (!(is_https || (is_http && c->transport != &mr_transport_tls)) ||
        !split_authority(host, &name, &port)) {
        return false;
    }
    return mr_str_ieq(name, o->host) && (port < 0 ? usual_port(o->scheme) : port) == o->port;
}

static bool is_allowed_origin(const struct mr_origin_rules *r, const struct mr_origin *o)
{
    for (size_t i = 0; i < r->origin_count; i++) {
        const struct mr_origin *a = &r->origins[i];
        if (a->port == o->port && mr_str_ieq(a->host, o->host) &&
            mr_str_ieq(a->scheme, o->scheme)) {
            return true;
        }
    }
    return false;
}

/* ---- CORS ----------------------------------------------------------------------------------- */

static const struct mr_header vary_origin = {MR_STR_INIT("vary"), MR_STR_INIT("Origin")};

static mr_str allow_value(const struct mr_origin_rules *r, mr_str origin)
{
    return r->any_origin ? MR_STR("*") : origin;
}

/* Answers a preflight, which a browser sends before a request that no form could make. An allowed origin may send any
 * header, so the requested ones are granted. */
static void answer_preflight(struct mr_call_impl *call, mr_str origin)
{
    const struct mr_origin_rules *r = &call->conn->part->server->origins;
    mr_str wanted = mr_call_header(&call->pub, "access-control-request-headers");
    mr_str private_net = mr_call_header(&call->pub, "access-control-request-private-network");
    struct mr_header headers[7] = {
        {MR_STR("access-control-allow-origin"), allow_value(r, origin)},
        {MR_STR("access-control-allow-methods"), MR_STR("GET, HEAD, POST")},
        {MR_STR("access-control-allow-headers"),
         MR_STR("Content-Type, Content-Encoding, Inference-Header-Content-Length")},
        {MR_STR("access-control-max-age"), MR_STR("600")},
        {MR_STR("vary"), MR_STR("Origin, Access-Control-Request-Method, "
                                "Access-Control-Request-Headers")},
    };
    size_t n = 5;

    if (wanted.len > 0) {
        headers[n++] = (struct mr_header){headers[2].name, wanted};
    }
    if (mr_str_ieq(private_net, MR_STR("true"))) {
        headers[n++] =
            (struct mr_header){MR_STR("access-control-allow-private-network"), private_net};
    }
    struct mr_reply reply = {.status = 204, .headers = headers, .header_count = n};
    mr_call_reply(&call->pub, &reply);
}

/* False: no memory. */
static bool add_cors_headers(struct mr_call_impl *call, mr_str origin)
{
    const struct mr_origin_rules *r = &call->conn->part->server->origins;
    struct mr_header *h = MR_ARENA_ARRAY(&call->arena, struct mr_header, 3);

    if (!h) {
        return false;
    }
    h[0] = (struct mr_header){MR_STR("access-control-allow-origin"), allow_value(r, origin)};
    h[1] = (struct mr_header){MR_STR("access-control-expose-headers"),
                              MR_STR("Inference-Header-Content-Length, Retry-After")};
    h[2] = vary_origin;
    call->own_headers = h;
    call->own_header_count = 3;
    return true;
}

/* Handles a page of another, allowed origin. True: answered. */
static bool serve_page(struct mr_call_impl *call, mr_str origin)
{
    if (mr_str_eq(call->pub.method, MR_STR("OPTIONS")) &&
        mr_call_header(&call->pub, "access-control-request-method").ptr) {
        answer_preflight(call, origin);
        return true;
    }
    if (!add_cors_headers(call, origin)) {
        mr_call_abort(&call->pub, ENHANCE_YOUR_CALM);
        return true;
    }
    return false;
}

bool mr_origin_judge(struct mr_call_impl *call)
{
    struct mr_conn *c = call->conn;
    const struct mr_http_options *o = c->part->options;
    const struct mr_origin_rules *r = &c->part->server->origins;
    struct asker a = asker_of(&call->pub);
    struct mr_origin from;

    if (o->allowed_origin_count > 0 && !call->pub.is_grpc) {
        call->own_headers = &vary_origin; /* a cache must not give one page's answer to another */
        call->own_header_count = 1;
    }
    if (a.is_doubtful) {
        refuse(call, "a Host or an Origin beside ", a.host, " contradicts it");
        return true;
    }
    if (!is_host_good(c, a.host)) {
        refuse(call, "the Host ", a.host,
               " is neither an address nor localhost nor a name of this server (--allowed-host of "
               "millrace serve)");
        return true;
    }
    if (!a.origin.ptr) {
        return false;
    }
    bool is_known = mr_origin_parse(a.origin, &from);
    if (is_known && is_same_origin(c, &from, a.host)) {
        return false;
    }
    if (r->any_origin || (is_known && is_allowed_origin(r, &from)) ||
        (r->null_origin && mr_str_eq(a.origin, MR_STR("null")))) {
        return serve_page(call, a.origin);
    }
    refuse(
        call, "web pages of the origin ", a.origin,
        " may not use this server (--allowed-origin of millrace serve; a proxy in between has to "
        "pass the Host header on)");
    return true;
}
