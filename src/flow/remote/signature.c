/* The metadata have shapes with the batch dimension; what else there is to know is in the configuration, which is Triton's
 * extension: without it the model is one that does not batch. Thread: loader. */
#include "signature.h"

#include "base/arena.h"
#include "codec/json.h"
#include "exec/exec.h"
#include "oip/oip.h"

#define ARENA_LIMIT ((size_t)64 << 20)

struct reading {
    struct mr_arena arena;
    struct mr_oip_metadata metadata;
    int64_t max_batch_size;
    bool is_decoupled;
    struct mr_err *err;
};

/* ---- the configuration ---- */

static void policy_read(struct reading *k, struct mr_json *j)
{
    bool first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "decoupled") && mr_json_peek(j) == MR_JSON_BOOL) {
            mr_json_bool(j, &k->is_decoupled);
        } else {
            mr_json_skip(j, NULL);
        }
    }
}

static int config_read(struct reading *k, mr_str text)
{
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_json_init(&j, text, &k->arena, 0, k->err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        if (mr_str_eq_c(key, "max_batch_size") && mr_json_peek(&j) == MR_JSON_NUMBER) {
            mr_json_i64(&j, &k->max_batch_size);
        } else if (mr_str_eq_c(key, "model_transaction_policy") &&
                   mr_json_peek(&j) == MR_JSON_OBJECT) {
            policy_read(k, &j);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    k->max_batch_size = MR_MAX(0, MR_MIN(k->max_batch_size, INT32_MAX));
    return j.status;
}

/* ---- the signature ---- */

static int ios_make(struct reading *k, const struct mr_oip_io *from, size_t count,
                    struct mr_io_desc **out)
{
    struct mr_io_desc *list = MR_ARENA_ARRAY(&k->arena, struct mr_io_desc, count + 1);

    for (size_t i = 0; list && i < count; i++) {
        const mr_str name = mr_arena_str(&k->arena, from[i].name);
        list[i] = (struct mr_io_desc){
            .name = name.ptr, .dims = from[i].shape, .dtype = from[i].dtype, .rank = from[i].rank};
        list = name.ptr ? list : NULL;
    }
    *out = list;
    return list ? MR_OK : MR_FAIL(k->err, MR_E_NOMEM, "no memory for a model of another server");
}

static int signature_make(struct reading *k, uint32_t max_pending, struct mr_signature **out)
{
    const bool is_batching = k->max_batch_size > 0;
    struct mr_io_desc *inputs, *outputs;
    int rc;

    MR_TRY(ios_make(k, k->metadata.inputs, k->metadata.input_count, &inputs));
    MR_TRY(ios_make(k, k->metadata.outputs, k->metadata.output_count, &outputs));
    const struct mr_signature s = {.size = sizeof s,
                                   .input_count = (uint32_t)k->metadata.input_count,
                                   .output_count = (uint32_t)k->metadata.output_count,
                                   .inputs = inputs,
                                   .outputs = outputs,
                                   .batchable = is_batching,
                                   .max_pending = max_pending,
                                   .max_batch_size = (uint32_t)k->max_batch_size};
    rc = mr_signature_copy(out, &s, MR_BACKEND_NO_WARMUP | MR_BACKEND_NO_INLINE, MR_E_INVALID,
                           "the metadata", k->err);
    if (rc == MR_OK) { /* the copy leaves out what backends may not say */
        (*out)->max_pending = max_pending;
        (*out)->max_batch_size = (uint32_t)k->max_batch_size;
    }
out:
    return rc;
}

/* ---- asking ---- */

static int ask(struct mr_sdk *client, const struct mr_sdk_question *from, int32_t kind,
               struct mr_sdk_result **out, struct mr_err *err)
{
    struct mr_sdk_question q = *from;

    q.kind = kind;
    return mr_sdk_ask(client, &q, out, err);
}

int remote_signature(struct mr_sdk *client, const char *model, const char *version,
                     int64_t timeout_ms, uint32_t max_pending, struct mr_signature **out,
                     struct mr_err *err)
{
    const struct mr_sdk_question q = {
        .size = sizeof q, .model = model, .version = version, .timeout_ms = timeout_ms};
    struct mr_sdk_result *metadata = NULL, *config = NULL;
    struct reading k = {.err = err};
    struct mr_err ignored;
    int rc;

    mr_arena_init(&k.arena, 4096, ARENA_LIMIT);
    MR_TRY(ask(client, &q, MR_SDK_MODEL_METADATA, &metadata, err));
    const char *text = mr_sdk_result_text(metadata);
    const mr_bytes body = {(const uint8_t *)text, strlen(text)};
    MR_TRY(mr_oip_rest_decode_metadata(body, &k.arena, &k.metadata, err));
    if (ask(client, &q, MR_SDK_MODEL_CONFIG, &config, &ignored) == MR_OK) {
        MR_TRY(config_read(&k, mr_str_c(mr_sdk_result_text(config))));
    }
    if (k.is_decoupled) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED,
                     "it is decoupled: a model of another server has to give "
                     "one answer");
        goto out;
    }
    MR_TRY(signature_make(&k, max_pending, out));
out:
    mr_sdk_result_free(&metadata);
    mr_sdk_result_free(&config);
    mr_arena_fini(&k.arena);
    return rc;
}
