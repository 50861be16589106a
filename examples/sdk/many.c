/* Many inferences at a time, answered by callbacks: of an endpoint whose variants share the traffic.
 *
 *   ./many CONFIG-FILE ENDPOINT COUNT
 */
#include <millrace/client.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIANTS_MAX 32

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int open, good, bad;
    char first_error[sizeof((struct mr_err *)0)->msg];
    char tags[VARIANTS_MAX][65];
    int counts[VARIANTS_MAX];
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void count(const char *tag)
{
    for (int i = 0; i < VARIANTS_MAX; i++) {
        if (all.tags[i][0] == '\0') {
            snprintf(all.tags[i], sizeof all.tags[i], "%s", tag);
        }
        if (strcmp(all.tags[i], tag) == 0) {
            all.counts[i]++;
            return;
        }
    }
}

/* On a thread of the client, or within mr_sdk_process. */
static void on_done(void *ctx, int status, const struct mr_err *err, struct mr_sdk_result *result)
{
    (void)ctx;
    pthread_mutex_lock(&all.lock);
    if (status == MR_OK) {
        all.good++;
        count(mr_sdk_result_variant(result));
    } else if (all.bad++ == 0) {
        snprintf(all.first_error, sizeof all.first_error, "%s", err->msg);
    }
    all.open--;
    pthread_cond_signal(&all.changed);
    pthread_mutex_unlock(&all.lock);
    mr_sdk_result_free(&result);
}

int main(int argc, char **argv)
{
    static const int32_t numbers[16]; /* lives until the calls are over */
    const int64_t shape[2] = {1, 16};
    struct mr_sdk_options options = {.size = sizeof options};
    struct mr_sdk *client;
    struct mr_err err;

    if (argc != 4) {
        fprintf(stderr, "usage: many CONFIG-FILE ENDPOINT COUNT\n");
        return 2;
    }
    options.config_file = argv[1];
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
        .size = sizeof request, .model = argv[2], .inputs = inputs, .input_count = 2};
    for (int i = 0; i < atoi(argv[3]); i++) {
        pthread_mutex_lock(&all.lock);
        all.open++;
        pthread_mutex_unlock(&all.lock);
        if (mr_sdk_infer_start(client, &request, on_done, NULL, NULL, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            mr_sdk_free(&client);
            return 1;
        }
    }
    pthread_mutex_lock(&all.lock);
    while (all.open > 0) {
        pthread_cond_wait(&all.changed, &all.lock);
    }
    pthread_mutex_unlock(&all.lock);
    mr_sdk_free(&client);
    printf("%d good, %d bad %s\n", all.good, all.bad, all.first_error);
    for (int i = 0; i < VARIANTS_MAX && all.counts[i] > 0; i++) {
        printf("variant %s: %d\n", all.tags[i], all.counts[i]);
    }
    return all.bad > 0;
}
