/* What follows a node, from durations that were measured. */
#include "flow_test.h"

#include "base/clock.h"
#include "flow/run/tail.h"

#define NODES_MAX 5

/* Nodes of a graph, each with its median in microseconds and what is special about it. */
struct row {
    const char *what;
    struct node_text nodes[NODES_MAX];
    int64_t medians_us[NODES_MAX];
    int64_t tails_us[NODES_MAX];
    void (*change)(struct plan *p);
};

static void when_1(struct plan *p)
{
    p->nodes[1].when = (struct mr_expr *)p; /* not looked into */
}

static void skip_0(struct plan *p)
{
    p->nodes[0].on_error = PLAN_SKIP;
}

static void optional_1(struct plan *p)
{
    p->nodes[0].on_error = PLAN_SKIP;
    ((struct plan_port *)(uintptr_t)p->nodes[1].inputs)[0].is_optional = true;
}

static void short_1(struct plan *p)
{
    p->nodes[1].timeout_ms = 1;
}

static const struct row rows[] = {
    {"a chain",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=u"}}, {"c", {"i=u"}, {"o=OUT"}}},
     {1000, 2000, 4000},
     {6000, 4000, 0},
     NULL},
    {"the longest of two ways",
     {{"a", {"i=IN"}, {"o=t"}},
      {"b", {"i=t"}, {"o=u"}},
      {"c", {"i=t"}, {"o=v"}},
      {"d", {"i=u", "k=v"}, {"o=OUT"}}},
     {1, 2000, 9000, 500},
     {9500, 500, 500, 0},
     NULL},
    {"nodes in another order",
     {{"c", {"i=u"}, {"o=OUT"}}, {"b", {"i=t"}, {"o=u"}}, {"a", {"i=IN"}, {"o=t"}}},
     {4000, 2000, 1000},
     {0, 4000, 6000},
     NULL},
    {"not measured yet",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=u"}}, {"c", {"i=u"}, {"o=OUT"}}},
     {1000, 0, 4000},
     {4000, 4000, 0},
     NULL},
    {"a condition, and what needs its outputs",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=u"}}, {"c", {"i=u"}, {"o=OUT"}}},
     {1000, 2000, 4000},
     {0, 0, 0},
     when_1},
    {"what needs the outputs of a node that may fail",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=u"}}, {"c", {"i=IN"}, {"o=OUT"}}},
     {1000, 2000, 4000},
     {0, 0, 0},
     skip_0},
    {"what takes them if they are there",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=OUT"}}},
     {1000, 2000},
     {2000, 0},
     optional_1},
    {"no longer than its time-out",
     {{"a", {"i=IN"}, {"o=t"}}, {"b", {"i=t"}, {"o=OUT"}}},
     {1000, 2000},
     {1000, 0},
     short_1},
};

static void tables(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct row *r = &rows[i];
        struct pace paces[NODES_MAX] = {0};
        struct tails t;
        uint32_t count = 0;

        while (count < NODES_MAX && r->nodes[count].name) {
            count++;
        }
        struct plan *p = plan_make(r->nodes, count);
        if (r->change) {
            r->change(p);
        }
        tail_init(&t, p);
        for (uint32_t n = 0; n < count; n++) {
            assert_int_equal(tail_after(&t, n), 0);
            atomic_store(&paces[n].median_ns, (uint64_t)(r->medians_us[n] * MR_NS_PER_US));
        }
        tail_update(&t, paces, 0);
        for (uint32_t n = 0; n < count; n++) {
            if (tail_after(&t, n) != r->tails_us[n] * MR_NS_PER_US) {
                fail_msg("%s: node %s has %lld us after it, expected are %lld", r->what,
                         r->nodes[n].name, (long long)(tail_after(&t, n) / MR_NS_PER_US),
                         (long long)r->tails_us[n]);
            }
        }
        tail_update(&t, paces, 3 * MR_NS_PER_S);
        for (uint32_t n = 0; n < count; n++) {
            assert_int_equal(tail_after(&t, n), 0);
        }
        tail_fini(&t);
        for (uint32_t n = 0; n < count; n++) {
            p->nodes[n].when = NULL;
        }
        plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
