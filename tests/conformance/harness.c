/* Models, calls and comparisons for the conformance cases. */
#include "harness.h"

#include <limits.h>
#include <stdio.h>

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

int plugin_open(const char *name, const struct mr_setting *settings, size_t count,
                struct mr_plugin **out, struct mr_err *err)
{
    char dir[PATH_MAX];
    const char *dirs[] = {dir};
    snprintf(dir, sizeof dir, "%s/lib/millrace", environment("MR_BUILD_DIR", "build/release"));
    return mr_plugin_open(out, mr_str_c(name), dirs, 1, settings, count, err);
}

const char *repo_path(const char *model, const char *rest)
{
    static char path[2][PATH_MAX];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/tests/models/repo/%s%s",
             environment("MR_SOURCE_DIR", "."), model, rest);
    return path[turn];
}

int instance_open(struct mr_executor *model, uint32_t index, void **out, struct mr_err *err)
{
    const struct mr_instance_desc desc = {
        .size = sizeof desc, .index = index, .kind = MR_INSTANCE_CPU, .name = "test"};
    return model->ops->instance_open(model, &desc, out, err);
}

struct mr_loading *loading;

int model_try(const char *model, const struct mr_setting *settings, size_t count,
              const struct mr_signature *shape, struct loaded *out, struct mr_err *err)
{
    char file[PATH_MAX];
    char dir[PATH_MAX];
    struct loaded l = {0};
    snprintf(file, sizeof file, "%s", repo_path(model, "/1/model.onnx"));
    snprintf(dir, sizeof dir, "%s", repo_path(model, "/1"));
    const struct mr_model_desc desc = {
        .size = sizeof desc,
        .setting_count = (uint32_t)count,
        .name = model,
        .version = 1,
        .model_dir = repo_path(model, ""),
        .version_dir = dir,
        .model_file = file,
        .config_json = "{\"input\":[{\"name\":\"X\"},{\"name\":\"SCALE\"}]}",
        .settings = settings,
        .max_batch_size = -1,
        .loading = loading,
    };
    *err = (struct mr_err){0};
    int rc = mr_plugin_model_open(&l.model, plugin, &desc, err);
    if (rc < 0) {
        return rc;
    }
    l.signature = l.model->signature;
    if (l.signature->from_config && shape) {
        rc = l.model->ops->configure(l.model, shape, err);
        l.signature = l.model->signature;
    }
    if (rc == MR_OK) {
        rc = instance_open(l.model, 0, &l.instance, err);
    }
    if (rc < 0) {
        mr_executor_close(&l.model);
        return rc;
    }
    *out = l;
    return MR_OK;
}

struct loaded model_load(const char *model, const struct mr_signature *shape)
{
    struct loaded l = {0};
    struct mr_err err;
    if (model_try(model, NULL, 0, shape, &l, &err) < 0) {
        fail_msg("%s: %s", model, err.msg);
    }
    return l;
}

void model_drop(struct loaded *l)
{
    mr_executor_instance_close(l->model, &l->instance);
    assert_null(l->instance);
    mr_executor_close(&l->model);
    assert_null(l->model);
}

const struct mr_signature *identity_signature(int dtype)
{
    static const int64_t dims[] = {-1, -1};
    static struct mr_io_desc io[2];
    static struct mr_signature s;
    io[0] = (struct mr_io_desc){.name = "INPUT0", .dims = dims, .dtype = dtype, .rank = 2};
    io[1] = (struct mr_io_desc){.name = "OUTPUT0", .dims = dims, .dtype = dtype, .rank = 2};
    s = (struct mr_signature){.size = sizeof s,
                              .input_count = 1,
                              .output_count = 1,
                              .inputs = &io[0],
                              .outputs = &io[1],
                              .batchable = 1};
    return &s;
}

struct loaded identity_load(int dtype)
{
    char model[32] = "identity_";
    const char *name = mr_dtype_name(dtype);
    size_t n = strlen(model);
    for (; *name; name++) {
        model[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
    }
    model[n] = '\0';
    return model_load(model, identity_signature(dtype));
}

void call_init(struct call *c, const struct loaded *l)
{
    memset(c, 0, sizeof *c);
    assert_true(l->signature->input_count <= IO_MAX && l->signature->output_count <= IO_MAX);
    mr_arena_init(&c->arena, 65536, 1 << 22);
    memset(c->wanted, 1, sizeof c->wanted);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->ended, NULL);
    c->request.id = "";
    c->x.exec.input_count = l->signature->input_count;
    c->x.exec.output_count = l->signature->output_count;
    c->x.exec.request_count = 1;
    c->x.exec.inputs = c->in;
    c->x.exec.output_wanted = c->wanted;
    c->x.exec.requests = &c->request;
    c->x.err = &c->err;
    c->x.outputs.list = c->out;
    c->x.outputs.arena = &c->arena;
}

void call_input(struct call *c, uint32_t index, int dtype, const void *data, uint64_t bytes,
                int rank, const int64_t *shape)
{
    assert_true(index < IO_MAX && rank <= 8);
    if (rank > 0) {
        memcpy(c->shapes[index], shape, (size_t)rank * sizeof *shape);
    }
    c->in[index] = (struct mr_tensor){.dtype = dtype,
                                      .rank = rank,
                                      .shape = c->shapes[index],
                                      .data = (void *)(uintptr_t)data,
                                      .bytes = bytes};
}

static void call_ended(struct mr_execution *x)
{
    struct call *c = MR_CONTAINER_OF(x, struct call, x);
    pthread_mutex_lock(&c->mutex);
    c->is_over = true;
    pthread_cond_signal(&c->ended);
    pthread_mutex_unlock(&c->mutex);
}

int call_run(struct call *c, const struct loaded *l)
{
    call_clear(c);
    c->request.row_count = c->x.exec.row_count;
    c->x.instance = l->instance;
    c->x.on_done = call_ended;
    c->is_over = false;
    int rc = mr_executor_execute(l->model, &c->x, &c->err);
    if (rc != MR_PENDING) {
        return rc;
    }
    pthread_mutex_lock(&c->mutex);
    while (!c->is_over) {
        pthread_cond_wait(&c->ended, &c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return c->x.status;
}

void call_clear(struct call *c)
{
    for (int i = 0; i < IO_MAX; i++) {
        mr_block_unref(&c->out[i].block);
        c->out[i] = (struct mr_exec_output){0};
    }
    mr_arena_reset(&c->arena);
    c->err = (struct mr_err){0};
}

void call_fini(struct call *c)
{
    call_clear(c);
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->mutex);
    mr_arena_fini(&c->arena);
}

void assert_no_outputs(const struct call *c)
{
    for (int i = 0; i < IO_MAX; i++) {
        assert_false(c->out[i].is_set);
        assert_null(c->out[i].block);
    }
}

void call_must(struct call *c, const struct loaded *l)
{
    if (call_run(c, l) < 0) {
        fail_msg("%s", c->err.msg);
    }
}

void call_must_fail(struct call *c, const struct loaded *l, int status, const char *says)
{
    int rc = call_run(c, l);
    if (rc != status || c->err.status != status || !strstr(c->err.msg, says)) {
        fail_msg("expected %d '%s', got %d '%s'", status, says, rc, c->err.msg);
    }
    assert_no_outputs(c);
}

void assert_output(const struct call *c, uint32_t index, int dtype, const void *data,
                   uint64_t bytes, int rank, const int64_t *shape)
{
    const struct mr_tensor *t = &c->out[index].tensor;
    assert_true(c->out[index].is_set);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->rank, rank);
    for (int d = 0; d < rank; d++) {
        assert_int_equal(t->shape[d], shape[d]);
    }
    assert_int_equal(t->bytes, bytes);
    if (bytes > 0) {
        assert_memory_equal(t->data, data, bytes);
    }
}

/* Strings of 0 to 6 bytes, zero bytes among them. */
static uint8_t *sample_strings(uint64_t elements, uint64_t *out_bytes)
{
    uint8_t *data = mr_alloc(elements * 10 + 1);
    uint64_t n = 0;
    for (uint64_t i = 0; i < elements; i++) {
        const uint8_t len = (uint8_t)(i % 7);
        data[n] = len;
        n += 4;
        for (uint8_t k = 0; k < len; k++) {
            data[n++] = (uint8_t)(k == 2 ? 0 : 'a' + (i + k) % 26);
        }
    }
    *out_bytes = n;
    return data;
}

uint8_t *sample(int dtype, uint64_t elements, uint64_t *out_bytes)
{
    if (dtype == MR_DTYPE_BYTES) {
        return sample_strings(elements, out_bytes);
    }
    const size_t bytes = elements * mr_dtype_size(dtype);
    uint8_t *data = mr_alloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(dtype == MR_DTYPE_BOOL ? i % 3 == 0 : i * 37 + 11);
    }
    *out_bytes = bytes;
    return data;
}
