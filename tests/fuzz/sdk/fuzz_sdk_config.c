/* A configuration of a client, of either kind: what is accepted has endpoints with variants that have hosts. */
#include "fuzz.h"

#include "sdk/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct config_policy policy = config_policy_default();
    struct config *c = NULL;
    struct mr_err err = {0};

    if (config_parse(mr_str_n((const char *)data, size), &policy, NULL, 0, &c, &err) < 0) {
        REQUIRE(!c && err.status < 0 && err.msg[0]);
        return 0;
    }
    for (size_t i = 0; i < c->endpoint_count; i++) {
        const struct config_endpoint *e = &c->endpoints[i];
        REQUIRE(e->name.len > 0 && e->variant_count > 0 && e->variant_count <= MR_VARIANTS_MAX);
        for (size_t k = 0; k < e->variant_count; k++) {
            const struct config_variant *v = &e->variants[k];
            REQUIRE(v->host_count > 0 && v->host_count <= CONFIG_HOSTS_MAX && v->tag.len > 0);
            REQUIRE(config_policy_check(&v->policy, &err) == MR_OK);
        }
    }
    config_free(&c);
    return 0;
}
