/* The names of methods come from clients where a runtime takes any: their number is bounded, and a method that is not there has none. */
#include "call_times.h"

#include "base/clock.h"
#include "base/mem.h"

#define OTHER "other"

/* ---- methods ---- */

static bool is_name(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && !(c >= '0' && c <= '9') && c != '_') {
            return false;
        }
    }
    return s.len > 0 && s.len < sizeof((struct call_times_method){0}.name);
}

/* A ModelMesh takes gRPC only: what is REST is called as the method that does the same. */
static mr_str method_of(const struct mr_call *call)
{
    static const char *const rest[] = {"generate", "generate_stream", "infer_stream"};
    mr_str name = call->path;

    for (size_t at = name.len; at > 0; at--) {
        if (call->path.ptr[at - 1] == '/') {
            name = mr_str_sub(call->path, at, call->path.len);
            break;
        }
    }
    if (call->is_grpc) {
        return is_name(name) ? name : MR_STR(OTHER);
    }
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        if (mr_str_eq_c(name, rest[i])) {
            return name;
        }
    }
    return mr_str_eq_c(name, "infer") ? MR_STR("ModelInfer") : MR_STR(OTHER);
}

static struct call_times_method *find(struct call_times *t, mr_str name)
{
    unsigned count = atomic_load_explicit(&t->count, memory_order_relaxed); /* own */

    for (unsigned i = 0; i < count; i++) {
        if (mr_str_eq_c(name, t->methods[i].name)) {
            return &t->methods[i];
        }
    }
    return NULL;
}

static struct call_times_method *make(struct call_times *t, mr_str name)
{
    unsigned count = atomic_load_explicit(&t->count, memory_order_relaxed); /* own */
    struct call_times_method *m;

    if (count >= CALL_TIMES_METHODS - 1) { /* the last one is that of the others */
        name = MR_STR(OTHER);
    }
    m = find(t, name);
    if (!m) {
        m = &t->methods[count];
        memcpy(m->name, name.ptr, name.len);
        /* release: a reader that sees the count sees the name */
        atomic_store_explicit(&t->count, count + 1, memory_order_release);
    }
    return m;
}

static struct mr_hist *hist_for(struct call_times *t, enum call_times_kind kind, mr_str name,
                                unsigned status)
{
    struct call_times_method *m = find(t, name);

    if (!m) {
        m = make(t, status == MR_GRPC_UNIMPLEMENTED ? MR_STR(OTHER) : name);
    }
    struct mr_hist *h = atomic_load_explicit(&m->of[kind][status], memory_order_relaxed); /* own */
    if (!h) {
        h = MR_NEW(struct mr_hist);
        /* release: a reader that sees it sees it empty */
        atomic_store_explicit(&m->of[kind][status], h, memory_order_release);
    }
    return h;
}

/* ---- calls ---- */

static unsigned known(unsigned status)
{
    return status < MR_GRPC_STATUSES ? status : MR_GRPC_UNKNOWN;
}

static void add_sizes(struct call_times *t, const struct mr_call *call, mr_str method,
                      unsigned status)
{
    const struct mr_call_bytes bytes = mr_call_bytes(call);

    mr_hist_add_size(hist_for(t, CALL_TIMES_REQUEST, method, status), bytes.in);
    if (status == MR_GRPC_OK) {
        mr_hist_add_size(hist_for(t, CALL_TIMES_RESPONSE, method, status), bytes.out);
    }
}

/* Of the errors with the same HTTP status, the first one that says more than that there was one. */
static unsigned grpc_of_http(int http_status)
{
    for (int i = MR_E_INVALID; i >= MR_E_CLOSED && http_status != 200; i--) {
        if (mr_status_http(i) == http_status) {
            return (unsigned)mr_status_grpc(i);
        }
    }
    return http_status == 200 ? MR_GRPC_OK : MR_GRPC_UNKNOWN;
}

void call_times_ended(struct call_times *t, const struct mr_call *call, int status)
{
    unsigned code = status < 0 ? MR_GRPC_CANCELLED : (unsigned)status;

    if (!call->is_grpc && status >= 0) {
        code = grpc_of_http(status);
    }
    code = known(code);
    mr_str method = method_of(call);
    mr_hist_add(hist_for(t, CALL_TIMES_API, method, code),
                (uint64_t)MR_MAX(mr_now_ns() - call->recv_start_ns, 0));
    add_sizes(t, call, method, code);
}

void call_times_queued(struct call_times *t, int64_t ns)
{
    if (t) {
        mr_hist_add(&t->queue_ns, (uint64_t)MR_MAX(ns, 0));
    }
}

void call_times_ran(struct call_times *t, const struct mr_call *call, int grpc_status, int64_t ns)
{
    if (t) {
        mr_hist_add(hist_for(t, CALL_TIMES_INVOKE, method_of(call), known((unsigned)grpc_status)),
                    (uint64_t)MR_MAX(ns, 0));
    }
}

/* ---- all of them ---- */

void call_times_merge(struct call_times *into, const struct call_times *from)
{
    unsigned count = atomic_load_explicit(&from->count, memory_order_acquire); /* see make */

    mr_hist_merge(&into->queue_ns, &from->queue_ns);
    for (unsigned i = 0; i < count; i++) {
        const struct call_times_method *m = &from->methods[i];
        for (unsigned k = 0; k < CALL_TIMES_KINDS * MR_GRPC_STATUSES; k++) {
            unsigned kind = k / MR_GRPC_STATUSES, status = k % MR_GRPC_STATUSES;
            /* acquire: see hist_for */
            const struct mr_hist *h =
                atomic_load_explicit(&m->of[kind][status], memory_order_acquire);
            if (h) {
                mr_hist_merge(hist_for(into, (enum call_times_kind)kind, mr_str_c(m->name), status),
                              h);
            }
        }
    }
}

void call_times_fini(struct call_times *t)
{
    for (unsigned i = 0; t && i < CALL_TIMES_METHODS * CALL_TIMES_KINDS * MR_GRPC_STATUSES; i++) {
        struct call_times_method *m = &t->methods[i / (CALL_TIMES_KINDS * MR_GRPC_STATUSES)];
        unsigned k = i % (CALL_TIMES_KINDS * MR_GRPC_STATUSES);
        /* relaxed: its thread has ended */
        mr_free(atomic_load_explicit(&m->of[k / MR_GRPC_STATUSES][k % MR_GRPC_STATUSES],
                                     memory_order_relaxed));
    }
}
