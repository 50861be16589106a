/* One thread that calls an identity with a tensor of 4 MiB in and out through libmillrace, one call after the other.
 *
 *   bench_sdk_large MODEL URL CALLS sent|shared      prints {"calls":N,"ns":…,"cpu_ns":…}, after a tenth as many that do not count
 *
 * sent: over the connection; shared: in memory that the server has the descriptor of (http://unix:, --http-shared-memory). */
#include <millrace/client.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT ((int64_t)1 << 20)
#define BYTES ((uint64_t)COUNT * sizeof(float))

static long long now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Number of calls that had the right answer, in its place if it has one. */
static long calls(struct mr_sdk *client, const struct mr_sdk_request *request, long count)
{
    struct mr_sdk_tensor out = {.size = sizeof out};
    float *input = (float *)(uintptr_t)request->inputs->data; /* our own memory */
    long right = 0;

    for (long i = 0; i < count; i++) {
        struct mr_sdk_result *result;
        struct mr_err err;
        input[COUNT - 1] = (float)i;
        if (mr_sdk_infer(client, request, &result, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            return right;
        }
        right += mr_sdk_result_output(result, 0, &out) == MR_OK && out.bytes == BYTES &&
                 ((const float *)out.data)[COUNT - 1] == (float)i &&
                 (!request->places || out.data == request->places->data);
        mr_sdk_result_free(&result);
    }
    return right;
}

int main(int argc, char **argv)
{
    const long count = argc == 5 ? strtol(argv[3], NULL, 10) : 0;
    const bool is_shared = argc == 5 && strcmp(argv[4], "shared") == 0;
    struct mr_sdk_options options = {.size = sizeof options, .url_count = 1};
    const int64_t shape[2] = {1, COUNT};
    const char *outputs[] = {"OUTPUT0"};
    struct mr_sdk_memory *memory = NULL;
    struct mr_sdk *client;
    struct mr_err err;

    if (count < 1) {
        fprintf(stderr, "usage: bench_sdk_large MODEL URL CALLS sent|shared\n");
        return 2;
    }
    options.urls = (const char *const *)&argv[2];
    if (mr_sdk_create(&client, &options, &err) < 0 ||
        mr_sdk_memory_new(&memory, 2 * BYTES, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    float *numbers = mr_sdk_memory_data(memory);
    const struct mr_sdk_tensor input = {.size = sizeof input,
                                        .name = "INPUT0",
                                        .dtype = MR_DTYPE_FP32,
                                        .shape = shape,
                                        .rank = 2,
                                        .data = numbers,
                                        .bytes = BYTES};
    const struct mr_sdk_tensor place = {
        .size = sizeof place, .data = numbers + COUNT, .bytes = BYTES};
    const struct mr_sdk_request request = {.size = sizeof request,
                                           .model = argv[1],
                                           .inputs = &input,
                                           .input_count = 1,
                                           .outputs = outputs,
                                           .output_count = 1,
                                           .memory = is_shared ? memory : NULL,
                                           .places = is_shared ? &place : NULL};
    const long first = count / 10 + 1;
    long right = calls(client, &request, first);
    const long long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    if (right == first) {
        right = calls(client, &request, count);
        printf("{\"calls\":%ld,\"ns\":%lld,\"cpu_ns\":%lld}\n", right, now(CLOCK_MONOTONIC) - wall,
               now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    }
    mr_sdk_memory_free(&memory);
    mr_sdk_free(&client);
    return right == count ? 0 : 1;
}
