/* Gets a model's inputs and outputs over the protocol of the request. */
#include "infer.h"

struct mr_endpoint infer_endpoint(const struct infer *x)
{
    return (struct mr_endpoint){
        .is_grpc = x->opt.protocol == INFER_GRPC, .model = x->opt.model, .version = x->opt.version};
}

int infer_meta_get(struct infer *x, struct mr_err *err)
{
    const struct mr_endpoint e = infer_endpoint(x);

    return mr_remote_metadata(&x->remote, &e, &x->arena, &x->meta, err);
}
