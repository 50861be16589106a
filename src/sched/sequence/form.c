/* Chooses the requests that an instance runs next, by the two strategies. */
#include "base/mem.h"
#include "set.h"

static struct seq_request *head(const struct seq *q)
{
    return TAILQ_FIRST(&q->waiting);
}

static int64_t after(int64_t ns, int64_t delay_ns)
{
    return ns > INT64_MAX - delay_ns ? INT64_MAX : ns + delay_ns;
}

static bool can_join(const struct seq_set *s, const struct seq *first, const struct seq *q)
{
    return q == first || s->o.can_join(s->o.ctx, head(first), head(q));
}

/* ---- direct: place and row are one ---- */

/* True if a direct batch waits for more rows; *plan says until when, or why it runs. */
static bool direct_waits(const struct seq_set *s, const struct seq_instance *in, int64_t now_ns,
                         struct seq_plan *plan)
{
    int64_t until = after(head(TAILQ_FIRST(&in->ready))->arrived_ns, s->o.max_delay_ns);

    plan->reason = in->ready_count == s->o.places ? MR_CLOSE_FULL : MR_CLOSE_NO_COMPANY;
    if (s->o.max_delay_ns == 0 || s->o.min_utilization <= 0 || plan->reason == MR_CLOSE_FULL) {
        return false;
    }
    plan->reason = now_ns >= until ? MR_CLOSE_DELAY : MR_CLOSE_PREFERRED;
    if (now_ns >= until || (float)in->ready_count >= s->o.min_utilization * (float)s->o.places) {
        return false;
    }
    plan->wait_until_ns = until;
    return true;
}

static void form_direct(struct seq_set *s, struct seq_instance *in, int64_t now_ns,
                        struct seq_request **out, struct seq_plan *plan)
{
    const struct seq *first = TAILQ_FIRST(&in->ready); /* the oldest, so that none waits for ever */
    uint32_t left = in->ready_count;
    struct seq *joined = NULL;

    if (direct_waits(s, in, now_ns, plan)) {
        return;
    }
    for (uint32_t i = 0; left > 0; i++) {
        struct seq *q = in->places[i];
        if (!q || q->in != SEQ_IN_READY) {
            continue;
        }
        left--;
        if (!can_join(s, first, q)) {
            plan->reason = MR_CLOSE_SHAPE;
            continue;
        }
        out[plan->count++] = head(q);
        plan->rows = i + 1;
    }
    for (uint32_t i = 0; i < plan->count; i++) {
        joined = out[i]->seq;
        sequence_run(s, joined, joined->place);
    }
}

/* ---- oldest ---- */

/* The largest preferred count that the rows reach, 0: none. */
static uint32_t preferred_of(const struct seq_set *s, uint32_t rows)
{
    for (size_t i = s->o.preferred_count; i-- > 0;) {
        if (s->o.preferred[i] > 0 && (uint32_t)s->o.preferred[i] <= rows) {
            return (uint32_t)s->o.preferred[i];
        }
    }
    return 0;
}

/* How many of the oldest ready sequences may run together. */
static uint32_t count_oldest(const struct seq_set *s, const struct seq_instance *in,
                             uint32_t max_rows, struct seq_plan *plan)
{
    const uint32_t max = MR_MIN(max_rows, s->o.max_rows);
    const struct seq *first = TAILQ_FIRST(&in->ready), *q;
    uint32_t n = 0;

    TAILQ_FOREACH (q, &in->ready, link) {
        if (n == max) {
            break;
        }
        if (!can_join(s, first, q)) {
            plan->reason = MR_CLOSE_SHAPE;
            return n;
        }
        n++;
    }
    if (n == max) {
        plan->reason = MR_CLOSE_FULL;
    }
    return n;
}

static void form_oldest(struct seq_set *s, struct seq_instance *in, uint32_t max_rows,
                        int64_t now_ns, struct seq_request **out, struct seq_plan *plan)
{
    int64_t until = after(head(TAILQ_FIRST(&in->ready))->arrived_ns, s->o.max_delay_ns);
    uint32_t n, preferred;

    plan->reason = MR_CLOSE_REASONS; /* open */
    n = count_oldest(s, in, max_rows, plan);
    preferred = preferred_of(s, n);
    if (plan->reason == MR_CLOSE_REASONS && now_ns >= until) {
        plan->reason = s->o.max_delay_ns > 0 ? MR_CLOSE_DELAY : MR_CLOSE_NO_COMPANY;
    } else if (plan->reason == MR_CLOSE_REASONS && preferred > 0) {
        plan->reason = MR_CLOSE_PREFERRED;
        n = preferred;
    } else if (plan->reason == MR_CLOSE_REASONS && in->ready_count == s->o.places) {
        plan->reason = MR_CLOSE_NO_COMPANY; /* there is no sequence that could join */
    }
    if (plan->reason == MR_CLOSE_REASONS) {
        plan->wait_until_ns = until;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct seq *q = TAILQ_FIRST(&in->ready);
        out[i] = head(q);
        sequence_run(s, q, i);
    }
    plan->count = plan->rows = n;
}

void sequence_form(struct seq_set *s, uint32_t instance, uint32_t max_rows, int64_t now_ns,
                   struct seq_request **out, struct seq_plan *plan)
{
    struct seq_instance *in = &s->instances[instance];

    *plan = (struct seq_plan){.wait_until_ns = INT64_MAX};
    if (in->ready_count == 0) {
        return;
    }
    if (s->o.is_direct) {
        form_direct(s, in, now_ns, out, plan);
    } else {
        form_oldest(s, in, max_rows, now_ns, out, plan);
    }
}
