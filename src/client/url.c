#include "client/url.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    bool is_grpc;
    bool is_tls;
} schemes[] = {{"http://", false, false},
               {"https://", false, true},
               {"grpc://", true, false},
               {"grpcs://", true, true}};

const char *mr_url_scheme(const char *text, struct mr_url *out)
{
    *out = (struct mr_url){0};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t len = strlen(schemes[i].text);
        if (strncmp(text, schemes[i].text, len) == 0) {
            out->has_scheme = true;
            out->is_grpc = schemes[i].is_grpc;
            out->is_tls = schemes[i].is_tls;
            return text + len;
        }
    }
    return text;
}

int mr_url_parse(const char *text, struct mr_url *out, struct mr_err *err)
{
    const char *rest = mr_url_scheme(text, out);
    const bool is_unix = strncmp(rest, "unix:", 5) == 0;
    const size_t host = is_unix ? strlen(rest) : strcspn(rest, "/");
    size_t path = strlen(rest + host);

    if (strstr(rest, "://")) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.100s': http://, https://, grpc:// and grpcs:// are the known schemes",
                       text);
    }
    path -= path > 0 && rest[host + path - 1] == '/';
    if (host == 0 || host >= sizeof out->address || path >= sizeof out->path ||
        (!is_unix && strpbrk(rest, "?# "))) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", text);
    }
    memcpy(out->address, rest, host);
    memcpy(out->path, rest + host, path);
    /* An IPv6 address in brackets has colons of its own. */
    const char *bracket = strrchr(out->address, ']');
    out->has_port = is_unix || strchr(bracket ? bracket : out->address, ':');
    return MR_OK;
}

int mr_url_default_port(struct mr_url *url, int port, struct mr_err *err)
{
    const size_t len = strlen(url->address);

    if (url->has_port) {
        return MR_OK;
    }
    const int n = snprintf(url->address + len, sizeof url->address - len, ":%d", port);
    if (n < 0 || (size_t)n >= sizeof url->address - len) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", url->address);
    }
    url->has_port = true;
    return MR_OK;
}
