/* The results of `millrace perf` as text. */
#include "base/clock.h"
#include "cli/common/term.h"
#include "cli/perf/setup/perf.h"

const struct perf_percentile perf_percentiles[PERF_PERCENTILES] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999},
};

const char *perf_protocol_text(const struct perf *p)
{
    static const char *const names[] = {"REST with JSON", "REST with binary tensors", "gRPC",
                                        "gRPC streams"};

    return names[p->opt.protocol];
}

void perf_load_text(const struct mr_perf_load *load, char out[64])
{
    if (load->concurrency) {
        snprintf(out, 64, "%u at a time", load->concurrency);
    } else if (load->rate_to > 0) {
        snprintf(out, 64, "%.6g..%.6g/s%s", load->rate, load->rate_to,
                 load->poisson ? " Poisson" : "");
    } else {
        snprintf(out, 64, "%.6g/s%s", load->rate, load->poisson ? " Poisson" : "");
    }
}

void perf_print_head(const struct perf *p, FILE *out)
{
    char bytes[32];
    char warmup[32];
    char duration[32];

    mr_text_bytes(bytes, p->bodies[0].len);
    mr_text_duration(warmup, (double)p->opt.warmup_ns);
    mr_text_duration(duration, (double)p->opt.duration_ns);
    fprintf(out, "%s at %s, %s%s, %zu different request%s of %s\n", p->opt.model, p->target.address,
            perf_protocol_text(p), p->opt.http2 ? " over HTTP/2" : "", p->body_count,
            p->body_count == 1 ? "" : "s", bytes);
    if (p->opt.requests) {
        fprintf(out, "%llu requests after %s of warm-up\n", (unsigned long long)p->opt.requests,
                warmup);
    } else {
        fprintf(out, "%s after %s of warm-up\n", duration, warmup);
    }
    fflush(out);
}

static void add_duration(struct mr_grid *g, const struct mr_hdr_histogram *h, double ns)
{
    char text[32];

    mr_text_duration(text, ns);
    mr_grid_add(g, MR_STYLE_PLAIN, "%s", h->total ? text : "-");
}

static void print_table(const struct perf *p, FILE *out)
{
    static const char *const head[] = {"load", "answers/s", "failed", "mean",   "p50", "p90",
                                       "p95",  "p99",       "p99.9",  "p99.99", "max", NULL};
    struct mr_grid g;

    mr_grid_init(&g, head);
    for (size_t i = 0; i < p->rows.len; i++) {
        const struct mr_perf_result *r = p->rows.at[i].result;
        char load[64];
        perf_load_text(&p->rows.at[i].load, load);
        mr_grid_add(&g, MR_STYLE_BOLD, "%s", load);
        mr_grid_add(&g, MR_STYLE_PLAIN, "%.1f", r->rate);
        mr_grid_add(&g, r->failed ? MR_STYLE_BAD : MR_STYLE_PLAIN, "%llu",
                    (unsigned long long)r->failed);
        add_duration(&g, &r->latency, mr_hdr_mean(&r->latency));
        for (size_t k = 0; k < PERF_PERCENTILES; k++) {
            add_duration(&g, &r->latency,
                         (double)mr_hdr_quantile(&r->latency, perf_percentiles[k].q));
        }
        add_duration(&g, &r->latency, (double)r->latency.max);
    }
    mr_grid_print(&g, out, true, 0);
    mr_grid_fini(&g);
}

#define RAMP_LINES      12
#define RAMP_SHORTEST_S 0.05 /* of the last second */

/* Latencies along a ramp. Percentiles of seconds cannot be joined, so each line has the worst of its seconds. */
static void print_ramp(const struct perf_row *row, FILE *out)
{
    static const char *const head[] = {"from", "rate", "answers/s", "failed",
                                       "p50",  "p99",  "max",       NULL};
    const struct mr_perf_load *load = &row->load;
    const struct mr_perf_result *r = row->result;
    size_t count = r->windows.len;
    struct mr_grid g;
    char text[32];

    mr_grid_init(&g, head);
    /* A second after the end of the ramp has late answers only, without a rate. */
    while (count > 1 &&
           (r->windows.at[count - 1].begin_s + RAMP_SHORTEST_S) * (double)MR_NS_PER_S >=
               (double)load->duration_ns) {
        count--;
    }
    const size_t each = (count + RAMP_LINES - 1) / RAMP_LINES;
    for (size_t i = 0; i < count; i += each) {
        struct mr_perf_second sum = r->windows.at[i];
        for (size_t k = i + 1; k < MR_MIN(i + each, count); k++) {
            const struct mr_perf_second *s = &r->windows.at[k];
            sum.length_s += s->length_s;
            sum.answered += s->answered;
            sum.failed += s->failed;
            sum.p50_ns = MR_MAX(sum.p50_ns, s->p50_ns);
            sum.p99_ns = MR_MAX(sum.p99_ns, s->p99_ns);
            sum.max_ns = MR_MAX(sum.max_ns, s->max_ns);
        }
        const double middle = (sum.begin_s + sum.length_s / 2) * (double)MR_NS_PER_S;
        const double share = MR_MIN(middle / (double)load->duration_ns, 1.0);
        mr_grid_add(&g, MR_STYLE_PLAIN, "%.0f s", sum.begin_s);
        mr_grid_add(&g, MR_STYLE_BOLD, "%.1f/s", load->rate + share * (load->rate_to - load->rate));
        mr_grid_add(&g, MR_STYLE_PLAIN, "%.1f",
                    sum.length_s > 0 ? (double)sum.answered / sum.length_s : 0);
        mr_grid_add(&g, sum.failed ? MR_STYLE_BAD : MR_STYLE_PLAIN, "%llu",
                    (unsigned long long)sum.failed);
        const uint64_t times[3] = {sum.p50_ns, sum.p99_ns, sum.max_ns};
        for (size_t k = 0; k < 3; k++) {
            mr_text_duration(text, (double)times[k]);
            mr_grid_add(&g, MR_STYLE_PLAIN, "%s", sum.answered ? text : "-");
        }
    }
    fprintf(out, "along the ramp%s:\n", each > 1 ? ", the worst second of each stretch" : "");
    mr_grid_print(&g, out, true, 0);
    mr_grid_fini(&g);
}

static double mean_of(struct mr_stats_time t)
{
    return t.count ? (double)t.ns / (double)t.count : 0;
}

double perf_server_compute(const struct mr_stats_row *s)
{
    return mean_of(s->input) + mean_of(s->infer) + mean_of(s->output);
}

double perf_server_queue(const struct mr_stats_row *s)
{
    return mean_of(s->queue);
}

/* The server also counts the warm-up. */
uint64_t perf_foreign(const struct perf_row *row)
{
    const struct mr_perf_result *r = row->result;
    uint64_t sent = r->sent + r->warmup_sent;

    return row->server.success.count > sent ? row->server.success.count - sent : 0;
}

static void print_server(const struct perf_row *row, FILE *out, struct mr_term term)
{
    const struct mr_stats_row *s = &row->server;
    char queue[32];
    char compute[32];
    uint64_t foreign = perf_foreign(row);

    if (s->success.count == 0) {
        return;
    }
    mr_text_duration(queue, perf_server_queue(s));
    mr_text_duration(compute, perf_server_compute(s));
    fprintf(out,
            "  server, in the mean with the warm-up: queue %s, compute %s, %.2f per execution\n",
            queue, compute, s->executions ? (double)s->inferences / (double)s->executions : 0.0);
    if (foreign) {
        fprintf(out,
                "  %swarning: the model answered %llu requests of others at the same time, which "
                "count in "
                "the server's figures%s\n",
                mr_term_on(term, MR_STYLE_WARN), (unsigned long long)foreign, mr_term_off(term));
    }
}

static void print_remarks(const struct perf_row *row, FILE *out, struct mr_term term)
{
    const struct mr_perf_result *r = row->result;
    char load[64];
    char name[32];
    char doubt[320];

    perf_load_text(&row->load, load);
    fprintf(out,
            "%s: %llu sent, %llu answered, %llu failed in %.3f s; client %.0f %% of a CPU, %u "
            "connections\n",
            load, (unsigned long long)r->sent, (unsigned long long)r->answered,
            (unsigned long long)r->failed, r->seconds, 100 * r->cpu, r->connections + r->grown);
    for (size_t i = 0; i < r->errors.count; i++) {
        mr_perf_error_name(&r->errors.kinds[i], name);
        fprintf(out, "  %s%llu x %s%s: %s\n", mr_term_on(term, MR_STYLE_BAD),
                (unsigned long long)r->errors.kinds[i].count, name, mr_term_off(term),
                r->errors.kinds[i].text);
    }
    if (r->warmup_failed) {
        fprintf(out, "  of these in the warm-up: %llu\n", (unsigned long long)r->warmup_failed);
    }
    if (row->has_server) {
        print_server(row, out, term);
    }
    if (r->gave_up) {
        fprintf(out,
                "  %llu got no answer; they count in the latencies with the time they waited\n",
                (unsigned long long)r->gave_up);
    }
    if (mr_perf_doubt(r, &row->load, doubt, sizeof doubt)) {
        fprintf(out, "  %swarning: %s%s\n", mr_term_on(term, MR_STYLE_WARN), doubt,
                mr_term_off(term));
    }
}

static void print_objective(const struct perf *p, FILE *out)
{
    struct mr_perf_load load = p->rows.at[0].load;
    char limit[32];
    char text[64];
    unsigned held = 0;
    unsigned windows = 0;

    mr_text_duration(limit, (double)p->objective.limit_ns);
    if (p->best <= 0) {
        fprintf(out, "no load of the range holds %s <= %s without a failure\n", p->objective.name,
                limit);
        return;
    }
    load.concurrency = load.concurrency ? (uint32_t)p->best : 0;
    load.rate = p->best;
    perf_load_text(&load, text);
    for (size_t i = 0; i < p->rows.len; i++) {
        const struct perf_row *row = &p->rows.at[i];
        bool is_it = load.concurrency ? row->load.concurrency == load.concurrency
                                      : row->load.rate == load.rate;
        windows += is_it;
        held += is_it && row->holds;
    }
    fprintf(out, "highest load that holds %s <= %s without a failure: %s (%u of %u windows)\n",
            p->objective.name, limit, text, held, windows);
}

void perf_print(const struct perf *p, FILE *out)
{
    struct mr_term term = mr_term_of(out);

    print_table(p, out);
    for (size_t i = 0; i < p->rows.len; i++) {
        print_remarks(&p->rows.at[i], out, term);
        if (p->rows.at[i].load.rate_to > 0) {
            print_ramp(&p->rows.at[i], out);
        }
    }
    if (p->stats_problem[0]) {
        fprintf(out, "no figures of the server itself: %s\n", p->stats_problem);
    }
    if (p->objective.q > 0 && p->rows.len) {
        print_objective(p, out);
    }
}
