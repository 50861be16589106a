/* A program with an event loop of its own: callbacks run where it calls mr_sdk_process.
 *
 *   ./poll simple http://localhost:8000 [URL...]
 */
#include <millrace/client.h>
#include <poll.h>
#include <stdio.h>

static void on_done(void *ctx, int status, const struct mr_err *err, struct mr_sdk_result *result)
{
    int *left = ctx;

    if (status < 0) {
        printf("%s: %s\n", mr_sdk_status_text(status), err->msg);
    } else {
        printf("%u outputs\n", mr_sdk_result_output_count(result));
    }
    mr_sdk_result_free(&result);
    --*left;
}

int main(int argc, char **argv)
{
    const int32_t numbers[16] = {0};
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_options options = {.size = sizeof options, .delivery = MR_SDK_PROCESS};
    struct mr_sdk_call *call;
    struct mr_sdk *client;
    struct mr_err err;
    int left = 0;

    if (argc < 3) {
        fprintf(stderr, "usage: poll MODEL URL...\n");
        return 2;
    }
    options.urls = (const char *const *)&argv[2];
    options.url_count = (uint32_t)(argc - 2);
    if (mr_sdk_create(&client, &options, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const struct mr_sdk_tensor inputs[2] = {
        {.size = sizeof inputs[0],
         .name = "INPUT0",
         .dtype = MR_DTYPE_INT32,
         .shape = shape,
         .rank = 2,
         .data = numbers,
         .bytes = sizeof numbers},
        {.size = sizeof inputs[0],
         .name = "INPUT1",
         .dtype = MR_DTYPE_INT32,
         .shape = shape,
         .rank = 2,
         .data = numbers,
         .bytes = sizeof numbers},
    };
    const struct mr_sdk_request request = {
        .size = sizeof request, .model = argv[1], .inputs = inputs, .input_count = 2};
    for (int i = 0; i < 2; i++) {
        if (mr_sdk_infer_start(client, &request, on_done, &left, &call, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            mr_sdk_free(&client);
            return 1;
        }
        left++;
        if (i == 1) {
            mr_sdk_call_cancel(call); /* it may be over already */
        }
        mr_sdk_call_free(&call);
    }
    struct pollfd events = {.fd = mr_sdk_fd(client), .events = POLLIN};
    while (left > 0) {
        poll(&events, 1, -1);
        mr_sdk_process(client);
    }
    mr_sdk_free(&client);
    return 0;
}
