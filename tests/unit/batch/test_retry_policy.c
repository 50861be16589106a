/* Decisions about rows whose calls fail: single events, and jobs with hosts that fail in simulated time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/vec.h"
#include "batch/policy/retry_policy.h"

#define ROWS_MOST    1024
#define HOSTS_MOST   4
#define ATTEMPTS     5
#define SEEDS        200
#define OUTAGES      20
#define MS           MR_NS_PER_MS
#define LONGEST_NS   (100000 * MR_NS_PER_S)
#define REST_NS      MR_NS_PER_S /* that a host gets no calls after FAILURES in a row */
#define FAILURES     3
#define BACKOFF_NS   (100 * MS)
#define BACKOFF_MOST (30 * MR_NS_PER_S)

/* ---- a job in simulated time ----
 *
 * The part of the balancer is small: a host takes two calls at a time, the choice among hosts is by chance, and one that
 * failed three times in a row gets none for a second. Discrete events; a run is a pure function of its scenario. */

enum outcome { OPEN, ANSWERED, FAILED, REJECTED };

struct host {
    struct retry_host policy;
    /* the scenario */
    bool refuses_all;
    uint64_t refuses_above; /* rows; 0: never */
    double fails;           /* share of its calls */
    double throttles;       /* the same */
    int64_t down_ns[2];     /* from, to */
    /* the simulation's own */
    uint32_t busy;
    uint32_t failures;
    int64_t rests_until_ns;
    unsigned first_refutations;
};

struct work {
    struct retry_work tried;
    uint64_t first;
    uint64_t count;
    int64_t not_before_ns;
    bool is_granted;
    bool is_retry;
    bool is_probe; /* of a row that is known to be good */
};

struct flight {
    struct work work;
    struct host *host;
    int64_t sent_ns;
    int64_t ends_ns;
};

struct job {
    /* the scenario */
    uint64_t rows;
    uint64_t call_rows;
    size_t host_count;
    struct host hosts[HOSTS_MOST];
    bool poison[ROWS_MOST]; /* each call with the row fails */
    bool bad[ROWS_MOST];    /* each call with the row is refused */
    /* results */
    enum outcome outcomes[ROWS_MOST];
    uint64_t calls;
    uint64_t probes;
    /* running */
    struct retry_policy policy;
    struct mr_rng rng;
    int64_t now_ns;
    int64_t granted_ns; /* when the retry budget gave its last permission */
    uint64_t next_row;
    bool has_good_row;
    bool is_probing;
    MR_VEC(struct work) queue;
    MR_VEC(struct flight) flights;
};

static struct job *job_new(uint64_t rows, uint64_t call_rows, size_t hosts, uint64_t seed)
{
    struct job *j = MR_NEW(struct job);

    *j = (struct job){.rows = rows, .call_rows = call_rows, .host_count = hosts};
    j->policy.max_attempts = ATTEMPTS;
    j->now_ns = MR_NS_PER_S;
    mr_rng_seed(&j->rng, seed);
    for (size_t i = 0; i < hosts; i++) {
        j->hosts[i].policy.id = (uint32_t)i + 1;
        j->hosts[i].policy.is_usable = true;
    }
    return j;
}

static void job_free(struct job *j)
{
    MR_VEC_FINI(&j->policy.hosts);
    MR_VEC_FINI(&j->queue);
    MR_VEC_FINI(&j->flights);
    mr_free(j);
}

static double chance(struct job *j)
{
    return mr_rng_unit(&j->rng);
}

static void policy_refresh(struct job *j)
{
    j->policy.hosts.len = 0;
    for (size_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->hosts[i];
        h->policy.is_working = j->now_ns >= h->rests_until_ns;
        MR_VEC_PUSH(&j->policy.hosts, &h->policy);
    }
}

static void queue_put(struct job *j, struct work w, bool is_first)
{
    w.is_retry = true;
    MR_VEC_PUSH(&j->queue, w);
    if (is_first) {
        memmove(j->queue.at + 1, j->queue.at, (j->queue.len - 1) * sizeof w);
        j->queue.at[0] = w;
    }
}

static void rows_end(struct job *j, const struct work *w, enum outcome outcome)
{
    for (uint64_t i = w->first; i < w->first + w->count; i++) {
        assert_int_equal(j->outcomes[i], OPEN); /* once */
        j->outcomes[i] = outcome;
    }
}

/* ---- sending ---- */

static bool is_avoided(const uint32_t *avoid, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (avoid[i] == id) {
            return true;
        }
    }
    return false;
}

/* By chance one that has room and is not to be avoided; NULL: there is none. */
static struct host *host_choose(struct job *j, const uint32_t *avoid, uint32_t count)
{
    struct host *found = NULL;
    uint32_t seen = 0;

    for (size_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->hosts[i];
        const bool has_room = h->busy < (h->failures >= FAILURES ? 1 : 2);
        if (h->policy.is_working && has_room && !is_avoided(avoid, count, h->policy.id) &&
            mr_rng_u64(&j->rng) % ++seen == 0) {
            found = h;
        }
    }
    return found;
}

/* Hosts to avoid are taken when no others work, as far as the policy lets them be asked. */
static struct host *host_pick(struct job *j, const struct work *w)
{
    uint32_t avoid[RETRY_AVOID];
    uint32_t refusers;
    const uint32_t count = retry_work_avoid(&w->tried, avoid, &refusers);
    bool is_other_working = false;
    struct host *h = host_choose(j, avoid, count);

    for (size_t i = 0; i < j->host_count; i++) {
        const struct retry_host *other = &j->hosts[i].policy;
        is_other_working |= other->is_working && !is_avoided(avoid, count, other->id);
    }
    if (!h && !is_other_working) {
        h = host_choose(j, avoid, refusers);
        h = h ? h : host_choose(j, NULL, 0);
    }
    return h && retry_policy_may_ask(&j->policy, &w->tried, &h->policy, j->now_ns) ? h : NULL;
}

static bool work_send(struct job *j, struct work w)
{
    struct host *h = host_pick(j, &w);

    if (!h) {
        return false;
    }
    const uint64_t most = retry_host_rows(&h->policy, w.count);
    if (most < w.count) {
        struct work rest = {.first = w.first + most, .count = w.count - most, .is_granted = true};
        struct retry_work part;
        retry_work_part(&rest.tried, &w.tried, RETRY_PART_CUT);
        retry_work_part(&part, &w.tried, RETRY_PART_CUT);
        w.tried = part;
        w.count = most;
        queue_put(j, rest, true);
    }
    retry_policy_sent(&j->policy, &w.tried, !w.is_retry, j->now_ns);
    w.is_granted = false;
    h->busy++;
    j->calls++;
    const int64_t takes_ns = MS + (int64_t)(mr_rng_u64(&j->rng) % (20 * MS));
    MR_VEC_PUSH(&j->flights, ((struct flight){w, h, j->now_ns, mr_ns_after(j->now_ns, takes_ns)}));
    return true;
}

/* As the retry budget does, about. */
static bool is_granted(struct job *j, const struct work *w)
{
    if (!w->is_granted && j->now_ns - j->granted_ns >= 100 * MS) {
        j->granted_ns = j->now_ns;
        return true;
    }
    return w->is_granted;
}

static void pump(struct job *j)
{
    policy_refresh(j);
    for (size_t i = 0; i < j->queue.len;) {
        struct work w = j->queue.at[i];
        bool is_gone = false;
        if (j->now_ns >= w.not_before_ns) {
            const bool is_dead = retry_policy_is_dead(&j->policy, &w.tried, w.count);
            j->queue.at[i].is_granted = w.is_granted = is_granted(j, &w);
            if (is_dead) {
                rows_end(j, &w, FAILED);
            }
            const size_t before = j->queue.len;
            is_gone = is_dead || (w.is_granted && work_send(j, w));
            i += j->queue.len - before; /* the rest of it went to the front */
        }
        if (is_gone) {
            memmove(j->queue.at + i, j->queue.at + i + 1,
                    (--j->queue.len - i) * sizeof *j->queue.at);
        } else {
            i++;
        }
    }
    while (j->next_row < j->rows) {
        const struct work w = {.first = j->next_row,
                               .count = MR_MIN(j->call_rows, j->rows - j->next_row)};
        if (!work_send(j, w)) {
            break;
        }
        j->next_row += w.count;
    }
}

/* ---- answers ---- */

static bool any_of(const bool *rows, const struct work *w)
{
    for (uint64_t i = w->first; i < w->first + w->count; i++) {
        if (rows[i]) {
            return true;
        }
    }
    return false;
}

static enum mr_balance_outcome answer_of(struct job *j, const struct flight *f)
{
    const struct host *h = f->host;
    const struct work *w = &f->work;

    if (j->now_ns >= h->down_ns[0] && j->now_ns < h->down_ns[1]) {
        return MR_BALANCE_REFUSED;
    }
    if (chance(j) < h->throttles) {
        return MR_BALANCE_THROTTLED;
    }
    if (h->refuses_all || (h->refuses_above > 0 && w->count > h->refuses_above)) {
        return MR_BALANCE_REJECTED;
    }
    if (chance(j) < h->fails || (!w->is_probe && any_of(j->poison, w))) {
        return MR_BALANCE_FAILED;
    }
    return !w->is_probe && any_of(j->bad, w) ? MR_BALANCE_REJECTED : MR_BALANCE_OK;
}

static void host_fails(struct job *j, struct host *h)
{
    h->failures++;
    if (h->failures >= FAILURES) {
        h->rests_until_ns = mr_ns_after(j->now_ns, REST_NS);
    }
}

static void host_see(struct job *j, struct host *h, enum mr_balance_outcome outcome)
{
    if (outcome == MR_BALANCE_OK) {
        h->failures = 0;
    } else if (outcome == MR_BALANCE_FAILED || outcome == MR_BALANCE_REFUSED) {
        host_fails(j, h);
    }
    if (outcome != MR_BALANCE_FAILED && outcome != MR_BALANCE_REFUSED) {
        h->policy.heard_ns = j->now_ns;
    }
}

static void split(struct job *j, const struct work *w, const struct retry_decision *d)
{
    struct work parts[2] = {{.first = w->first, .count = d->split},
                            {.first = w->first + d->split, .count = w->count - d->split}};

    assert_in_range(d->split, 1, w->count - 1);
    for (int i = 1; i >= 0; i--) {
        parts[i].is_granted = true;
        retry_work_part(&parts[i].tried, &w->tried,
                        d->is_refused ? RETRY_PART_REFUSED : RETRY_PART_FAILED);
        queue_put(j, parts[i], true);
    }
}

/* Where nothing else is left, a known-good row shows whether hosts work. */
static void wait(struct job *j, struct work *w, const struct retry_decision *d)
{
    const int64_t most_ns = MR_MIN(BACKOFF_NS << MR_MIN(d->tries - 1, 20u), BACKOFF_MOST);

    assert_in_range(d->tries, 1, UINT32_MAX);
    w->not_before_ns = mr_ns_after(j->now_ns, (int64_t)(chance(j) * (double)most_ns));
    queue_put(j, *w, false);
    if (j->next_row == j->rows && j->has_good_row && !j->is_probing) {
        j->is_probing = true;
        queue_put(j, (struct work){.count = 1, .is_granted = true, .is_probe = true}, true);
    }
}

static void follow(struct job *j, struct work *w, const struct retry_decision *d)
{
    w->is_granted = d->is_granted;
    switch (d->action) {
    case RETRY_NONE: fail(); break;
    case RETRY_DONE:
        rows_end(j, w, ANSWERED);
        j->has_good_row = true;
        break;
    case RETRY_FIRST: queue_put(j, *w, true); break;
    case RETRY_LAST: queue_put(j, *w, false); break;
    case RETRY_LATER: wait(j, w, d); break;
    case RETRY_SPLIT: split(j, w, d); break;
    case RETRY_DEAD:
        assert_int_equal(w->count, 1);
        assert_in_range(retry_work_attempts(&w->tried), 1, UINT32_MAX);
        rows_end(j, w, d->is_refused ? REJECTED : FAILED);
        break;
    }
}

static void call_ends(struct job *j, struct flight f)
{
    const struct retry_event e = {.outcome = answer_of(j, &f),
                                  .host = &f.host->policy,
                                  .rows = f.work.count,
                                  .sent_ns = f.sent_ns,
                                  .now_ns = j->now_ns,
                                  .is_answered = true};

    f.host->busy--;
    host_see(j, f.host, e.outcome);
    policy_refresh(j);
    if (f.work.is_probe) {
        j->probes++;
        j->is_probing = false;
        if (e.outcome != MR_BALANCE_OK) {
            return;
        }
    }
    const struct retry_decision d = retry_policy_ended(&j->policy, &f.work.tried, &e);
    for (size_t i = 0; i < d.refuted_count; i++) {
        struct host *h = MR_CONTAINER_OF(d.refuted[i], struct host, policy);
        h->first_refutations += d.is_first[i];
        host_fails(j, h);
    }
    if (!f.work.is_probe) {
        follow(j, &f.work, &d);
    }
}

/* The time at which something may happen next; INT64_MAX: never. */
static int64_t next_ns(const struct job *j)
{
    const bool is_open = j->queue.len > 0 || j->next_row < j->rows;
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < j->flights.len; i++) {
        next = MR_MIN(next, j->flights.at[i].ends_ns);
    }
    for (size_t i = 0; is_open && i < j->host_count; i++) {
        const int64_t rests_until_ns = j->hosts[i].rests_until_ns;
        next = rests_until_ns > j->now_ns ? MR_MIN(next, rests_until_ns) : next;
    }
    return is_open ? MR_MIN(next, j->now_ns + 100 * MS) : next;
}

static void job_run(struct job *j)
{
    for (pump(j); (j->now_ns = next_ns(j)) != INT64_MAX; pump(j)) {
        assert_in_range(j->now_ns, 0, LONGEST_NS);
        for (size_t i = 0; i < j->flights.len;) {
            const struct flight f = j->flights.at[i];
            if (f.ends_ns > j->now_ns) {
                i++;
                continue;
            }
            j->flights.at[i] = j->flights.at[--j->flights.len];
            call_ends(j, f);
        }
    }
    for (uint64_t i = 0; i < j->rows; i++) {
        assert_int_not_equal(j->outcomes[i], OPEN);
    }
}

/* Each row has the outcome that it should have, and no other one was ever near it. */
static void expect_what_rows_deserve(const struct job *j)
{
    for (uint64_t i = 0; i < j->rows; i++) {
        assert_int_equal(j->outcomes[i], j->poison[i] ? FAILED : j->bad[i] ? REJECTED : ANSWERED);
    }
}

/* ---- jobs ---- */

static void hosts_that_are_well_get_each_row_once(void **state)
{
    struct job *j = job_new(1000, 64, 3, 1);
    (void)state;

    job_run(j);
    expect_what_rows_deserve(j);
    assert_int_equal(j->calls, 16);
    job_free(j);
}

/* 64 rows: six levels of halves, one of which succeeds at each, and the attempts of the row at last. */
static void a_poisoned_row_is_isolated_by_few_calls(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job *j = job_new(1024, 64, 3, seed);
        j->poison[seed * 7 % 1024] = true;
        job_run(j);
        expect_what_rows_deserve(j);
        assert_in_range(j->calls - j->probes, 16, 16 + 12 + ATTEMPTS + 4);
        job_free(j);
    }
}

static void a_row_that_all_hosts_refuse_is_isolated_by_few_calls(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job *j = job_new(1024, 64, 3, seed);
        j->bad[seed * 11 % 1024] = true;
        job_run(j);
        expect_what_rows_deserve(j);
        /* Each level is refused twice at most. */
        assert_in_range(j->calls, 16, 16 + 12 + 8);
        job_free(j);
    }
}

static void a_host_that_refuses_all_makes_no_dead_letters(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job *j = job_new(1024, 16, 3, seed);
        j->hosts[seed % 3].refuses_all = true;
        job_run(j);
        expect_what_rows_deserve(j);
        assert_in_range(j->hosts[seed % 3].first_refutations, 0, 1);
        assert_int_equal(j->hosts[(seed + 1) % 3].first_refutations, 0);
        job_free(j);
    }
}

static void a_host_that_refuses_large_calls_gets_smaller_ones(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct job *j = job_new(1024, 64, 2, seed);
        j->hosts[0].refuses_above = 8;
        job_run(j);
        expect_what_rows_deserve(j);
        assert_int_equal(j->hosts[0].first_refutations, 0);
        assert_in_range(j->hosts[0].policy.cap.rows, 1, 16);
        job_free(j);
    }
}

/* Its word is the only one. */
static void the_only_host_is_believed(void **state)
{
    struct job *j = job_new(64, 16, 1, 1);
    (void)state;

    j->hosts[0].refuses_all = true;
    memset(j->bad, 1, sizeof j->bad);
    job_run(j);
    expect_what_rows_deserve(j);
    assert_int_equal(j->calls, 4 * 31);
    job_free(j);
}

/* The other one is down and comes back: what it answers is no dead letter. */
static void the_only_host_that_works_is_not_believed_about_all_rows(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= OUTAGES; seed++) {
        struct job *j = job_new(256, 16, 2, seed);
        j->hosts[0].refuses_all = true;
        j->hosts[1].down_ns[1] = 100 * MR_NS_PER_S;
        job_run(j);
        expect_what_rows_deserve(j);
        job_free(j);
    }
}

static void an_outage_makes_no_dead_letters(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= OUTAGES; seed++) {
        struct job *j = job_new(1024, 16, 3, seed);
        for (size_t i = 0; i < 3; i++) {
            /* in the middle of the job, or from its begin on */
            j->hosts[i].down_ns[0] = MR_NS_PER_S + (int64_t)(seed % 2) * 100 * MS;
            j->hosts[i].down_ns[1] = 100 * MR_NS_PER_S;
        }
        job_run(j);
        expect_what_rows_deserve(j);
        /* At most a probe a second and host, and what goes before it rests. */
        assert_in_range(j->calls, 64, 64 + 3 * 150);
        job_free(j);
    }
}

static void a_poisoned_row_beside_an_outage_is_the_only_dead_letter(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= OUTAGES; seed++) {
        struct job *j = job_new(512, 16, 2, seed);
        j->poison[511] = j->poison[seed] = true;
        for (size_t i = 0; i < 2; i++) {
            j->hosts[i].down_ns[0] = MR_NS_PER_S + (int64_t)(seed % 150) * MS;
            j->hosts[i].down_ns[1] = 60 * MR_NS_PER_S;
        }
        job_run(j);
        expect_what_rows_deserve(j);
        job_free(j);
    }
}

/* Hosts are busy, refuse and fail as they like, but for one. Rows that all refuse or fail are there in half of the jobs, in
 * which hosts do not fail by chance: next to a poisoned row, one failure of a row itself may be enough. */
static void rows_end_once_whatever_hosts_do(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const size_t hosts = 2 + seed % (HOSTS_MOST - 1);
        const bool is_poisoned = seed % 2 == 0;
        struct job *j = job_new(512, UINT64_C(1) << seed % 7, hosts, seed);
        for (size_t i = 1; i < hosts; i++) {
            struct host *h = &j->hosts[i];
            h->refuses_all = i == 1 && chance(j) < 0.3;
            h->refuses_above = chance(j) < 0.3 ? 1 + mr_rng_u64(&j->rng) % 16 : 0;
            h->throttles = chance(j) < 0.3 ? chance(j) : 0;
            h->fails = !is_poisoned && chance(j) < 0.3 ? 0.1 * chance(j) : 0;
            h->down_ns[1] = is_poisoned ? 0 : (int64_t)(chance(j) * 60 * MR_NS_PER_S);
        }
        j->poison[mr_rng_u64(&j->rng) % 512] = is_poisoned;
        j->bad[mr_rng_u64(&j->rng) % 512] = is_poisoned;
        job_run(j);
        for (uint64_t i = 0; i < j->rows; i++) {
            const bool is_good = !j->poison[i] && !j->bad[i];
            assert_int_equal(j->outcomes[i] == ANSWERED, is_good);
        }
        job_free(j);
    }
}

/* ---- single events ---- */

struct fixture {
    struct retry_policy policy;
    struct retry_host hosts[3];
    struct retry_work work;
    int64_t now_ns;
};

static void fixture_init(struct fixture *f, size_t hosts)
{
    *f = (struct fixture){.policy.max_attempts = 3, .now_ns = 100 * MR_NS_PER_S};
    for (size_t i = 0; i < hosts; i++) {
        f->hosts[i] =
            (struct retry_host){.id = (uint32_t)i + 1, .is_usable = true, .is_working = true};
        MR_VEC_PUSH(&f->policy.hosts, &f->hosts[i]);
    }
}

static void fixture_fini(struct fixture *f)
{
    MR_VEC_FINI(&f->policy.hosts);
}

static struct retry_event event(struct fixture *f, size_t host, uint64_t rows,
                                enum mr_balance_outcome outcome)
{
    f->now_ns += MS;
    return (struct retry_event){.outcome = outcome,
                                .host = &f->hosts[host],
                                .rows = rows,
                                .sent_ns = f->now_ns - MS / 2,
                                .now_ns = f->now_ns,
                                .is_answered = true};
}

static struct retry_decision ended(struct fixture *f, size_t host, uint64_t rows,
                                   enum mr_balance_outcome outcome)
{
    const struct retry_event e = event(f, host, rows, outcome);

    retry_policy_sent(&f->policy, &f->work, f->work.since_ns == 0, e.sent_ns);
    return retry_policy_ended(&f->policy, &f->work, &e);
}

/* Rows of another work that are answered in between. */
static void another_succeeds(struct fixture *f, size_t host)
{
    struct retry_work other = {0};
    const struct retry_event e = event(f, host, 1, MR_BALANCE_OK);

    assert_int_equal(retry_policy_ended(&f->policy, &other, &e).action, RETRY_DONE);
}

static void one_of_two_copies_decides(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 2);
    struct retry_event e = event(&f, 0, 1, MR_BALANCE_FAILED);
    e.has_copy = true;
    assert_int_equal(retry_policy_ended(&f.policy, &f.work, &e).action, RETRY_NONE);
    assert_int_equal(ended(&f, 1, 1, MR_BALANCE_OK).action, RETRY_DONE);
    e = event(&f, 0, 1, MR_BALANCE_OK);
    e.is_settled = true;
    assert_int_equal(retry_policy_ended(&f.policy, &f.work, &e).action, RETRY_NONE);
    assert_int_equal(f.policy.ok, 2);
    fixture_fini(&f);
}

static void busy_hosts_and_wrong_forms_are_nobodys_fault(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 2);
    for (int i = 0; i < 100; i++) {
        const struct retry_decision d = ended(&f, 0, 1, MR_BALANCE_THROTTLED);
        assert_int_equal(d.action, RETRY_LAST);
        assert_true(d.is_granted);
    }
    /* As a wrong form a refusal is excused three times for each host, then it counts. */
    for (int i = 0; i < 7; i++) {
        struct retry_event e = event(&f, 0, 1, MR_BALANCE_REJECTED);
        e.is_for_form = true;
        assert_int_equal(retry_policy_ended(&f.policy, &f.work, &e).action,
                         i < 6 ? RETRY_LAST : RETRY_FIRST);
    }
    assert_int_equal(f.work.refusals, 1);
    assert_int_equal(f.policy.failed, 0);
    fixture_fini(&f);
}

static void failures_count_while_others_succeed(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 2);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_FAILED).action, RETRY_LAST);
    for (uint32_t i = 1; i < 20; i++) {
        const struct retry_decision d = ended(&f, i % 2, 1, MR_BALANCE_FAILED);
        assert_int_equal(d.action, RETRY_LATER);
        assert_int_equal(d.tries, i + 1);
        assert_false(d.is_granted);
    }
    assert_int_equal(f.work.attempts, 0);
    assert_false(retry_policy_is_dead(&f.policy, &f.work, 1));
    for (uint32_t i = 1; i < 3; i++) {
        another_succeeds(&f, 0);
        const struct retry_decision d = ended(&f, 1, 1, MR_BALANCE_FAILED);
        assert_int_equal(d.action, RETRY_LATER);
        assert_true(d.is_granted);
        assert_int_equal(f.work.attempts, i);
    }
    another_succeeds(&f, 0);
    assert_int_equal(ended(&f, 1, 1, MR_BALANCE_FAILED).action, RETRY_DEAD);
    fixture_fini(&f);
}

/* The call that shows it was sent before the failure and ends after it. */
static void a_failure_may_count_later(void **state)
{
    struct fixture f;
    struct retry_work other = {0};
    (void)state;

    fixture_init(&f, 1);
    f.policy.max_attempts = 1;
    retry_policy_sent(&f.policy, &f.work, true, f.now_ns);
    struct retry_event late = event(&f, 0, 1, MR_BALANCE_OK);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_FAILED).action, RETRY_LATER);
    assert_false(retry_policy_is_dead(&f.policy, &f.work, 1));
    late.now_ns = f.now_ns + MS;
    assert_int_equal(retry_policy_ended(&f.policy, &other, &late).action, RETRY_DONE);
    assert_true(retry_policy_is_dead(&f.policy, &f.work, 1));
    fixture_fini(&f);
}

/* Dead letters once more: there may be no other rows. */
static void answers_that_fail_may_count_by_themselves(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 1);
    f.policy.counts_answers = true;
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_FAILED).action, RETRY_LATER);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_FAILED).action, RETRY_LATER);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_FAILED).action, RETRY_DEAD);
    fixture_fini(&f);
}

static void a_refusal_waits_for_hosts_that_may_come(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 1);
    f.policy.may_get_hosts = true;
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_REJECTED).action, RETRY_FIRST);
    f.policy.may_get_hosts = false;
    const struct retry_decision d = ended(&f, 0, 1, MR_BALANCE_REJECTED);
    assert_int_equal(d.action, RETRY_DEAD);
    assert_true(d.is_refused);
    assert_int_equal(retry_work_attempts(&f.work), 2);
    fixture_fini(&f);
}

/* It refuses all, while the other host is away: it is refuted each time, until it answers something. */
static void a_host_that_refuses_all_is_refuted(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 2);
    f.hosts[1].is_working = false;
    for (uint32_t i = 1; i <= 3; i++) {
        const struct retry_decision d = ended(&f, 0, 1, MR_BALANCE_REJECTED);
        assert_int_equal(d.action, RETRY_LATER);
        assert_int_equal(d.tries, i);
        assert_int_equal(d.refuted_count, 1);
        assert_ptr_equal(d.refuted[0], &f.hosts[0]);
        assert_true(d.refuses_all);
    }
    another_succeeds(&f, 0);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_REJECTED).action, RETRY_DEAD);
    fixture_fini(&f);
}

static void a_refuser_is_refuted_by_an_answer(void **state)
{
    struct fixture f;
    (void)state;

    fixture_init(&f, 2);
    assert_int_equal(ended(&f, 0, 1, MR_BALANCE_REJECTED).action, RETRY_FIRST);
    assert_false(retry_policy_may_ask(&f.policy, &f.work, &f.hosts[0], f.now_ns));
    assert_true(retry_policy_may_ask(&f.policy, &f.work, &f.hosts[1], f.now_ns));
    struct retry_decision d = ended(&f, 1, 1, MR_BALANCE_OK);
    assert_int_equal(d.action, RETRY_DONE);
    assert_int_equal(d.refuted_count, 1);
    assert_ptr_equal(d.refuted[0], &f.hosts[0]);
    assert_true(d.is_first[0]);
    assert_false(d.refuses_all);
    /* Of several rows it may be their number. */
    f.work = (struct retry_work){0};
    assert_int_equal(ended(&f, 0, 64, MR_BALANCE_REJECTED).action, RETRY_FIRST);
    d = ended(&f, 1, 64, MR_BALANCE_OK);
    assert_int_equal(d.refuted_count, 0);
    assert_int_equal(retry_host_rows(&f.hosts[0], 64), 32);
    assert_int_equal(retry_host_rows(&f.hosts[1], 64), 64);
    fixture_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_that_are_well_get_each_row_once),
        cmocka_unit_test(a_poisoned_row_is_isolated_by_few_calls),
        cmocka_unit_test(a_row_that_all_hosts_refuse_is_isolated_by_few_calls),
        cmocka_unit_test(a_host_that_refuses_all_makes_no_dead_letters),
        cmocka_unit_test(a_host_that_refuses_large_calls_gets_smaller_ones),
        cmocka_unit_test(the_only_host_is_believed),
        cmocka_unit_test(the_only_host_that_works_is_not_believed_about_all_rows),
        cmocka_unit_test(an_outage_makes_no_dead_letters),
        cmocka_unit_test(a_poisoned_row_beside_an_outage_is_the_only_dead_letter),
        cmocka_unit_test(rows_end_once_whatever_hosts_do),
        cmocka_unit_test(one_of_two_copies_decides),
        cmocka_unit_test(busy_hosts_and_wrong_forms_are_nobodys_fault),
        cmocka_unit_test(failures_count_while_others_succeed),
        cmocka_unit_test(a_failure_may_count_later),
        cmocka_unit_test(answers_that_fail_may_count_by_themselves),
        cmocka_unit_test(a_refusal_waits_for_hosts_that_may_come),
        cmocka_unit_test(a_host_that_refuses_all_is_refuted),
        cmocka_unit_test(a_refuser_is_refuted_by_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
