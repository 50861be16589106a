/* An inference whose tensors are in memory that is shared with the server, which must be on this host and take it:
 *
 *   millrace serve --http-address=unix:/run/millrace.sock --http-shared-memory=true ...
 *   ./shared simple http://unix:/run/millrace.sock
 */
#include <millrace/client.h>
#include <stdio.h>

static struct mr_sdk_tensor tensor(const char *name, const int64_t *shape, int32_t *data)
{
    return (struct mr_sdk_tensor){.size = sizeof(struct mr_sdk_tensor),
                                  .name = name,
                                  .dtype = MR_DTYPE_INT32,
                                  .shape = shape,
                                  .rank = 2,
                                  .data = data,
                                  .bytes = 16 * sizeof *data};
}

int main(int argc, char **argv)
{
    const int64_t shape[2] = {1, 16};
    const char *outputs[] = {"OUTPUT0"};
    struct mr_sdk_options options = {.size = sizeof options, .url_count = 1};
    struct mr_sdk_memory *memory = NULL;
    struct mr_sdk_result *result = NULL;
    struct mr_sdk *client = NULL;
    struct mr_err err;
    int rc = 1;

    if (argc != 3) {
        fprintf(stderr, "usage: shared MODEL URL\n");
        return 2;
    }
    options.urls = (const char *const *)&argv[2];
    if (mr_sdk_create(&client, &options, &err) < 0 || mr_sdk_memory_new(&memory, 4096, &err) < 0) {
        goto out;
    }
    int32_t *numbers = mr_sdk_memory_data(memory), *sum = numbers + 16;
    for (int i = 0; i < 16; i++) {
        numbers[i] = i;
    }
    const struct mr_sdk_tensor inputs[] = {tensor("INPUT0", shape, numbers),
                                           tensor("INPUT1", shape, numbers)};
    const struct mr_sdk_tensor place = tensor(NULL, NULL, sum); /* of the output */
    const struct mr_sdk_request request = {.size = sizeof request,
                                           .model = argv[1],
                                           .inputs = inputs,
                                           .input_count = 2,
                                           .outputs = outputs,
                                           .output_count = 1,
                                           .memory = memory,
                                           .places = &place};
    if (mr_sdk_infer(client, &request, &result, &err) < 0) {
        goto out;
    }
    struct mr_sdk_tensor out = {.size = sizeof out};
    mr_sdk_result_output(result, 0, &out);
    printf("%s%s:", out.name, out.data == sum ? " in its place" : "");
    for (uint64_t i = 0; i < out.bytes / sizeof *sum; i++) {
        printf(" %d", (int)((const int32_t *)out.data)[i]);
    }
    printf("\n");
    rc = 0;
out:
    if (rc) {
        fprintf(stderr, "%s\n", err.msg);
    }
    mr_sdk_result_free(&result);
    mr_sdk_memory_free(&memory);
    mr_sdk_free(&client);
    return rc;
}
