/* Shadows: some inferences of an endpoint are sent once more elsewhere, when they have been answered, and what comes back is compared and
 * dropped. The copy is a call of its own, with tensors of its own, since the caller's are not its any more; as many as max_queue run
 * at a time. Requests that are not to be made twice are not copied. Thread: the loop's. */
#include "abi.h"
#include "base/clock.h"
#include "variant/compare.h"

#define ALIGN 64u

struct shadow {
    struct sdk_endpoint *endpoint;
    const struct mr_oip_tensor *outputs; /* of the answer that was given */
    size_t output_count;
};

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool str_copy(struct mr_arena *a, mr_str *io)
{
    *io = mr_arena_str(a, *io);
    return io->ptr != NULL;
}

/* NULL without memory. */
static struct mr_oip_tensor *tensors_copy(struct mr_arena *a, const struct mr_oip_tensor *in,
                                          size_t count)
{
    struct mr_oip_tensor *list = MR_ARENA_ARRAY(a, struct mr_oip_tensor, count + 1);
    uint64_t bytes = 1, at = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += padded(in[i].tensor.bytes);
    }
    struct mr_block *block = list ? mr_block_new((size_t)bytes) : NULL;
    bool is_whole = block && mr_block_keep(block, a);
    for (size_t i = 0; i < count && is_whole; i++) {
        const struct mr_tensor *t = &in[i].tensor;
        int64_t *shape = MR_ARENA_ARRAY(a, int64_t, (size_t)t->rank + 1);
        list[i] = (struct mr_oip_tensor){.name = in[i].name, .tensor = *t};
        is_whole = shape && str_copy(a, &list[i].name);
        if (is_whole && t->rank > 0) {
            memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
        }
        if (is_whole && t->bytes > 0) {
            memcpy(block->data + at, t->data, (size_t)t->bytes);
        }
        list[i].tensor.shape = shape;
        list[i].tensor.data = is_whole ? block->data + at : NULL;
        at += padded(t->bytes);
    }
    return is_whole ? list : NULL;
}

static bool params_copy(struct mr_arena *a, const struct mr_oip_request *in,
                        struct mr_oip_request *out)
{
    struct mr_oip_param *list = MR_ARENA_ARRAY(a, struct mr_oip_param, in->param_count + 1);

    for (size_t i = 0; list && i < in->param_count; i++) {
        list[i] = in->params[i];
        if (!str_copy(a, &list[i].key) ||
            (list[i].kind == MR_OIP_STRING && !str_copy(a, &list[i].s))) {
            return false;
        }
    }
    out->params = list;
    out->param_count = in->param_count;
    return list != NULL;
}

static bool outputs_copy(struct mr_arena *a, const struct mr_oip_request *in,
                         struct mr_oip_request *out)
{
    struct mr_oip_requested_output *list =
        MR_ARENA_ARRAY(a, struct mr_oip_requested_output, in->output_count + 1);

    for (size_t i = 0; list && i < in->output_count; i++) {
        list[i] = (struct mr_oip_requested_output){.name = in->outputs[i].name, .binary_data = -1};
        if (!str_copy(a, &list[i].name)) {
            return false;
        }
    }
    out->outputs = list;
    out->output_count = in->output_count;
    return list != NULL;
}

static bool call_copy(const struct mr_sdk_call *from, struct mr_sdk_call *to)
{
    const struct mr_oip_request *in = &from->call.request;
    struct mr_oip_request *out = &to->call.request;
    struct mr_arena *a = to->call.arena;

    out->priority = in->priority;
    out->inputs = tensors_copy(a, in->inputs, in->input_count);
    out->input_count = in->input_count;
    for (size_t i = 0; i < from->call.header_count; i++) {
        struct mr_header *h = &to->call.headers[to->call.header_count++];
        *h = from->call.headers[i];
        if (!str_copy(a, &h->name) || !str_copy(a, &h->value)) {
            return false;
        }
    }
    return out->inputs && params_copy(a, in, out) && outputs_copy(a, in, out);
}

/* ---- the answer ---- */

static const struct mr_tensor *output_of(const struct call *c, mr_str name)
{
    for (size_t i = 0; i < c->response.output_count; i++) {
        if (mr_str_eq(c->response.outputs[i].name, name)) {
            return &c->response.outputs[i].tensor;
        }
    }
    return NULL;
}

static bool agrees(const struct shadow *s, const struct call *c)
{
    for (size_t i = 0; i < s->output_count; i++) {
        const struct mr_tensor *t = output_of(c, s->outputs[i].name);
        if (!t || !mr_shadow_outputs_agree(s->endpoint->config->shadow, &s->outputs[i].tensor, t)) {
            return false;
        }
    }
    return true;
}

static void on_done(struct call *call)
{
    const struct shadow *s = MR_CONTAINER_OF(call, struct mr_sdk_call, call)->ctx;
    struct sdk_shadow *counts = &s->endpoint->shadow;

    counts->running--;
    if (call->rc < 0) {
        atomic_fetch_add(&counts->failed, 1);
    } else if (s->endpoint->config->shadow->compare != MR_COMPARE_NONE) {
        atomic_fetch_add(&counts->different, !agrees(s, call));
        atomic_fetch_add(&counts->compared, 1);
    }
}

/* ---- the copy ---- */

static bool is_due(struct sdk_endpoint *e, const struct call *c)
{
    if (!e || !e->shadow.cluster || c->is_question || c->is_once) {
        return false;
    }
    e->shadow.due += e->config->shadow->percent;
    if (e->shadow.due < 100) {
        return false;
    }
    e->shadow.due -= 100;
    return true;
}

/* NULL: there is no room for it. */
static struct mr_sdk_call *copy_new(const struct mr_sdk_call *c)
{
    struct sdk_endpoint *e = c->endpoint;
    const struct config_variant *v = &e->config->shadow_variant;
    const bool is_compared = e->config->shadow->compare != MR_COMPARE_NONE;
    struct mr_sdk_call *copy = request_call_new(c->client);
    struct shadow *s = MR_ARENA_NEW(copy->call.arena, struct shadow);
    bool is_whole = s && call_copy(c, copy);

    if (is_whole) {
        *s = (struct shadow){.endpoint = e};
        copy->ctx = s;
    }
    if (is_whole && is_compared) {
        s->output_count = c->call.response.output_count;
        s->outputs = tensors_copy(copy->call.arena, c->call.response.outputs, s->output_count);
        is_whole = s->outputs != NULL;
    }
    if (!is_whole) {
        infer_unref(copy);
        return NULL;
    }
    copy->call.cluster = e->shadow.cluster;
    copy->call.model = v->model.ptr;
    copy->call.version = v->version.len > 0 ? v->version.ptr : NULL;
    copy->call.deadline_ns = mr_ns_after(mr_now_ns(), v->policy.timeout_ms * MR_NS_PER_MS);
    copy->call.done = on_done;
    return copy;
}

void shadow_copy(struct mr_sdk_call *c)
{
    struct sdk_endpoint *e = c->endpoint;

    if (!is_due(e, &c->call)) {
        return;
    }
    struct mr_sdk_call *copy =
        e->shadow.running < e->config->shadow->max_queue && !c->client->is_closing ? copy_new(c)
                                                                                   : NULL;
    atomic_fetch_add(&e->shadow.requests, 1);
    if (!copy) {
        atomic_fetch_add(&e->shadow.dropped, 1);
        return;
    }
    e->shadow.running++;
    driver_begin(&c->client->driver);
    infer_begin(copy);
}

int mr_sdk_shadow_stats(const struct mr_sdk *client, const char *endpoint,
                        struct mr_sdk_shadow_stats *out, struct mr_err *err)
{
    int rc = abi_client_check(client, err);
    struct sdk_endpoint *e;

    rc = rc < 0 ? rc : abi_texts_check(&endpoint, 1, "endpoint", err);
    rc = rc < 0 ? rc : abi_struct_check(out, "stats", err);
    if (rc < 0) {
        return rc;
    }
    const uint32_t room = out->size;
    e = mr_map_find(&client->by_name, mr_str_c(endpoint));
    if (!e || !e->shadow.cluster) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "there is no endpoint '%.100s' with a shadow",
                       endpoint);
    }
    const struct mr_sdk_shadow_stats full = {.size = room,
                                             .requests = atomic_load(&e->shadow.requests),
                                             .dropped = atomic_load(&e->shadow.dropped),
                                             .failed = atomic_load(&e->shadow.failed),
                                             .compared = atomic_load(&e->shadow.compared),
                                             .different = atomic_load(&e->shadow.different)};
    memcpy(out, &full, MR_MIN((size_t)room, sizeof full));
    return MR_OK;
}
