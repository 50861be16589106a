/* grpc.testing.TestService on the gRPC layer of net, for grpc-go's interop client: what that client checks
 * is the layer, not this service. Source: grpc/grpc doc/interop-test-descriptions.md.
 *
 * Every method is taken as a stream: a unary one answers at the end of its input. Metadata of one's own
 * has no place in net/grpc.h; a call that asks for an echo of it is answered through net/http.h.
 *
 * Prints its port on a line of its own; ends at SIGTERM. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "codec/pb.h"
#include "net/grpc.h"
#include "net/http.h"

#define SERVICE     "/grpc.testing.TestService/"
#define MESSAGE_MAX (4 << 20)
#define PAYLOAD_MAX (1 << 20)

enum method { EMPTY_CALL, UNARY_CALL, STREAMING_OUTPUT, STREAMING_INPUT, FULL_DUPLEX, METHODS };

static const char *const paths[METHODS] = {
    SERVICE "EmptyCall",          SERVICE "UnaryCall",      SERVICE "StreamingOutputCall",
    SERVICE "StreamingInputCall", SERVICE "FullDuplexCall",
};

struct rpc {
    struct mr_grpc_call g;
    enum method method;
    int64_t received; /* payload bytes */
    int64_t size;     /* of the unary answer */
    bool wants_server_id;
    int64_t code; /* the status that is asked for */
    mr_str text;
    mr_str echo_initial; /* metadata to send back; ptr NULL: none */
    mr_str echo_trailing;
    bool has_begun; /* with metadata */
    bool is_bad;
};

static const uint8_t zeros[PAYLOAD_MAX];

/* ---- answers ---- */

static void send_message(struct rpc *r, const struct mr_piece *pieces, size_t count)
{
    uint8_t prefix[5] = {0};
    uint32_t bytes = 0;

    if (!r->echo_initial.ptr) {
        mr_grpc_send(&r->g, pieces, count, MR_GRPC_GZIP);
        return;
    }
    if (!r->has_begun) {
        struct mr_header headers[] = {{MR_STR("content-type"), MR_STR("application/grpc")},
                                      {MR_STR("x-grpc-test-echo-initial"), r->echo_initial}};
        mr_call_begin(r->g.call, 200, headers, 2);
        r->has_begun = true;
    }
    for (size_t i = 0; i < count; i++) {
        bytes += (uint32_t)pieces[i].len;
    }
    for (int i = 0; i < 4; i++) {
        prefix[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
    }
    struct mr_piece first = {prefix, sizeof prefix, NULL};
    mr_call_write(r->g.call, &first, 1);
    mr_call_write(r->g.call, pieces, count);
}

static void end(struct rpc *r, int code, mr_str text)
{
    r->g.call->user = NULL;
    if (r->has_begun) {
        struct mr_header trailers[] = {{MR_STR("grpc-status"), MR_STR("0")},
                                       {MR_STR("x-grpc-test-echo-trailing-bin"), r->echo_trailing}};
        mr_call_end(r->g.call, trailers, r->echo_trailing.ptr ? 2 : 1);
        return;
    }
    mr_grpc_finish(&r->g, code, text);
}

/* Field 1 of the answers: a Payload of that many zeros. */
static void send_payload(struct rpc *r, int64_t size)
{
    struct mr_buf *b = mr_loop_scratch(r->g.call->loop);

    mr_buf_reset(b);
    if (r->wants_server_id) {
        mr_pb_put_str(b, 4, MR_STR("millrace"));
    }
    mr_pb_put_len(b, 1, mr_pb_len_size(2, (size_t)size));
    mr_pb_put_len(b, 2, (size_t)size);
    struct mr_piece pieces[2] = {{b->ptr, b->len, NULL}, {zeros, (size_t)size, NULL}};
    send_message(r, pieces, 2);
}

static void answer_at_end(struct rpc *r)
{
    struct mr_buf *b = mr_loop_scratch(r->g.call->loop);

    mr_buf_reset(b);
    if (r->code == 0 && r->method == UNARY_CALL) {
        send_payload(r, r->size);
    } else if (r->code == 0 && (r->method == EMPTY_CALL || r->method == STREAMING_INPUT)) {
        if (r->method == STREAMING_INPUT) {
            mr_pb_put_i64(b, 1, r->received);
        }
        struct mr_piece piece = {b->ptr, b->len, NULL};
        send_message(r, &piece, b->len ? 1 : 0);
    }
    end(r, (int)r->code, r->text);
}

/* ---- requests ---- */

static int64_t varint_of(mr_bytes message, uint32_t number)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        if (f.number == number && f.wire == MR_PB_VARINT) {
            return (int64_t)f.value;
        }
    }
    return 0;
}

static mr_bytes bytes_of(mr_bytes message, uint32_t number)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        if (f.number == number && f.wire == MR_PB_LEN) {
            return f.bytes;
        }
    }
    return (mr_bytes){NULL, 0};
}

static void take_status(struct rpc *r, mr_bytes status)
{
    mr_bytes text = bytes_of(status, 2);

    r->code = varint_of(status, 1);
    r->text = mr_arena_str(r->g.call->arena, mr_str_n((const char *)text.ptr, text.len));
}

static void send_asked(struct rpc *r, mr_bytes message)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        if (f.number != 2 || f.wire != MR_PB_LEN) {
            continue;
        }
        int64_t size = varint_of(f.bytes, 1);
        if (size < 0 || size > PAYLOAD_MAX) {
            r->is_bad = true;
            return;
        }
        send_payload(r, size);
    }
}

static void on_message(void *ctx, mr_bytes message, struct mr_block *block)
{
    struct rpc *r = ctx;
    /* payload and response_status have the same numbers where both are */
    mr_bytes payload = bytes_of(message, r->method == STREAMING_INPUT ? 1 : 3);

    (void)block;
    r->received += (int64_t)bytes_of(payload, 2).len;
    if (r->method == UNARY_CALL) {
        r->size = varint_of(message, 2);
        r->wants_server_id = varint_of(message, 9) != 0;
        r->is_bad = r->size < 0 || r->size > PAYLOAD_MAX;
    }
    if (bytes_of(message, 7).len) {
        take_status(r, bytes_of(message, 7));
    } else if (r->method == STREAMING_OUTPUT || r->method == FULL_DUPLEX) {
        send_asked(r, message);
    }
}

static void on_head(void *ctx, struct mr_call *call)
{
    struct rpc *r = MR_ARENA_NEW(call->arena, struct rpc);

    (void)ctx;
    call->streaming = true;
    if (mr_grpc_begin(&r->g, call, MESSAGE_MAX) < 0) {
        return;
    }
    while (r->method < METHODS && !mr_str_eq_c(call->path, paths[r->method])) {
        r->method++;
    }
    if (r->method == METHODS) {
        mr_grpc_fail(&r->g, MR_GRPC_UNIMPLEMENTED, MR_STR("unknown service or method"));
        return;
    }
    r->echo_initial = mr_call_header(call, "x-grpc-test-echo-initial");
    r->echo_trailing = mr_call_header(call, "x-grpc-test-echo-trailing-bin");
    call->user = r;
}

static void on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last)
{
    struct rpc *r = call->user;
    struct mr_err err;

    (void)ctx;
    if (!r) {
        return;
    }
    int rc = mr_grpc_feed(&r->g, data, on_message, r, &err);
    if (rc < 0) {
        end(r, mr_status_grpc(rc), mr_str_c(err.msg));
    } else if (r->is_bad) {
        end(r, 3, MR_STR("a size is out of range"));
    } else if (last) {
        answer_at_end(r);
    }
}

static void on_cancel(void *ctx, struct mr_call *call)
{
    (void)ctx;
    if (call->user) {
        end(call->user, 1, MR_STR("cancelled"));
    }
}

/* Not reached: every call is a stream. */
static void on_body(void *ctx, struct mr_call *call)
{
    struct mr_reply reply = {.status = 404};

    (void)ctx;
    mr_call_reply(call, &reply);
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    (void)status;
    on_body(ctx, call);
}

/* ---- the program ---- */

static struct mr_loop *loop;
static struct mr_http_server *server;

static void stop_loop(void *ctx)
{
    (void)ctx;
    mr_loop_stop(loop);
}

static void on_term(uv_signal_t *handle, int number)
{
    (void)number;
    mr_loop_resume(loop);
    uv_close((uv_handle_t *)handle, NULL);
    mr_http_server_close(server, stop_loop, NULL);
}

int main(void)
{
    struct mr_http_handler h = {.on_head = on_head,
                                .on_body = on_body,
                                .on_data = on_data,
                                .on_cancel = on_cancel,
                                .on_body_refused = on_body_refused};
    struct mr_http_options o;
    struct mr_err err = {0};
    uv_signal_t term;
    uint16_t port;

    signal(SIGPIPE, SIG_IGN);
    mr_http_options_init(&o);
    if (mr_loop_new(&loop, NULL, &err) < 0 || mr_http_server_new(&server, &o, &h, &err) < 0 ||
        mr_http_listen(server, &loop, 1, "127.0.0.1:0", 1, false, &port, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    uv_signal_init(mr_loop_uv(loop), &term);
    uv_signal_start(&term, on_term, SIGTERM);
    printf("%" PRIu16 "\n", port);
    fflush(stdout);
    mr_loop_run(loop);
    mr_http_server_free(&server);
    mr_loop_free(&loop);
    return 0;
}
