/* getaddrinfo on libuv's threads. */
#include "net/resolve.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "base/mem.h"
#include "base/vec.h"
#include "loop_priv.h"

struct mr_lookup {
    uv_getaddrinfo_t req;
    struct mr_loop *loop;
    mr_resolve_fn *done; /* NULL: cancelled */
    void *ctx;
    char name[256];
    char port[8];
};

static char *address_text(const struct addrinfo *a, const char *port)
{
    char text[80];
    char ip[64];

    if (uv_ip_name(a->ai_addr, ip, sizeof ip) < 0) {
        return NULL;
    }
    const int n = a->ai_family == AF_INET6 ? snprintf(text, sizeof text, "[%s]:%s", ip, port)
                                           : snprintf(text, sizeof text, "%s:%s", ip, port);
    return mr_strndup(text, (size_t)n);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *addresses)
{
    struct mr_lookup *r = req->data;
    MR_VEC(char *) list = {0};
    struct mr_err err = {0};
    int rc = MR_OK;

    mr_loop_resume(r->loop);
    for (const struct addrinfo *a = addresses; a && status >= 0; a = a->ai_next) {
        char *text = address_text(a, r->port);
        for (size_t i = 0; i < list.len && text; i++) {
            if (strcmp(list.at[i], text) == 0) {
                mr_freep(&text);
            }
        }
        if (text) {
            MR_VEC_PUSH(&list, text);
        }
    }
    if (list.len == 0) {
        rc = MR_FAIL(&err, MR_E_UNAVAILABLE, "cannot look up %s: %s", r->name,
                     status < 0 ? uv_strerror(status) : "it has no address");
    }
    if (r->done) {
        r->done(r->ctx, rc, &err, (const char *const *)list.at, list.len);
    }
    for (size_t i = 0; i < list.len; i++) {
        mr_free(list.at[i]);
    }
    MR_VEC_FINI(&list);
    uv_freeaddrinfo(addresses);
    r->loop->open_handles--;
    mr_free(r);
}

int mr_resolve_start(struct mr_lookup **out, struct mr_loop *loop, const char *name,
                     const char *port, mr_resolve_fn *done, void *ctx, struct mr_err *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct mr_lookup *r = MR_NEW(struct mr_lookup);

    *r = (struct mr_lookup){.loop = loop, .done = done, .ctx = ctx};
    r->req.data = r;
    const int n = snprintf(r->name, sizeof r->name, "%s", name);
    const int m = snprintf(r->port, sizeof r->port, "%s", port);
    if (n <= 0 || (size_t)n >= sizeof r->name || m <= 0 || (size_t)m >= sizeof r->port ||
        uv_getaddrinfo(mr_loop_uv(loop), &r->req, on_resolved, r->name, r->port, &hints) < 0) {
        mr_free(r);
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is no name that can be looked up", name);
    }
    loop->open_handles++;
    *out = r;
    return MR_OK;
}

void mr_resolve_cancel(struct mr_lookup **r)
{
    if (*r) {
        (*r)->done = NULL;
        uv_cancel((uv_req_t *)&(*r)->req); /* if it has not started; otherwise it ends by itself */
        *r = NULL;
    }
}
