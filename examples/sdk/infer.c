/* One inference: adds the numbers of two tensors on a server.
 *
 *   cc infer.c $(pkg-config --cflags --libs millrace) \
 *      -Wl,-rpath,$(pkg-config --variable=libdir millrace) -o infer
 *   ./infer simple http://localhost:8000 [URL...]
 */
#include <millrace/client.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_options options = {.size = sizeof options};
    struct mr_sdk_result *result;
    struct mr_sdk *client;
    struct mr_err err;

    if (argc < 3) {
        fprintf(stderr, "usage: infer MODEL URL...\n");
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
    if (mr_sdk_infer(client, &request, &result, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        mr_sdk_free(&client);
        return 1;
    }
    struct mr_sdk_tensor out = {.size = sizeof out};
    if (mr_sdk_result_output(result, 0, &out) == MR_OK) {
        const int32_t *sum = out.data;
        printf("%s of %s:", out.name, mr_sdk_result_model(result));
        for (uint64_t i = 0; i < out.bytes / sizeof *sum; i++) {
            printf(" %d", (int)sum[i]);
        }
        printf("\n");
    }
    mr_sdk_result_free(&result);
    mr_sdk_free(&client);
    return 0;
}
