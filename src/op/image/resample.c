/* Separable resampling: for each pixel of an axis the first source pixel and the weights of those that follow. Rows are sampled along
 * x as they are needed, and the last two kept: the memory is that of three rows, whatever the sizes, at the price that a smaller image
 * samples some rows twice. */
#include "resample.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

struct taps {
    uint32_t n;      /* per pixel */
    uint32_t count;  /* pixels */
    uint32_t from;   /* source pixels */
    uint32_t *first; /* [count] */
    float *weights;  /* [count * n] */
};

struct resample_plan {
    struct taps x, y;
};

/* Source pixels that a pixel reads at most. */
static uint32_t tap_count(enum resample_method method, double scale, uint32_t from)
{
    double span = method == RESAMPLE_NEAREST    ? 1
                  : method == RESAMPLE_BILINEAR ? 2
                                                : 2 * fmax(scale, 1) + 2;

    return span >= from ? from : (uint32_t)span;
}

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

/* A triangle of half width `radius` around `center`, cut at the borders, with a sum of 1. */
static void fill_triangle(struct taps *t, uint32_t i, double center, double radius)
{
    double low = clamp(floor(center - radius + 0.5), 0, t->from);
    double high = clamp(floor(center + radius + 0.5), 0, t->from);
    uint32_t first = (uint32_t)fmin(low, t->from - t->n);
    float *w = t->weights + (size_t)i * t->n;
    double sum = 0;

    t->first[i] = first;
    for (uint32_t k = 0; k < t->n; k++) {
        double at = first + k;
        double weight = at >= low && at < high ? 1 - fabs((at + 0.5 - center) / radius) : 0;
        w[k] = (float)fmax(weight, 0);
        sum += (double)w[k];
    }
    for (uint32_t k = 0; k < t->n; k++) {
        w[k] = sum > 0 ? (float)((double)w[k] / sum) : k == 0;
    }
}

static void fill_pair(struct taps *t, uint32_t i, double center)
{
    double at = clamp(center - 0.5, 0, t->from - 1);
    uint32_t first = (uint32_t)fmin(floor(at), t->from - t->n);
    float *w = t->weights + (size_t)i * t->n;

    t->first[i] = first;
    w[0] = 1;
    if (t->n > 1) {
        w[1] = (float)(at - first);
        w[0] = 1 - w[1];
    }
}

static void fill_nearest(struct taps *t, uint32_t i, double center)
{
    t->first[i] = (uint32_t)clamp(floor(center), 0, t->from - 1);
    t->weights[i] = 1;
}

static void fill_axis(struct taps *t, enum resample_method method, const struct resample_axis *axis)
{
    double scale = (axis->end - axis->begin) / axis->to;

    for (uint32_t i = 0; i < t->count; i++) {
        double center = axis->begin + (i + 0.5) * scale;
        switch (method) {
        case RESAMPLE_NEAREST: fill_nearest(t, i, center); break;
        case RESAMPLE_BILINEAR: fill_pair(t, i, center); break;
        case RESAMPLE_AREA: fill_triangle(t, i, clamp(center, 0, t->from), fmax(scale, 1)); break;
        }
    }
}

struct resample_plan *resample_plan(enum resample_method method, const struct resample_axis *x,
                                    const struct resample_axis *y)
{
    struct taps tx = {.n = tap_count(method, (x->end - x->begin) / x->to, x->from),
                      .count = x->to,
                      .from = x->from};
    struct taps ty = {.n = tap_count(method, (y->end - y->begin) / y->to, y->from),
                      .count = y->to,
                      .from = y->from};
    size_t words = (size_t)tx.count * (tx.n + (size_t)1) + (size_t)ty.count * (ty.n + (size_t)1);
    struct resample_plan *p = mr_try_alloc(sizeof *p + words * 4);

    if (!p) {
        return NULL;
    }
    tx.first = (uint32_t *)(p + 1);
    ty.first = tx.first + tx.count;
    tx.weights = (float *)(ty.first + ty.count);
    ty.weights = tx.weights + (size_t)tx.count * tx.n;
    fill_axis(&tx, method, x);
    fill_axis(&ty, method, y);
    p->x = tx;
    p->y = ty;
    return p;
}

static void sample_row_u8(const struct taps *x, const uint8_t *from, float *to, size_t channels)
{
    for (uint32_t i = 0; i < x->count; i++) {
        const uint8_t *p = from + x->first[i] * channels;
        const float *w = x->weights + (size_t)i * x->n;
        for (size_t c = 0; c < channels; c++) {
            float sum = 0;
            for (uint32_t k = 0; k < x->n; k++) {
                sum += w[k] * (float)p[k * channels + c];
            }
            *to++ = sum;
        }
    }
}

static void sample_row_float(const struct taps *x, const float *from, float *to, size_t channels)
{
    for (uint32_t i = 0; i < x->count; i++) {
        const float *p = from + x->first[i] * channels;
        const float *w = x->weights + (size_t)i * x->n;
        for (size_t c = 0; c < channels; c++) {
            float sum = 0;
            for (uint32_t k = 0; k < x->n; k++) {
                sum += w[k] * p[k * channels + c];
            }
            *to++ = sum;
        }
    }
}

/* What a run goes on with. */
struct resampling {
    const struct resample_plan *plan;
    const void *from;
    size_t channels, width; /* width: floats of a row of the result */
    bool is_float;
    float *sum;
    float *rows[2];    /* source rows sampled along x, by the parity of their index */
    uint32_t index[2]; /* + 1; 0: none */
};

static const float *source_row(struct resampling *r, uint32_t index)
{
    const struct taps *x = &r->plan->x;
    float *to = r->rows[index % 2];
    size_t row_elements = x->from * r->channels;

    if (r->index[index % 2] == index + 1) {
        return to;
    }
    r->index[index % 2] = index + 1;
    if (r->is_float) {
        sample_row_float(x, (const float *)r->from + index * row_elements, to, r->channels);
    } else {
        sample_row_u8(x, (const uint8_t *)r->from + index * row_elements, to, r->channels);
    }
    return to;
}

static bool sum_rows(struct resampling *r, uint32_t i, bool (*spend)(void *ctx, uint64_t units),
                     void *ctx)
{
    const struct taps *y = &r->plan->y;

    memset(r->sum, 0, r->width * sizeof(float));
    for (uint32_t k = 0; k < y->n; k++) {
        float w = y->weights[(size_t)i * y->n + k];
        if (w == 0) {
            continue;
        }
        const float *row = source_row(r, y->first[i] + k);
        for (size_t e = 0; e < r->width; e++) {
            r->sum[e] += w * row[e];
        }
        if (spend && !spend(ctx, r->width * (r->plan->x.n + (size_t)1))) {
            return false;
        }
    }
    return true;
}

static void put_row(const struct resampling *r, uint32_t i, void *to)
{
    for (size_t e = 0; e < r->width; e++) {
        float v = r->sum[e];
        if (r->is_float) {
            ((float *)to)[i * r->width + e] = v;
        } else {
            ((uint8_t *)to)[i * r->width + e] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v + 0.5f);
        }
    }
}

bool resample_run(const struct resample_plan *plan, const void *from, void *to, size_t channels,
                  bool is_float, bool (*spend)(void *ctx, uint64_t units), void *ctx)
{
    struct resampling r = {.plan = plan,
                           .from = from,
                           .channels = channels,
                           .width = plan->x.count * channels,
                           .is_float = is_float};

    r.sum = mr_try_alloc(3 * r.width * sizeof(float));
    if (!r.sum) {
        return false;
    }
    r.rows[0] = r.sum + r.width;
    r.rows[1] = r.rows[0] + r.width;
    bool is_ok = true;
    for (uint32_t i = 0; i < plan->y.count && is_ok; i++) {
        is_ok = sum_rows(&r, i, spend, ctx);
        put_row(&r, i, to);
    }
    mr_free(r.sum);
    return is_ok;
}
