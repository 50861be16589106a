/* Messages to other servers: one small POST each, over connections that are kept. One that does not arrive is lost; the core sees by the
 * silence that something is wrong. */
#include "live.h"

#include <stdio.h>

#include "net/http.h"

#define TIMEOUT_NS 2000000000ll

static struct mr_client *client_of(struct mr_mesh *m, mr_str address)
{
    struct mr_client *c = mr_map_find(&m->clients, address);
    struct mr_client_options o = {.http2 = true, .never_repeat = true, .tls = m->o.tls};
    char text[300];

    if (c || address.len >= sizeof text) {
        return c;
    }
    memcpy(text, address.ptr, address.len);
    text[address.len] = '\0';
    if (mr_client_new(&c, m->loop, text, &o, NULL) < 0) {
        return NULL;
    }
    mr_map_put(&m->clients, address, c);
    return c;
}

static void on_sent(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    (void)ctx;
    (void)rc;
    (void)err;
    (void)response;
}

void live_peers_send(struct mr_mesh *m, const struct mesh_action *a)
{
    struct mr_client *c = client_of(m, a->address);
    struct mr_header from = {MR_STR("mr-mesh-from"), mr_str_c(m->id)};
    struct mr_piece body = {a->bytes.ptr, a->bytes.len, NULL};
    struct mr_client_request q = {.method = "POST",
                                  .path = MR_STR(LIVE_MESSAGE_PATH),
                                  .headers = &from,
                                  .header_count = 1,
                                  .pieces = &body,
                                  .piece_count = 1,
                                  .timeout_ns = TIMEOUT_NS};

    if (c) {
        mr_client_send(c, &q, on_sent, NULL);
    }
}

void live_peers_fini(struct mr_mesh *m)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&m->clients, &i));) {
        struct mr_client *c = slot->value;
        mr_client_free(&c);
    }
    mr_map_fini(&m->clients);
}

bool live_peer_is_gone(void *ctx, mr_str address)
{
    char text[300];

    (void)ctx;
    return (size_t)snprintf(text, sizeof text, "%.*s", MR_STR_ARG(address)) < sizeof text &&
           mr_http_is_unused(text);
}

/* ---- in ---- */

struct message {
    struct mr_mail mail;
    struct mr_mesh *mesh;
    size_t from_len, len;
    char bytes[];
};

static void run_message(struct mr_mail *mail)
{
    struct message *in = MR_CONTAINER_OF(mail, struct message, mail);
    struct mr_mesh *m = in->mesh;

    if (m->registry && !atomic_load(&m->is_stopping)) {
        mesh_core_message(m->core, mr_str_n(in->bytes, in->from_len),
                          (mr_bytes){(const uint8_t *)in->bytes + in->from_len, in->len},
                          live_now(m));
        live_acted(m);
    }
    mr_free(in);
}

void mr_mesh_message(struct mr_mesh *m, mr_str from, mr_bytes bytes)
{
    if (!atomic_load(&m->is_started) || from.len > MESH_INSTANCE_MAX || bytes.len > 65536) {
        return;
    }
    struct message *in = mr_alloc(sizeof *in + from.len + bytes.len);
    in->mail.run = run_message;
    in->mesh = m;
    in->from_len = from.len;
    in->len = bytes.len;
    memcpy(in->bytes, from.len ? from.ptr : "", from.len);
    memcpy(in->bytes + from.len, bytes.len ? (const void *)bytes.ptr : "", bytes.len);
    mr_loop_post(m->loop, &in->mail);
}
