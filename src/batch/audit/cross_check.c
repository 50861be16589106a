/* Trials of hosts, see cross_check.h. */
#include "cross_check.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "batch/calls/calls.h"
#include "batch/common/call.h"
#include "batch/common/extent.h"
#include "batch/hosts/discover.h"
#include "batch/hosts/hosts.h"
#include "batch/hosts/quarantine.h"
#include "batch/results/committer.h"
#include "batch/results/results.h"
#include "compare.h"

#define SAMPLES      4
#define SAMPLE_MOST  (1u << 20) /* bytes of a row and its answer */
#define VOTERS       5
#define TRIAL_NS     (60 * MR_NS_PER_S)
#define LAST_MOST    64                /* hosts that are looked at once more at the end */
#define VOTES_TO_WIN 2                 /* of three at least */
#define LAST_NS      (2 * MR_NS_PER_S) /* at the end a host may be silent for so long, or … */
#define FIRST_NS     (5 * MR_NS_PER_S) /* … where it would be a host's first comparison, or … */
#define LAST_ANSWERS 4                 /* … as long as this many of its slow answers take */
#define LAST_TRIES   3                 /* a host is asked so often, if it fails soon */
#define LAST_GIVEN   2 /* after this many without an answer in time there are no more checks */

/* A row that a host has answered. */
struct sample {
    struct extent *row; /* of one row; NULL: none */
    struct mr_rows *answer;
    struct host *host;
    uint64_t at; /* answers of the host then */
};

struct ballot {
    struct host *host;
    struct mr_rows *answers[2];
    size_t count;
};

struct cross_check {
    struct calls *calls;
    const struct results *results;
    uint64_t every; /* answers of a host */
    bool is_off;
    bool is_unsteady; /* and therefore off */
    struct sample samples[SAMPLES];
    size_t next; /* sample to be replaced */
    /* the trial under way */
    struct extent *row; /* NULL: there is none */
    struct ballot ballots[VOTERS];
    size_t count;
    size_t pending; /* questions */
    bool is_vote;
    struct host *about; /* at the end: the host that is compared by it */
    uint32_t number;
    int64_t since_ns;
    MR_VEC(struct extent *) late; /* rows of trials that were given up */
    int64_t end_ns;               /* all rows have an outcome since then; 0: they have not */
    uint32_t given_up;            /* since then */
};

struct cross_check *cross_check_new(struct calls *calls, const struct results *results)
{
    const double share = calls->o->cross_check.share;

    if (share <= 0 || !calls->model->dialect->compares_hosts || calls->o->filter ||
        calls->state->is_plan) {
        return NULL;
    }
    struct cross_check *c = MR_NEW(struct cross_check);
    c->calls = calls;
    c->results = results;
    c->every = (uint64_t)(1 / share);
    return c;
}

static void trial_end(struct cross_check *c)
{
    for (size_t i = 0; i < c->count; i++) {
        for (size_t k = 0; k < c->ballots[i].count; k++) {
            mr_rows_unref(&c->ballots[i].answers[k]);
        }
        c->ballots[i] = (struct ballot){0};
    }
    if (c->row) {
        extent_free(&c->row);
    }
    c->count = c->pending = 0;
    c->is_vote = false;
    c->about = NULL;
}

static void sample_drop(struct sample *s)
{
    if (s->row) {
        extent_free(&s->row);
    }
    mr_rows_unref(&s->answer);
    *s = (struct sample){0};
}

void cross_check_free(struct cross_check **c)
{
    if (*c) {
        trial_end(*c);
        for (size_t i = 0; i < SAMPLES; i++) {
            sample_drop(&(*c)->samples[i]);
        }
        for (size_t i = 0; i < (*c)->late.len; i++) {
            extent_free(&(*c)->late.at[i]);
        }
        MR_VEC_FINI(&(*c)->late);
        mr_freep(c);
    }
}

/* ---- verdicts ---- */

static const char *row_text(const struct cross_check *c, char *out, size_t room)
{
    snprintf(out, room, "row %llu of %s", (unsigned long long)c->row->first,
             mr_source_path(c->results->input->source, c->row->file));
    return out;
}

static bool agree(const struct cross_check *c, const struct ballot *a, const struct ballot *b)
{
    return compare_rows_agree(a->answers[0], b->answers[0], c->calls->o->cross_check.tolerance);
}

static bool is_steady(const struct cross_check *c, const struct ballot *b)
{
    return b->count < 2 ||
           compare_rows_agree(b->answers[0], b->answers[1], c->calls->o->cross_check.tolerance);
}

/* How many hosts that say the same each time say what this one does. */
static size_t votes_for(const struct cross_check *c, const struct ballot *b)
{
    size_t n = 0;

    for (size_t i = 0; i < c->count; i++) {
        const struct ballot *other = &c->ballots[i];
        n += other->count > 0 && is_steady(c, other) && agree(c, b, other);
    }
    return n;
}

static void nobody_is_steady(struct cross_check *c)
{
    char row[256];

    mr_log(MR_LOG_WARN, "batch.cross_check_off",
           "row=%s; hosts answer it differently each time, so they are not compared any more",
           MR_LOG_STR(mr_str_c(row_text(c, row, sizeof row))));
    c->is_off = c->is_unsteady = true;
}

static void nobody_knows(struct cross_check *c)
{
    struct mr_err err;
    char row[256];
    char hosts[160] = "";
    size_t n = 0;

    for (size_t i = 0; i < c->count && n < sizeof hosts; i++) {
        n += c->ballots[i].count > 0
                 ? (size_t)snprintf(hosts + n, sizeof hosts - n, "%s%s", n ? ", " : "",
                                    c->ballots[i].host->transport.address)
                 : 0;
    }
    mr_err_set(&err, MR_E_INVALID, MR_HERE,
               "hosts %s answer %s differently, and there is no majority; run again with "
               "those that you trust as --hosts, and the others as --recompute-host",
               hosts, row_text(c, row, sizeof row));
    c->is_off = true; /* for a job that is resumed */
    if (!c->calls->o->limits.pauses) {
        committer_drop(c->results->committer);
    }
    job_stop(c->calls->state, &err);
}

static void verdict(struct cross_check *c)
{
    const struct ballot *best = NULL;
    size_t most = 0;
    size_t present = 0;
    size_t unsteady = 0;
    char row[256];
    char why[400];

    for (size_t i = 0; i < c->count; i++) {
        const struct ballot *b = &c->ballots[i];
        const size_t votes = b->count > 0 ? votes_for(c, b) : 0;
        present += b->count > 0;
        unsteady += !is_steady(c, b);
        if (votes > most) {
            most = votes;
            best = b;
        }
    }
    if (unsteady > 1) {
        nobody_is_steady(c);
    } else if (present >= 3 && most >= VOTES_TO_WIN && 2 * most > present) {
        snprintf(why, sizeof why, "it answers %.200s otherwise than %zu other hosts",
                 row_text(c, row, sizeof row), most);
        for (size_t i = 0; i < c->count; i++) {
            const struct ballot *b = &c->ballots[i];
            if (b->count > 0 && (!is_steady(c, b) || !agree(c, b, best))) {
                host_quarantine(b->host, why, c->results->committer);
            }
        }
    } else if (present >= 2) {
        nobody_knows(c);
    }
}

/* ---- trials ---- */

static void ask(struct cross_check *c, size_t ballot)
{
    c->pending++;
    calls_ask(c->calls, c->row, c->ballots[ballot].host, c->number, (uint32_t)ballot);
}

static bool is_asked(const struct cross_check *c, const struct host *h)
{
    for (size_t i = 0; i < c->count; i++) {
        if (c->ballots[i].host == h) {
            return true;
        }
    }
    return false;
}

/* The two once more, and others twice. */
static void vote(struct cross_check *c)
{
    const struct hosts *hs = c->calls->hosts;

    c->is_vote = true;
    c->since_ns = mr_now_ns();
    for (size_t i = 0; i < hs->list.len && c->count < VOTERS; i++) {
        struct host *h = hs->list.at[i];
        if (h->is_listed && h->id && !h->is_cordoned && !is_asked(c, h)) {
            c->ballots[c->count++] = (struct ballot){.host = h};
        }
    }
    for (size_t i = 0; i < c->count; i++) {
        for (size_t k = c->ballots[i].count; k < 2; k++) {
            ask(c, i);
        }
    }
}

/* The host that was asked has shown how it answers now, the other one how it answered before. */
static void compared(struct cross_check *c)
{
    struct cross_check_clock *asked = &c->ballots[1].host->cross_check;

    c->ballots[0].host->cross_check.is_compared = asked->is_compared = true;
    asked->checked = asked->answers;
    if (c->about) {
        c->about->cross_check.checked = c->about->cross_check.answers;
    }
}

void cross_check_evaluate(struct cross_check *c)
{
    if (!c || c->pending > 0 || !c->row) {
        return;
    }
    if (!c->is_vote && c->ballots[1].count > 0) {
        compared(c);
        if (!agree(c, &c->ballots[0], &c->ballots[1])) {
            vote(c);
        }
        if (c->pending > 0) {
            return;
        }
    }
    if (c->is_vote) {
        verdict(c);
    }
    trial_end(c);
    job_advance(c->calls->state);
}

static void trial_begin(struct cross_check *c, const struct sample *s, struct host *h)
{
    c->row = MR_NEW(struct extent);
    *c->row = (struct extent){.calls = c->calls,
                              .file = s->row->file,
                              .first = s->row->first,
                              .rows = mr_rows_ref(s->row->rows)};
    c->ballots[0] =
        (struct ballot){.host = s->host, .answers = {mr_rows_ref(s->answer)}, .count = 1};
    c->ballots[1] = (struct ballot){.host = h};
    c->count = 2;
    c->number++;
    c->since_ns = mr_now_ns();
    ask(c, 1);
}

/* ---- what hosts answer ---- */

/* The place of a new one. A host has two at most, so that each finds one of another host at any time. */
static struct sample *sample_place(struct cross_check *c, const struct host *h)
{
    struct sample *own = NULL;
    size_t count = 0;

    for (size_t i = 0; i < SAMPLES; i++) {
        struct sample *s = &c->samples[(c->next + i) % SAMPLES];
        if (s->row && s->host == h) {
            own = own ? own : s;
            count++;
        }
    }
    if (count >= SAMPLES / 2) {
        return own;
    }
    struct sample *next = &c->samples[c->next];
    c->next = (c->next + 1) % SAMPLES;
    return next;
}

/* What another one has answered, whatever it is; NULL: nothing is kept. */
static const struct sample *sample_of_another(const struct cross_check *c, const struct host *h)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        if (c->samples[i].row && c->samples[i].host != h) {
            return &c->samples[i];
        }
    }
    return NULL;
}

/* The last that it has answered. */
static const struct sample *sample_of(const struct cross_check *c, const struct host *h)
{
    const struct sample *last = NULL;

    for (size_t i = 0; i < SAMPLES; i++) {
        const struct sample *s = &c->samples[i];
        if (s->row && s->host == h && (!last || s->at > last->at)) {
            last = s;
        }
    }
    return last;
}

static void sample_take(struct cross_check *c, struct host *h, const struct row_range *of,
                        const struct mr_rows *rows)
{
    const struct extent *e = of->extent;

    /* Large ones are not even copied. */
    if (e->rows->bytes / e->rows->count + rows->bytes / rows->count > SAMPLE_MOST) {
        return;
    }
    struct mr_rows *row = mr_rows_copy(e->rows, of->first, 1);
    struct mr_rows *answer = mr_rows_copy(rows, 0, 1);

    if (!row || !answer || row->bytes + answer->bytes > SAMPLE_MOST) {
        mr_rows_unref(&row);
        mr_rows_unref(&answer);
        return;
    }
    struct sample *s = sample_place(c, h);
    sample_drop(s);
    s->row = MR_NEW(struct extent);
    *s->row = (struct extent){
        .calls = c->calls, .file = e->file, .first = e->first + of->first, .rows = row};
    s->answer = answer;
    s->host = h;
    s->at = h->cross_check.answers;
}

/* Soon at first, so that small jobs, and hosts that have never worked well, are checked too. */
static uint64_t next_check(const struct cross_check *c, const struct cross_check_clock *clock)
{
    return clock->answers + (clock->checks == 0   ? c->every / 64
                             : clock->checks == 1 ? c->every / 8
                                                  : c->every);
}

/* With the row of another one, if there is any. */
static void check(struct cross_check *c, struct host *h)
{
    struct cross_check_clock *clock = &h->cross_check;
    const struct sample *s = c->row ? NULL : sample_of_another(c, h);

    if (s) {
        clock->checks++;
        clock->check_at = next_check(c, clock);
        trial_begin(c, s, h);
    }
}

void cross_check_see(struct cross_check *c, struct call *k, const struct row_range *of,
                     const struct mr_rows *rows)
{
    struct cross_check_clock *clock = &k->host->cross_check;

    if (!c || c->is_off) {
        return;
    }
    clock->check_at = clock->answers++ == 0 ? next_check(c, clock) : clock->check_at;
    if (clock->answers > clock->sample_at) {
        clock->sample_at = clock->answers + MR_MIN(c->every / 64, clock->answers);
        sample_take(c, k->host, of, rows);
    }
    if (clock->answers >= clock->check_at) {
        check(c, k->host);
    }
}

/* ---- the end ---- */

static bool may_be_asked(const struct host *h)
{
    return h->is_listed && h->id && !h->is_cordoned && h->cross_check.silences < LAST_TRIES &&
           mr_balance_is_working(h->hosts->balance, h->id);
}

/* One that may be asked what this host has answered, rather one that has no calls. */
static struct host *another(const struct hosts *hs, const struct host *than)
{
    struct host *best = NULL;

    for (size_t i = 0; i < hs->list.len; i++) {
        struct host *h = hs->list.at[i];
        if (h != than && may_be_asked(h) && (!best || h->in_flight < best->in_flight)) {
            best = h;
        }
    }
    return best;
}

/* Does it answer now as others did? Where that cannot be asked: do others answer now as it did? */
static void last_check(struct cross_check *c, struct host *h)
{
    const struct sample *s = may_be_asked(h) ? sample_of_another(c, h) : NULL;
    struct host *asked = h;

    if (!s) {
        s = sample_of(c, h);
        asked = another(c->calls->hosts, h);
    }
    if (s && asked) {
        trial_begin(c, s, asked);
        c->about = h;
    }
}

/* A host was compared with none, and one may come soon that can be asked. */
static bool another_may_come(const struct cross_check *c, bool is_alone)
{
    const struct hosts *hs = c->calls->hosts;
    const int64_t now_ns = mr_now_ns();
    bool may_come = discover_is_pending(hs, now_ns);

    for (size_t i = 0; i < hs->list.len; i++) {
        const struct host *h = hs->list.at[i];
        may_come = may_come || (h->is_listed && !h->id && h->is_asking);
    }
    return is_alone && may_come && now_ns - c->end_ns < FIRST_NS;
}

bool cross_check_is_asking(struct cross_check *c)
{
    const struct hosts *hs = c ? c->calls->hosts : NULL;
    bool is_alone = false;

    if (!c || c->is_off) {
        return false;
    }
    c->end_ns = c->end_ns ? c->end_ns : mr_now_ns();
    for (size_t i = 0; !c->row && i < hs->list.len && i < LAST_MOST; i++) {
        struct host *h = hs->list.at[i];
        if (h->cross_check.answers > h->cross_check.checked) {
            is_alone = is_alone || !h->cross_check.is_compared;
            last_check(c, h);
        }
    }
    return c->row || another_may_come(c, is_alone);
}

void cross_check_end(const struct cross_check *c)
{
    const struct hosts *hs = c ? c->calls->hosts : NULL;

    for (size_t i = 0; c && !c->is_unsteady && hosts_listed(hs) > 1 && i < hs->list.len; i++) {
        const struct host *h = hs->list.at[i];
        if (h->cross_check.answers > 0 && !h->cross_check.is_compared) {
            mr_log(MR_LOG_WARN, "batch.not_compared",
                   "host=%s rows=%" PRIu64 "; no other host answered one of them in time, so "
                   "it is not known whether they are right",
                   MR_LOG_STR(mr_str_c(h->transport.address)), h->rows);
        }
    }
}

/* At the end it is asked so often at most. */
static void gives_no_answer(const struct cross_check *c, struct host *h, uint32_t times)
{
    h->cross_check.silences += c->end_ns > 0 && !c->is_vote ? times : 0;
}

static void answered(struct cross_check *c, const struct work *w, struct mr_rows *rows,
                     uint32_t times)
{
    struct ballot *b = &c->ballots[w->ballot];

    if (!c->row || w->trial != c->number) {
        mr_rows_unref(&rows); /* it came too late */
        return;
    }
    if (rows) {
        b->answers[b->count++] = rows;
    } else {
        gives_no_answer(c, b->host, times);
    }
    c->pending--;
}

void cross_check_answered(struct cross_check *c, struct call *k, const struct transport_answer *a)
{
    struct mr_rows *rows = NULL;
    struct mr_err err;

    if (k->work->trial == c->number && c->row && a->outcome == MR_BALANCE_OK &&
        k->model->dialect->rows(k, a, 0, &k->work->ranges[0], &rows, &err) < 0) {
        rows = NULL;
    }
    answered(c, k->work, rows, a->outcome == MR_BALANCE_TIMED_OUT ? LAST_TRIES : 1);
}

void cross_check_absent(struct cross_check *c, const struct work *w)
{
    answered(c, w, NULL, 1);
}

/* Until when the trial may last. A job that is done does not wait long for a host that hangs, unless two have differed. */
static int64_t patience_until(const struct cross_check *c)
{
    const struct host *h = c->ballots[1].host;

    if (c->end_ns == 0 || c->is_vote) {
        return mr_ns_after(MR_MAX(c->since_ns, c->end_ns), TRIAL_NS);
    }
    const int64_t slow_ns =
        h->figures.answer_ns ? (int64_t)mr_hist_quantile(h->figures.answer_ns, 0.95) : 0;
    const bool is_first = c->about && !c->about->cross_check.is_compared && h->failures == 0;
    const int64_t least_ns = is_first ? FIRST_NS : LAST_NS;
    /* It may still have cancelled calls to answer. */
    return mr_ns_after(MR_MAX(MR_MAX(c->since_ns, c->end_ns), h->heard_ns),
                       MR_MIN(MR_MAX(LAST_ANSWERS * slow_ns, least_ns), TRIAL_NS));
}

void cross_check_tick(struct cross_check *c, int64_t now_ns)
{
    if (c && c->calls->state->is_paused) {
        c->since_ns = now_ns; /* no host can answer */
    }
    /* Hosts that have not answered by now are not penalised. */
    if (c && c->row && now_ns > patience_until(c)) {
        c->number++;
        c->given_up += c->end_ns > 0;
        c->is_off = c->is_off || c->given_up >= LAST_GIVEN;
        gives_no_answer(c, c->ballots[1].host, LAST_TRIES);
        if (c->is_vote) {
            verdict(c);
        }
        MR_VEC_PUSH(&c->late, c->row); /* calls may still be under way */
        c->row = NULL;
        trial_end(c);
        job_advance(c->calls->state);
    }
}
