/* The results of `millrace perf update` as text. */
#include <math.h>

#include "base/clock.h"
#include "cli/common/term.h"
#include "perf_update.h"

void perf_update_print_head(const struct perf_update *u, FILE *out)
{
    const struct perf_options *o = &u->p->opt;
    char load[64];

    perf_load_text(&u->load, load);
    fprintf(out, "%s at %s, %s, %s; %u updates of %s, asked for over %s: ", o->model,
            u->p->target.address, perf_protocol_text(u->p), load, o->updates, u->control.model,
            u->control.grpc ? "gRPC" : "REST");
    if (o->versions) {
        fprintf(out, "versions %s in turn\n", o->versions);
    } else {
        fprintf(out, "%s\n", o->command ? "load after the command" : "unload and load");
    }
    fflush(out);
}

static void add_time(struct mr_grid *g, bool is_known, double ns)
{
    char text[32];

    mr_text_duration(text, ns);
    mr_grid_add(g, MR_STYLE_PLAIN, "%s", is_known ? text : "-");
}

/* The percentiles reported for updates. */
static const size_t shown[] = {0, 3, 4};
#define SHOWN (sizeof shown / sizeof *shown)

static void add_sum(struct mr_grid *g, const struct perf_update_sum *s, bool is_phase)
{
    const struct mr_perf_result *r = s->result;
    bool has = r->latency.total > 0;

    mr_grid_add(g, MR_STYLE_BOLD, "%s%s", is_phase ? "  " : "", s->name);
    add_time(g, s->count > 0, s->count ? r->seconds * 1e9 / s->count : 0);
    mr_grid_add(g, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->sent);
    mr_grid_add(g, r->failed ? MR_STYLE_BAD : MR_STYLE_PLAIN, "%llu",
                (unsigned long long)r->failed);
    for (size_t k = 0; k < SHOWN; k++) {
        add_time(g, has, (double)mr_hdr_quantile(&r->latency, perf_percentiles[shown[k]].q));
    }
    add_time(g, has, (double)r->latency.max);
    add_time(g, has, (double)s->stall_ns);
    mr_grid_add(g, MR_STYLE_PLAIN, "%llu", (unsigned long long)s->above);
}

static void print_sums(const struct perf_update *u, FILE *out)
{
    static const char *const head[] = {"window", "length", "requests", "failed", "p50", "p99",
                                       "p99.9",  "max",    "stall",    "slow",   NULL};
    struct mr_grid g;

    mr_grid_init(&g, head);
    add_sum(&g, &u->quiet, false);
    add_sum(&g, &u->updates, false);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (u->phases[k].count) {
            add_sum(&g, &u->phases[k], true);
        }
    }
    mr_grid_print(&g, out, true, 0);
    mr_grid_fini(&g);
    fprintf(out, "slow: latency above twice the quiet p99.9; stall: longest time in which requests "
                 "waited and none was answered\n");
}

/* ---- the cost of updates ---- */

static void signed_duration(char out[40], double ns)
{
    char text[32];

    mr_text_duration(text, fabs(ns));
    snprintf(out, 40, "%s%s", ns < 0 ? "-" : "+", text);
}

/* A verdict needs as many windows as an interval. */
static bool has_enough(const struct perf_update_sum *s)
{
    struct mr_perf_interval i;

    mr_perf_get_interval(s->result, 0.5, &i);
    return !i.is_rough;
}

static void add_added(struct mr_grid *g, const struct mr_perf_added *a, bool judges)
{
    char value[40];
    char low[40] = "?";
    char high[40] = "?";
    bool more = judges && a->low_ns > 0;
    bool less = judges && a->high_ns < 0;
    enum mr_style style = more ? MR_STYLE_BAD : less ? MR_STYLE_GOOD : MR_STYLE_PLAIN;

    signed_duration(value, a->ns);
    if (!isinf(a->low_ns)) {
        signed_duration(low, a->low_ns);
    }
    if (!isinf(a->high_ns)) {
        signed_duration(high, a->high_ns);
    }
    mr_grid_add(g, style, "%s%s", value, more ? " more" : less ? " less" : "");
    mr_grid_add(g, MR_STYLE_DIM, "%s .. %s", low, high);
}

static void add_added_row(struct mr_grid *g, const struct perf_update *u,
                          const struct perf_update_sum *s, bool is_phase)
{
    struct mr_perf_added a;

    mr_grid_add(g, MR_STYLE_BOLD, "%s%s", is_phase ? "  " : "", s->name);
    for (size_t k = 0; k < SHOWN; k++) {
        mr_perf_get_added(s->result, u->quiet.result, perf_percentiles[shown[k]].q, &a);
        add_added(g, &a, has_enough(&u->quiet) && has_enough(s));
    }
}

static void print_added(const struct perf_update *u, FILE *out)
{
    static const char *const head[] = {"added by", "p50",   "at 95 %", "p99",
                                       "at 95 %",  "p99.9", "at 95 %", NULL};
    struct mr_grid g;

    if (u->quiet.result->latency.total == 0 || u->updates.result->latency.total == 0) {
        return;
    }
    mr_grid_init(&g, head);
    add_added_row(&g, u, &u->updates, false);
    for (int k = 0; k < PERF_PHASES; k++) {
        if (u->phases[k].result->latency.total) {
            add_added_row(&g, u, &u->phases[k], true);
        }
    }
    fprintf(out, "\n");
    mr_grid_print(&g, out, true, 0);
    mr_grid_fini(&g);
    fprintf(out,
            "more, less: the difference is beyond the noise of the quiet windows%s; ?: the "
            "samples do not say\n",
            has_enough(&u->quiet) && has_enough(&u->updates)
                ? ""
                : " (not shown for fewer than five windows)");
}

/* Minimum and maximum of a percentile in the windows of a kind. */
static void print_spread(const struct perf_update *u, bool is_update, FILE *out)
{
    fprintf(out, "%s windows among themselves:", is_update ? "update" : "quiet");
    for (size_t k = 0; k < SHOWN; k++) {
        uint64_t low = UINT64_MAX;
        uint64_t high = 0;
        char least[32];
        char most[32];
        for (size_t i = 0; i < u->windows.len; i++) {
            const struct perf_window_row *w = &u->windows.at[i];
            if (w->is_update == is_update && (!w->is_doubtful || !u->p->opt.clean)) {
                low = MR_MIN(low, w->at[shown[k]]);
                high = MR_MAX(high, w->at[shown[k]]);
            }
        }
        mr_text_duration(least, (double)MR_MIN(low, high));
        mr_text_duration(most, (double)high);
        fprintf(out, "%s %s %s to %s", k ? "," : "", perf_percentiles[shown[k]].name, least, most);
    }
    fprintf(out, "\n");
}

/* ---- counted ---- */

static void add_pair(struct mr_grid *g, uint64_t quiet, uint64_t update)
{
    mr_grid_add(g, MR_STYLE_PLAIN, "%llu | %llu", (unsigned long long)quiet,
                (unsigned long long)update);
}

static void print_threads(const struct perf_update *u, FILE *out)
{
    static const char *const head[] = {"threads, quiet | update",
                                       "minor faults",
                                       "major faults",
                                       "waits",
                                       "preempted",
                                       "without a CPU",
                                       NULL};
    struct mr_grid g;

    mr_grid_init(&g, head);
    for (size_t i = 0; i < u->update_threads.len; i++) {
        const struct perf_thread *t = &u->update_threads.at[i];
        const struct perf_thread *q = perf_threads_find(&u->quiet_threads, t->name);
        char quiet[32];
        char update[32];
        mr_grid_add(&g, MR_STYLE_BOLD, "%u x %s", t->threads, t->name);
        add_pair(&g, q->minor_faults, t->minor_faults);
        add_pair(&g, q->major_faults, t->major_faults);
        add_pair(&g, q->voluntary, t->voluntary);
        add_pair(&g, q->involuntary, t->involuntary);
        mr_text_duration(quiet, (double)q->delay_ns);
        mr_text_duration(update, (double)t->delay_ns);
        mr_grid_add(&g, MR_STYLE_PLAIN, "%s | %s", quiet, update);
    }
    fprintf(out, "\n");
    mr_grid_print(&g, out, true, 0);
    mr_grid_fini(&g);
}

static void print_memory(const struct perf_update *u, FILE *out)
{
    const struct perf_window_row *first = NULL;
    const struct perf_window_row *last = NULL;
    char text[3][32];

    for (size_t i = 0; i < u->windows.len; i++) {
        const struct perf_window_row *w = &u->windows.at[i];
        if (w->is_update && w->has_counters) {
            first = first ? first : w;
            last = w;
        }
    }
    if (!first) {
        return;
    }
    mr_text_bytes(text[0], first->rss_before);
    mr_text_bytes(text[1], first->rss_after);
    mr_text_bytes(text[2], last->rss_after);
    fprintf(out, "resident: %s before the first update, %s after it, %s after the last; ", text[0],
            text[1], text[2]);
    if (first->maps_after) {
        fprintf(out, "memory areas %llu, then %llu\n", (unsigned long long)first->maps_after,
                (unsigned long long)last->maps_after);
    } else {
        fprintf(out, "memory areas cannot be read\n");
    }
}

/* ---- remarks ---- */

static void print_problems(const struct perf_update *u, FILE *out, struct mr_term term)
{
    for (size_t i = 0; i < u->windows.len; i++) {
        if (u->windows.at[i].rc < 0) {
            fprintf(out, "%supdate failed:%s %s\n", mr_term_on(term, MR_STYLE_BAD),
                    mr_term_off(term), u->windows.at[i].problem);
        }
    }
    const struct mr_perf_errors *e = &u->result->errors;
    for (size_t i = 0; i < e->count; i++) {
        char name[32];
        mr_perf_error_name(&e->kinds[i], name);
        fprintf(out, "%s%llu x %s%s: %s\n", mr_term_on(term, MR_STYLE_BAD),
                (unsigned long long)e->kinds[i].count, name, mr_term_off(term), e->kinds[i].text);
    }
}

static void print_warnings(const struct perf_update *u, FILE *out, struct mr_term term)
{
    const char *on = mr_term_on(term, MR_STYLE_WARN);
    const char *off = mr_term_off(term);
    char doubt[320];

    if (u->doubtful) {
        fprintf(out,
                "%swarning:%s in %u of %zu windows the client was late or others had its CPU%s\n",
                on, off, u->doubtful, u->windows.len,
                u->p->opt.clean ? "; they are left out"
                                : "; --leave-out-doubtful makes the sums without them");
    }
    if (mr_perf_doubt(u->result, &u->load, doubt, sizeof doubt)) {
        fprintf(out, "%swarning:%s %s\n", on, off, doubt);
    }
    if (u->result->samples_lost) {
        fprintf(out, "%swarning:%s %llu requests at the end were not kept: too many\n", on, off,
                (unsigned long long)u->result->samples_lost);
    }
    if (u->windows.len && u->windows.at[0].shift_ns) {
        fprintf(out, "the server's clock is another one: its phases are taken to begin with the "
                     "calls\n");
    }
    if (!u->tells_states) {
        fprintf(out, "the server does not report the phases of a load: 'load' is the time of the "
                     "call\n");
    }
}

void perf_update_print(const struct perf_update *u, FILE *out)
{
    struct mr_term term = mr_term_of(out);
    char window[32];

    mr_text_duration(window, (double)u->window_ns);
    fprintf(out, "windows of %s; %u quiet, %u with an update; phases of at least 50 ms are shown\n",
            window, u->quiet.count, u->updates.count);
    print_sums(u, out);
    print_added(u, out);
    print_spread(u, false, out);
    print_spread(u, true, out);
    if (u->update_threads.len) {
        print_threads(u, out);
        print_memory(u, out);
    }
    print_problems(u, out, term);
    print_warnings(u, out, term);
}
