/* Calls of the paths below /v2/mesh. */
#include <string.h>

#include "mesh.h"

void mesh_path(struct mr_buf *out, const char *what, const char *id, const char *verb)
{
    MR_BUF_LIT(out, "/v2/mesh");
    if (what) {
        mr_buf_char(out, '/');
        mr_buf_c(out, what);
    }
    if (id) {
        mr_buf_char(out, '/');
        mr_buf_percent(out, mr_str_c(id), "");
    }
    if (verb) {
        mr_buf_char(out, '/');
        mr_buf_c(out, verb);
    }
}

void mesh_path_query(struct mr_buf *out, const char *name, const char *value)
{
    mr_buf_char(out, mr_str_find(mr_buf_view(out), '?') < 0 ? '?' : '&');
    mr_buf_printf(out, "%s=", name);
    mr_buf_percent(out, mr_str_c(value), "");
}

int mesh_ask(struct mesh_run *r, struct mr_buf *path, const ProtobufCMessage *body,
             struct mr_remote_reply *out, struct mr_err *err)
{
    struct mr_buf json;

    mr_buf_init(&json, 0);
    if (body) {
        mr_pbjson_print(body, false, &json);
    }
    int rc = mr_remote_text(&r->remote, mr_buf_cstr(path), body ? &json : NULL, out, err);
    mr_buf_fini(&json);
    return rc;
}

int mesh_read(mr_bytes body, const ProtobufCMessageDescriptor *d, ProtobufCMessage **out,
              struct mr_err *err)
{
    int rc = mr_pbjson_parse(d, mr_str_n((const char *)body.ptr, body.len), out, err);

    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}

static const char *next_of(const ProtobufCMessage *page, bool is_models)
{
    return is_models ? ((const Millrace__MeshModels *)page)->next
                     : ((const Millrace__MeshVModels *)page)->next;
}

int mesh_pages(struct mesh_run *r, bool is_models, const char *prefix,
               int (*each)(void *ctx, const ProtobufCMessage *page, mr_bytes json), void *ctx,
               struct mr_err *err)
{
    const ProtobufCMessageDescriptor *d =
        is_models ? &millrace__mesh_models__descriptor : &millrace__mesh_vmodels__descriptor;
    struct mr_buf path, after;
    int rc;

    mr_buf_init(&path, 8192);
    mr_buf_init(&after, 1024);
    do {
        struct mr_remote_reply reply;
        ProtobufCMessage *page;
        mr_buf_reset(&path);
        mesh_path(&path, is_models ? "models" : "vmodels", NULL, NULL);
        if (*prefix) {
            mesh_path_query(&path, "prefix", prefix);
        }
        if (after.len) {
            mesh_path_query(&path, "after", mr_buf_cstr(&after));
        }
        if ((rc = mesh_ask(r, &path, NULL, &reply, err)) < 0) {
            break;
        }
        rc = mesh_read(reply.body, d, &page, err);
        if (rc == MR_OK) {
            rc = each(ctx, page, reply.body);
            mr_buf_reset(&after);
            mr_buf_c(&after, next_of(page, is_models));
            protobuf_c_message_free_unpacked(page, NULL);
        }
        mr_remote_reply_fini(&reply);
    } while (rc == MR_OK && after.len);
    mr_buf_fini(&after);
    mr_buf_fini(&path);
    return rc;
}
