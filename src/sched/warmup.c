/* Chooses the warm-up of a version, and the part that all kinds share: a generated request and its execution. */
#include "warmup.h"

#include "base/log.h"
#include "base/rng.h"

/* Values are generated for this many elements and then repeated: a large tensor is copied, not computed. */
#define PATTERN_MAX 4096

void warmup_sample_init(struct warmup_sample *sm, struct mr_version *v)
{
    *sm = (struct warmup_sample){.infer = {.version = v}};
    mr_arena_init(&sm->arena, 4096, 64u << 20);
    mr_arena_init(&sm->scratch, 4096, 64u << 20);
}

void warmup_sample_fini(struct warmup_sample *sm)
{
    for (size_t i = 0; i < sm->block_count; i++) {
        mr_block_unref(&sm->blocks[i]);
    }
    mr_arena_fini(&sm->scratch);
    mr_arena_fini(&sm->arena);
}

int warmup_sample_begin(struct warmup_sample *sm, int64_t rows, struct mr_err *err)
{
    struct mr_infer *r = &sm->infer;
    const struct mr_version *v = r->version;

    r->arena = &sm->scratch;
    r->rows = rows;
    r->id = MR_STR("");
    r->inputs = MR_ARENA_ARRAY(&sm->arena, struct mr_tensor, v->input_count + 1);
    r->wanted = MR_ARENA_ARRAY(&sm->arena, uint8_t, v->output_count + 1);
    sm->blocks = MR_ARENA_ARRAY(&sm->arena, struct mr_block *, v->input_count + 1);
    if (!r->inputs || !r->wanted || !sm->blocks) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a warm-up request");
    }
    memset(r->wanted, 1, v->output_count);
    return MR_OK;
}

void *warmup_sample_block(struct warmup_sample *sm, uint64_t bytes)
{
    struct mr_block *b = mr_block_new(MR_MAX(bytes, 1));

    if (b) {
        sm->blocks[sm->block_count++] = b;
    }
    return b ? b->data : NULL;
}

/* Waits for an execution that is pending. */
struct awaited {
    struct exec_run run;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool is_over;
};

static void awaited_done(struct exec_run *run)
{
    struct awaited *a = MR_CONTAINER_OF(run, struct awaited, run);

    pthread_mutex_lock(&a->mutex);
    a->is_over = true;
    pthread_cond_signal(&a->cond);
    pthread_mutex_unlock(&a->mutex);
}

static void run_and_wait(struct awaited *a, void *instance)
{
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->cond, NULL);
    a->run.done = awaited_done;
    if (!exec_run(&a->run, instance)) {
        pthread_mutex_lock(&a->mutex);
        while (!a->is_over) {
            pthread_cond_wait(&a->cond, &a->mutex);
        }
        pthread_mutex_unlock(&a->mutex);
    }
    pthread_cond_destroy(&a->cond);
    pthread_mutex_destroy(&a->mutex);
}

int warmup_sample_run(struct warmup_sample *sm, struct mr_sched *s, void *instance,
                      struct mr_err *err)
{
    struct mr_infer *r = &sm->infer, *items[1] = {r};

    if (mr_version_is_unwanted(s->version)) {
        return MR_FAIL(err, MR_E_CANCELLED, "the version is not wanted any more");
    }
    struct awaited a = {.run = {.s = s,
                                .items = items,
                                .count = 1,
                                .rows = r->rows,
                                .arena = &sm->scratch,
                                .start = mr_now_ns(),
                                .is_bound = true}};
    r->is_final = false;
    run_and_wait(&a, instance);
    for (uint32_t k = 0; r->outputs && k < s->version->backend_output_count; k++) {
        mr_block_unref(&r->outputs[k].block);
    }
    r->outputs = NULL;
    mr_arena_reset(&sm->scratch);
    if (r->status < 0 && err) {
        *err = r->err;
    }
    return r->status;
}

static void put_number(struct mr_tensor *t, uint64_t i, double u, unsigned most)
{
    switch (t->dtype) {
    case MR_DTYPE_FP32: ((float *)t->data)[i] = (float)u; break;
    case MR_DTYPE_FP64: ((double *)t->data)[i] = u; break;
    case MR_DTYPE_FP16: ((uint16_t *)t->data)[i] = mr_fp16_from_float((float)u); break;
    case MR_DTYPE_BF16: ((uint16_t *)t->data)[i] = mr_bf16_from_float((float)u); break;
    case MR_DTYPE_BOOL: ((uint8_t *)t->data)[i] = u < 0.5; break;
    default: /* the lowest byte */
        ((uint8_t *)t->data)[i * mr_dtype_size(t->dtype)] = (uint8_t)(u * (most + 1));
    }
}

void warmup_fill(struct mr_tensor *t, uint64_t elements, unsigned most)
{
    uint64_t made = MR_MIN(elements, PATTERN_MAX) * mr_dtype_size(t->dtype);
    struct mr_rng rng;

    memset(t->data, 0, made);
    mr_rng_seed(&rng, 42);
    for (uint64_t i = 0; i < elements && i < PATTERN_MAX; i++) {
        put_number(t, i, mr_rng_unit(&rng), most);
    }
    for (; made < t->bytes; made *= 2) {
        memcpy((uint8_t *)t->data + made, t->data, MR_MIN(made, t->bytes - made));
    }
}

void warmup_tell_none(const struct mr_sched *s, const char *reason)
{
    mr_log(MR_LOG_DEBUG, "model.warmup", "model=%s version=%lld not all is warmed up: %s",
           MR_LOG_STR(s->version->model_name), (long long)s->version->number, reason);
}

void warmup_begin(struct warmup *w, struct mr_sched *s)
{
    const struct mr_version *v = s->version;
    const char *own = mr_config_parameter(v->config, "millrace.default_warmup");

    *w = (struct warmup){.s = s,
                         .left_ns = s->options.default_warmup_ns,
                         .recorded_left_ns = s->options.recorded_warmup_ns};
    if (v->config->n_model_warmup > 0 || v->has_requests) {
        return;
    }
    if (w->left_ns <= 0) {
        warmup_tell_none(s, "it is off");
    } else if (own && strcmp(own, "false") == 0) {
        warmup_tell_none(s, "the configuration says so");
    } else if (mr_version_is_streaming(v)) {
        warmup_tell_none(s, "it may give answers without end");
    } else if (v->backend_flags & MR_BACKEND_NO_WARMUP) {
        warmup_tell_none(s, "the backend does not want it");
    } else {
        w->is_default = true;
    }
}

int warmup_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err)
{
    int rc = warmup_config_run(w->s, instance, err);

    if (rc == MR_OK && w->s->version->has_requests && w->s->options.records) {
        rc = warmup_recorded_run(w, instance, instances, err);
    }
    if (rc == MR_OK && w->is_default) {
        rc = warmup_default_run(w, instance, instances, err);
    }
    return rc;
}
