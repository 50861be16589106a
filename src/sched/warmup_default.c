/* The default warm-up: generated requests for models without requests of their own, so that the first clients do not
 * pay for memory and kernels that a model allocates when it first runs.
 *
 * Zeros and random values alternate, at each batch size, until two runs in a row took the same time. All of it is
 * bounded: runs per size, bytes per request, and the time, which the instances share, and at start all versions. As
 * the values are ours, an execution that fails says nothing about the model: it is logged once and the warm-up goes
 * on. The exceptions are a request of several rows that fails where one row runs, and an answer with another number
 * of rows than the request: joined requests would fail the same way, so they are not joined. Only a cancelled load
 * ends it with an error. */
#include "base/log.h"
#include "warmup.h"

/* Inputs and outputs of one request, as far as their sizes are known. */
#define REQUEST_BYTES_MAX (UINT64_C(32) << 20)
/* Differences below this are noise. */
#define NOISE_NS (20 * MR_NS_PER_US)
/* A run this short is made even if the budget is spent. */
#define CHEAP_NS (250 * MR_NS_PER_US)
/* Lists of categories, masks, and numbers of steps begin with these. */
#define WHOLE_MOST 1
/* An element of BYTES: its length and one digit. */
#define DIGIT_BYTES 5

static bool has_size(const int64_t *sizes, size_t count, int64_t rows)
{
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == rows) {
            return true;
        }
    }
    return false;
}

size_t warmup_sizes(const struct mr_sched *s, int64_t out[WARMUP_SIZES_MAX])
{
    int64_t most = s->version->max_batch_size;
    size_t n = 0;

    out[n++] = most > 0 ? 1 : 0;
    if (most > 1) {
        out[n++] = most;
    }
    for (size_t i = s->preferred_count; i-- > 0 && n < WARMUP_SIZES_MAX;) {
        if (s->preferred[i] > 0 && s->preferred[i] < most && !has_size(out, n, s->preferred[i])) {
            out[n++] = s->preferred[i];
        }
    }
    return n;
}

bool warmup_is_steady(int64_t one_ns, int64_t other_ns)
{
    int64_t less = MR_MIN(one_ns, other_ns), more = MR_MAX(one_ns, other_ns);

    return more - less <= MR_MAX(NOISE_NS, more / 5);
}

/* ---- one request ---- */

/* A dimension that is open is 1 long. */
static int make_shape(struct mr_arena *a, const struct mr_model_io *io, int64_t rows,
                      struct mr_tensor *t, uint64_t *elements, struct mr_err *err)
{
    int lead = rows > 0 ? 1 : 0;
    int64_t *shape = MR_ARENA_ARRAY(a, int64_t, (size_t)io->rank + 1);

    if (!shape) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a warm-up request");
    }
    shape[0] = rows;
    for (int i = 0; i < io->rank; i++) {
        shape[lead + i] = io->dims[i] < 0 ? 1 : io->dims[i];
    }
    t->shape = shape;
    t->rank = io->rank + lead;
    t->dtype = io->dtype;
    int rc = mr_shape_elements(shape, t->rank, elements, err);
    uint64_t unit = t->dtype == MR_DTYPE_BYTES ? DIGIT_BYTES : mr_dtype_size(t->dtype);
    if (rc == MR_OK && *elements > REQUEST_BYTES_MAX / unit) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "'%.*s' would be large", MR_STR_ARG(io->name));
    }
    t->bytes = rc == MR_OK ? *elements * unit : 0;
    return rc;
}

static int add_bytes(uint64_t *sum, const struct mr_tensor *t, struct mr_err *err)
{
    *sum += t->bytes;
    return *sum > REQUEST_BYTES_MAX
               ? MR_FAIL(err, MR_E_TOO_LARGE, "the request would be larger than 32 MiB")
               : MR_OK;
}

/* Shapes and places of all inputs; optional ones are sent, too. *elements: of each input. */
static int make_request(struct warmup_sample *sm, int64_t rows, uint64_t **elements,
                        struct mr_err *err)
{
    struct mr_infer *r = &sm->infer;
    const struct mr_version *v = r->version;
    struct mr_tensor out;
    uint64_t sum = 0, unused;
    int rc;

    MR_TRY(warmup_sample_begin(sm, rows, err));
    *elements = MR_ARENA_ARRAY(&sm->arena, uint64_t, v->input_count + 1);
    if (!*elements) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a warm-up request");
    }
    for (uint32_t i = 0; i < v->input_count; i++) {
        MR_TRY(make_shape(&sm->arena, &v->inputs[i], rows, &r->inputs[i], &(*elements)[i], err));
        MR_TRY(add_bytes(&sum, &r->inputs[i], err));
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        MR_TRY(make_shape(&sm->scratch, &v->outputs[i], rows, &out, &unused, err));
        MR_TRY(add_bytes(&sum, &out, err));
    }
    for (uint32_t i = 0; i < v->input_count; i++) {
        r->inputs[i].data = warmup_sample_block(sm, r->inputs[i].bytes);
        if (!r->inputs[i].data) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a warm-up request");
        }
    }
out:
    return rc;
}

static void fill_digits(struct mr_tensor *t, uint64_t elements, bool is_random)
{
    uint8_t *to = t->data;

    for (uint64_t i = 0; i < elements; i++, to += DIGIT_BYTES) {
        const uint32_t len = 1;
        memcpy(to, &len, sizeof len);
        to[4] = (uint8_t)('0' + (is_random ? (i + 1) % 10 : 0));
    }
}

static void fill_request(struct warmup_sample *sm, const uint64_t *elements, bool is_random)
{
    struct mr_infer *r = &sm->infer;

    for (uint32_t i = 0; i < r->version->input_count; i++) {
        struct mr_tensor *t = &r->inputs[i];
        if (t->dtype == MR_DTYPE_BYTES) {
            fill_digits(t, elements[i], is_random);
        } else if (is_random) {
            warmup_fill(t, elements[i], WHOLE_MOST);
        } else {
            memset(t->data, 0, t->bytes);
        }
    }
}

/* ---- the runs ---- */

static void report(struct warmup *w, int64_t rows, const struct mr_err *why)
{
    const struct mr_version *v = w->s->version;

    if (w->has_failed) {
        return;
    }
    w->has_failed = true;
    mr_log(MR_LOG_INFO, "model.warmup",
           "model=%s version=%lld rows=%lld a made-up request did not run, the load goes on: %s",
           MR_LOG_STR(v->model_name), (long long)v->number, (long long)rows, why->msg);
}

/* The batch failed: the answer has another number of rows, or one row runs and several do not, for another reason
 * than memory. */
static bool is_about_rows(const struct warmup *w, int64_t rows, const struct mr_err *why)
{
    const int rc = why->status;

    return (rows > 0 && (why->flags & MR_ERR_ROWS)) ||
           (rows > 1 && w->one_ran && rc != MR_E_NOMEM && rc != MR_E_EXHAUSTED);
}

static void stop_batching(struct warmup *w, int64_t rows, const struct mr_err *why)
{
    struct mr_version *v = w->s->version;

    if (v->cannot_batch) {
        return; /* another instance has found it */
    }
    v->cannot_batch = true;
    mr_log(MR_LOG_WARN, "model.batching_off",
           "model=%s version=%lld rows=%lld it cannot batch, and its requests are not joined: a "
           "made-up one of this many rows failed: %s",
           MR_LOG_STR(v->model_name), (long long)v->number, (long long)rows, why->msg);
}

/* The versions of a start draw from one budget, as the server is ready when the last of them is. Each has one run;
 * further runs must fit, by the last duration of a row. So cheap models get all of their runs next to expensive
 * ones. Relaxed: each loader may overdraw the budget by one run. */
static bool fits(const struct warmup *w, int64_t rows)
{
    struct mr_warmup_budget *b = w->s->options.warmup_budget;
    const int64_t likely_ns = w->row_ns * MR_MAX(rows, 1);

    return !b || !w->has_run || likely_ns <= CHEAP_NS ||
           likely_ns <= atomic_load_explicit(&b->left_ns, memory_order_relaxed);
}

static int run_once(struct warmup *w, struct warmup_sample *sm, void *instance, struct mr_err *err)
{
    struct mr_warmup_budget *b = w->s->options.warmup_budget;
    const int64_t begin = mr_now_ns();
    int rc = warmup_sample_run(sm, w->s, instance, err);
    const int64_t took = mr_now_ns() - begin;

    w->has_run = true;
    w->row_ns = took / MR_MAX(sm->infer.rows, 1);
    if (b) {
        atomic_fetch_sub_explicit(&b->left_ns, took, memory_order_relaxed);
    }
    return rc;
}

/* 1: it ran; 0: it could not be made, or did not fit. */
static int run_size(struct warmup *w, void *instance, int64_t rows, int64_t until_ns,
                    struct mr_err *err)
{
    struct warmup_sample sm;
    uint64_t *elements = NULL;
    int64_t before = 0;
    unsigned run = 0;
    int rc = MR_OK;

    warmup_sample_init(&sm, w->s->version);
    bool is_made = make_request(&sm, rows, &elements, err) == MR_OK;
    if (!is_made) {
        warmup_tell_none(w->s, err->msg);
    }
    for (; is_made && run < WARMUP_RUNS_MAX && mr_now_ns() < until_ns && fits(w, rows); run++) {
        fill_request(&sm, elements, run % 2 == 1);
        MR_TRY(run_once(w, &sm, instance, err));
        int64_t took = sm.infer.times.end - sm.infer.times.start;
        if (run > 0 && warmup_is_steady(before, took)) {
            break;
        }
        before = took;
    }
out:
    warmup_sample_fini(&sm);
    return rc < 0 ? rc : run > 0;
}

int warmup_default_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err)
{
    int64_t sizes[WARMUP_SIZES_MAX], begin = mr_now_ns();
    int64_t until = mr_ns_after(begin, w->left_ns / MR_MAX(1u, instances));
    size_t count = w->s->version->cannot_batch ? 1 : warmup_sizes(w->s, sizes);

    sizes[0] = w->s->version->max_batch_size > 0 ? 1 : 0;
    for (size_t i = 0; i < count && mr_now_ns() < until; i++) {
        struct mr_err why = {0};
        int rc = run_size(w, instance, sizes[i], until, &why);
        if (rc == MR_E_CANCELLED && mr_version_is_unwanted(w->s->version)) {
            if (err) {
                *err = why;
            }
            return rc;
        }
        if (rc < 0 && is_about_rows(w, sizes[i], &why)) {
            stop_batching(w, sizes[i], &why);
            break;
        }
        if (rc < 0) {
            report(w, sizes[i], &why);
        }
        if (rc < 0 && (why.flags & MR_ERR_LOST)) {
            break; /* a worker process ended with it */
        }
        w->one_ran |= i == 0 && rc > 0;
    }
    w->left_ns = MR_MAX(0, w->left_ns - (mr_now_ns() - begin));
    return MR_OK;
}
