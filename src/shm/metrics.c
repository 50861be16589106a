#include "shm/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/vec.h"
#include "segment.h"

#define CELLS        16384u
#define LABELS_MAX   32u
#define BOUNDS_MAX   128u
#define NAME_MAX_LEN 200u
#define TEXT_MAX_LEN 1024u

struct metric {
    char *labels; /* 'a="b",c="d"' */
    uint64_t cell;
    MR_VEC(const void *) owners;
};

struct family {
    char *name, *help;
    enum mr_metric_kind kind;
    double *bounds;
    uint32_t bound_count;
    MR_VEC(struct metric) metrics;
};

struct mr_metrics {
    struct shm_segment segment;
    pthread_mutex_t lock; /* guards what follows; held while metrics are printed */
    MR_VEC(struct family) families;
    bool used[CELLS];
};

static uint32_t cells_of(int kind, uint32_t bound_count)
{
    return kind == MR_METRIC_HISTOGRAM ? bound_count + 2 : 1;
}

static double load(const _Atomic uint64_t *cell)
{
    const uint64_t bits = atomic_load_explicit(cell, memory_order_relaxed);
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(_Atomic uint64_t *cell, double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    atomic_store_explicit(cell, bits, memory_order_relaxed);
}

static void add(_Atomic uint64_t *cell, double value)
{
    uint64_t bits = atomic_load_explicit(cell, memory_order_relaxed), next;
    double sum;

    do {
        memcpy(&sum, &bits, sizeof sum);
        sum += value;
        memcpy(&next, &sum, sizeof next);
    } while (!atomic_compare_exchange_weak_explicit(cell, &bits, next, memory_order_relaxed,
                                                    memory_order_relaxed));
}

static _Atomic uint64_t *cell_at(const struct shm_segment *s, uint64_t cell)
{
    return (_Atomic uint64_t *)(void *)s->data + cell;
}

/* ---- names ---- */

static bool is_name(const char *name, bool may_have_colon)
{
    size_t i = 0;

    for (; name[i]; i++) {
        const char c = name[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
                               (c == ':' && may_have_colon);
        if (i == NAME_MAX_LEN || (!is_letter && (i == 0 || c < '0' || c > '9'))) {
            return false;
        }
    }
    return i > 0;
}

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool is_text(const char *text)
{
    const size_t len = strnlen(text, TEXT_MAX_LEN + 1);

    return len <= TEXT_MAX_LEN && mr_utf8_valid((mr_str){text, len});
}

static int labels_check(const struct mr_metric_args *a, struct mr_err *err)
{
    if (a->label_count > LABELS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "metric '%s' has %u labels, allowed are %u", a->name,
                       a->label_count, LABELS_MAX);
    }
    for (uint32_t i = 0; i < a->label_count; i++) {
        const char *key = a->labels[i].key;
        bool is_twice = false;
        for (uint32_t k = 0; k < i; k++) {
            is_twice |= strcmp(a->labels[k].key, key) == 0;
        }
        if (!is_name(key, false) || begins_with(key, "__") || is_twice ||
            (a->kind == MR_METRIC_HISTOGRAM && strcmp(key, "le") == 0)) {
            return MR_FAIL(err, MR_E_INVALID, "metric '%s': '%.64s' cannot be the name of a label",
                           a->name, key);
        }
        if (!is_text(a->labels[i].value)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "metric '%s': label '%s' needs a value of at most %u bytes in UTF-8",
                           a->name, key, TEXT_MAX_LEN);
        }
    }
    return MR_OK;
}

static int bounds_check(const struct mr_metric_args *a, struct mr_err *err)
{
    const bool is_histogram = a->kind == MR_METRIC_HISTOGRAM;

    if (is_histogram ? a->bound_count < 1 || a->bound_count > BOUNDS_MAX : a->bound_count > 0) {
        return MR_FAIL(err, MR_E_INVALID, "metric '%s' has %u buckets, %s", a->name, a->bound_count,
                       is_histogram ? "a histogram needs 1 to 128" : "which histograms have only");
    }
    for (uint32_t i = 0; i < a->bound_count; i++) {
        if (!isfinite(a->bounds[i]) || (i > 0 && a->bounds[i] <= a->bounds[i - 1])) {
            return MR_FAIL(err, MR_E_INVALID, "metric '%s': buckets have to ascend and be finite",
                           a->name);
        }
    }
    return MR_OK;
}

static int args_check(const struct mr_metric_args *a, struct mr_err *err)
{
    int rc;

    if (!is_name(a->name, true) || begins_with(a->name, "nv_") ||
        begins_with(a->name, "millrace_")) {
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.64s' cannot be the name of a metric: letters, digits, '_' and ':' make "
                       "it, and the server's own begin with nv_ and millrace_",
                       a->name);
    }
    if (!is_text(a->help) || a->kind < MR_METRIC_COUNTER || a->kind > MR_METRIC_HISTOGRAM) {
        return MR_FAIL(err, MR_E_INVALID,
                       "metric '%s' needs a help text of at most %u bytes in UTF-8, and a kind of "
                       "counter, gauge and histogram",
                       a->name, TEXT_MAX_LEN);
    }
    rc = labels_check(a, err);
    return rc < 0 ? rc : bounds_check(a, err);
}

/* ---- the server's side ---- */

int mr_metrics_new(struct mr_metrics **out, struct mr_err *err)
{
    struct mr_metrics *m = MR_NEW(struct mr_metrics);
    const int rc =
        shm_segment_new(&m->segment, "millrace-metrics", CELLS * sizeof(uint64_t), SHM_SHARED, err);

    if (rc < 0) {
        mr_free(m);
        return rc;
    }
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return MR_OK;
}

static void metric_end(struct mr_metrics *m, const struct family *f, struct metric *one)
{
    memset(m->used + one->cell, 0, cells_of((int)f->kind, f->bound_count));
    mr_free(one->labels);
    MR_VEC_FINI(&one->owners);
}

static void family_end(struct family *f)
{
    mr_free(f->name);
    mr_free(f->help);
    mr_free(f->bounds);
    MR_VEC_FINI(&f->metrics);
}

void mr_metrics_free(struct mr_metrics **io)
{
    struct mr_metrics *m = *io;

    if (!m) {
        return;
    }
    for (size_t i = 0; i < m->families.len; i++) {
        struct family *f = &m->families.at[i];
        for (size_t k = 0; k < f->metrics.len; k++) {
            metric_end(m, f, &f->metrics.at[k]);
        }
        family_end(f);
    }
    MR_VEC_FINI(&m->families);
    shm_segment_close(&m->segment);
    pthread_mutex_destroy(&m->lock);
    mr_freep(io);
}

int mr_metrics_fd(const struct mr_metrics *m)
{
    return m->segment.fd;
}

static void put_value(struct mr_buf *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n') {
            MR_BUF_LIT(b, "\\n");
            continue;
        }
        if (*text == '"' || *text == '\\') {
            mr_buf_char(b, '\\');
        }
        mr_buf_char(b, *text);
    }
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct mr_setting *)a)->key, ((const struct mr_setting *)b)->key);
}

/* Sorted: the same labels in another order are the same metric. */
static char *labels_new(const struct mr_metric_args *a)
{
    struct mr_setting sorted[LABELS_MAX];
    struct mr_buf b;

    for (uint32_t i = 0; i < a->label_count; i++) {
        sorted[i] = a->labels[i];
    }
    qsort(sorted, a->label_count, sizeof *sorted, by_key);
    mr_buf_init(&b, 0);
    for (uint32_t i = 0; i < a->label_count; i++) {
        mr_buf_printf(&b, "%s%s=\"", i ? "," : "", sorted[i].key);
        put_value(&b, sorted[i].value);
        mr_buf_char(&b, '"');
    }
    mr_buf_char(&b, '\0');
    return b.ptr;
}

static int family_find(struct mr_metrics *m, const struct mr_metric_args *a, struct family **out,
                       struct mr_err *err)
{
    for (size_t i = 0; i < m->families.len; i++) {
        struct family *f = &m->families.at[i];
        if (strcmp(f->name, a->name) != 0) {
            continue;
        }
        if ((int)f->kind != a->kind || f->bound_count != a->bound_count ||
            (a->bound_count > 0 &&
             memcmp(f->bounds, a->bounds, a->bound_count * sizeof *a->bounds) != 0)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "there is a metric '%s' already, of another kind or with other buckets",
                           a->name);
        }
        *out = f;
        return MR_OK;
    }
    struct family f = {.name = mr_strndup(a->name, strlen(a->name)),
                       .help = mr_strndup(a->help, strlen(a->help)),
                       .kind = (enum mr_metric_kind)a->kind,
                       .bounds = MR_NEW_ARRAY(double, a->bound_count + 1),
                       .bound_count = a->bound_count};
    for (uint32_t i = 0; i < a->bound_count; i++) {
        f.bounds[i] = a->bounds[i];
    }
    MR_VEC_PUSH(&m->families, f);
    *out = &m->families.at[m->families.len - 1];
    return MR_OK;
}

static bool cells_take(struct mr_metrics *m, uint32_t count, uint64_t *out)
{
    uint32_t run = 0;

    for (uint32_t i = 0; i < CELLS; i++) {
        run = m->used[i] ? 0 : run + 1;
        if (run == count) {
            *out = i + 1 - count;
            memset(m->used + *out, 1, count);
            for (uint32_t k = 0; k < count; k++) {
                store(cell_at(&m->segment, *out + k), 0);
            }
            return true;
        }
    }
    return false;
}

static void owner_add(struct metric *one, const void *owner)
{
    for (size_t i = 0; i < one->owners.len; i++) {
        if (one->owners.at[i] == owner) {
            return;
        }
    }
    MR_VEC_PUSH(&one->owners, owner);
}

/* Lock held. Takes the labels. */
static int metric_find(struct mr_metrics *m, struct family *f, char *labels, const void *owner,
                       uint64_t *out_cell, struct mr_err *err)
{
    struct metric one = {.labels = labels};

    for (size_t i = 0; i < f->metrics.len; i++) {
        if (strcmp(f->metrics.at[i].labels, labels) == 0) {
            owner_add(&f->metrics.at[i], owner);
            *out_cell = f->metrics.at[i].cell;
            mr_free(labels);
            return MR_OK;
        }
    }
    if (!cells_take(m, cells_of((int)f->kind, f->bound_count), &one.cell)) {
        mr_free(labels);
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "no room for metric '%s': metrics of models have %u numbers in all", f->name,
                       CELLS);
    }
    owner_add(&one, owner);
    MR_VEC_PUSH(&f->metrics, one);
    *out_cell = one.cell;
    return MR_OK;
}

static void family_drop_empty(struct mr_metrics *m, size_t i)
{
    if (m->families.at[i].metrics.len == 0) {
        family_end(&m->families.at[i]);
        m->families.at[i] = m->families.at[--m->families.len];
    }
}

int mr_metrics_add(struct mr_metrics *m, const void *owner, const struct mr_metric_args *args,
                   uint64_t *out_cell, struct mr_err *err)
{
    struct family *f = NULL;
    int rc = args_check(args, err);

    if (rc < 0) {
        return rc;
    }
    char *labels = labels_new(args);
    pthread_mutex_lock(&m->lock);
    rc = family_find(m, args, &f, err);
    if (rc == MR_OK) {
        rc = metric_find(m, f, labels, owner, out_cell, err);
        family_drop_empty(m, (size_t)(f - m->families.at));
    } else {
        mr_free(labels);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

/* True: it has no owner any more. */
static bool owner_leave(struct metric *one, const void *owner)
{
    for (size_t i = 0; i < one->owners.len; i++) {
        if (one->owners.at[i] == owner) {
            one->owners.at[i] = one->owners.at[--one->owners.len];
        }
    }
    return one->owners.len == 0;
}

void mr_metrics_leave(struct mr_metrics *m, const void *owner)
{
    pthread_mutex_lock(&m->lock);
    for (size_t i = m->families.len; i-- > 0;) {
        struct family *f = &m->families.at[i];
        for (size_t k = f->metrics.len; k-- > 0;) {
            if (owner_leave(&f->metrics.at[k], owner)) {
                metric_end(m, f, &f->metrics.at[k]);
                f->metrics.at[k] = f->metrics.at[--f->metrics.len];
            }
        }
        family_drop_empty(m, i);
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- text ---- */

/* The shorter one of two texts that give the same number again. */
static void put_number(struct mr_buf *b, double v)
{
    char text[32];

    if (isnan(v)) {
        MR_BUF_LIT(b, "NaN");
    } else if (isinf(v)) {
        mr_buf_c(b, v > 0 ? "+Inf" : "-Inf");
    } else {
        snprintf(text, sizeof text, "%.15g", v);
        mr_buf_printf(b, strtod(text, NULL) == v ? "%.15g" : "%.17g", v);
    }
}

static void put_sample(struct mr_buf *b, const struct family *f, const char *suffix,
                       const struct metric *one, double v)
{
    mr_buf_printf(b, one->labels[0] ? "%s%s{%s} " : "%s%s%s ", f->name, suffix, one->labels);
    put_number(b, v);
    mr_buf_char(b, '\n');
}

static void put_histogram(struct mr_buf *b, const struct family *f, const struct metric *one,
                          const _Atomic uint64_t *cells)
{
    double count = 0;

    for (uint32_t i = 0; i <= f->bound_count; i++) {
        count += load(&cells[i]);
        mr_buf_printf(b, "%s_bucket{%s%sle=\"", f->name, one->labels, one->labels[0] ? "," : "");
        put_number(b, i < f->bound_count ? f->bounds[i] : (double)INFINITY);
        MR_BUF_LIT(b, "\"} ");
        put_number(b, count);
        mr_buf_char(b, '\n');
    }
    put_sample(b, f, "_sum", one, load(&cells[f->bound_count + 1]));
    put_sample(b, f, "_count", one, count);
}

static void put_help(struct mr_buf *b, const struct family *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};

    mr_buf_printf(b, "# HELP %s ", f->name);
    for (const char *c = f->help; *c; c++) {
        if (*c == '\n' || *c == '\\') {
            mr_buf_char(b, '\\');
        }
        mr_buf_char(b, *c == '\n' ? 'n' : *c);
    }
    mr_buf_printf(b, "\n# TYPE %s %s\n", f->name, kinds[f->kind]);
}

void mr_metrics_print(struct mr_metrics *m, struct mr_buf *b)
{
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->families.len; i++) {
        const struct family *f = &m->families.at[i];
        put_help(b, f);
        for (size_t k = 0; k < f->metrics.len; k++) {
            const struct metric *one = &f->metrics.at[k];
            const _Atomic uint64_t *cells = cell_at(&m->segment, one->cell);
            if (f->kind == MR_METRIC_HISTOGRAM) {
                put_histogram(b, f, one, cells);
                continue;
            }
            put_sample(b, f, "", one, load(cells));
        }
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- a worker's side ---- */

struct mr_metrics_view {
    struct shm_segment segment;
};

int mr_metrics_view_open(struct mr_metrics_view **out, int fd, struct mr_err *err)
{
    struct mr_metrics_view *v = MR_NEW(struct mr_metrics_view);
    int rc = shm_segment_map(&v->segment, fd, SHM_SHARED, err);

    if (rc == MR_OK && v->segment.bytes != CELLS * sizeof(uint64_t)) {
        rc = MR_FAIL(err, MR_E_INVALID, "memory for metrics of %zu bytes", v->segment.bytes);
        shm_segment_unmap(&v->segment);
    }
    if (rc < 0) {
        mr_free(v);
        return rc;
    }
    *out = v;
    return MR_OK;
}

void mr_metrics_view_close(struct mr_metrics_view **v)
{
    if (*v) {
        shm_segment_unmap(&(*v)->segment);
        mr_freep(v);
    }
}

int mr_metric_open(struct mr_metric **out, const struct mr_metrics_view *v,
                   const struct mr_metric_args *args, uint64_t cell, struct mr_err *err)
{
    const uint32_t count = args->bound_count;
    struct mr_metric *m;

    if (count > BOUNDS_MAX || cell > CELLS - cells_of(args->kind, count)) {
        return MR_FAIL(err, MR_E_INVALID, "metric '%s' has no numbers", args->name);
    }
    m = mr_alloc(sizeof *m + count * sizeof *m->bounds);
    m->cells = cell_at(&v->segment, cell);
    m->bound_count = count;
    m->is_histogram = args->kind == MR_METRIC_HISTOGRAM;
    for (uint32_t i = 0; i < count; i++) {
        m->bounds[i] = args->bounds[i];
    }
    *out = m;
    return MR_OK;
}

void mr_metric_add(struct mr_metric *m, double value)
{
    uint32_t i = 0;

    if (!m->is_histogram) {
        add(m->cells, value);
        return;
    }
    while (i < m->bound_count && !(value <= m->bounds[i])) {
        i++;
    }
    add(&m->cells[i], 1);
    add(&m->cells[m->bound_count + 1], value);
}

void mr_metric_set(struct mr_metric *m, double value)
{
    store(m->cells, value);
}

double mr_metric_value(const struct mr_metric *m)
{
    double count = 0;

    for (uint32_t i = 0; m->is_histogram && i <= m->bound_count; i++) {
        count += load(&m->cells[i]);
    }
    return m->is_histogram ? count : load(m->cells);
}
