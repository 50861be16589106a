/* GET and POST /v2/logging. */
#include "rest_settings.h"

#include "codec/json.h"
#include "serve/state/meta.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

static void reply_settings(struct mr_call *call)
{
    struct mr_buf *b = mr_loop_scratch(call->loop);

    mr_buf_reset(b);
    MR_BUF_LIT(b, "{\"log_file\":");
    mr_json_put_string(b, mr_str_c(mr_log_file()));
    mr_buf_printf(b,
                  ",\"log_info\":%s,\"log_warning\":%s,\"log_error\":%s,\"log_verbose_level\":%u,"
                  "\"log_format\":\"%s\"}",
                  mr_log_enabled(MR_LOG_INFO) ? "true" : "false",
                  mr_log_enabled(MR_LOG_WARN) ? "true" : "false",
                  mr_log_enabled(MR_LOG_ERROR) ? "true" : "false", mr_log_verbose(),
                  mr_log_format_name(mr_log_get_format()));
    reply_buf(call, 200, b);
}

static int parse_one(struct mr_json *j, mr_str key, struct log_change *c)
{
    uint64_t level = 0;
    bool on = false;
    int rc;

    if (mr_json_peek(j) == MR_JSON_NULL) { /* stays as it is; tritonclient sends None so */
        return mr_json_skip(j, NULL);
    }
    if (mr_str_eq_c(key, "log_file")) {
        c->has_file = true;
        return mr_json_skip(j, NULL);
    }
    if (mr_str_eq_c(key, "log_format")) {
        return mr_json_string(j, &c->format);
    }
    if (mr_str_eq_c(key, "log_verbose_level")) {
        rc = mr_json_u64(j, &level);
        if (rc == MR_OK && level > UINT32_MAX) {
            return mr_json_fail(j, MR_E_INVALID, "log_verbose_level is at most %u", UINT32_MAX);
        }
        c->has_verbose = true;
        c->verbose = (uint32_t)level;
        return rc;
    }
    int8_t *flag = mr_str_eq_c(key, "log_info")      ? &c->info
                   : mr_str_eq_c(key, "log_warning") ? &c->warning
                   : mr_str_eq_c(key, "log_error")   ? &c->error
                                                     : NULL;
    if (!flag) {
        return mr_json_fail(j, MR_E_INVALID, "unknown setting '%.*s'",
                            MR_STR_ARG(mr_str_sub(key, 0, 64)));
    }
    rc = mr_json_bool(j, &on);
    *flag = on;
    return rc;
}

static int parse_change(struct mr_call *call, struct log_change *c, struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_json_init(&j, mr_str_n((const char *)call->body.ptr, call->body.len), call->arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        if (parse_one(&j, key, c) < 0) {
            break;
        }
    }
    return j.status < 0 ? j.status : mr_json_finish(&j);
}

void rest_logging(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct log_change change;
    struct mr_err err = {0};

    (void)s, (void)path;
    meta_log_change_init(&change);
    if (mr_str_eq_c(call->method, "POST")) {
        int rc = parse_change(call, &change, &err);
        if (rc == MR_OK) {
            rc = meta_log_change_apply(&change, &err);
        }
        if (rc < 0) {
            reply_error(call, &err);
            return;
        }
    }
    reply_settings(call);
}
