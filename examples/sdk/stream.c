/* A stream: several requests, and answers as they come. A model that gives many answers to a request gives them one by one.
 *
 *   ./stream MODEL grpc://localhost:8001 [URL...]
 */
#include <millrace/client.h>
#include <stdio.h>

static int send_all(struct mr_sdk_stream *stream, struct mr_err *err)
{
    const int32_t numbers[16] = {0};
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_tensor inputs[2] = {{.size = sizeof inputs[0],
                                       .name = "INPUT0",
                                       .dtype = MR_DTYPE_INT32,
                                       .shape = shape,
                                       .rank = 2,
                                       .data = numbers,
                                       .bytes = sizeof numbers}};
    char id[16];

    inputs[1] = inputs[0];
    inputs[1].name = "INPUT1";
    for (int i = 0; i < 3; i++) {
        const struct mr_sdk_request request = {
            .size = sizeof request, .id = id, .inputs = inputs, .input_count = 2};
        snprintf(id, sizeof id, "%d", i);
        int rc = mr_sdk_stream_send(stream, &request, -1, err);
        if (rc < 0) {
            return rc;
        }
    }
    mr_sdk_stream_done(stream);
    return MR_OK;
}

static int read_all(struct mr_sdk_stream *stream, struct mr_err *err)
{
    struct mr_sdk_answer answer = {.size = sizeof answer};
    int rc;

    while ((rc = mr_sdk_stream_read(stream, -1, &answer, err)) > 0) {
        if (answer.status < 0) {
            printf("request %s failed: %s\n", mr_sdk_result_id(answer.result), answer.message);
        } else {
            printf("request %s: %u outputs%s\n", mr_sdk_result_id(answer.result),
                   mr_sdk_result_output_count(answer.result), answer.is_final ? ", the last" : "");
        }
        mr_sdk_result_free(&answer.result);
    }
    return rc == MR_E_CLOSED ? MR_OK : rc;
}

int main(int argc, char **argv)
{
    struct mr_sdk_options options = {.size = sizeof options};
    struct mr_sdk_stream_options how = {.size = sizeof how};
    struct mr_sdk_stream *stream = NULL;
    struct mr_sdk *client = NULL;
    struct mr_err err;

    if (argc < 3) {
        fprintf(stderr, "usage: stream MODEL URL...\n");
        return 2;
    }
    options.urls = (const char *const *)&argv[2];
    options.url_count = (uint32_t)(argc - 2);
    how.model = argv[1];
    int rc = mr_sdk_create(&client, &options, &err);
    rc = rc < 0 ? rc : mr_sdk_stream_open(client, &how, &stream, &err);
    rc = rc < 0 ? rc : send_all(stream, &err);
    rc = rc < 0 ? rc : read_all(stream, &err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", mr_sdk_status_text(rc), err.msg);
    }
    mr_sdk_stream_free(&stream);
    mr_sdk_free(&client);
    return rc < 0;
}
