/* --parameter KEY=VALUE: sets a well-known field of a request, or a custom parameter. */
#include "codec/json.h"
#include "infer.h"

static int bad_value(const char *key, const char *wanted, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "--parameter %s: %s expected", key, wanted);
}

static int set_u64(mr_str value, const char *key, uint64_t *out, struct mr_err *err)
{
    return mr_str_to_u64(value, out) ? MR_OK : bad_value(key, "a whole number", err);
}

static int set_bool(mr_str value, const char *key, bool *out, struct mr_err *err)
{
    return mr_str_to_bool(value, out) ? MR_OK : bad_value(key, "true or false", err);
}

/* Returns 1 when the key is none of these. */
static int well_known(struct mr_oip_request *r, mr_str key, mr_str value, struct mr_err *err)
{
    if (mr_str_eq_c(key, "priority")) {
        return set_u64(value, "priority", &r->priority, err);
    }
    if (mr_str_eq_c(key, "timeout")) {
        return set_u64(value, "timeout", &r->timeout_us, err);
    }
    if (mr_str_eq_c(key, "sequence_start")) {
        return set_bool(value, "sequence_start", &r->sequence_start, err);
    }
    if (mr_str_eq_c(key, "sequence_end")) {
        return set_bool(value, "sequence_end", &r->sequence_end, err);
    }
    if (mr_str_eq_c(key, "sequence_id")) {
        r->has_sequence_id = true;
        if (!mr_str_to_u64(value, &r->sequence_id)) {
            r->sequence_id_str = value;
        }
        return MR_OK;
    }
    return 1;
}

/* Numbers, true and false have their own types; anything else is text, quoted or not. */
static struct mr_oip_param guess(mr_str key, mr_str value)
{
    struct mr_oip_param p = {.key = key};

    if (mr_str_eq_c(value, "true") || mr_str_eq_c(value, "false")) {
        p.kind = MR_OIP_BOOL;
        p.b = value.ptr[0] == 't';
    } else if (mr_str_to_i64(value, &p.i)) {
        p.kind = MR_OIP_INT;
    } else if (value.len && value.ptr[0] != 'n' && value.ptr[0] != 'i' &&
               mr_text_double(value, &p.d)) {
        p.kind = MR_OIP_DOUBLE;
    } else {
        p.kind = MR_OIP_STRING;
        bool quoted = value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"';
        p.s = quoted ? mr_str_sub(value, 1, value.len - 1) : value;
    }
    return p;
}

int infer_add_parameter(struct infer *x, const char *text, struct mr_err *err)
{
    struct mr_oip_request *r = &x->request;
    const char *equals = strchr(text, '=');

    if (!equals || equals == text) {
        return MR_FAIL(err, MR_E_INVALID, "--parameter '%s': expected KEY=VALUE", text);
    }
    mr_str key = mr_str_n(text, (size_t)(equals - text));
    mr_str value = mr_str_c(equals + 1);
    int rc = well_known(r, key, value, err);
    if (rc <= 0) {
        return rc;
    }
    struct mr_oip_param *list = MR_ARENA_ARRAY(&x->arena, struct mr_oip_param, r->param_count + 1);
    if (!list) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "too many parameters");
    }
    if (r->param_count) {
        memcpy(list, r->params, r->param_count * sizeof *list);
    }
    list[r->param_count++] = guess(key, value);
    r->params = list;
    return MR_OK;
}
