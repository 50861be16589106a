/* The headers that a client sends with each of its requests: "Name: value" lines, read once when the client is made.
 *
 * They go before the headers of a request and replace those of the same name, so that a caller's words win over what
 * a command sends by itself; or they are replaced by those, where requests are the caller's as well (headers_are_defaults).
 * What frames a message or a gRPC call is not theirs to say. */
#include "client_priv.h"

#define HEADERS_MAX 64
#define VALUE_MAX   8192

static const char *const reserved[] = {"content-length",
                                       "transfer-encoding",
                                       "connection",
                                       "keep-alive",
                                       "proxy-connection",
                                       "upgrade",
                                       "te",
                                       "trailer",
                                       "expect",
                                       "user-agent",
                                       "content-encoding",
                                       "accept-encoding",
                                       "grpc-timeout",
                                       "grpc-encoding",
                                       "inference-header-content-length"};

static bool is_token(mr_str s)
{
    static const char chars[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";

    for (size_t i = 0; i < s.len; i++) {
        if (!memchr(chars, s.ptr[i], sizeof chars - 1)) {
            return false;
        }
    }
    return s.len > 0;
}

static bool is_value(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((s.ptr[i] < ' ' || s.ptr[i] > '~') && s.ptr[i] != '\t') {
            return false;
        }
    }
    return s.len <= VALUE_MAX;
}

/* The value is left out of the errors: it may be a secret. */
int mr_client_header_read(char *text, struct mr_header *out, struct mr_err *err)
{
    const mr_str line = mr_str_c(text);
    const ptrdiff_t colon = mr_str_find(line, ':');
    const mr_str name = mr_str_trim(mr_str_sub(line, 0, colon < 0 ? 0 : (size_t)colon));

    for (char *c = text; c < text + (colon < 0 ? 0 : colon); c++) {
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    }
    if (!is_token(name)) {
        return MR_FAIL(err, MR_E_INVALID, "expected 'Name: value', but the header has no %s",
                       colon < 0 ? "colon" : "valid name before its colon");
    }
    *out = (struct mr_header){name, mr_str_trim(mr_str_sub(line, (size_t)colon + 1, line.len))};
    if (!is_value(out->value)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "header '%.*s': a value is printable ASCII, at most %d bytes",
                       MR_STR_ARG(name), VALUE_MAX);
    }
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (mr_str_eq_c(name, reserved[i])) {
            return MR_FAIL(err, MR_E_INVALID, "header '%s' cannot be set: the client sets it",
                           reserved[i]);
        }
    }
    return MR_OK;
}

int mr_client_header_check(mr_str line, struct mr_err *err)
{
    char *copy = mr_strndup(line.ptr, line.len);
    struct mr_header ignored;
    const int rc = mr_client_header_read(copy, &ignored, err);

    mr_free(copy);
    return rc;
}

int mr_client_headers_read(struct mr_client *c, struct mr_err *err)
{
    const size_t count = c->options.header_count;
    int rc = MR_OK;

    if (count > HEADERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%zu headers are given, of at most %d", count,
                       HEADERS_MAX);
    }
    c->headers = MR_NEW_ARRAY(struct mr_header, count + 1);
    c->header_lines = MR_NEW_ARRAY(char *, count + 1);
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        const char *line = c->options.headers[i];
        c->header_lines[i] = mr_strndup(line, strlen(line));
        c->header_count++;
        rc = mr_client_header_read(c->header_lines[i], &c->headers[i], err);
    }
    return rc;
}

void mr_client_headers_fini(struct mr_client *c)
{
    for (size_t i = 0; i < c->header_count; i++) {
        mr_free(c->header_lines[i]);
    }
    mr_free(c->header_lines);
    mr_free(c->headers);
}
