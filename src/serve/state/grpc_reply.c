/* gRPC: messages of a call unpacked, answers and failures. On network threads. */
#include "grpc_reply.h"

#include <stdio.h>

#include "codec/pb.h"
#include "memory.h"
#include "reply.h"
#include "state.h"

enum mr_grpc_compression grpc_compression(const struct mr_server *s)
{
    return s->options.grpc_compression == MR_SERVE_COMPRESS_NONE ? MR_GRPC_IDENTITY : MR_GRPC_GZIP;
}

void grpc_fail_with(struct mr_grpc_call *g, const struct mr_err *err, struct mr_header *trailers,
                    size_t count)
{
    char ms[12];

    if (err->status == MR_E_EXHAUSTED) { /* as Retry-After over REST */
        int digits = snprintf(ms, sizeof ms, "%u", reply_retry_ms(g->call));
        trailers[count++] =
            (struct mr_header){MR_STR("grpc-retry-pushback-ms"), mr_str_n(ms, (size_t)digits)};
    }
    mr_grpc_finish_with(g, mr_status_grpc(err->status), mr_str_c(err->msg), trailers, count);
}

void grpc_fail_err(struct mr_grpc_call *g, const struct mr_err *err)
{
    struct mr_header hint[1];

    grpc_fail_with(g, err, hint, 0);
}

struct unpack {
    struct mr_arena *arena;
    bool is_full;
};

static void *arena_alloc(void *ctx, size_t bytes)
{
    struct unpack *u = ctx;
    void *p = memory_try(u->arena, bytes);

    u->is_full |= !p;
    return p;
}

static void arena_free(void *ctx, void *ptr)
{
    (void)ctx;
    (void)ptr;
}

/* More than these messages need; a whole MiB of them would hold up the loop. */
#define FIELDS_MAX 10000

/* Why the message is not to be unpacked; NULL: it is. Unpacked strings end at the first NUL, so that a name with one would be taken for another
 * name. */
static const char *refusal(mr_bytes message, const ProtobufCMessageDescriptor *desc,
                           unsigned *io_fields)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        if (++*io_fields > FIELDS_MAX) {
            return "the request has too many fields";
        }
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(desc, f.number);
        if (!field || f.wire != MR_PB_LEN) {
            continue;
        }
        if (field->type == PROTOBUF_C_TYPE_STRING && memchr(f.bytes.ptr, 0, f.bytes.len)) {
            return "a string of the request contains a NUL character";
        }
        /* as deep as the message types, none of which contains itself */
        const char *why = field->type == PROTOBUF_C_TYPE_MESSAGE
                              ? refusal(f.bytes, field->descriptor, io_fields)
                              : NULL;
        if (why) {
            return why;
        }
    }
    return NULL;
}

void *grpc_request(struct mr_grpc_call *g, const ProtobufCMessageDescriptor *desc)
{
    struct unpack u = {.arena = g->call->arena};
    ProtobufCAllocator in_arena = {arena_alloc, arena_free, &u};
    struct mr_err err = {0};
    mr_bytes message;
    void *m;

    if (mr_grpc_message(g, &message, &err) < 0) {
        grpc_fail_err(g, &err);
        return NULL;
    }
    const char *why = refusal(message, desc, &(unsigned){0});
    if (why) {
        mr_grpc_fail(g, MR_GRPC_INVALID_ARGUMENT, mr_str_c(why));
        return NULL;
    }
    m = protobuf_c_message_unpack(desc, &in_arena, message.len, message.ptr);
    if (!m && u.is_full) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the request needs more memory than it may use"));
    } else if (!m) {
        mr_grpc_fail(g, MR_GRPC_INTERNAL,
                     MR_STR("the request is not a valid protobuf message of its type"));
    }
    return m;
}

void grpc_reply_message(struct mr_grpc_call *g, const ProtobufCMessage *m)
{
    struct mr_buf *b = mr_loop_scratch(g->call->loop);
    size_t n = protobuf_c_message_get_packed_size(m);
    char *to;

    mr_buf_reset(b);
    to = mr_buf_reserve(b, n ? n : 1);
    if (!to) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the answer is larger than the server allows"));
        return;
    }
    protobuf_c_message_pack(m, (uint8_t *)to);
    struct mr_piece piece = {to, n, NULL};
    mr_grpc_reply(g, &piece, n ? 1 : 0, MR_GRPC_IDENTITY);
}
