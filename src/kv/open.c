#include "kv/open.h"

#include "kv/memory/store.h"

int mr_kv_check(mr_str text, struct mr_err *err)
{
    if (!mr_str_eq(text, MR_STR("memory:"))) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no registry: must be memory:",
                       MR_STR_ARG(mr_str_sub(text, 0, 200)));
    }
    return MR_OK;
}

int mr_kv_open(struct mr_kv **out, struct mr_loop *loop, mr_str text,
               const struct mr_kv_options *options, struct mr_err *err)
{
    int rc = mr_kv_check(text, err);
    if (rc == MR_OK) {
        *out = kv_memory_open_on(loop, options);
    }
    return rc;
}
