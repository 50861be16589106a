/* Requests of the C interface as calls: all but the tensors' bytes is copied, so that the call may outlive the caller's frame. */
#include "abi.h"
#include "base/clock.h"
#include "tensor/tensor.h"

#define ARENA_FIRST ((size_t)6 * 1024)
#define ARENA_MAX   ((size_t)64 << 20)
#define TENSORS_MAX 1024u
#define PARAMS_MAX  1024u
#define MS_MAX      ((int64_t)86400000)

static uint32_t size_of(const void *s)
{
    uint32_t size;

    memcpy(&size, s, sizeof size);
    return size;
}

int abi_struct_check(const void *s, const char *what, struct mr_err *err)
{
    if (!s) {
        return MR_FAIL(err, MR_E_INVALID, "%s: NULL", what);
    }
    return size_of(s) >= sizeof(uint32_t)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "%s: its size is %u, where sizeof belongs", what,
                         size_of(s));
}

int abi_take(void *out, uint32_t out_size, const void *in, const char *what, struct mr_err *err)
{
    const int rc = abi_struct_check(in, what, err);

    if (rc == MR_OK) {
        memset(out, 0, out_size);
        memcpy(out, in, MR_MIN(size_of(in), out_size));
    }
    return rc;
}

int abi_client_check(const struct mr_sdk *client, struct mr_err *err)
{
    return client ? MR_OK : MR_FAIL(err, MR_E_INVALID, "client: NULL, as after mr_sdk_free");
}

int abi_texts_check(const char *const *texts, uint32_t count, const char *what, struct mr_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!texts || !texts[i]) {
            return MR_FAIL(err, MR_E_INVALID, "%s: text %u of %u is NULL", what, i + 1, count);
        }
    }
    return MR_OK;
}

struct reader {
    struct mr_arena *a;
    struct mr_err *err;
};

static int no_memory(struct reader *r)
{
    return MR_FAIL(r->err, MR_E_TOO_LARGE,
                   "the names and shapes of the request take more than %zu MiB", ARENA_MAX >> 20);
}

static int copy(struct reader *r, const char *text, mr_str *out)
{
    *out = mr_arena_str(r->a, mr_str_c(text));
    return out->ptr ? MR_OK : no_memory(r);
}

/* Elements of arrays have their size first as well: the first one's is the stride. */
static const void *element(const void *first, uint32_t i)
{
    uint32_t stride;

    memcpy(&stride, first, sizeof stride);
    return (const char *)first + (size_t)stride * i;
}

/* ---- inputs ---- */

static int shape_take(struct reader *r, const struct mr_sdk_tensor *t, struct mr_oip_tensor *out)
{
    int64_t *shape = MR_ARENA_ARRAY(r->a, int64_t, (size_t)t->rank + 1);
    uint64_t elements, bytes;
    int rc;

    if (!shape) {
        return no_memory(r);
    }
    if (t->rank > 0) {
        memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    }
    out->tensor.shape = shape;
    out->tensor.rank = t->rank;
    MR_TRY(mr_shape_elements(shape, t->rank, &elements, r->err));
    if (t->dtype == MR_DTYPE_BYTES) {
        rc = mr_bytes_tensor_check((mr_bytes){t->data, (size_t)t->bytes}, elements, r->err);
        goto out;
    }
    MR_TRY(mr_shape_bytes(t->dtype, shape, t->rank, &bytes, r->err));
    if (bytes != t->bytes) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "%llu bytes, its shape takes %llu",
                     (unsigned long long)t->bytes, (unsigned long long)bytes);
    }
out:
    return rc;
}

static int input_take(struct reader *r, const struct mr_sdk_tensor *t, struct mr_oip_tensor *out)
{
    const size_t align = mr_dtype_size(t->dtype);

    if (t->dtype <= MR_DTYPE_INVALID || t->dtype >= MR_DTYPE_COUNT || t->rank < 0 ||
        t->rank > MR_MAX_RANK || (t->rank > 0 && !t->shape) || (t->bytes > 0 && !t->data)) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "data type %d, rank %d, %llu bytes at %p: possible are types 1 to %d, ranks "
                       "0 to %d",
                       (int)t->dtype, (int)t->rank, (unsigned long long)t->bytes, t->data,
                       MR_DTYPE_COUNT - 1, MR_MAX_RANK);
    }
    if (align > 1 && (uintptr_t)t->data % align != 0) {
        return MR_FAIL(r->err, MR_E_INVALID, "its data is not aligned for %s",
                       mr_dtype_name(t->dtype));
    }
    out->tensor.dtype = t->dtype;
    out->tensor.data = (void *)(uintptr_t)t->data; /* read only */
    out->tensor.bytes = t->bytes;
    return shape_take(r, t, out);
}

static int inputs_take(struct reader *r, const struct mr_sdk_request *in,
                       struct mr_oip_request *out)
{
    struct mr_oip_tensor *list = MR_ARENA_ARRAY(r->a, struct mr_oip_tensor, in->input_count + 1);

    if (!list) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < in->input_count; i++) {
        struct mr_sdk_tensor t;
        int rc = ABI_TAKE(&t, element(in->inputs, i), "inputs", r->err);
        if (rc < 0) {
            return rc;
        }
        if (!t.name || !t.name[0]) {
            return MR_FAIL(r->err, MR_E_INVALID, "input %u has no name", i + 1);
        }
        rc = copy(r, t.name, &list[i].name);
        rc = rc < 0 ? rc : input_take(r, &t, &list[i]);
        if (rc < 0) {
            return MR_WRAP(r->err, rc, "input '%.100s'", t.name);
        }
    }
    out->inputs = list;
    out->input_count = in->input_count;
    return MR_OK;
}

static int packed_refuse(const struct mr_sdk_tensor *t, int64_t rows, struct mr_err *err)
{
    return t->rank == 0
               ? MR_FAIL(err, MR_E_INVALID, "input '%.100s' has no rows to be divided", t->name)
               : MR_FAIL(err, MR_E_INVALID,
                         "input '%.100s' has %lld rows, another one that is to be divided %lld",
                         t->name, (long long)t->shape[0], (long long)rows);
}

/* After inputs_take. */
static int packed_take(struct reader *r, const struct mr_sdk_request *in, struct call *out)
{
    bool *packed = NULL;

    for (uint32_t i = 0; i < in->input_count; i++) {
        struct mr_sdk_tensor t;
        (void)ABI_TAKE(&t, element(in->inputs, i), "inputs", NULL); /* as before */
        if (!(t.flags & MR_SDK_PACK_ON)) {
            continue;
        }
        if (t.rank == 0 || (packed && t.shape[0] != out->pack_rows)) {
            return packed_refuse(&t, out->pack_rows, r->err);
        }
        if (!packed) {
            packed = MR_ARENA_ARRAY(r->a, bool, in->input_count);
            if (!packed) {
                return no_memory(r);
            }
            memset(packed, 0, in->input_count * sizeof *packed);
            out->pack_rows = t.shape[0];
        }
        packed[i] = true;
    }
    out->packed = packed;
    return MR_OK;
}

/* ---- the rest ---- */

static int outputs_take(struct reader *r, const struct mr_sdk_request *in,
                        struct mr_oip_request *out)
{
    struct mr_oip_requested_output *list =
        MR_ARENA_ARRAY(r->a, struct mr_oip_requested_output, in->output_count + 1);
    int rc = MR_OK;

    if (!list) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < in->output_count; i++) {
        list[i].binary_data = -1;
        MR_TRY(copy(r, in->outputs[i], &list[i].name));
    }
    out->outputs = list;
    out->output_count = in->output_count;
out:
    return rc;
}

static int places_take(struct reader *r, const struct mr_sdk_request *in, struct call *out)
{
    struct memory_place *list = MR_ARENA_ARRAY(r->a, struct memory_place, in->output_count + 1);

    if (!list) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < in->output_count; i++) {
        struct mr_sdk_tensor t;
        int rc = ABI_TAKE(&t, element(in->places, i), "places", r->err);
        if (rc < 0) {
            return rc;
        }
        list[i] = (struct memory_place){.bytes = t.bytes, .is_set = t.data != NULL};
        if (t.data && !memory_has(in->memory, t.data, t.bytes, &list[i].offset)) {
            return MR_FAIL(r->err, MR_E_INVALID,
                           "the place of output '%.100s' is not within the memory of the request",
                           in->outputs[i]);
        }
    }
    out->places = list;
    return MR_OK;
}

static int memory_take(struct reader *r, const struct mr_sdk_request *in, struct call *out)
{
    if (!in->memory) {
        return in->places ? MR_FAIL(r->err, MR_E_INVALID,
                                    "the request has places for outputs, and no memory")
                          : MR_OK;
    }
    atomic_fetch_add(&in->memory->refs, 1);
    out->memory = in->memory;
    return in->places ? places_take(r, in, out) : MR_OK;
}

static int param_take(struct reader *r, const struct mr_sdk_param *p, struct mr_oip_param *out)
{
    int rc;

    if (!p->name || !p->name[0]) {
        return MR_FAIL(r->err, MR_E_INVALID, "a parameter has no name");
    }
    MR_TRY(copy(r, p->name, &out->key));
    switch (p->kind) {
    case MR_SDK_PARAM_BOOL:
        out->kind = MR_OIP_BOOL;
        out->b = p->i != 0;
        break;
    case MR_SDK_PARAM_INT:
        out->kind = MR_OIP_INT;
        out->i = p->i;
        break;
    case MR_SDK_PARAM_DOUBLE:
        out->kind = MR_OIP_DOUBLE;
        out->d = p->d;
        break;
    case MR_SDK_PARAM_STRING:
        out->kind = MR_OIP_STRING;
        rc = p->s ? copy(r, p->s, &out->s)
                  : MR_FAIL(r->err, MR_E_INVALID, "parameter '%.100s': NULL", p->name);
        break;
    default:
        rc = MR_FAIL(r->err, MR_E_INVALID, "parameter '%.100s': kind %d, possible is 0 to 3",
                     p->name, (int)p->kind);
    }
out:
    return rc;
}

static int params_take(struct reader *r, const struct mr_sdk_request *in,
                       struct mr_oip_request *out)
{
    struct mr_oip_param *list = MR_ARENA_ARRAY(r->a, struct mr_oip_param, in->param_count + 1);

    if (!list) {
        return no_memory(r);
    }
    for (uint32_t i = 0; i < in->param_count; i++) {
        struct mr_sdk_param p;
        int rc = ABI_TAKE(&p, element(in->params, i), "params", r->err);
        rc = rc < 0 ? rc : param_take(r, &p, &list[i]);
        if (rc < 0) {
            return rc;
        }
    }
    out->params = list;
    out->param_count = in->param_count;
    return MR_OK;
}

static int headers_take(struct reader *r, const struct mr_sdk_request *in, struct call *out)
{
    for (uint32_t i = 0; i < in->header_count; i++) {
        mr_str line;
        int rc = copy(r, in->headers[i], &line);
        rc = rc < 0 ? rc
                    : mr_client_header_read((char *)(uintptr_t)line.ptr, /* our own copy */
                                            &out->headers[out->header_count], r->err);
        if (rc < 0) {
            return rc;
        }
        out->header_count++;
    }
    return MR_OK;
}

static void sequence_take(const struct mr_sdk_request *in, struct call *out)
{
    struct mr_oip_request *q = &out->request;

    q->has_sequence_id = in->sequence_id != 0;
    q->sequence_id = in->sequence_id;
    q->sequence_start = (in->flags & MR_SDK_SEQUENCE_START) != 0;
    q->sequence_end = (in->flags & MR_SDK_SEQUENCE_END) != 0;
    q->priority = in->priority;
    out->is_once = in->sequence_id != 0 || (in->flags & MR_SDK_ONCE) != 0;
    out->fails_fast = (in->flags & MR_SDK_FAIL_FAST) != 0;
}

/* ---- which variant ---- */

static int endpoint_find(struct mr_sdk_call *c, const struct mr_sdk_request *in, struct mr_err *err)
{
    struct mr_sdk *client = c->client;

    c->endpoint = mr_map_find(&client->by_name, mr_str_c(in->model));
    c->variant = -1;
    if (!c->endpoint && !client->plain) {
        return MR_FAIL(err, MR_E_NOT_FOUND,
                       "there is no endpoint '%.100s', and no host for other models", in->model);
    }
    if (!c->endpoint && in->variant) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "'%.100s' is no endpoint and has no variants",
                       in->model);
    }
    for (size_t i = 0; in->variant && i < c->endpoint->config->variant_count; i++) {
        if (mr_str_eq_c(c->endpoint->config->variants[i].tag, in->variant)) {
            c->variant = (int)i;
        }
    }
    if (in->variant && c->variant < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "endpoint '%.100s' has no variant '%.64s'", in->model,
                       in->variant);
    }
    return MR_OK;
}

static void header_key(struct mr_sdk_call *c, const struct mr_header *list, size_t count,
                       mr_str name)
{
    for (size_t i = 0; !c->has_key && i < count; i++) {
        if (mr_str_eq(list[i].name, name)) {
            c->key = list[i].value;
            c->has_key = true;
        }
    }
}

static void parameter_key(struct mr_sdk_call *c, mr_str name)
{
    for (size_t i = 0; !c->has_key && i < c->call.request.param_count; i++) {
        const struct mr_oip_param *p = &c->call.request.params[i];
        if (mr_str_eq(p->key, name)) {
            c->key = mr_oip_param_text(p, c->key_text);
            c->has_key = true;
        }
    }
}

static void key_find(struct mr_sdk_call *c)
{
    const struct config_endpoint *e = c->endpoint ? c->endpoint->config : NULL;
    const struct mr_sdk *s = c->client;

    if (e && e->sticky == MR_STICKY_HEADER) {
        header_key(c, c->call.headers, c->call.header_count, e->key);
        header_key(c, s->headers, s->cluster_options.header_count, e->key);
    } else if (e && e->sticky == MR_STICKY_PARAMETER) {
        parameter_key(c, e->key);
    }
}

/* A sequence stays where it began, whatever the strategy is: its id is a key when there is no other one. */
static uint64_t host_key(const struct mr_sdk_call *c)
{
    if (c->has_key) {
        return mr_balance_hash(c->key);
    }
    const uint64_t id = c->call.request.sequence_id;
    return id ? mr_balance_hash(mr_str_n((const char *)&id, sizeof id)) : 0;
}

static const char *text_or_null(mr_str s)
{
    return s.len > 0 ? s.ptr : NULL;
}

/* The sequence of mr_variant_spread, whose state is the number of its steps times one constant. */
static unsigned spread_next(struct sdk_endpoint *e)
{
    uint64_t before =
        atomic_fetch_add_explicit(&e->spread, UINT64_C(0x9e3779b97f4a7c15), memory_order_relaxed);

    return mr_variant_spread(&before);
}

/* As the server does it: a sequence stays with its variant. */
static unsigned bucket_of(const struct mr_sdk_call *c)
{
    const struct config_endpoint *e = c->endpoint->config;
    const uint64_t id = c->call.request.sequence_id;
    char number[MR_U64_TEXT];

    if (c->has_key && (e->sticky != MR_STICKY_NONE || e->salt.len > 0)) {
        return mr_variant_bucket(e->salt, c->key);
    }
    return id ? mr_variant_bucket(e->salt,
                                  mr_str_n(number, (size_t)(mr_u64_put(number, id) - number)))
              : spread_next(c->endpoint);
}

void request_route(struct mr_sdk_call *c)
{
    struct sdk_endpoint *e = c->endpoint;
    unsigned variant = c->variant >= 0 ? (unsigned)c->variant : 0;

    c->call.key = host_key(c);
    if (!e) {
        c->call.cluster = c->client->plain;
        return;
    }
    if (c->variant < 0) {
        variant = mr_variant_of(&e->weights, bucket_of(c));
    }
    const struct config_variant *v = e->variants[variant].config;
    c->call.cluster = e->variants[variant].cluster;
    c->call.model = v->model.ptr;
    c->call.version = c->has_version ? c->call.version : text_or_null(v->version);
    c->result->variant = v->tag.ptr;
}

/* ---- all of it ---- */

static int counts_check(const struct mr_sdk_request *in, struct mr_err *err)
{
    if (in->input_count > TENSORS_MAX || in->output_count > TENSORS_MAX ||
        in->param_count > PARAMS_MAX || in->header_count > CALL_HEADERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%u inputs, %u outputs, %u parameters, %u headers: possible are %u, %u, %u "
                       "and %u",
                       in->input_count, in->output_count, in->param_count, in->header_count,
                       TENSORS_MAX, TENSORS_MAX, PARAMS_MAX, CALL_HEADERS_MAX);
    }
    if (in->timeout_ms < 0 || in->timeout_ms > MS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "timeout_ms: %lld, possible is 0 to %lld",
                       (long long)in->timeout_ms, (long long)MS_MAX);
    }
    if ((in->input_count && !in->inputs) || (in->param_count && !in->params)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: NULL, and their number is not 0",
                       in->param_count && !in->params ? "params" : "inputs");
    }
    const int rc = abi_texts_check(in->outputs, in->output_count, "outputs", err);
    return rc < 0 ? rc : abi_texts_check(in->headers, in->header_count, "headers", err);
}

static int names_take(struct mr_sdk_call *c, struct reader *r, const struct mr_sdk_request *in)
{
    mr_str text;
    int rc;

    MR_TRY(copy(r, in->model, &text));
    c->call.model = text.ptr;
    if (in->version && in->version[0]) {
        MR_TRY(copy(r, in->version, &text));
        c->call.version = text.ptr;
        c->has_version = true;
    }
    if (in->id) {
        MR_TRY(copy(r, in->id, &c->call.request.id));
    }
    if (in->key) {
        MR_TRY(copy(r, in->key, &c->key));
        c->has_key = true;
    }
    rc = MR_OK;
out:
    return rc;
}

static int fill(struct mr_sdk_call *c, const struct mr_sdk_request *in, struct mr_err *err)
{
    struct reader r = {.a = &c->result->arena, .err = err};
    int rc;

    if (!in->model || !in->model[0]) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "the request names no model"));
    }
    MR_TRY(counts_check(in, err));
    MR_TRY(endpoint_find(c, in, err));
    MR_TRY(names_take(c, &r, in));
    MR_TRY(inputs_take(&r, in, &c->call.request));
    MR_TRY(packed_take(&r, in, &c->call));
    MR_TRY(outputs_take(&r, in, &c->call.request));
    MR_TRY(memory_take(&r, in, &c->call));
    MR_TRY(params_take(&r, in, &c->call.request));
    MR_TRY(headers_take(&r, in, &c->call));
    sequence_take(in, &c->call);
    key_find(c);
out:
    return rc;
}

struct mr_sdk_call *request_call_new(struct mr_sdk *client)
{
    struct mr_sdk_call *c = MR_NEW(struct mr_sdk_call);

    c->client = client;
    atomic_fetch_add(&client->refs, 1);
    c->refs = 1;
    sem_init(&c->over, 0, 0);
    c->result = MR_NEW(struct mr_sdk_result);
    mr_arena_init(&c->result->arena, ARENA_FIRST, ARENA_MAX);
    c->call.arena = &c->result->arena;
    return c;
}

/* Takes the call: it is given out, or dropped. */
static int call_give(struct mr_sdk_call *c, int rc, int64_t timeout_ms, struct mr_sdk_call **out)
{
    if (rc < 0) {
        infer_unref(c);
        return rc;
    }
    c->call.deadline_ns = timeout_ms ? mr_ns_after(mr_now_ns(), timeout_ms * MR_NS_PER_MS) : 0;
    *out = c;
    return MR_OK;
}

int request_take(struct mr_sdk *client, const struct mr_sdk_request *user, struct mr_sdk_call **out,
                 struct mr_err *err)
{
    struct mr_sdk_request in;
    int rc = abi_client_check(client, err);

    rc = rc < 0 ? rc : ABI_TAKE(&in, user, "request", err);
    if (rc < 0) {
        return rc;
    }
    struct mr_sdk_call *c = request_call_new(client);
    return call_give(c, fill(c, &in, err), in.timeout_ms, out);
}

/* ---- questions ---- */

/* Servers of a client without hosts of its own are found by an endpoint. */
static int server_find(struct mr_sdk_call *c, struct mr_err *err)
{
    c->variant = -1;
    return c->client->plain ? MR_OK
                            : MR_FAIL(err, MR_E_NOT_FOUND,
                                      "there is no host but those of endpoints: name one as model");
}

static int question_fill(struct mr_sdk_call *c, const struct mr_sdk_question *in,
                         struct mr_err *err)
{
    struct reader r = {.a = &c->result->arena, .err = err};
    const struct mr_sdk_request as = {.model = in->model,
                                      .version = in->version,
                                      .headers = in->headers,
                                      .header_count = in->header_count,
                                      .timeout_ms = in->timeout_ms,
                                      .key = in->key,
                                      .variant = in->variant};
    const bool has_model = in->model && in->model[0];
    int rc;

    if (in->kind <= 0 || in->kind > MR_ASK_COUNT) {
        return MR_FAIL(err, MR_E_INVALID, "kind: %d, possible is 1 to %d", (int)in->kind,
                       MR_ASK_COUNT);
    }
    c->call.is_question = true;
    c->call.ask = (enum mr_ask)(in->kind - 1);
    if (!has_model && mr_ask_is_of_model(c->call.ask)) {
        return MR_FAIL(err, MR_E_INVALID, "the question names no model");
    }
    MR_TRY(counts_check(&as, err));
    if (has_model) {
        MR_TRY(endpoint_find(c, &as, err));
        MR_TRY(names_take(c, &r, &as));
    } else {
        MR_TRY(server_find(c, err));
    }
    MR_TRY(headers_take(&r, &as, &c->call));
    key_find(c);
out:
    return rc;
}

int request_ask_take(struct mr_sdk *client, const struct mr_sdk_question *user,
                     struct mr_sdk_call **out, struct mr_err *err)
{
    struct mr_sdk_question in;
    int rc = abi_client_check(client, err);

    rc = rc < 0 ? rc : ABI_TAKE(&in, user, "question", err);
    if (rc < 0) {
        return rc;
    }
    struct mr_sdk_call *c = request_call_new(client);
    return call_give(c, question_fill(c, &in, err), in.timeout_ms, out);
}
