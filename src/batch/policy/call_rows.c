#include "call_rows.h"

#include "base/mem.h"

void call_rows_set(struct call_rows *r, uint64_t most)
{
    *r = (struct call_rows){.most = most, .now = most, .every = CALL_ROWS_TRIAL_LEAST};
}

void call_rows_raise(struct call_rows *r, uint64_t most)
{
    r->most = most;
    r->bad = r->now + 1; /* not known to be good */
    r->every = r->good = CALL_ROWS_TRIAL_LEAST;
}

void call_rows_limit(struct call_rows *r, uint64_t most)
{
    r->most = MR_MIN(r->most, most);
    r->now = MR_MIN(r->now, r->most);
}

/* Twice as many, as far as that goes. */
static uint64_t doubled(const struct call_rows *r)
{
    return r->now > r->most / 2 ? r->most : 2 * r->now;
}

static bool is_bad(const struct call_rows *r, uint64_t rows)
{
    return r->bad > 0 && rows >= r->bad;
}

uint64_t call_rows_next(const struct call_rows *r)
{
    return r->good >= r->every && !r->is_on_trial ? doubled(r) : r->now;
}

bool call_rows_cut(struct call_rows *r, uint64_t rows)
{
    const bool is_trial = rows > r->now;

    r->is_on_trial = r->is_on_trial || is_trial;
    return is_trial;
}

void call_rows_untried(struct call_rows *r)
{
    r->is_on_trial = false;
}

void call_rows_ok(struct call_rows *r, uint64_t rows)
{
    if (rows > r->now) {
        r->is_on_trial = false;
    }
    if (is_bad(r, rows)) {
        r->bad = 0;
        r->every = CALL_ROWS_TRIAL_LEAST;
    }
    if (rows < r->now || r->now == r->most) {
        r->is_careful = r->is_careful && rows < r->most;
        return;
    }
    if (is_bad(r, doubled(r))) {
        r->good++;
    } else {
        r->now = doubled(r);
        r->good = 0;
    }
}

bool call_rows_failed(struct call_rows *r, uint64_t rows, bool is_doubtful)
{
    if (rows > r->now) {
        if (r->is_on_trial) {
            r->every = MR_MIN(2 * r->every, CALL_ROWS_TRIAL_MOST);
            r->good = 0;
        }
        r->is_on_trial = false;
    } else if (r->is_careful && rows > 1 && rows > r->now / 2 && !is_doubtful) {
        r->bad = r->bad ? MR_MIN(r->bad, rows) : rows;
        r->now = rows / 2;
        r->good = 0;
    }
    if (is_doubtful && r->now > 1) {
        r->now = 1;
        r->good = 0;
        r->is_careful = true;
        return true;
    }
    return false;
}
