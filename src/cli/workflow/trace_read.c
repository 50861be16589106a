/* Reads the JSON text of a trace. Traces of workflows within workflows become nodes of a deeper level, at the times of the
 * outer request. */
#include "base/mem.h"
#include "codec/json.h"
#include "trace.h"

#define NODES_MAX 100000u
/* The server's limit of workflows that ask each other. */
#define LEVEL_MAX 16u
/* About 11 days. */
#define TIME_MAX_NS (INT64_C(1000000) * 1000000000)

struct reader {
    struct mr_arena *arena;
    struct mr_err *err;
    struct trace *t;
    size_t room;
};

static int node_add(struct reader *r, const struct trace_node *n)
{
    struct trace *t = r->t;

    if (t->node_count == r->room) {
        const size_t room = r->room ? 2 * r->room : 64;
        struct trace_node *more =
            room <= NODES_MAX ? MR_ARENA_ARRAY(r->arena, struct trace_node, room) : NULL;
        if (!more) {
            return MR_FAIL(r->err, MR_E_TOO_LARGE, "the trace has more than %u nodes", NODES_MAX);
        }
        if (t->node_count) {
            memcpy(more, t->nodes, t->node_count * sizeof *more);
        }
        t->nodes = more;
        r->room = room;
    }
    t->nodes[t->node_count++] = *n;
    return MR_OK;
}

static mr_str *text_member(struct trace_node *n, mr_str key)
{
    return mr_str_eq_c(key, "name")                              ? &n->name
           : mr_str_eq_c(key, "outcome")                         ? &n->outcome
           : mr_str_eq_c(key, "model") || mr_str_eq_c(key, "op") ? &n->model
           : mr_str_eq_c(key, "variant")                         ? &n->variant
           : mr_str_eq_c(key, "by")                              ? &n->by
           : mr_str_eq_c(key, "for")                             ? &n->runs_for
                                                                 : NULL;
}

/* *out_inner: the text of its own trace. */
static int node_read(struct mr_json *j, struct trace_node *n, mr_str *out_inner)
{
    bool first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        mr_str *text = text_member(n, key);
        if (text) {
            mr_json_string(j, text);
        } else if (mr_str_eq_c(key, "start")) {
            mr_json_i64(j, &n->start_ns);
        } else if (mr_str_eq_c(key, "end")) {
            mr_json_i64(j, &n->end_ns);
        } else if (mr_str_eq_c(key, "calls")) {
            mr_json_u64(j, &n->calls);
        } else {
            mr_json_skip(j, mr_str_eq_c(key, "workflow") ? out_inner : NULL);
        }
    }
    return j->status;
}

static int graph_read(struct reader *r, mr_str text, uint32_t level, int64_t at_ns);

/* Within the times of one request, whatever the text says. */
static int64_t later(int64_t ns, int64_t by)
{
    return MR_MIN(MR_MAX(ns, 0), TIME_MAX_NS) + MR_MIN(by, TIME_MAX_NS);
}

static int nodes_read(struct reader *r, struct mr_json *j, uint32_t level, int64_t at_ns)
{
    bool first = true;

    mr_json_enter_array(j);
    while (mr_json_next_item(j, &first)) {
        struct trace_node n = {.start_ns = -1, .end_ns = -1, .level = level};
        mr_str inner = {NULL, 0};
        int rc = node_read(j, &n, &inner);
        n.start_ns = n.start_ns < 0 ? -1 : later(n.start_ns, at_ns);
        n.end_ns = n.start_ns < 0 ? -1 : MR_MAX(later(n.end_ns, at_ns), n.start_ns);
        rc = rc < 0 ? rc : node_add(r, &n);
        if (rc == MR_OK && inner.len && level + 1 < LEVEL_MAX) {
            rc = graph_read(r, inner, level + 1, MR_MAX(n.start_ns, 0));
        }
        if (rc < 0) {
            return rc;
        }
    }
    return j->status;
}

static int graph_read(struct reader *r, mr_str text, uint32_t level, int64_t at_ns)
{
    struct mr_json j;
    bool first = true;
    uint64_t omitted = 0;
    int64_t ns = 0;
    mr_str name = {NULL, 0};
    mr_str key;
    int rc = MR_OK;

    mr_json_init(&j, text, r->arena, 0, r->err);
    mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "name")) {
            mr_json_string(&j, &name);
        } else if (mr_str_eq_c(key, "ns")) {
            mr_json_i64(&j, &ns);
        } else if (mr_str_eq_c(key, "omitted")) {
            mr_json_u64(&j, &omitted);
        } else if (mr_str_eq_c(key, "nodes")) {
            rc = nodes_read(r, &j, level, at_ns);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    if (rc < 0) {
        return rc;
    }
    r->t->omitted += omitted;
    if (level == 0) {
        r->t->name = name;
        r->t->ns = later(ns, 0);
    }
    return j.status < 0 ? j.status : mr_json_finish(&j);
}

int trace_read(mr_str text, struct mr_arena *arena, struct trace *out, struct mr_err *err)
{
    struct reader r = {arena, err, out, 0};

    *out = (struct trace){0};
    return graph_read(&r, text, 0, 0);
}
