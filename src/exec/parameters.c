/* Parameters of answers. They come from a backend, or from a worker process, which may write anything: what is kept is a
 * checked copy. */
#include "exec_priv.h"

static bool is_number(const char *text)
{
    const mr_str s = mr_str_c(text);
    int64_t number;

    return mr_str_to_i64(s, &number);
}

/* Digits and what may be between them, as JSON has it; whoever reads the number judges it. */
static bool is_real(const char *text)
{
    return text[0] && text[strspn(text, "0123456789+-.eE")] == '\0';
}

static bool is_kind(uint8_t kind, const char *text)
{
    switch (kind) {
    case MR_PARAMETER_TEXT: return true;
    case MR_PARAMETER_INT: return is_number(text);
    case MR_PARAMETER_BOOL: return strcmp(text, "true") == 0 || strcmp(text, "false") == 0;
    case MR_PARAMETER_DOUBLE: return is_real(text);
    default: return false;
    }
}

static int check(const struct mr_setting *list, const uint8_t *kinds, uint32_t count,
                 struct mr_err *err)
{
    uint64_t bytes = 0;

    if (count > MR_ANSWER_PARAMETERS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "an answer has %u parameters, allowed are %u", count,
                       MR_ANSWER_PARAMETERS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        const mr_str key = mr_str_c(list[i].key), value = mr_str_c(list[i].value);
        bytes += key.len + value.len;
        if (key.len == 0 || !mr_utf8_valid(key) || !mr_utf8_valid(value) ||
            !is_kind(kinds ? kinds[i] : MR_PARAMETER_TEXT, list[i].value)) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "parameter %u of an answer has no name, is no UTF-8 text, or is not of its type",
                i);
        }
    }
    return bytes <= MR_ANSWER_PARAMETER_BYTES
               ? MR_OK
               : MR_FAIL(err, MR_E_TOO_LARGE,
                         "the parameters of an answer have %llu bytes, allowed are %u",
                         (unsigned long long)bytes, MR_ANSWER_PARAMETER_BYTES);
}

int mr_answer_parameters_set(struct mr_answer_parameters *to, struct mr_arena *arena,
                             const struct mr_setting *list, const uint8_t *kinds, uint32_t count,
                             struct mr_err *err)
{
    struct mr_setting *copy = MR_ARENA_ARRAY(arena, struct mr_setting, count + 1u);
    uint8_t *types = MR_ARENA_ARRAY(arena, uint8_t, count + 1u);
    bool is_whole = copy && types;
    int rc;

    MR_TRY(check(list, kinds, count, err));
    for (uint32_t i = 0; i < count && is_whole; i++) {
        copy[i] = (struct mr_setting){mr_arena_str(arena, mr_str_c(list[i].key)).ptr,
                                      mr_arena_str(arena, mr_str_c(list[i].value)).ptr};
        types[i] = kinds ? kinds[i] : MR_PARAMETER_TEXT;
        is_whole = copy[i].key && copy[i].value;
    }
    if (!is_whole) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the parameters of an answer");
    }
    *to = (struct mr_answer_parameters){copy, types, count};
out:
    return rc;
}

int mr_execution_parameters(struct mr_execution *x, uint32_t request, const struct mr_setting *list,
                            const uint8_t *kinds, uint32_t count, struct mr_err *err)
{
    if ((x->exec.flags & MR_EXEC_DECOUPLED) || request >= x->exec.request_count) {
        return MR_FAIL(err, MR_E_INVALID,
                       "model '%s': parameters of the answer to request %u of %u, of an execution "
                       "that is %sdecoupled",
                       x->outputs.executor->model, request, x->exec.request_count,
                       x->exec.flags & MR_EXEC_DECOUPLED ? "" : "not ");
    }
    if (!x->parameters) {
        x->parameters =
            MR_ARENA_ARRAY(x->outputs.arena, struct mr_answer_parameters, x->exec.request_count);
    }
    if (!x->parameters) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the parameters of an answer");
    }
    return mr_answer_parameters_set(&x->parameters[request], x->outputs.arena, list, kinds, count,
                                    err);
}
