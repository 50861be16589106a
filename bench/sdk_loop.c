/* One thread that calls a model through libmillrace, one call after the other: what a call costs the client.
 *
 *   bench_sdk_loop MODEL URL CALLS      prints {"calls":N,"ns":…,"cpu_ns":…}, after a tenth as many that do not count
 *
 * With raw://127.0.0.1:PORT it is no client: the bytes of one REST request are sent again and again, and each answer is waited
 * for and read, which is what the system takes of any client. */
#include <arpa/inet.h>
#include <errno.h>
#include <millrace/client.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const int numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static long long now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- bytes without a client ---- */

struct raw {
    int fd, epoll;
    size_t bytes;
    char request[1024];
};

static bool raw_open(struct raw *r, const char *model, int port)
{
    static const char form[] =
        "{\"inputs\":[{\"name\":\"INPUT0\",\"shape\":[1,16],\"datatype\":\"INT32\","
        "\"parameters\":{\"binary_data_size\":64}},{\"name\":\"INPUT1\",\"shape\":[1,16],"
        "\"datatype\":\"INT32\",\"parameters\":{\"binary_data_size\":64}}],\"parameters\":"
        "{\"binary_data_output\":true}}";
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct epoll_event event = {.events = EPOLLIN};
    const int one = 1;

    r->bytes = (size_t)snprintf(
        r->request, sizeof r->request - 2 * sizeof numbers,
        "POST /v2/models/%.100s/infer HTTP/1.1\r\nhost: localhost\r\ncontent-type: "
        "application/octet-stream\r\ninference-header-content-length: %zu\r\ncontent-length: "
        "%zu\r\n\r\n%s",
        model, sizeof form - 1, sizeof form - 1 + 2 * sizeof numbers, form);
    for (int i = 0; i < 2; i++, r->bytes += sizeof numbers) {
        memcpy(r->request + r->bytes, numbers, sizeof numbers);
    }
    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    r->epoll = epoll_create1(0);
    return connect(r->fd, (struct sockaddr *)&to, sizeof to) == 0 &&
           setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0 &&
           epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->fd, &event) == 0;
}

static long raw_calls(const struct raw *r, long count)
{
    struct epoll_event event;
    char answer[65536];

    for (long i = 0; i < count; i++) {
        if (send(r->fd, r->request, r->bytes, 0) != (ssize_t)r->bytes ||
            epoll_wait(r->epoll, &event, 1, -1) != 1) {
            return i;
        }
        const ssize_t n = recv(r->fd, answer, sizeof answer, 0);
        if (n < 128 || memcmp(answer, "HTTP/1.1 200", 12) != 0 ||
            memcmp(answer + n - sizeof numbers, numbers, sizeof numbers) != 0) {
            fprintf(stderr, "%.*s\n", n > 0 ? (int)n : 0, answer);
            return i;
        }
    }
    return count;
}

/* ---- calls of the library ---- */

/* Number of calls that had the right answer. */
static long calls(struct mr_sdk *client, const struct mr_sdk_request *request, long count)
{
    struct mr_sdk_tensor out = {.size = sizeof out};
    long right = 0;

    for (long i = 0; i < count; i++) {
        struct mr_sdk_result *result;
        struct mr_err err;
        if (mr_sdk_infer(client, request, &result, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            return right;
        }
        right += mr_sdk_result_output(result, 0, &out) == MR_OK && out.bytes == 64 &&
                 ((const int *)out.data)[15] == 15;
        mr_sdk_result_free(&result);
    }
    return right;
}

static struct mr_sdk *client_open(const char *url)
{
    const struct mr_sdk_options options = {.size = sizeof options, .urls = &url, .url_count = 1};
    struct mr_sdk *client = NULL;
    struct mr_err err;

    if (mr_sdk_create(&client, &options, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
    }
    return client;
}

int main(int argc, char **argv)
{
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_tensor inputs[2] = {{.size = sizeof inputs[0],
                                       .name = "INPUT0",
                                       .dtype = MR_DTYPE_INT32,
                                       .shape = shape,
                                       .rank = 2,
                                       .data = numbers,
                                       .bytes = sizeof numbers}};
    const long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    struct mr_sdk *client = NULL;
    struct raw raw;
    int port;

    if (count < 1) {
        fprintf(stderr, "usage: bench_sdk_loop MODEL URL CALLS\n");
        return 2;
    }
    inputs[1] = inputs[0];
    inputs[1].name = "INPUT1";
    const struct mr_sdk_request request = {
        .size = sizeof request, .model = argv[1], .inputs = inputs, .input_count = 2};
    const bool is_raw = sscanf(argv[2], "raw://127.0.0.1:%d", &port) == 1;
    if (is_raw ? !raw_open(&raw, argv[1], port) : !(client = client_open(argv[2]))) {
        return 1;
    }
    const long first = count / 10 + 1;
    long right = is_raw ? raw_calls(&raw, first) : calls(client, &request, first);
    const long long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    if (right == first) {
        right = is_raw ? raw_calls(&raw, count) : calls(client, &request, count);
        printf("{\"calls\":%ld,\"ns\":%lld,\"cpu_ns\":%lld}\n", right, now(CLOCK_MONOTONIC) - wall,
               now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    }
    mr_sdk_free(&client);
    return right == count ? 0 : 1;
}
