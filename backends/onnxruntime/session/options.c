/* Model settings to session options. Names are those of Triton's ONNX Runtime backend.
 *
 * Defaults differ by size. Measured with ONNX Runtime 1.30 on a model of two operators: a session
 * keeps 26 KB without graph optimisation, 35 KB with the basic level, 66 KB with all levels (the
 * optimisers stay with the session), and 38 KB more once its memory arena was used. So a tiny model (see model.c)
 * gets the basic level and no arena unless configured; it only loses fusions that matter for large tensors. A server
 * can hold ten thousand of those.
 *
 * Threads: see backend.c and probe.c. A model that sets a thread count gets pools of its own; 1 means
 * that the caller computes alone. */
#include "onnx.h"

static int setting_int(const struct mr_model_desc *desc, const char *key, int64_t min, int64_t max,
                       int64_t *out, struct mr_err *err)
{
    return mr_setting_i64(desc->settings, desc->setting_count, key, min, max, out, err);
}

int onnx_options_may_choose(const struct onnx_backend *b, const struct mr_model_desc *desc)
{
    static const char *const keys[] = {"intra_op_thread_count", "inter_op_thread_count",
                                       "execution_mode"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (mr_setting_find(desc->settings, desc->setting_count, keys[i])) {
            return 0;
        }
    }
    return b->use_global_pool && b->intra_threads > 1;
}

static int pools_apply(const struct onnx_backend *b, const struct mr_model_desc *desc,
                       int caller_only, OrtSessionOptions *o, struct mr_err *err)
{
    const char *spinning = b->allow_spinning ? "1" : "0";
    int64_t intra = 0;
    int64_t inter = 0;
    int64_t mode = 0;
    int rc;
    if (caller_only) {
        ONNX_TRY(SetIntraOpNumThreads(o, 1));
        ONNX_TRY(SetInterOpNumThreads(o, 1));
        return MR_OK;
    }
    if ((rc = setting_int(desc, "intra_op_thread_count", 0, 1024, &intra, err)) < 0 ||
        (rc = setting_int(desc, "inter_op_thread_count", 0, 1024, &inter, err)) < 0 ||
        (rc = setting_int(desc, "execution_mode", 0, 1, &mode, err)) < 0) {
        return rc;
    }
    ONNX_TRY(SetSessionExecutionMode(o, mode == 1 ? ORT_PARALLEL : ORT_SEQUENTIAL));
    if (b->use_global_pool && intra == 0 && inter == 0 && (mode == 0 || b->inter_threads > 1)) {
        ONNX_TRY(DisablePerSessionThreads(o));
        return MR_OK;
    }
    inter = inter > 0 ? inter : (mode == 1 ? onnx_cpu_count() : 1);
    ONNX_TRY(SetIntraOpNumThreads(o, (int)(intra > 0 ? intra : b->intra_threads)));
    ONNX_TRY(SetInterOpNumThreads(o, (int)inter));
    ONNX_TRY(AddSessionConfigEntry(o, "session.intra_op.allow_spinning", spinning));
    ONNX_TRY(AddSessionConfigEntry(o, "session.inter_op.allow_spinning", spinning));
    ONNX_TRY(SessionOptionsSetCustomCreateThreadFn(o, onnx_thread_start));
    ONNX_TRY(SessionOptionsSetCustomJoinThreadFn(o, onnx_thread_join));
out:
    return rc;
}

static int memory_apply(struct onnx_model *m, const struct mr_model_desc *desc, int is_tiny,
                        OrtSessionOptions *o, struct mr_err *err)
{
    const char *shrink = mr_setting_find(desc->settings, desc->setting_count,
                                         "memory.enable_memory_arena_shrinkage");
    int arena = !is_tiny || (shrink && shrink[0]);
    int pattern = 1;
    int rc;
    if ((rc = mr_setting_bool(desc->settings, desc->setting_count, "enable_mem_arena", &arena,
                              err)) < 0 ||
        (rc = mr_setting_bool(desc->settings, desc->setting_count, "enable_mem_pattern", &pattern,
                              err)) < 0) {
        return rc;
    }
    /* ONNX Runtime reads it in each execution, and would fail all of them. */
    if (shrink && shrink[0] && strcmp(shrink, "cpu:0") != 0) {
        return mr_backend_fail(
            err, MR_E_INVALID,
            "parameter 'memory.enable_memory_arena_shrinkage' is '%.64s', expected "
            "cpu:0",
            shrink);
    }
    if (!arena && shrink && shrink[0]) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "memory.enable_memory_arena_shrinkage has nothing to shrink while "
                               "enable_mem_arena is off");
    }
    if (!arena) {
        ONNX_TRY(DisableCpuMemArena(o));
    }
    if (!pattern) {
        ONNX_TRY(DisableMemPattern(o));
    }
    if (shrink && shrink[0]) {
        free(m->shrink_arena); /* of an earlier session of this model */
        m->shrink_arena = strdup(shrink);
        if (!m->shrink_arena) {
            return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        }
    }
    rc = MR_OK;
out:
    return rc;
}

static int level_apply(const struct mr_model_desc *desc, int is_tiny, OrtSessionOptions *o,
                       struct mr_err *err)
{
    int64_t level = 0;
    GraphOptimizationLevel to = is_tiny ? ORT_ENABLE_BASIC : ORT_ENABLE_ALL;
    int rc = setting_int(desc, "optimization.graph.level", -1, 2, &level, err);
    if (rc < 0) {
        return rc;
    }
    switch (level) {
    case -1: to = ORT_ENABLE_BASIC; break;
    case 1: to = ORT_ENABLE_EXTENDED; break;
    case 2: to = ORT_DISABLE_ALL; break;
    default: break; /* 0 and unset: the default of this backend */
    }
    return onnx_check(onnx_api->SetSessionGraphOptimizationLevel(o, to), err);
}

/* ONNX Runtime's settings session.*, ep.*, optimization.* and mlas.*. Several of them name files that it writes or
 * reads, some make a session that cannot run, and each release adds new ones, while a model's settings may come from
 * a client. So only settings that affect the computation of the model's own session are allowed. */
static const struct {
    const char *key;
    int64_t max; /* a number from 0; TEXT: any text */
} entries[] = {
#define TEXT (-1)
    {"session.disable_prepacking", 1},
    {"session.disable_quant_qdq", 1},
    {"session.disable_double_qdq_remover", 1},
    {"session.enable_quant_qdq_cleanup", 1},
    {"session.qdqisint8allowed", 1},
    {"session.qdq_matmulnbits_accuracy_level", 4},
    {"session.x64quantprecision", 1},
    {"session.disable_aot_function_inlining", 1},
    {"session.use_device_allocator_for_initializers", 1},
    {"session.inter_op.allow_spinning", 1},
    {"session.intra_op.allow_spinning", 1},
    {"session.force_spinning_stop", 1},
    {"session.dynamic_block_base", 1024},
    {"session.strict_shape_type_inference", 1},
    {"session.allow_released_opsets_only", 1},
    {"optimization.enable_gelu_approximation", 1},
    {"optimization.disable_specified_optimizers", TEXT},
    {"mlas.enable_gemm_fastmath_arm64_bfloat16", 1},
};

static int is_entry(const char *key)
{
    static const char *const prefixes[] = {"session.", "ep.", "optimization.", "mlas."};

    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
        if (strncmp(key, prefixes[p], strlen(prefixes[p])) == 0) {
            return strcmp(key, "optimization.graph.level") != 0; /* the host's: level_apply */
        }
    }
    return 0;
}

static int entry_check(const struct mr_setting *s, struct mr_err *err)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        int64_t ignored;
        if (strcmp(s->key, entries[i].key) == 0) {
            return entries[i].max == TEXT
                       ? MR_OK
                       : mr_setting_i64(s, 1, s->key, 0, entries[i].max, &ignored, err);
        }
    }
    return mr_backend_fail(
        err, MR_E_UNSUPPORTED,
        "parameter '%.100s' is refused: of ONNX Runtime's own settings (session.*, ep.*, "
        "optimization.*, mlas.*) a model may give only those that docs/configuration.md "
        "lists, as others write files or keep the model from answering",
        s->key);
}

static int entries_apply(const struct mr_model_desc *desc, OrtSessionOptions *o, struct mr_err *err)
{
    int rc = MR_OK;

    for (uint32_t i = 0; i < desc->setting_count; i++) {
        const struct mr_setting *s = &desc->settings[i];
        if (!is_entry(s->key)) {
            continue;
        }
        if ((rc = entry_check(s, err)) < 0) {
            return rc;
        }
        ONNX_TRY(AddSessionConfigEntry(o, s->key, s->value));
    }
out:
    return rc;
}

int onnx_options_make(struct onnx_model *m, const struct mr_model_desc *desc,
                      const struct onnx_defaults *defaults, OrtSessionOptions **out,
                      struct mr_err *err)
{
    OrtSessionOptions *o = NULL;
    int rc;
    ONNX_TRY(CreateSessionOptions(&o));
    ONNX_TRY(SetSessionLogId(o, desc->name));
    if ((rc = pools_apply(m->backend, desc, defaults->caller_only, o, err)) < 0 ||
        (rc = memory_apply(m, desc, defaults->is_tiny, o, err)) < 0 ||
        (rc = level_apply(desc, defaults->is_tiny, o, err)) < 0 ||
        (rc = entries_apply(desc, o, err)) < 0) {
        goto out;
    }
    /* Set explicitly, so that ONNX Runtime does not detect it: external.c has checked the file for this format. */
    ONNX_TRY(
        AddSessionConfigEntry(o, "session.load_model_format", defaults->is_ort ? "ORT" : "ONNX"));
    *out = o;
    return MR_OK;
out:
    if (o) {
        onnx_api->ReleaseSessionOptions(o);
    }
    return rc;
}
