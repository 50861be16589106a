/* A file of endpoints: what is accepted can be run, whatever it says. */
#include "fuzz.h"

#include "base/clock.h"
#include "variant/config.h"

static void run(const struct mr_endpoint_config *e)
{
    double weights[MR_VARIANTS_MAX];
    struct mr_variant_table t = {0};
    struct mr_rollout r;
    static struct mr_variant_sums sums[MR_VARIANTS_MAX];
    struct mr_rollout_time at = {0};

    REQUIRE(e->variant_count > 0 && e->variant_count <= MR_VARIANTS_MAX);
    for (size_t i = 0; i < e->variant_count; i++) {
        weights[i] = e->variants[i].weight;
    }
    mr_rollout_init(&r, weights, e->variant_count, e->ramp, at, sums);
    for (int i = 0; i < 8; i++) {
        at.now_ns = mr_ns_after(at.now_ns, e->ramp ? e->ramp->every_ns : 0);
        mr_rollout_tick(&r, at, sums);
        REQUIRE(mr_variant_weights_check(r.weights, NULL, r.count, NULL) == MR_OK);
        mr_variant_table_set(&t, r.weights, r.count);
        REQUIRE(mr_variant_of(&t, MR_VARIANT_BUCKETS - 1) < e->variant_count);
    }
    mr_rollout_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_service_file *f = NULL;
    struct mr_err err = {0};

    if (mr_service_file_parse(mr_str_n((const char *)data, size), &f, &err) < 0) {
        REQUIRE(err.status < 0 && err.msg[0] && !f);
        return 0;
    }
    for (size_t i = 0; i < f->endpoint_count; i++) {
        run(&f->endpoints[i]);
    }
    mr_service_file_free(&f);
    return 0;
}
