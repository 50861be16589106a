/* A workflow's configuration without its models. */
#include "flow/flow.h"
#include "flow/plan/plan.h"

int mr_flow_check(mr_str config, struct mr_err *err)
{
    Inference__ModelConfig *c = NULL;
    struct plan *p = NULL;
    size_t unused;
    int rc;

    MR_TRY(mr_config_parse_text(config, "config.pbtxt", &c, err));
    MR_TRY(mr_config_normalize(c, err));
    MR_TRY(mr_config_check(c, true, NULL, 0, &unused, err));
    MR_TRY(plan_workflow(&p, c, err));
out:
    plan_free(&p);
    mr_config_free(&c);
    return rc;
}
