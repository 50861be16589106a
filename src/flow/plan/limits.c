/* `admission` and `deadline_ms` of a workflow. Thread: loader. */
#include "limits.h"

#include "base/buf.h"
#include "base/mem.h"

#define QUEUE     1024u
#define QUEUE_MAX 1000000u

int plan_admission_read(struct plan_build *b)
{
    const Millrace__WorkflowScheduling__Admission *a = b->w->admission;

    if (!a) {
        return MR_OK;
    }
    if (a->max_inflight == 0 && a->max_bytes == 0) {
        return PLAN_BAD(b, "workflow '%.*s': admission must specify 'max_inflight' or 'max_bytes'",
                        MR_STR_ARG(b->p->name));
    }
    if (a->max_queue > QUEUE_MAX) {
        return PLAN_BAD(b, "workflow '%.*s': admission has 'max_queue' %u, possible is 1 to %u",
                        MR_STR_ARG(b->p->name), a->max_queue, QUEUE_MAX);
    }
    const bool rejects = a->on_full == MILLRACE__WORKFLOW_SCHEDULING__ADMISSION__ON_FULL__REJECT;
    if (rejects && a->max_queue) {
        return PLAN_BAD(b,
                        "workflow '%.*s': admission has 'max_queue', and with on_full: REJECT no "
                        "request waits",
                        MR_STR_ARG(b->p->name));
    }
    b->p->admission = (struct plan_admission){.max_open = a->max_inflight,
                                              .max_bytes = a->max_bytes,
                                              .max_queue = a->max_queue ? a->max_queue : QUEUE,
                                              .rejects = rejects};
    return MR_OK;
}

/* ---- the deadline ---- */

#define NAMES_MAX 400u

/* Time of the longest way to the end of each node, and the node before it. */
struct way {
    uint64_t ms;
    uint32_t from;
};

/* With the fallback's time, or that of the slowest branch; operators have none. */
static uint64_t own_ms(const struct plan *p, const struct plan_node *node)
{
    uint64_t ms = node->op_name.len ? 0 : (uint64_t)node->timeout_ms * MR_MAX(node->attempts, 1u);

    for (uint32_t k = 0; k < node->branch_count; k++) {
        ms = MR_MAX(ms, own_ms(p, &p->nodes[node->branches[k]]));
    }
    return ms + (node->fallback < p->node_count ? own_ms(p, &p->nodes[node->fallback]) : 0);
}

static uint32_t longest_find(const struct plan *p, struct way *ways)
{
    uint32_t *room = MR_NEW_ARRAY(uint32_t, 2 * (size_t)p->node_count + 1);
    const uint32_t count = plan_order(p, room, room + p->node_count);
    uint32_t last = PLAN_NO_NODE;

    for (uint32_t k = 0; k < count; k++) {
        const struct plan_node *node = &p->nodes[room[k]];
        struct way *way = &ways[room[k]];
        *way = (struct way){0, PLAN_NO_NODE};
        for (uint32_t i = 0; i < node->before_count; i++) {
            const uint32_t n = node->before[i];
            if (way->from == PLAN_NO_NODE || ways[n].ms > way->ms) {
                *way = (struct way){ways[n].ms, n};
            }
        }
        way->ms += own_ms(p, node);
        last = last == PLAN_NO_NODE || way->ms > ways[last].ms ? room[k] : last;
    }
    mr_free(room);
    return last;
}

void plan_deadline_check(const struct plan *p, struct mr_buf *out)
{
    if (!p->deadline_ms) {
        return;
    }
    struct way *ways = MR_NEW_ARRAY(struct way, (size_t)p->node_count + 1);
    const uint32_t last = longest_find(p, ways);
    struct mr_buf names;

    mr_buf_init(&names, NAMES_MAX);
    if (last != PLAN_NO_NODE && ways[last].ms > p->deadline_ms) {
        for (uint32_t n = last; n != PLAN_NO_NODE; n = ways[n].from) {
            if (own_ms(p, &p->nodes[n])) {
                mr_buf_printf(&names, "%s%.*s", names.len ? ", " : "",
                              MR_STR_ARG(mr_str_sub(p->nodes[n].name, 0, 80)));
            }
        }
        mr_buf_printf(out,
                      "node '%.*s': the time-outs up to its end, with repetitions and fallbacks, "
                      "are %llu ms on the longest way (from the end: %s), and the workflow's "
                      "deadline_ms is %u",
                      MR_STR_ARG(mr_str_sub(p->nodes[last].name, 0, 128)),
                      (unsigned long long)ways[last].ms, mr_buf_cstr(&names), p->deadline_ms);
    }
    mr_buf_fini(&names);
    mr_free(ways);
}
