/* Finds out whether a small model gains from ONNX Runtime's thread pool.
 *
 * ONNX Runtime splits an operator over the pool from some ten thousand multiplications on. Without spinning, which
 * would take CPU time from all others, waking the pool costs more than such an operator: a dense net of 64-32-10 took
 * 6.9 us for 32 rows with the pool and 3.8 us without, and broke even at some 200 us. So a model with a small file is
 * first opened for its caller alone and run on zeros, in the largest batch that its config allows; if that takes
 * long, or cannot be tried because the shapes are free, it is opened again with the pool. The run also warms the
 * model up.
 *
 * Thread: the one that opens the model. */
#include <time.h>

#include "onnxruntime/session/onnx.h"

#define POOL_PAYS_NS INT64_C(500000) /* an execution from here on gets the pool */
#define PROBE_BYTES  (16 << 20)      /* of inputs; larger ones count as "takes long" */
#define PROBE_RUNS   3

struct probe {
    OrtValue **in;
    OrtValue **out;
    const char **in_names;
    const char **out_names;
    void *zeros;
};

/* Bytes of the largest input for `rows`; 0 when a shape is free or one is not of numbers. */
static uint64_t input_bytes(const struct onnx_model *m, int64_t rows)
{
    uint64_t largest = 1;
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct onnx_io *io = &m->in[i];
        const uint64_t bytes = io->row_bytes * (io->has_batch ? (uint64_t)rows : 1);
        if (!io->is_fixed && !io->has_batch) {
            return 0;
        }
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

static int probe_inputs(struct probe *p, const struct onnx_model *m, int64_t rows, uint64_t bytes,
                        struct mr_err *err)
{
    int rc = MR_OK;
    p->in = calloc(m->input_count + 1u, sizeof *p->in);
    p->out = calloc(m->output_count + 1u, sizeof *p->out);
    p->in_names = calloc(m->input_count + 1u, sizeof *p->in_names);
    p->out_names = calloc(m->output_count + 1u, sizeof *p->out_names);
    p->zeros = calloc(1, bytes); /* one read-only block for all inputs */
    if (!p->in || !p->out || !p->in_names || !p->out_names || !p->zeros) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    for (uint32_t i = 0; i < m->input_count; i++) {
        const struct onnx_io *io = &m->in[i];
        int64_t shape[MR_MAX_RANK];
        memcpy(shape, io->desc->dims, (size_t)io->desc->rank * sizeof *shape);
        if (io->has_batch) {
            shape[0] = rows;
        }
        p->in_names[i] = io->desc->name;
        ONNX_TRY(CreateTensorWithDataAsOrtValue(m->backend->cpu, p->zeros, bytes, shape,
                                                (size_t)io->desc->rank, io->type, &p->in[i]));
    }
    for (uint32_t i = 0; i < m->output_count; i++) {
        p->out_names[i] = m->outputs[i].name;
    }
out:
    return rc;
}

static void probe_free(struct probe *p, const struct onnx_model *m)
{
    for (uint32_t i = 0; p->in && i < m->input_count; i++) {
        if (p->in[i]) {
            onnx_api->ReleaseValue(p->in[i]);
        }
    }
    free(p->in);
    free(p->out);
    free(p->in_names);
    free(p->out_names);
    free(p->zeros);
}

/* Time of one run, or -1. */
static int64_t probe_run(struct probe *p, const struct onnx_model *m)
{
    const int64_t begin = onnx_now_ns();
    OrtStatus *status = onnx_api->Run(m->session, NULL, p->in_names, (const OrtValue *const *)p->in,
                                      m->input_count, p->out_names, m->output_count, p->out);
    const int64_t ns = onnx_now_ns() - begin;
    for (uint32_t i = 0; i < m->output_count; i++) {
        if (p->out[i]) {
            onnx_api->ReleaseValue(p->out[i]);
            p->out[i] = NULL;
        }
    }
    if (status) {
        onnx_api->ReleaseStatus(
            status); /* zeros may be invalid for this model, which is no reason to refuse it */
        return -1;
    }
    return ns;
}

int onnx_model_wants_pool(const struct onnx_model *m, const struct mr_model_desc *desc)
{
    const int64_t rows = desc->max_batch_size < 1    ? 1
                         : desc->max_batch_size > 32 ? 32
                                                     : desc->max_batch_size;
    const uint64_t bytes = input_bytes(m, rows);
    struct probe p = {0};
    struct mr_err err;
    int64_t best = POOL_PAYS_NS;
    if (bytes == 0 || bytes > PROBE_BYTES || m->input_count == 0) {
        return 1;
    }
    if (probe_inputs(&p, m, rows, bytes, &err) == MR_OK) {
        /* the first run pays for page faults and the memory plan; a slow one needs no repetition */
        for (int i = 0; i < PROBE_RUNS; i++) {
            const int64_t ns = probe_run(&p, m);
            best = ns >= 0 && ns < best ? ns : best;
            if (ns < 0 || ns > 20 * POOL_PAYS_NS) {
                break;
            }
        }
    }
    probe_free(&p, m);
    return best >= POOL_PAYS_NS;
}
