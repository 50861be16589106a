/* One thread that calls a model through libmillrace, one call after the other: what a call costs the client.
 *
 *   bench_sdk_loop MODEL URL CALLS      prints {"calls":N,"ns":…,"cpu_ns":…}, after a tenth as many that do not count */
#include <millrace/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long long now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

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

int main(int argc, char **argv)
{
    const int numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_options options = {.size = sizeof options, .url_count = 1};
    struct mr_sdk_tensor inputs[2] = {{.size = sizeof inputs[0],
                                       .name = "INPUT0",
                                       .dtype = MR_DTYPE_INT32,
                                       .shape = shape,
                                       .rank = 2,
                                       .data = numbers,
                                       .bytes = sizeof numbers}};
    struct mr_sdk *client;
    struct mr_err err;
    const long count = argc == 4 ? strtol(argv[3], NULL, 10) : 0;

    if (count < 1) {
        fprintf(stderr, "usage: bench_sdk_loop MODEL URL CALLS\n");
        return 2;
    }
    inputs[1] = inputs[0];
    inputs[1].name = "INPUT1";
    options.urls = (const char *const *)&argv[2];
    if (mr_sdk_create(&client, &options, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const struct mr_sdk_request request = {
        .size = sizeof request, .model = argv[1], .inputs = inputs, .input_count = 2};
    long right = calls(client, &request, count / 10 + 1) > 0;
    const long long wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    right = right ? calls(client, &request, count) : 0;
    printf("{\"calls\":%ld,\"ns\":%lld,\"cpu_ns\":%lld}\n", right, now(CLOCK_MONOTONIC) - wall,
           now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    mr_sdk_free(&client);
    return right == count ? 0 : 1;
}
