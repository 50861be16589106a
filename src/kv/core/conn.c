/* The functions of kv/kv.h: they check what the caller asks for, and hand it to the store. */
#include "conn.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kv/state/check.h"

void kv_conn_init(struct mr_kv *kv, const struct kv_store *store,
                  const struct mr_kv_options *options, const char *name)
{
    kv->store = store;
    kv->options = options ? *options : (struct mr_kv_options){0};
    if (kv->options.timeout_ns <= 0) {
        kv->options.timeout_ns = 5 * MR_NS_PER_S;
    }
    kv->state = MR_KV_CONNECTING;
    kv->name = mr_strndup(name, strlen(name));
}

void kv_conn_fini(struct mr_kv *kv)
{
    mr_freep(&kv->name);
}

void kv_conn_set_state(struct mr_kv *kv, enum mr_kv_state state, const struct mr_err *why)
{
    if (kv->state == state) {
        return;
    }
    kv->state = state;
    if (kv->options.on_state) {
        kv->options.on_state(kv->options.ctx, state, state == MR_KV_LOST ? why : NULL);
    }
}

void kv_watch_init(struct mr_kv_watch *w, struct mr_kv *kv, mr_str prefix,
                   const struct mr_kv_watch_events *events, void *ctx)
{
    w->kv = kv;
    w->events = *events;
    w->ctx = ctx;
    w->prefix_text = mr_strndup(prefix.ptr ? prefix.ptr : "", prefix.len);
    w->prefix = (mr_str){w->prefix_text, prefix.len};
}

void kv_watch_fini(struct mr_kv_watch *w)
{
    mr_freep(&w->prefix_text);
}

enum mr_kv_state mr_kv_state(const struct mr_kv *kv)
{
    return kv->state;
}

const char *mr_kv_name(const struct mr_kv *kv)
{
    return kv->name;
}

void mr_kv_free(struct mr_kv **kv)
{
    struct mr_kv *k = *kv;
    *kv = NULL;
    if (k) {
        k->store->free(k);
    }
}

static struct mr_kv_call *start(struct mr_kv *kv, const struct kv_request *request, int rc,
                                const struct mr_err *err, mr_kv_done_fn *done, void *ctx)
{
    return kv->store->start(kv, request, rc < 0 ? err : NULL, done, ctx);
}

struct mr_kv_call *mr_kv_range(struct mr_kv *kv, const struct mr_kv_range *range,
                               mr_kv_done_fn *done, void *ctx)
{
    struct kv_request request = {.ask = KV_ASK_RANGE, .range = *range};
    struct mr_err err = {0};
    int rc = kv_check_range(range, &err);

    if (!request.range.limit) {
        request.range.limit = range->is_prefix ? MR_KV_PAGE_MAX : 1;
    }
    return start(kv, &request, rc, &err, done, ctx);
}

struct mr_kv_call *mr_kv_get(struct mr_kv *kv, mr_str key, enum mr_kv_read read,
                             mr_kv_done_fn *done, void *ctx)
{
    struct mr_kv_range range = {.key = key, .read = read};
    return mr_kv_range(kv, &range, done, ctx);
}

static struct mr_kv_call *start_op(struct mr_kv *kv, enum kv_ask ask, const struct mr_kv_op *op,
                                   mr_kv_done_fn *done, void *ctx)
{
    struct kv_request request = {.ask = ask, .op = *op};
    struct mr_kv_txn txn = {.then = op, .then_count = 1};
    struct mr_err err = {0};
    int rc = kv_check_txn(&txn, &err);
    return start(kv, &request, rc, &err, done, ctx);
}

struct mr_kv_call *mr_kv_put(struct mr_kv *kv, mr_str key, mr_bytes value, int64_t lease,
                             mr_kv_done_fn *done, void *ctx)
{
    struct mr_kv_op op = {.kind = MR_KV_PUT, .key = key, .value = value, .lease = lease};
    return start_op(kv, KV_ASK_PUT, &op, done, ctx);
}

struct mr_kv_call *mr_kv_delete(struct mr_kv *kv, mr_str key, bool is_prefix, mr_kv_done_fn *done,
                                void *ctx)
{
    struct mr_kv_op op = {.kind = MR_KV_DELETE, .key = key, .is_prefix = is_prefix};
    return start_op(kv, KV_ASK_DELETE, &op, done, ctx);
}

struct mr_kv_call *mr_kv_txn(struct mr_kv *kv, const struct mr_kv_txn *txn, mr_kv_done_fn *done,
                             void *ctx)
{
    struct kv_request request = {.ask = KV_ASK_TXN, .txn = *txn};
    struct mr_err err = {0};
    int rc = kv_check_txn(txn, &err);
    return start(kv, &request, rc, &err, done, ctx);
}

struct mr_kv_call *mr_kv_lease_grant(struct mr_kv *kv, int64_t ttl_s, mr_kv_done_fn *done,
                                     void *ctx)
{
    struct kv_request request = {.ask = KV_ASK_GRANT, .ttl_s = ttl_s};
    struct mr_err err = {0};
    int rc = kv_check_ttl(ttl_s, &err);
    return start(kv, &request, rc, &err, done, ctx);
}

struct mr_kv_call *mr_kv_lease_keep(struct mr_kv *kv, int64_t lease, mr_kv_done_fn *done, void *ctx)
{
    struct kv_request request = {.ask = KV_ASK_KEEP, .lease = lease};
    return kv->store->start(kv, &request, NULL, done, ctx);
}

struct mr_kv_call *mr_kv_lease_revoke(struct mr_kv *kv, int64_t lease, mr_kv_done_fn *done,
                                      void *ctx)
{
    struct kv_request request = {.ask = KV_ASK_REVOKE, .lease = lease};
    return kv->store->start(kv, &request, NULL, done, ctx);
}

void mr_kv_cancel(struct mr_kv_call *call)
{
    call->kv->store->cancel(call);
}

struct mr_kv_watch *mr_kv_watch(struct mr_kv *kv, mr_str prefix, int64_t from,
                                const struct mr_kv_watch_events *events, void *ctx)
{
    if (prefix.len > MR_KV_KEY_MAX || from < 0) {
        return NULL;
    }
    return kv->store->watch(kv, prefix, from, events, ctx);
}

void mr_kv_watch_stop(struct mr_kv_watch **watch)
{
    struct mr_kv_watch *w = *watch;
    *watch = NULL;
    if (w) {
        w->kv->store->watch_stop(w);
    }
}
