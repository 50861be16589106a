/* Lists the fields of a message that are set, each path once, for reports on what a configuration uses. */
#include "codec/pbtext.h"

#include "base/map.h"
#include "pbmsg.h"

struct walk {
    void (*each)(void *ctx, const char *path, const ProtobufCMessage *owner);
    void *ctx;
    struct mr_map reported; /* paths */
    struct mr_buf path;
};

static void walk_message(struct walk *w, const ProtobufCMessage *m, int depth);

/* The messages in a field; of map entries, the values. */
static void walk_values(struct walk *w, const ProtobufCFieldDescriptor *field, const char *values,
                        size_t count, int depth)
{
    bool is_map = mr_pbmsg_is_map(field);
    for (size_t i = 0; i < count; i++) {
        const ProtobufCMessage *inner = mr_pbmsg_message(values + i * sizeof inner);
        if (is_map && inner) {
            const ProtobufCFieldDescriptor *value = &inner->descriptor->fields[1];
            const void *at;
            size_t present = mr_pbmsg_values(inner, value, &at);
            bool is_message = present && value->type == PROTOBUF_C_TYPE_MESSAGE;
            inner = is_message ? mr_pbmsg_message(at) : NULL;
        }
        if (inner) {
            walk_message(w, inner, depth + 1);
        }
    }
}

static void walk_field(struct walk *w, const ProtobufCMessage *m,
                       const ProtobufCFieldDescriptor *field, int depth)
{
    size_t before = w->path.len;
    mr_buf_c(&w->path, before ? "." : "");
    mr_buf_c(&w->path, field->name);
    const char *path = mr_buf_cstr(&w->path);
    if (!mr_map_find(&w->reported, mr_str_c(path))) {
        mr_map_put(&w->reported, mr_str_c(path), w);
        w->each(w->ctx, path, m);
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const void *first;
        size_t count = mr_pbmsg_values(m, field, &first);
        walk_values(w, field, first, count, depth);
    }
    w->path.len = before;
}

static void walk_message(struct walk *w, const ProtobufCMessage *m, int depth)
{
    const ProtobufCMessageDescriptor *desc = m->descriptor;
    for (unsigned i = 0; depth <= MR_PBMSG_DEPTH_MAX && i < desc->n_fields; i++) {
        if (mr_pbmsg_is_set(m, &desc->fields[i])) {
            walk_field(w, m, &desc->fields[i], depth);
        }
    }
}

void mr_pb_walk_set_fields(const ProtobufCMessage *m,
                           void (*each)(void *ctx, const char *path, const ProtobufCMessage *owner),
                           void *ctx)
{
    struct walk w = {.each = each, .ctx = ctx};
    mr_buf_init(&w.path, 0);
    walk_message(&w, m, 0);
    mr_map_fini(&w.reported);
    mr_buf_fini(&w.path);
}
