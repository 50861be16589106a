/* A model version made without a repository, on one of the test backends, and requests for it. The test's own
 * thread is the reply loop of all requests; `harness_wait` runs what the scheduler posts to it. */
#ifndef MR_TEST_SCHED_HARNESS_H
#define MR_TEST_SCHED_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/plugin.h"
#include "sched/sched.h"

#define HARNESS_IO_MAX 4

struct harness {
    struct mr_plugin *plugin;
    struct mr_executor *model;
    struct mr_version version;
    Inference__ModelConfig config;
    Inference__ModelDynamicBatching batching;
    Inference__ModelInstanceGroup group;
    Inference__ModelInstanceGroup *groups[1];
    struct mr_model_io inputs[HARNESS_IO_MAX];
    struct mr_model_io outputs[HARNESS_IO_MAX];
    struct mr_pin_slot *pins;
    struct mr_sched_options options;
    struct mr_reply_loop reply_loop;
    struct mr_mailbox box;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool is_awake;
};

static void harness_wake(void *ctx)
{
    struct harness *h = ctx;
    pthread_mutex_lock(&h->mutex);
    h->is_awake = true;
    pthread_cond_signal(&h->cond);
    pthread_mutex_unlock(&h->mutex);
}

static void harness_post(void *ctx, struct mr_mail *mail)
{
    struct harness *h = ctx;
    mr_mailbox_post(&h->box, mail);
}

/* Sleep until something was posted, then run it. */
static inline void harness_wait(struct harness *h)
{
    pthread_mutex_lock(&h->mutex);
    while (!h->is_awake) {
        pthread_cond_wait(&h->cond, &h->mutex);
    }
    h->is_awake = false;
    pthread_mutex_unlock(&h->mutex);
    mr_mailbox_drain(&h->box);
}

static inline void harness_io(struct mr_model_io *io, const char *name, int dtype,
                              const int64_t *dims, int rank, int index)
{
    *io = (struct mr_model_io){
        .name = mr_str_c(name), .dtype = dtype, .rank = rank, .dims = dims, .backend_index = index};
}

/* One INT32[2] input X and output Y, no batching. The caller changes fields before harness_open. */
static inline void harness_init(struct harness *h)
{
    static const int64_t dims[] = {2};

    memset(h, 0, sizeof *h);
    inference__model_config__init(&h->config);
    inference__model_dynamic_batching__init(&h->batching);
    inference__model_instance_group__init(&h->group);
    h->group.count = 1;
    h->groups[0] = &h->group;
    h->config.n_instance_group = 1;
    h->config.instance_group = h->groups;
    harness_io(&h->inputs[0], "X", MR_DTYPE_INT32, dims, 1, 0);
    harness_io(&h->outputs[0], "Y", MR_DTYPE_INT32, dims, 1, 0);
    h->version = (struct mr_version){.model_name = MR_STR("m"),
                                     .number = 1,
                                     .number_text = MR_STR("1"),
                                     .config = &h->config,
                                     .inputs = h->inputs,
                                     .input_count = 1,
                                     .required_input_count = 1,
                                     .outputs = h->outputs,
                                     .output_count = 1,
                                     .backend_input_count = 1,
                                     .backend_output_count = 1,
                                     .model_dir = ".",
                                     .repository_dir = "/"};
    h->options = (struct mr_sched_options){.reader_count = 1, .max_queue_size = 1000};
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->cond, NULL);
    mr_mailbox_init(&h->box, harness_wake, h);
    h->reply_loop = (struct mr_reply_loop){.post = harness_post, .ctx = h};
    h->pins = mr_alloc_aligned(sizeof *h->pins);
    h->version.pins = h->pins;
}

static inline void harness_batching(struct harness *h, int max, int64_t delay_us)
{
    h->version.max_batch_size = max;
    h->config.max_batch_size = max;
    h->config.dynamic_batching = &h->batching;
    h->config.scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
    h->batching.max_queue_delay_microseconds = (uint64_t)delay_us;
}

static inline void harness_backend(struct harness *h, const char *name,
                                   const struct mr_setting *settings, uint32_t setting_count)
{
    char dir[4096];
    const char *dirs[] = {dir};
    struct mr_err err = {0};
    struct mr_model_desc desc = {.size = sizeof desc,
                                 .name = "m",
                                 .version = 1,
                                 .model_dir = ".",
                                 .version_dir = ".",
                                 .model_file = ".",
                                 .config_json = "{}",
                                 .settings = settings,
                                 .setting_count = setting_count};
    int64_t dims[HARNESS_IO_MAX][3];
    struct mr_io_desc in[HARNESS_IO_MAX], out[HARNESS_IO_MAX];
    int lead = h->version.max_batch_size > 0;

    assert_non_null(getenv("MR_BUILD_DIR"));
    snprintf(dir, sizeof dir, "%s/lib/millrace", getenv("MR_BUILD_DIR"));
    for (uint32_t i = 0; i < h->version.input_count; i++) {
        dims[i][0] = dims[i][1] = dims[i][2] = -1;
        in[i] = (struct mr_io_desc){.name = h->inputs[i].name.ptr,
                                    .dims = dims[i],
                                    .dtype = h->inputs[i].dtype,
                                    .rank = h->inputs[i].rank + lead};
        out[i] = in[i];
        out[i].name = h->outputs[i].name.ptr;
    }
    struct mr_signature s = {.size = sizeof s,
                             .input_count = h->version.input_count,
                             .output_count = h->version.output_count,
                             .inputs = in,
                             .outputs = out,
                             .batchable = -1};
    if (mr_plugin_open(&h->plugin, mr_str_c(name), dirs, 1, NULL, 0, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    if (mr_plugin_model_open(&h->model, h->plugin, &desc, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    if (h->model->ops->configure(h->model, &s, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    h->version.executor = h->model;
    h->version.backend_flags = mr_plugin_flags(h->plugin);
}

static inline void harness_open(struct harness *h, const char *backend,
                                const struct mr_setting *settings, uint32_t setting_count)
{
    struct mr_err err = {0};

    harness_backend(h, backend, settings, setting_count);
    if (mr_sched_open(&h->version, &h->options, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static inline void harness_close(struct harness *h)
{
    assert_int_equal(h->version.pins[0].count, 0);
    mr_sched_close(&h->version);
    mr_executor_close(&h->model);
    mr_plugin_close(&h->plugin);
    mr_free(h->pins);
    pthread_mutex_destroy(&h->mutex);
    pthread_cond_destroy(&h->cond);
}

struct harness_input {
    mr_str name;
    struct mr_tensor tensor;
};

static inline struct mr_infer_args harness_args(const struct harness_input *in, size_t count)
{
    return (struct mr_infer_args){.input_names = in ? &in->name : NULL,
                                  .input_tensors = in ? &in->tensor : NULL,
                                  .input_stride = sizeof *in,
                                  .input_count = count};
}

/* A request with `rows` rows of two numbers counting up from `first`. */
struct ask {
    struct mr_infer infer;
    struct mr_arena arena;
    int32_t data[64];
    int64_t shape[2];
    bool is_done;
    int order; /* nth that was done */
};

static int harness_done_count;

static void ask_done(struct mr_infer *r)
{
    struct ask *a = r->user;
    a->is_done = true;
    a->order = ++harness_done_count;
}

static inline void ask_init(struct ask *a, struct harness *h, int rows, int32_t first)
{
    struct harness_input in = {.name = MR_STR("X")};
    const struct mr_infer_args q = harness_args(&in, 1);
    struct mr_err err = {0};
    int lead = h->version.max_batch_size > 0;

    memset(a, 0, sizeof *a);
    mr_arena_init(&a->arena, 4096, 1u << 20);
    for (int i = 0; i < 2 * rows; i++) {
        a->data[i] = first + i;
    }
    a->shape[0] = lead ? rows : 2;
    a->shape[1] = 2;
    in.tensor = (struct mr_tensor){.dtype = MR_DTYPE_INT32,
                                   .rank = lead + 1,
                                   .shape = a->shape,
                                   .data = a->data,
                                   .bytes = (uint64_t)rows * 8};
    a->infer = (struct mr_infer){.version = &h->version,
                                 .arena = &a->arena,
                                 .reply_loop = &h->reply_loop,
                                 .on_done = ask_done,
                                 .user = a};
    mr_version_pin(&h->version, 0);
    if (mr_infer_validate(&a->infer, &q, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

/* Submit; a request that ran at once counts as done. */
static inline int ask_submit(struct ask *a)
{
    int rc = mr_sched_submit(&a->infer);
    if (rc != MR_OK) {
        ask_done(&a->infer);
    }
    return rc;
}

static inline void ask_wait(struct harness *h, struct ask *a)
{
    while (!a->is_done) {
        harness_wait(h);
    }
}

static inline void ask_fini(struct ask *a)
{
    mr_infer_finish(&a->infer, 0);
    mr_arena_fini(&a->arena);
}

/* The answer is what was sent. */
static inline void ask_check(struct ask *a, int rows)
{
    if (a->infer.status != MR_OK) {
        fail_msg("status %d: %s", a->infer.status, a->infer.err.msg);
    }
    const struct mr_tensor *t = &mr_infer_output(&a->infer, 0)->tensor;
    assert_int_equal(t->bytes, (uint64_t)rows * 8);
    assert_memory_equal(t->data, a->data, t->bytes);
}

#endif
