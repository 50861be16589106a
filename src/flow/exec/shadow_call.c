/* Shadows of nodes: of some calls that were answered well, inputs and outputs are kept, and run on another model when the walk is
 * over (engine/shadow.h). Thread: that of the walk. */
#include "exec.h"

#include "engine/shadow.h"
#include "variant/choice.h"

/* A copy that waits for the end of the walk. */
struct held {
    struct held *next;
    struct mr_shadow_job *job;
};

void flow_shadows_open(struct flow *f)
{
    const struct plan *p = f->plan;

    if (!p->has_shadows) {
        return;
    }
    f->shadows = MR_NEW_ARRAY(struct flow_shadow, (size_t)p->node_count + 1);
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (p->nodes[n].shadow) {
            f->shadows[n].shadow = mr_shadow_new(f->engine, p->nodes[n].shadow);
        }
    }
}

void flow_shadows_close(struct flow *f)
{
    for (uint32_t n = 0; f->shadows && n < f->plan->node_count; n++) {
        mr_shadow_drop(&f->shadows[n].shadow);
    }
    mr_free(f->shadows);
}

/* The sequence of mr_variant_spread, whose state is the number of its steps times one constant. */
static bool is_chosen(struct flow_shadow *s, double percent)
{
    uint64_t before =
        atomic_fetch_add_explicit(&s->spread, UINT64_C(0x9e3779b97f4a7c15), memory_order_relaxed);

    return mr_variant_spread(&before) < percent * MR_VARIANT_BUCKETS / 100;
}

void flow_shadow_take(struct call *c)
{
    struct walk *w = c->walk;
    struct flow_shadow *s = &w->flow->shadows[c->node];
    const struct mr_infer *r = &c->infer;

    if (!s->shadow || r->status != MR_OK || !r->outputs ||
        !is_chosen(s, w->flow->plan->nodes[c->node].shadow->percent)) {
        return;
    }
    struct held *h = MR_ARENA_NEW(&w->arena, struct held);
    struct mr_shadow_job *job = h ? mr_shadow_take(s->shadow, r) : NULL;
    if (job) {
        *h = (struct held){w->shadowed, job};
        w->shadowed = h;
    }
}

static void on_mail(struct mr_mail *mail)
{
    struct mr_shadow_job *job = mr_shadow_of_mail(mail);

    mr_shadow_run(&job);
}

/* By the mailbox of the loop, which sends the answer first. */
void flow_shadows_run(struct walk *w)
{
    const struct mr_reply_loop *loop = w->asked->reply_loop;
    struct held *h;

    while ((h = w->shadowed) != NULL) {
        w->shadowed = h->next;
        if (loop && loop->post) {
            mr_shadow_mail(h->job)->run = on_mail;
            loop->post(loop->ctx, mr_shadow_mail(h->job));
        } else {
            mr_shadow_run(&h->job);
        }
    }
}

struct mr_shadow_stats flow_shadow_stats(const struct flow *f, uint32_t node)
{
    struct mr_shadow *s = f->shadows ? f->shadows[node].shadow : NULL;

    return s ? mr_shadow_stats(s) : (struct mr_shadow_stats){0};
}
