/* The transport alone: a server that answers every POST with a constant, for comparison with nginx
 * and nghttpd on the same machine, and for counting system calls and allocations.
 *
 *   cmake --build build/release --target bench_net_echo
 *   build/release/bench/bench_net_echo [ADDRESS]
 *
 * ADDRESS is 127.0.0.1:8000 if not given. One loop; ends on SIGTERM or SIGINT.
 *
 * POST /echo gives the body back, other paths a constant JSON of 157 bytes; a gRPC call gets its
 * own message back. It says of itself that it is a runtime (mmesh.ModelRuntime) with room for 256
 * models, so that servers of a mesh can be measured over it. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "net/grpc.h"

static const char answer[] =
    "{\"model_name\":\"simple\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"OUTPUT0\","
    "\"datatype\":\"INT32\",\"shape\":[1,16],\"data\":[2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}]}";

/* READY; 256 MiB; 4 loads at a time, of 16 s at most; a model has 1 MiB */
static const uint8_t runtime_status[] = {
    1 << 3, 1,                         /* status */
    2 << 3, 0x80, 0x80, 0x80, 0x80, 1, /* capacityInBytes */
    3 << 3, 4,                         /* maxLoadingConcurrency */
    4 << 3, 0x80, 0x7d,                /* modelLoadingTimeoutMs */
    5 << 3, 0x80, 0x80, 0x40,          /* defaultModelSizeInBytes */
};

static struct mr_loop *loop;

static void on_head(void *ctx, struct mr_call *call)
{
    (void)ctx;
    call->body_limit = INT64_C(256) * 1024 * 1024;
}

static void answer_grpc(struct mr_call *call)
{
    struct mr_grpc_call g;
    mr_bytes message = {0};
    struct mr_err err;

    if (mr_grpc_begin(&g, call, call->body_limit) < 0) {
        return;
    }
    int rc = mr_grpc_message(&g, &message, &err);
    if (rc < 0) {
        mr_grpc_fail(&g, mr_status_grpc(rc), mr_str_c(err.msg));
        return;
    }
    struct mr_piece piece = {message.ptr, message.len, NULL};
    if (mr_str_eq_c(call->path, "/mmesh.ModelRuntime/runtimeStatus")) {
        piece = (struct mr_piece){runtime_status, sizeof runtime_status, NULL};
    } else if (call->body_block) {
        piece.block = mr_block_ref(call->body_block);
    }
    mr_grpc_reply(&g, &piece, 1, MR_GRPC_IDENTITY);
}

static void on_body(void *ctx, struct mr_call *call)
{
    static const struct mr_header type = {MR_STR_INIT("content-type"),
                                          MR_STR_INIT("application/json")};
    struct mr_piece piece = {answer, sizeof answer - 1, NULL};

    (void)ctx;
    if (call->is_grpc) {
        answer_grpc(call);
        return;
    }
    if (mr_str_eq_c(call->path, "/echo")) {
        piece = (struct mr_piece){call->body.ptr, call->body.len, NULL};
        if (call->body_block) {
            piece.block = mr_block_ref(call->body_block);
        }
    }
    struct mr_reply reply = {
        .status = 200, .headers = &type, .header_count = 1, .pieces = &piece, .piece_count = 1};
    mr_call_reply(call, &reply);
}

static void on_body_refused(void *ctx, struct mr_call *call, int status)
{
    struct mr_reply reply = {.status = status == MR_E_TOO_LARGE ? 413 : 503};

    (void)ctx;
    mr_call_reply(call, &reply);
}

static void on_signal(int number)
{
    (void)number;
    mr_loop_stop(loop); /* an atomic store and a write to an eventfd */
}

static void on_closed(void *ctx)
{
    (void)ctx;
    mr_loop_stop(loop);
}

int main(int argc, char **argv)
{
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:8000";
    struct mr_http_options options;
    struct mr_http_handler handler = {
        .on_head = on_head, .on_body = on_body, .on_body_refused = on_body_refused};
    struct mr_http_server *server;
    struct mr_err err;
    uint16_t port = 0;

    mr_http_options_init(&options);
    if (mr_loop_new(&loop, NULL, &err) < 0 ||
        mr_http_server_new(&server, &options, &handler, &err) < 0 ||
        mr_http_listen(server, &loop, 1, address, 0, false, &port, &err) < 0) {
        fprintf(stderr, "net_echo: %s\n", err.msg);
        return 1;
    }
    printf("listening on %s (port %u)\n", address, port);
    fflush(stdout);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    mr_loop_run(loop);
    mr_http_server_close(server, on_closed, NULL);
    mr_loop_run(loop);
    mr_http_server_free(&server);
    mr_loop_free(&loop);
    return 0;
}
