/* A guard of any text, judged by any counters: it has a verdict, and a reason unless it holds. */
#include "fuzz.h"

#include "variant/guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const mr_str tags[] = {MR_STR_INIT("stable"), MR_STR_INIT("cand")};
    static struct mr_variant_sums sums[2];
    struct mr_guard g;
    struct mr_err err = {0};
    char reason[MR_GUARD_REASON];
    const uint8_t seed = size > 0 ? data[size - 1] : 0;

    if (mr_guard_parse(&g, mr_str_n((const char *)data, size), tags, 2, 1, &err) < 0) {
        REQUIRE(err.status == MR_E_INVALID && err.msg[0]);
        return 0;
    }
    REQUIRE(g.count <= MR_GUARD_NODES_MAX && g.root < g.count && (g.uses & 2) && g.uses < 4);
    for (unsigned i = 0; i < 2; i++) {
        sums[i] = (struct mr_variant_sums){.count = seed & 7, .errors = seed & (3 >> i)};
        sums[i].latency[seed & 127] = seed >> 4;
    }
    const enum mr_guard_verdict v = mr_guard_eval(&g, sums, reason);
    REQUIRE((v == MR_GUARD_HOLDS) == (reason[0] == '\0'));
    return 0;
}
