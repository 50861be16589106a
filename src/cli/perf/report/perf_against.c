/* Comparison of two runs. The ratio of two percentiles is between the extremes of their intervals; if the intervals
 * overlap, no difference is reported. That is conservative: a reported difference is real. */
#include "perf_against.h"

#include <math.h>

#include "cli/common/term.h"
#include "codec/json.h"

/* ---- reading ---- */

static int read_load(struct mr_json *j, struct perf_old_run *run)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "concurrency") ? mr_json_double(j, &run->concurrency)
             : mr_str_eq_c(key, "rate")      ? mr_json_double(j, &run->rate)
             : mr_str_eq_c(key, "rate_to")   ? mr_json_double(j, &run->rate_to)
             : mr_str_eq_c(key, "poisson")   ? mr_json_bool(j, &run->poisson)
                                             : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static struct perf_estimate *find_percentile(struct perf_old_run *run, mr_str name)
{
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        if (mr_str_eq_c(name, perf_percentiles[k].name)) {
            return &run->at[k];
        }
    }
    return NULL;
}

static int read_latency(struct mr_json *j, struct perf_old_run *run)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        struct perf_estimate *e = find_percentile(run, key);
        rc = e ? mr_json_u64(j, &e->value) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

/* [low, high]; null: no bound. */
static int read_bounds(struct mr_json *j, struct perf_estimate *e)
{
    bool first = true;
    uint64_t *bounds[] = {&e->low, &e->high};
    size_t n = 0;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        rc = mr_json_peek(j) == MR_JSON_NULL || n >= 2 ? mr_json_skip(j, NULL)
                                                       : mr_json_u64(j, bounds[n]);
        n++;
    }
    return rc < 0 ? rc : j->status;
}

static int read_intervals(struct mr_json *j, struct perf_old_run *run)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        struct perf_estimate *e = find_percentile(run, key);
        rc = e ? read_bounds(j, e) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int read_run(struct mr_json *j, struct perf_old_run *run)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        run->at[k].high = UINT64_MAX;
    }
    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "load")           ? read_load(j, run)
             : mr_str_eq_c(key, "rate")         ? mr_json_double(j, &run->answers)
             : mr_str_eq_c(key, "latency_ns")   ? read_latency(j, run)
             : mr_str_eq_c(key, "intervals_ns") ? read_intervals(j, run)
                                                : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int read_report(struct mr_json *j, struct perf_old *out)
{
    bool first_key = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first_key, &key)) {
        bool first = true;
        if (!mr_str_eq_c(key, "runs")) {
            rc = mr_json_skip(j, NULL);
            continue;
        }
        rc = mr_json_enter_array(j);
        while (rc == MR_OK && mr_json_next_item(j, &first)) {
            struct perf_old_run run = {0};
            rc = read_run(j, &run);
            MR_VEC_PUSH(&out->runs, run);
        }
    }
    return rc < 0 ? rc : j->status;
}

int perf_old_parse(mr_str text, struct perf_old *out, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;

    mr_arena_init(&arena, 4096, (size_t)1 << 28);
    mr_json_init(&j, text, &arena, 0, err);
    int rc = read_report(&j, out);
    rc = rc < 0 ? rc : mr_json_finish(&j);
    mr_arena_fini(&arena);
    if (rc == MR_OK && out->runs.len == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "no report of millrace perf: it has no \"runs\"");
    }
    return rc;
}

int perf_old_read(const char *path, struct perf_old *out, struct mr_err *err)
{
    struct mr_buf file;

    mr_buf_init(&file, (size_t)1 << 30);
    int rc = mr_read_whole(path, &file, err);
    rc = rc < 0 ? rc : perf_old_parse(mr_buf_view(&file), out, err);
    mr_buf_fini(&file);
    return rc < 0 ? MR_WRAP(err, rc, "--against %s", path) : MR_OK;
}

void perf_old_fini(struct perf_old *old)
{
    MR_VEC_FINI(&old->runs);
}

const struct perf_old_run *perf_old_find(const struct perf_old *old,
                                         const struct mr_perf_load *load)
{
    for (size_t i = 0; i < old->runs.len; i++) {
        const struct perf_old_run *r = &old->runs.at[i];
        if (r->concurrency == load->concurrency &&
            (load->concurrency || (r->rate == load->rate && r->rate_to == load->rate_to &&
                                   r->poisson == load->poisson))) {
            return r;
        }
    }
    return NULL;
}

/* ---- comparing ---- */

struct perf_estimate perf_estimate_of(const struct mr_perf_result *r, double q)
{
    struct mr_perf_interval i;

    mr_perf_get_interval(r, q, &i);
    return (struct perf_estimate){mr_hdr_quantile(&r->latency, q), i.low_ns, i.high_ns};
}

static double divide(uint64_t a, uint64_t b)
{
    return a == UINT64_MAX || b == 0 ? INFINITY : b == UINT64_MAX ? 0 : (double)a / (double)b;
}

struct perf_ratio perf_ratio_of(const struct perf_estimate *new, const struct perf_estimate *old)
{
    return (struct perf_ratio){
        .value = divide(new->value, old->value),
        .low = divide(new->low, old->high),
        .high = divide(new->high, old->low),
        .verdict = new->low > old->high   ? 1
                   : new->high < old->low ? -1
                                          : 0,
    };
}

/* ---- printing ---- */

static void add_ratio(struct mr_grid *g, const struct perf_ratio *r)
{
    static const char *const words[] = {"faster", "no difference beyond noise", "slower"};
    static const enum mr_style styles[] = {MR_STYLE_GOOD, MR_STYLE_DIM, MR_STYLE_BAD};

    mr_grid_add(g, MR_STYLE_PLAIN, "%.3f", r->value);
    if (isinf(r->high)) {
        mr_grid_add(g, MR_STYLE_PLAIN, "from %.3f", r->low);
    } else {
        mr_grid_add(g, MR_STYLE_PLAIN, "%.3f to %.3f", r->low, r->high);
    }
    mr_grid_add(g, styles[r->verdict + 1], "%s", words[r->verdict + 1]);
}

static void print_run(const struct perf_row *row, const struct perf_old_run *old, FILE *out)
{
    static const char *const head[] = {"", "before", "now", "ratio", "95 % confidence", "", NULL};
    struct mr_grid g;
    char text[32];

    mr_grid_init(&g, head);
    for (size_t k = 0; k < PERF_PERCENTILES; k++) {
        struct perf_estimate now = perf_estimate_of(row->result, perf_percentiles[k].q);
        struct perf_ratio ratio = perf_ratio_of(&now, &old->at[k]);
        mr_grid_add(&g, MR_STYLE_BOLD, "%s", perf_percentiles[k].name);
        mr_text_duration(text, (double)old->at[k].value);
        mr_grid_add(&g, MR_STYLE_PLAIN, "%s", text);
        mr_text_duration(text, (double)now.value);
        mr_grid_add(&g, MR_STYLE_PLAIN, "%s", text);
        add_ratio(&g, &ratio);
    }
    mr_grid_print(&g, out, true, 2);
    mr_grid_fini(&g);
}

void perf_print_against(const struct perf *p, const struct perf_old *old, FILE *out)
{
    char load[64];

    for (size_t i = 0; i < p->rows.len; i++) {
        const struct perf_row *row = &p->rows.at[i];
        const struct perf_old_run *before = perf_old_find(old, &row->load);
        perf_load_text(&row->load, load);
        if (!before) {
            fprintf(out, "%s: nothing to compare with, %s has no run with this load\n", load,
                    p->opt.against);
            continue;
        }
        fprintf(out, "%s against %s: %.1f answers/s before, %.1f now\n", load, p->opt.against,
                before->answers, row->result->rate);
        print_run(row, before, out);
        if (row->result->part_count < 5) {
            fprintf(out,
                    "  less than five seconds: requests are taken as independent of each other, "
                    "which claims too much\n");
        }
    }
}
