/* The state of sequences: the map of open ones, places, backlog and idle list. form.c chooses what runs.
 *
 * A sequence is in the map until its end is admitted, so that a new one of the same key is another sequence. It is
 * in exactly one of these lists: the backlog (no place), its instance's ready list (a request waits and none runs),
 * the idle list (nothing waits or runs), or none of them (one of its requests runs). */
#include "set.h"

#include "base/mem.h"

struct seq_set *sequence_set_new(const struct seq_options *o)
{
    struct seq_set *s = MR_NEW(struct seq_set);

    s->o = *o;
    TAILQ_INIT(&s->backlog);
    TAILQ_INIT(&s->idle);
    s->instances = MR_NEW_ARRAY(struct seq_instance, o->instances);
    for (uint32_t i = 0; i < o->instances; i++) {
        s->instances[i].places = MR_NEW_ARRAY(struct seq *, o->places);
        TAILQ_INIT(&s->instances[i].ready);
    }
    return s;
}

static void seq_free(struct seq_set *s, struct seq *q)
{
    if (q->data && s->o.drop) {
        s->o.drop(s->o.ctx, q->data);
    }
    s->count--;
    mr_free(q);
}

static void forget_key(struct seq_set *s, struct seq *q)
{
    if (q->is_known) {
        mr_map_remove(&s->known, mr_str_n(q->key, q->key_len));
    }
    q->is_known = false;
}

void sequence_set_free(struct seq_set **io)
{
    struct seq_set *s = *io;

    if (!s) {
        return;
    }
    for (uint32_t i = 0; i < s->o.instances; i++) {
        for (uint32_t k = 0; k < s->o.places; k++) {
            if (s->instances[i].places[k]) {
                seq_free(s, s->instances[i].places[k]);
            }
        }
        mr_free(s->instances[i].places);
    }
    mr_map_fini(&s->known);
    mr_free(s->instances);
    mr_free(s);
    *io = NULL;
}

/* The lowest free place of an instance, or `places`. */
static uint32_t lowest_free(struct seq_set *s, struct seq_instance *in)
{
    while (in->free_from < s->o.places && in->places[in->free_from]) {
        in->free_from++;
    }
    return in->free_from;
}

/* The lowest free place of all, so that sequences spread over the instances and batches stay short. */
static uint32_t choose_instance(struct seq_set *s)
{
    uint32_t best = SEQ_NONE, best_place = s->o.places;

    for (uint32_t i = 0; i < s->o.instances && best_place > 0; i++) {
        uint32_t place = lowest_free(s, &s->instances[i]);
        if (place < best_place) {
            best = i;
            best_place = place;
        }
    }
    return best;
}

/* A request of q waits and none runs: by the arrival of that request, which is mostly the latest. */
static void ready_insert(struct seq_set *s, struct seq *q)
{
    struct seq_instance *in = &s->instances[q->instance];
    int64_t at = TAILQ_FIRST(&q->waiting)->arrived_ns;
    struct seq *before = TAILQ_LAST(&in->ready, seq_list);

    while (before && TAILQ_FIRST(&before->waiting)->arrived_ns > at) {
        before = TAILQ_PREV(before, seq_list, link);
    }
    if (before) {
        TAILQ_INSERT_AFTER(&in->ready, before, q, link);
    } else {
        TAILQ_INSERT_HEAD(&in->ready, q, link);
    }
    in->ready_count++;
    q->in = SEQ_IN_READY;
}

static void list_leave(struct seq_set *s, struct seq *q)
{
    switch (q->in) {
    case SEQ_IN_BACKLOG: TAILQ_REMOVE(&s->backlog, q, link); break;
    case SEQ_IN_IDLE: TAILQ_REMOVE(&s->idle, q, link); break;
    case SEQ_IN_READY:
        TAILQ_REMOVE(&s->instances[q->instance].ready, q, link);
        s->instances[q->instance].ready_count--;
        break;
    case SEQ_IN_NONE: break;
    }
    q->in = SEQ_IN_NONE;
}

static void place_take(struct seq_set *s, struct seq *q, uint32_t instance)
{
    struct seq_instance *in = &s->instances[instance];

    q->instance = instance;
    q->place = lowest_free(s, in);
    in->places[q->place] = q;
    in->used++;
}

/* q has ended and nothing of it runs: its place goes to the first of the backlog. */
static void retire(struct seq_set *s, struct seq *q)
{
    uint32_t instance = q->instance;
    struct seq *next;

    list_leave(s, q);
    forget_key(s, q);
    if (instance != SEQ_NONE) {
        struct seq_instance *in = &s->instances[instance];
        in->places[q->place] = NULL;
        in->used--;
        if (q->place < in->free_from) {
            in->free_from = q->place;
        }
    }
    seq_free(s, q);
    if (instance != SEQ_NONE && (next = TAILQ_FIRST(&s->backlog)) != NULL) {
        list_leave(s, next);
        place_take(s, next, instance);
        ready_insert(s, next);
    }
}

static struct seq *seq_new(struct seq_set *s, mr_str key)
{
    struct seq *q = mr_alloc(sizeof *q + key.len);

    TAILQ_INIT(&q->waiting);
    memcpy(q->key, key.ptr, key.len);
    q->key_len = key.len;
    q->is_known = true;
    q->instance = choose_instance(s);
    mr_map_put(&s->known, key, q);
    s->count++;
    if (q->instance != SEQ_NONE) {
        place_take(s, q, q->instance);
    } else {
        TAILQ_INSERT_TAIL(&s->backlog, q, link);
        q->in = SEQ_IN_BACKLOG;
    }
    return q;
}

enum seq_admitted sequence_admit(struct seq_set *s, mr_str key, struct seq_request *r,
                                 int64_t now_ns, uint32_t *out_instance)
{
    struct seq *q = mr_map_find(&s->known, key);

    if (!q && !r->is_start) {
        return SEQ_NO_START;
    }
    if (!q) {
        q = seq_new(s, key);
    }
    if (r->is_start) {
        q->is_named = r->is_named;
    }
    r->seq = q;
    r->arrived_ns = now_ns;
    TAILQ_INSERT_TAIL(&q->waiting, r, link);
    if (r->is_end) {
        forget_key(s, q);
        q->is_ending = true;
    }
    if (q->instance == SEQ_NONE) {
        return SEQ_BACKLOG;
    }
    if (q->in == SEQ_IN_IDLE) {
        list_leave(s, q);
    }
    if (q->in == SEQ_IN_NONE && !q->running) {
        ready_insert(s, q);
    }
    *out_instance = q->instance;
    return SEQ_PLACED;
}

void sequence_run(struct seq_set *s, struct seq *q, uint32_t row)
{
    struct seq_request *r = TAILQ_FIRST(&q->waiting);

    list_leave(s, q);
    TAILQ_REMOVE(&q->waiting, r, link);
    q->has_begun = true;
    q->running = r;
    r->row = row;
}

void sequence_done(struct seq_set *s, struct seq_request *r, int64_t now_ns)
{
    struct seq *q = r->seq;

    r->seq = NULL;
    q->running = NULL;
    if (!TAILQ_EMPTY(&q->waiting)) {
        ready_insert(s, q);
    } else if (q->is_ending) {
        retire(s, q);
    } else {
        q->idle_since_ns = now_ns;
        TAILQ_INSERT_TAIL(&s->idle, q, link);
        q->in = SEQ_IN_IDLE;
    }
}

/* Takes the requests from `first` up to the next start; it may be NULL, for those after the last one. Without such a start
 * the sequence ends. */
static void take_out(struct seq_set *s, struct seq *q, struct seq_request *first,
                     struct seq_requests *out)
{
    const bool was_ready = q->in == SEQ_IN_READY;
    struct seq_request *it = first, *next;

    if (was_ready) { /* ready_insert of others reads the waiting requests of listed sequences */
        list_leave(s, q);
    }
    for (; it && (it == first || !it->is_start); it = next) {
        next = TAILQ_NEXT(it, link);
        TAILQ_REMOVE(&q->waiting, it, link);
        it->seq = NULL;
        TAILQ_INSERT_TAIL(out, it, link);
    }
    if (!it) {
        q->is_ending = true;
        forget_key(s, q);
    }
    if (TAILQ_EMPTY(&q->waiting) && !q->running) {
        retire(s, q);
    } else if (was_ready) {
        ready_insert(s, q);
    }
}

/* The same from what runs, or has run, on. */
static void take_rest(struct seq_set *s, struct seq *q, struct seq_requests *out)
{
    struct seq_request *first = TAILQ_FIRST(&q->waiting);

    if (!first || !first->is_start) {
        take_out(s, q, first, out);
    }
}

uint32_t sequence_end(struct seq_set *s, struct seq_request *r, struct seq_requests *out)
{
    struct seq *q = r->seq;
    const uint32_t instance = q->instance;
    struct seq_request *before;

    if (r == q->running) {
        take_rest(s, q, out);
        return instance;
    }
    while (!r->is_start && (before = TAILQ_PREV(r, seq_requests, link)) != NULL) {
        r = before;
    }
    take_out(s, q, r, out);
    return instance;
}

uint32_t sequence_leave(struct seq_set *s, mr_str key)
{
    struct seq *q = mr_map_find(&s->known, key);

    if (!q) {
        return SEQ_NONE;
    }
    uint32_t instance = q->instance;
    q->is_ending = true;
    forget_key(s, q);
    if (q->in == SEQ_IN_IDLE) {
        retire(s, q);
    }
    return instance;
}

void sequence_lose(struct seq_set *s, uint32_t instance, struct seq_requests *out)
{
    const struct seq_instance *in = &s->instances[instance];

    for (uint32_t i = 0; i < s->o.places; i++) {
        struct seq *q = in->places[i];
        if (q && q->has_begun) {
            q->has_begun = false;
            take_rest(s, q, out);
        }
    }
}

void sequence_hasten(struct seq_set *s)
{
    s->is_hasty = true;
}

int64_t sequence_next_idle_ns(const struct seq_set *s)
{
    const struct seq *q = TAILQ_FIRST(&s->idle);

    if (!q) {
        return INT64_MAX;
    }
    if (s->is_hasty && !TAILQ_EMPTY(&s->backlog)) {
        return 0; /* at any time */
    }
    return q->idle_since_ns > INT64_MAX - s->o.max_idle_ns ? INT64_MAX
                                                           : q->idle_since_ns + s->o.max_idle_ns;
}

uint32_t sequence_reap(struct seq_set *s, int64_t now_ns)
{
    struct seq *q = TAILQ_FIRST(&s->idle);
    uint32_t instance;

    if (!q || now_ns < sequence_next_idle_ns(s)) {
        return SEQ_NONE;
    }
    instance = q->instance;
    retire(s, q);
    return instance;
}

struct seq_request *sequence_overdue(const struct seq_set *s, int64_t now_ns, int64_t *out_next_ns)
{
    int64_t next_ns = INT64_MAX;
    struct seq_request *r;
    const struct seq *q;

    TAILQ_FOREACH (q, &s->backlog, link) {
        TAILQ_FOREACH (r, &q->waiting, link) {
            if (r->due_ns > 0 && r->due_ns <= now_ns) {
                return r;
            }
            next_ns = r->due_ns > 0 ? MR_MIN(next_ns, r->due_ns) : next_ns;
        }
    }
    *out_next_ns = next_ns;
    return NULL;
}

bool sequence_is_placed(const struct seq_request *r)
{
    return r->seq->instance != SEQ_NONE;
}

bool sequence_is_used(const struct seq_set *s, uint32_t instance)
{
    return s->instances[instance].used > 0;
}

bool sequence_is_known(const struct seq_set *s, mr_str key)
{
    return mr_map_find(&s->known, key) != NULL;
}

bool sequence_is_named(const struct seq_set *s, mr_str key)
{
    const struct seq *q = mr_map_find(&s->known, key);

    return q && q->is_named;
}

bool sequence_has_backlog(const struct seq_set *s)
{
    return !TAILQ_EMPTY(&s->backlog);
}

uint32_t sequence_count(const struct seq_set *s)
{
    return s->count;
}

void **sequence_data(struct seq_request *r)
{
    return &r->seq->data;
}
