/* Server reflection, v1 and v1alpha (same messages under two names, so one implementation serves both).
 *
 * The descriptors of all .proto files are linked in as one FileDescriptorSet. A request for a file or a symbol is
 * answered with the file and all that it imports, which is what clients ask for one by one otherwise.
 * Field numbers: descriptor.proto (FileDescriptorProto name 1, package 2, dependency 3, message_type 4, enum_type 5,
 * service 6; DescriptorProto name 1, nested_type 3, enum_type 4; ServiceDescriptorProto name 1, method 2). */
#include "codec/pb.h"
#include "methods_priv.h"
#include "mr_descriptor_set.h"
#include "reflection_v1.pb-c.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

#define FILES_MAX   32u
#define NESTING_MAX 16
#define MESSAGE_MAX 65536

struct reflect {
    struct serve_pending pending;
    struct mr_server *server;
    struct mr_grpc_call *g;
    bool no_room; /* for an answer */
};

typedef Grpc__Reflection__V1__ServerReflectionRequest request_msg;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_msg;

/* File `index` of the set; len 0 when there is none. */
static mr_bytes file_at(size_t index)
{
    mr_bytes set = {mr_descriptor_set, mr_descriptor_set_len};
    struct mr_pb_field f;

    while (mr_pb_next(&set, &f) > 0) {
        if (f.number == 1 && index-- == 0) {
            return f.bytes;
        }
    }
    return (mr_bytes){NULL, 0};
}

static mr_str field_text(mr_bytes message, uint32_t number)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        if (f.number == number && f.wire == MR_PB_LEN) {
            return mr_str_n((const char *)f.bytes.ptr, f.bytes.len);
        }
    }
    return MR_STR("");
}

/* Cut "name." or the whole of "name" off the front of *io_symbol. */
static bool take_name(mr_str *io_symbol, mr_str name)
{
    if (!mr_str_starts(*io_symbol, name) || name.len == 0) {
        return false;
    }
    if (io_symbol->len == name.len) {
        *io_symbol = MR_STR("");
        return true;
    }
    if (io_symbol->ptr[name.len] != '.') {
        return false;
    }
    *io_symbol = mr_str_sub(*io_symbol, name.len + 1, io_symbol->len);
    return true;
}

/* Whether the declaration in `message` (or something inside it) has this name, relative to its scope. */
static bool declares(mr_bytes message, mr_str symbol, const uint32_t *inner, size_t inner_count,
                     int depth)
{
    static const uint32_t in_message[] = {3, 4};
    struct mr_pb_field f;

    if (!take_name(&symbol, field_text(message, 1))) {
        return false;
    }
    if (symbol.len == 0) {
        return true;
    }
    if (depth >= NESTING_MAX) {
        return false;
    }
    while (mr_pb_next(&message, &f) > 0) {
        for (size_t i = 0; i < inner_count; i++) {
            if (f.number == inner[i] && f.wire == MR_PB_LEN &&
                declares(f.bytes, symbol, in_message, 2, depth + 1)) {
                return true;
            }
        }
    }
    return false;
}

static bool file_declares(mr_bytes file, mr_str symbol)
{
    static const uint32_t in_message[] = {3, 4}, in_service[] = {2};
    struct mr_pb_field f;
    mr_str package = field_text(file, 2);

    if (package.len && !take_name(&symbol, package)) {
        return false;
    }
    while (mr_pb_next(&file, &f) > 0) {
        if (f.wire != MR_PB_LEN) {
            continue;
        }
        if ((f.number == 4 || f.number == 5) && declares(f.bytes, symbol, in_message, 2, 0)) {
            return true;
        }
        if (f.number == 6 && declares(f.bytes, symbol, in_service, 1, 0)) {
            return true;
        }
    }
    return false;
}

static void add_file(size_t index, bool *wanted)
{
    mr_bytes file = file_at(index);
    struct mr_pb_field f;

    if (index >= FILES_MAX || wanted[index]) {
        return;
    }
    wanted[index] = true;
    while (mr_pb_next(&file, &f) > 0) {
        if (f.number != 3 || f.wire != MR_PB_LEN) {
            continue;
        }
        for (size_t i = 0; i < FILES_MAX && file_at(i).len; i++) {
            if (mr_str_eq(field_text(file_at(i), 1),
                          mr_str_n((const char *)f.bytes.ptr, f.bytes.len))) {
                add_file(i, wanted);
            }
        }
    }
}

static void send(struct reflect *r, response_msg *m)
{
    struct mr_buf *b = mr_loop_scratch(r->g->call->loop);
    size_t n = protobuf_c_message_get_packed_size(&m->base);
    char *to;

    mr_buf_reset(b);
    to = mr_buf_reserve(b, n + 1);
    if (!to) {
        r->no_room = true;
        return;
    }
    protobuf_c_message_pack(&m->base, (uint8_t *)to);
    struct mr_piece piece = {to, n, NULL};
    mr_grpc_send(r->g, &piece, 1, MR_GRPC_IDENTITY);
}

static void send_error(struct reflect *r, response_msg *m, int code, const char *text)
{
    Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    e.error_code = code;
    e.error_message = (char *)(uintptr_t)text;
    m->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    m->error_response = &e;
    send(r, m);
}

static ProtobufCBinaryData binary(mr_bytes b)
{
    return (ProtobufCBinaryData){b.len, (uint8_t *)(uintptr_t)b.ptr};
}

static void send_files(struct reflect *r, response_msg *m, size_t index)
{
    Grpc__Reflection__V1__FileDescriptorResponse fr =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData files[FILES_MAX];
    bool wanted[FILES_MAX] = {false};
    size_t n = 0;

    add_file(index, wanted);
    wanted[index] = false;
    files[n++] = binary(file_at(index)); /* the file asked for first, then what it imports */
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (wanted[i]) {
            files[n++] = binary(file_at(i));
        }
    }
    fr.n_file_descriptor_proto = n;
    fr.file_descriptor_proto = files;
    m->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    m->file_descriptor_response = &fr;
    send(r, m);
}

static void find_file(struct reflect *r, response_msg *m, mr_str text, bool is_symbol)
{
    for (size_t i = 0; i < FILES_MAX && file_at(i).len; i++) {
        mr_bytes file = file_at(i);
        if (is_symbol ? file_declares(file, text) : mr_str_eq(field_text(file, 1), text)) {
            send_files(r, m, i);
            return;
        }
    }
    send_error(r, m, MR_GRPC_NOT_FOUND, is_symbol ? "symbol not found" : "file not found");
}

static void list_services(struct reflect *r, response_msg *m)
{
    static const char *const names[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                        "grpc.reflection.v1.ServerReflection",
                                        "grpc.reflection.v1alpha.ServerReflection",
                                        "mmesh.ModelMesh"}; /* the last one in a mesh */
    enum { COUNT = sizeof names / sizeof *names };
    Grpc__Reflection__V1__ServiceResponse s[COUNT], *list[COUNT];
    Grpc__Reflection__V1__ListServiceResponse l = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

    for (int i = 0; i < COUNT; i++) {
        grpc__reflection__v1__service_response__init(&s[i]);
        s[i].name = (char *)(uintptr_t)names[i];
        list[i] = &s[i];
    }
    l.n_service = r->server->mesh ? COUNT : COUNT - 1;
    l.service = list;
    m->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    m->list_services_response = &l;
    send(r, m);
}

static void answer(struct reflect *r, request_msg *q)
{
    response_msg m = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    m.valid_host = q->host;
    m.original_request = q;
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        find_file(r, &m, mr_str_c(q->file_by_filename), false);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        find_file(r, &m, mr_str_c(q->file_containing_symbol), true);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        list_services(r, &m);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        send_error(r, &m, MR_GRPC_NOT_FOUND, "no extensions are declared");
        break;
    default: send_error(r, &m, MR_GRPC_INVALID_ARGUMENT, "the request asks for nothing"); break;
    }
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct reflect *r = ctx;
    request_msg *q =
        grpc__reflection__v1__server_reflection_request__unpack(NULL, message.len, message.ptr);

    (void)block;
    if (!q) {
        response_msg m = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        send_error(r, &m, MR_GRPC_INVALID_ARGUMENT, "not a ServerReflectionRequest");
        return;
    }
    answer(r, q);
    grpc__reflection__v1__server_reflection_request__free_unpacked(q, NULL);
}

static void finish(struct reflect *r, int status, mr_str text)
{
    serve_closed(&r->pending);
    r->g->call->user = NULL;
    mr_grpc_finish(r->g, status, text);
}

static void on_data(struct serve_pending *p, mr_bytes data, bool last)
{
    struct reflect *r = MR_CONTAINER_OF(p, struct reflect, pending);
    struct mr_err err = {0};
    int rc = mr_grpc_feed(r->g, data, on_message, r, &err);

    if (rc < 0) {
        finish(r, mr_status_grpc(rc), mr_str_c(err.msg));
    } else if (r->no_room) {
        finish(r, MR_GRPC_RESOURCE_EXHAUSTED, MR_STR("out of memory"));
    } else if (last) {
        finish(r, MR_GRPC_OK, MR_STR(""));
    }
}

static void on_cancel(struct serve_pending *p)
{
    finish(MR_CONTAINER_OF(p, struct reflect, pending), MR_GRPC_CANCELLED, MR_STR("cancelled"));
}

static void on_changed(struct serve_pending *p)
{
    struct reflect *r = MR_CONTAINER_OF(p, struct reflect, pending);

    if (serve_is_exiting(r->server)) {
        finish(r, MR_GRPC_UNAVAILABLE, MR_STR("the server is exiting"));
    }
}

void grpc_reflect(struct mr_server *s, struct mr_grpc_call *g)
{
    struct reflect *r = MR_ARENA_NEW(g->call->arena, struct reflect);

    if (!r) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the call needs more memory than it may use"));
        return;
    }
    r->server = s;
    r->g = g;
    g->max_message_bytes = MR_MIN(g->max_message_bytes, MESSAGE_MAX); /* names: unpacked at once */
    r->pending.data = on_data;
    r->pending.cancel = on_cancel;
    r->pending.changed = on_changed;
    serve_open(&r->pending);
    g->call->user = &r->pending;
    on_changed(&r->pending);
}
