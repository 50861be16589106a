/* Which variant of a split a request gets. The bucket is drawn once for each key and salt. Thread: that of the walk. */
#include "exec.h"

#include "base/clock.h"
#include "base/str.h"
#include "variant/split.h"

int flow_splits_begin(struct walk *w, struct mr_err *err)
{
    const struct plan *p = w->flow->plan;

    if (!p->has_splits) {
        return MR_OK;
    }
    w->buckets = MR_ARENA_ARRAY(&w->arena, uint32_t, p->node_count);
    w->chosen = MR_ARENA_ARRAY(&w->arena, uint8_t, p->node_count);
    w->split_ns = MR_ARENA_ARRAY(&w->arena, int64_t, p->node_count);
    if (!w->buckets || !w->chosen || !w->split_ns) {
        return MR_ARENA_FAIL(err);
    }
    memset(w->buckets, 0, p->node_count * sizeof *w->buckets);
    memset(w->chosen, 0, p->node_count);
    memset(w->split_ns, 0, p->node_count * sizeof *w->split_ns);
    return MR_OK;
}

/* Requests of a sequence belong together. */
static mr_str key_of(const struct mr_split *s, const struct walk *w, char number[MR_U64_TEXT])
{
    const struct mr_infer *asked = w->asked;
    mr_str name;
    const enum mr_sticky_kind kind = mr_split_key(s, &name);
    const mr_str header = kind == MR_STICKY_HEADER ? flow_header(w, name) : (mr_str){NULL, 0};

    if (header.ptr) {
        return header;
    }
    if (kind == MR_STICKY_PARAMETER) {
        for (uint32_t i = 0; i < asked->parameter_count; i++) {
            if (mr_str_eq_c(name, asked->parameters[i].key)) {
                return mr_str_c(asked->parameters[i].value);
            }
        }
    }
    if (!asked->sequence) {
        return (mr_str){NULL, 0};
    }
    return asked->sequence->text.len
               ? asked->sequence->text
               : mr_str_n(number, (size_t)(mr_u64_put(number, asked->sequence->number) - number));
}

static unsigned bucket_of(struct walk *w, uint32_t node)
{
    const uint32_t first = w->flow->plan->nodes[node].bucket;
    struct mr_split *s = w->flow->plan->nodes[first].split;
    char number[MR_U64_TEXT];

    if (w->buckets[first] == 0) {
        w->buckets[first] = 1 + mr_split_bucket(s, key_of(s, w, number));
    }
    return w->buckets[first] - 1;
}

const struct plan_node *flow_split_choose(struct call *c)
{
    struct walk *w = c->walk;
    const struct plan_node *node = &w->flow->plan->nodes[c->node];

    if (!node->split) {
        return node;
    }
    const unsigned v = mr_split_choose(node->split, bucket_of(w, c->node));
    w->chosen[c->node] = (uint8_t)(v + 1);
    if (w->split_ns[c->node] == 0) {
        w->split_ns[c->node] = c->infer.times.received;
    }
    return v == 0 ? node : &w->flow->plan->nodes[node->variants + v - 1];
}

void flow_split_end(struct walk *w, uint32_t node, int status)
{
    if (w->split_ns && w->split_ns[node]) {
        const int64_t now = mr_now_ns();
        mr_split_end(w->flow->plan->nodes[node].split, w->chosen[node] - 1u, status,
                     now - w->split_ns[node], (struct mr_rollout_time){now, mr_wall_coarse_ns()});
        w->split_ns[node] = 0;
    }
}

void flow_splits_forget(struct walk *w, const uint8_t *marks)
{
    for (uint32_t n = 0; w->chosen && n < w->flow->plan->node_count; n++) {
        w->chosen[n] = marks[n] ? 0 : w->chosen[n];
    }
}
