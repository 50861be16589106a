/* The HTTP client of net against a server that sends anything: HTTP/1.1, HTTP/2 and gRPC answers over a
 * Unix socket in this process, cut as the first bytes of the input say. Every call ends exactly once.
 *
 *   byte 0   bit 0: HTTP/2; bit 1: gRPC (with HTTP/2) or HEAD; bit 2: three calls instead of one; bit 3:
 *            each connection gets the input from its beginning; bit 4: HTTP/2 begins with SETTINGS
 *   byte 1   how input is cut: 0 = at once, else pieces of that many bytes */
#include "fuzz.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/pool.h"
#include "net/client/client_priv.h"
#include "net/loop/loop_priv.h"

#define CALLS_MAX  3
#define ROUNDS_MAX 400
#define ANSWER_MAX 20000

static struct {
    struct mr_loop *loop;
    int listener;
    char address[sizeof "unix:" + sizeof((struct sockaddr_un *)NULL)->sun_path];
    /* of the run */
    int calls_open;
    int peer; /* our end of the client's connection, or -1 */
    const uint8_t *input;
    size_t size;
    size_t at;
} f = {.listener = -1};

static void clean_up(void)
{
    unlink(f.address + 5);
    *strrchr(f.address, '/') = '\0';
    rmdir(f.address + 5);
}

static void set_up(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/millrace-fuzz-XXXXXX";

    signal(SIGPIPE, SIG_IGN);
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(a.sun_path, sizeof a.sun_path, "%s/s", folder);
    snprintf(f.address, sizeof f.address, "unix:%s", a.sun_path);
    f.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    REQUIRE(f.listener >= 0 && bind(f.listener, (struct sockaddr *)&a, sizeof a) == 0 &&
            listen(f.listener, 16) == 0);
    atexit(clean_up);
    REQUIRE(mr_loop_new(&f.loop, NULL, NULL) == MR_OK);
}

static void on_done(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    bool *ended = ctx;
    volatile uint8_t sink = 0;

    REQUIRE(!*ended && (rc < 0 || response));
    *ended = true;
    f.calls_open--;
    REQUIRE(rc == MR_OK || (err->status == rc && err->msg[0]));
    if (response) {
        REQUIRE(response->status >= 100 && response->body.len <= ANSWER_MAX);
        for (size_t i = 0; i < response->body.len; i++) {
            sink = sink ^ response->body.ptr[i];
        }
        for (size_t i = 0; i < response->header_count; i++) {
            REQUIRE(mr_client_is_clean(response->headers[i].value));
        }
    }
}

static void iterate(void)
{
    char sink[4096];

    uv_run(mr_loop_uv(f.loop), UV_RUN_NOWAIT);
    if (f.peer >= 0) {
        ssize_t n = recv(f.peer, sink, sizeof sink, MSG_DONTWAIT);
        if (n == 0) {
            close(f.peer);
            f.peer = -1;
        }
    }
}

/* One step of the server: accept a connection, send the next piece, close it at the end. */
static void serve(uint8_t flags, size_t step)
{
    static const uint8_t settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};

    if (f.peer < 0) {
        f.peer = accept4(f.listener, NULL, NULL, SOCK_CLOEXEC);
        if (f.peer < 0) {
            return;
        }
        f.at = flags & 8 ? 0 : f.at;
        if ((flags & 17) == 17) {
            (void)send(f.peer, settings, sizeof settings, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    size_t n = MR_MIN(step ? step : SIZE_MAX, f.size - f.at);
    ssize_t sent = n ? send(f.peer, f.input + f.at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
    if (sent < 0) {
        close(f.peer);
        f.peer = -1;
        return;
    }
    f.at += (size_t)sent;
}

static void start_calls(struct mr_client *c, uint8_t flags, bool *ended)
{
    struct mr_header header = {MR_STR("x-a"), MR_STR("b")};
    struct mr_piece piece = {"question", 8, NULL};
    int count = flags & 4 ? CALLS_MAX : 1;

    for (int i = 0; i < count; i++) {
        f.calls_open++;
        if ((flags & 3) == 3) {
            mr_client_grpc(c,
                           &(struct mr_client_grpc_request){
                               .path = "/a.B/C", .pieces = &piece, .piece_count = 1},
                           on_done, &ended[i]);
            continue;
        }
        struct mr_client_request r = {.method = flags & 2 ? "HEAD" : "POST",
                                      .path = MR_STR("/p"),
                                      .headers = &header,
                                      .header_count = 1,
                                      .pieces = &piece,
                                      .piece_count = flags & 2 ? 0 : 1};
        mr_client_send(c, &r, on_done, &ended[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_client_options o = {.max_response_bytes = ANSWER_MAX, .max_connections = 1};
    struct mr_client *c = NULL;
    bool ended[CALLS_MAX] = {false};

    if (size < 2) {
        return 0;
    }
    if (f.listener < 0) {
        set_up();
    }
    o.http2 = data[0] & 1;
    f.input = data + 2;
    f.size = size - 2;
    f.at = 0;
    f.peer = -1;
    mr_loop_enter(f.loop);
    REQUIRE(mr_client_new(&c, f.loop, f.address, &o, NULL) == MR_OK);
    start_calls(c, data[0], ended);
    for (int i = 0; i < ROUNDS_MAX && f.calls_open > 0; i++) {
        iterate();
        serve(data[0], data[1]);
    }
    mr_client_free(&c);
    for (int i = 0; i < 8; i++) {
        iterate();
    }
    REQUIRE(f.calls_open == 0 && mr_block_get_stats().out_bytes == 0);
    if (f.peer >= 0) {
        close(f.peer);
    }
    while ((f.peer = accept4(f.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        close(f.peer);
    }
    return 0;
}
