/* What a client asks of a workflow besides its outputs, by parameters of the request, and what the answer says by its own:
 *
 *   workflow.trace    true: the answer has a parameter of this name, JSON text with the times of each node
 *   workflow.strict   true: nodes that fail fail the request, whatever their policy
 *   workflow.status   of answers with nodes that did not simply run: JSON text, which and why
 *   variant.NODE      of answers: the variant that the split NODE has chosen
 *
 * A request without parameters costs a comparison, and no node reads a clock for a trace that is not asked for.
 *
 * Thread: that of the walk. */
#include "exec.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "codec/json.h"
#include "variant/split.h"

/* Of a trace or status as text; what does not fit is counted. */
#define TEXT_MAX 65536u
/* For what closes the text. */
#define TEXT_TAIL 64u

static const char *const outcome_names[] = {[RUN_RAN] = "ran",
                                            [RUN_SKIPPED] = "skipped",
                                            [RUN_FAILED] = "failed",
                                            [RUN_DEFAULTED] = "default",
                                            [RUN_FELL_BACK] = "fallback"};

const char *flow_outcome_name(uint8_t outcome)
{
    return outcome_names[outcome];
}

/* ---- what is asked for ---- */

static int flag_read(const struct mr_setting *p, bool *out, struct mr_err *err)
{
    return mr_str_to_bool(mr_str_c(p->value), out)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "parameter '%s' is '%.64s', allowed are true and false",
                         p->key, p->value);
}

static int trace_make(struct walk *w, struct mr_err *err)
{
    const uint32_t count = w->flow->plan->node_count;

    w->trace = MR_ARENA_ARRAY(&w->arena, struct walk_trace, count);
    if (!w->trace) {
        return MR_ARENA_FAIL(err);
    }
    memset(w->trace, 0, count * sizeof *w->trace);
    w->begun_ns = mr_now_ns();
    return MR_OK;
}

int flow_asked_read(struct walk *w, struct mr_err *err)
{
    bool has_trace = false;
    int rc = MR_OK;

    for (uint32_t i = 0; i < w->asked->parameter_count && rc == MR_OK; i++) {
        const struct mr_setting *p = &w->asked->parameters[i];
        if (strcmp(p->key, FLOW_TRACE) == 0) {
            rc = flag_read(p, &has_trace, err);
        } else if (strcmp(p->key, FLOW_STRICT) == 0) {
            rc = flag_read(p, &w->run.is_strict, err);
        }
    }
    return rc == MR_OK && has_trace ? trace_make(w, err) : rc;
}

/* ---- while it runs ---- */

void flow_trace_begin(struct walk *w, uint32_t node)
{
    const uint32_t for_node = w->run.nodes[node].for_node;

    w->trace[node].start_ns = mr_now_ns();
    if (for_node) {
        struct walk_trace *t = &w->trace[for_node - 1];
        t->start_ns = t->start_ns ? t->start_ns : w->trace[node].start_ns;
        t->by = node + 1;
    }
}

void flow_trace_end(struct walk *w, uint32_t node)
{
    const uint32_t for_node = w->run.nodes[node].for_node;

    w->trace[node].end_ns = mr_now_ns();
    if (for_node) {
        w->trace[for_node - 1].end_ns = w->trace[node].end_ns;
    }
}

void flow_trace_call(struct call *c)
{
    const struct mr_infer *r = &c->infer;
    struct walk_trace *t = &c->walk->trace[c->node];
    /* a model of another kind may give its answer any parameters */
    const bool is_graph = r->version && r->version->executor->ops == c->walk->flow->executor.ops;

    t->model = c->args.model;
    /* a call for some rows leaves its memory to the next one */
    for (uint32_t i = 0; is_graph && i < r->answer.count && !c->fan; i++) {
        if (strcmp(r->answer.list[i].key, FLOW_TRACE) == 0) {
            t->inner = mr_str_c(r->answer.list[i].value);
        }
    }
}

void flow_trace_forget(struct walk *w, const uint8_t *marks)
{
    for (uint32_t n = 0; w->trace && n < w->flow->plan->node_count; n++) {
        if (marks[n]) {
            w->trace[n] = (struct walk_trace){0};
        }
    }
}

/* ---- the answer ---- */

static mr_str name_of(const struct walk *w, uint32_t node)
{
    return w->flow->plan->nodes[node].name;
}

static bool is_chosen(const struct walk *w, uint32_t node)
{
    return w->chosen && w->chosen[node] > 0;
}

static void put_member(struct mr_buf *b, const char *key, mr_str value)
{
    mr_buf_printf(b, ",\"%s\":", key);
    mr_json_put_string(b, value);
}

static void put_node(const struct walk *w, uint32_t n, struct mr_buf *b)
{
    const struct walk_trace *t = &w->trace[n];
    const struct plan_node *node = &w->flow->plan->nodes[n];
    const char *outcome = flow_outcome_name(w->run.nodes[n].outcome);

    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, name_of(w, n));
    put_member(b, "outcome", mr_str_c(outcome));
    if (t->start_ns) {
        const int64_t end = MR_MAX(t->end_ns, t->start_ns);
        mr_buf_printf(b, ",\"start\":%lld,\"end\":%lld", (long long)(t->start_ns - w->begun_ns),
                      (long long)(end - w->begun_ns));
    }
    if (t->calls) {
        mr_buf_printf(b, ",\"calls\":%u", t->calls);
    }
    if (t->model.len || node->op_name.len) {
        put_member(b, t->model.len ? "model" : "op", t->model.len ? t->model : node->op_name);
    }
    if (is_chosen(w, n)) {
        put_member(b, "variant", mr_split_tag(node->split, w->chosen[n] - 1u));
    }
    if (t->by) {
        put_member(b, "by", name_of(w, t->by - 1));
    }
    if (w->run.nodes[n].for_node) {
        put_member(b, "for", name_of(w, w->run.nodes[n].for_node - 1));
    }
    if (t->inner.len) {
        MR_BUF_LIT(b, ",\"workflow\":");
        mr_buf_str(b, t->inner);
    }
    mr_buf_char(b, '}');
}

/* Keeps an element that fits into the text, and counts one that does not. */
static void put_kept(struct mr_buf *b, const struct mr_buf *one, uint32_t *count, uint32_t *omitted)
{
    if (one->failed || b->len + one->len + 1 + TEXT_TAIL > TEXT_MAX) {
        ++*omitted;
        return;
    }
    if ((*count)++ > 0) {
        mr_buf_char(b, ',');
    }
    mr_buf_str(b, mr_buf_view(one));
}

/* Nodes that were reached: those that were not needed, and spares that did not run, are left out. */
static bool is_shown(const struct walk *w, uint32_t n)
{
    return w->trace[n].start_ns > 0 || w->run.nodes[n].is_ended;
}

static void trace_write(const struct walk *w, struct mr_buf *b)
{
    const struct plan *p = w->flow->plan;
    uint32_t count = 0, omitted = 0;
    struct mr_buf one;

    mr_buf_init(&one, TEXT_MAX);
    MR_BUF_LIT(b, "{\"name\":");
    mr_json_put_string(b, p->name);
    mr_buf_printf(b, ",\"ns\":%lld,\"nodes\":[", (long long)(mr_now_ns() - w->begun_ns));
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (is_shown(w, n)) {
            mr_buf_reset(&one);
            put_node(w, n, &one);
            put_kept(b, &one, &count, &omitted);
        }
    }
    mr_buf_char(b, ']');
    if (omitted) {
        mr_buf_printf(b, ",\"omitted\":%u", omitted);
    }
    mr_buf_char(b, '}');
    mr_buf_fini(&one);
}

static void status_write(const struct walk *w, struct mr_buf *b)
{
    const struct plan *p = w->flow->plan;
    uint32_t count = 0, omitted = 0;
    struct mr_buf one;

    mr_buf_init(&one, TEXT_MAX);
    mr_buf_char(b, '{');
    for (uint32_t n = 0; n < p->node_count; n++) {
        if (w->run.nodes[n].outcome != RUN_RAN) {
            mr_buf_reset(&one);
            mr_json_put_string(&one, name_of(w, n));
            mr_buf_char(&one, ':');
            mr_json_put_string(&one, mr_str_c(outcome_names[w->run.nodes[n].outcome]));
            put_kept(b, &one, &count, &omitted);
        }
    }
    mr_buf_char(b, '}');
    mr_buf_fini(&one);
}

/* NULL: no memory, and the answer says less. */
static const char *text_make(const struct walk *w, struct mr_arena *arena,
                             void (*write)(const struct walk *w, struct mr_buf *b))
{
    struct mr_buf b;
    mr_str kept = {NULL, 0};

    mr_buf_init(&b, TEXT_MAX);
    write(w, &b);
    if (!b.failed) {
        kept = mr_arena_str(arena, mr_buf_view(&b));
    }
    mr_buf_fini(&b);
    return kept.ptr;
}

static void add(struct mr_setting *list, uint32_t *count, const char *key, const char *value)
{
    if (key && value) {
        list[(*count)++] = (struct mr_setting){.key = key, .value = value};
    }
}

static void variants_add(const struct walk *w, struct mr_arena *arena, struct mr_setting *list,
                         uint32_t *count)
{
    for (uint32_t n = 0; w->chosen && n < w->flow->plan->node_count; n++) {
        if (is_chosen(w, n)) {
            const mr_str tag = mr_split_tag(w->flow->plan->nodes[n].split, w->chosen[n] - 1u);
            add(list, count, mr_arena_printf(arena, "variant.%.*s", MR_STR_ARG(name_of(w, n))).ptr,
                mr_arena_str(arena, tag).ptr);
        }
    }
}

void flow_answer_set(const struct walk *w, struct mr_arena *arena, struct mr_answer_parameters *out)
{
    const struct plan *p = w->flow->plan;
    uint32_t room = (w->trace != NULL) + (w->run.odd_count > 0);
    uint32_t count = 0;

    for (uint32_t n = 0; w->chosen && n < p->node_count; n++) {
        room += is_chosen(w, n);
    }
    struct mr_setting *list = room ? MR_ARENA_ARRAY(arena, struct mr_setting, room) : NULL;
    if (!list) {
        return;
    }
    variants_add(w, arena, list, &count);
    if (w->run.odd_count > 0) {
        add(list, &count, FLOW_STATUS, text_make(w, arena, status_write));
    }
    if (w->trace) {
        add(list, &count, FLOW_TRACE, text_make(w, arena, trace_write));
    }
    *out = (struct mr_answer_parameters){.list = list, .count = count};
}
