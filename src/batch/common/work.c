#include "work.h"

#include <string.h>

struct work *work_new(const struct row_range *ranges, size_t count)
{
    struct work *w = mr_alloc(sizeof *w + count * sizeof *ranges);

    w->range_count = count;
    memcpy(w->ranges, ranges, count * sizeof *ranges);
    for (size_t i = 0; i < count; i++) {
        w->count += ranges[i].count;
    }
    return w;
}

struct row_range work_range(const struct work *w, uint64_t at, uint64_t count)
{
    const struct row_range *s = w->ranges;

    for (; at >= s->count; s++) {
        at -= s->count;
    }
    return (struct row_range){s->extent, s->first + at, MR_MIN(s->count - at, count)};
}

struct work *work_part(const struct work *w, uint64_t at, uint64_t count)
{
    struct row_range ranges[RANGES_MOST];
    size_t n = 0;

    for (const uint64_t end = at + count; at < end; at += ranges[n++].count) {
        ranges[n] = work_range(w, at, end - at);
    }
    return work_new(ranges, n);
}

void work_queue_push(struct work_queue *q, struct work *w)
{
    w->next = NULL;
    w->is_retry = true;
    if (q->last) {
        q->last->next = w;
    } else {
        q->first = w;
    }
    q->last = w;
}

void work_queue_link(struct work_queue *q, struct work *before, struct work *w, struct work *next)
{
    w->is_retry = true;
    w->next = next;
    if (before) {
        before->next = w;
    } else {
        q->first = w;
    }
    q->last = next ? q->last : w;
}

void work_queue_unlink(struct work_queue *q, struct work *before, struct work *w)
{
    if (before) {
        before->next = w->next;
    } else {
        q->first = w->next;
    }
    q->last = q->last == w ? before : q->last;
}

void work_queue_push_front(struct work_queue *q, struct work *w)
{
    work_queue_link(q, NULL, w, q->first);
}

void work_drop(struct work **w)
{
    if (*w && (*w)->bisect && --(*w)->bisect->holders == 0) {
        mr_free((*w)->bisect);
    }
    if (*w) {
        mr_free((*w)->answer.text);
        mr_free((*w)->note);
    }
    mr_freep(w);
}
