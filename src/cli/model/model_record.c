/* `millrace model record-warmup`: starts or stops the recording of requests, and waits for its end if requested. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "cli/common/term.h"
#include "codec/json.h"
#include "model.h"

#define POLL_NS (200 * MR_NS_PER_MS)

struct answer {
    char version[32];
    char state[16];
    char reason[256];
    uint64_t requests;
    uint64_t seen;
    uint64_t recorded;
    uint64_t bytes;
};

static int parse_text(struct mr_json *j, char *to, size_t size)
{
    mr_str text = MR_STR("");
    int rc = mr_json_string(j, &text);

    snprintf(to, size, "%.*s", MR_STR_ARG(mr_str_sub(text, 0, size - 1)));
    return rc;
}

static int parse_member(struct mr_json *j, mr_str key, struct answer *a)
{
    uint64_t *number = mr_str_eq_c(key, "requests")   ? &a->requests
                       : mr_str_eq_c(key, "seen")     ? &a->seen
                       : mr_str_eq_c(key, "recorded") ? &a->recorded
                       : mr_str_eq_c(key, "bytes")    ? &a->bytes
                                                      : NULL;

    if (number) {
        return mr_json_u64(j, number);
    }
    if (mr_str_eq_c(key, "version")) {
        return parse_text(j, a->version, sizeof a->version);
    }
    if (mr_str_eq_c(key, "state")) {
        return parse_text(j, a->state, sizeof a->state);
    }
    return mr_str_eq_c(key, "reason") ? parse_text(j, a->reason, sizeof a->reason)
                                      : mr_json_skip(j, NULL);
}

static int parse(mr_bytes body, struct answer *a, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool first = true;
    mr_str key;

    *a = (struct answer){.state = ""};
    mr_arena_init(&arena, 4096, 1u << 20);
    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), &arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = parse_member(&j, key, a);
    }
    rc = rc < 0 ? rc : j.status;
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}

static bool goes_on(const struct answer *a)
{
    return strcmp(a->state, "recording") == 0 || strcmp(a->state, "writing") == 0;
}

static void print(const struct model_run *m, const struct answer *a, mr_bytes body)
{
    char bytes[32];

    mr_text_bytes(bytes, a->bytes);
    if (m->form == MODEL_JSON) {
        printf("%.*s\n", (int)body.len, (const char *)body.ptr);
    } else {
        printf("%s version %s: %s, %llu of %llu requests, %s\n", m->name, a->version, a->state,
               (unsigned long long)a->recorded, (unsigned long long)a->requests, bytes);
    }
}

static void add_version(const struct model_run *m, struct mr_buf *body)
{
    if (m->opt.version) {
        MR_BUF_LIT(body, ",\"version\":");
        mr_json_put_string(body, mr_str_c(m->opt.version));
    }
    mr_buf_char(body, '}');
}

/* Sends the request, and polls while the recording runs and the command waits. */
static int ask(struct model_run *m, struct mr_buf *body, struct mr_err *err)
{
    const struct timespec pause = {0, POLL_NS};
    struct mr_remote_reply reply;
    struct answer a;
    char path[600];
    int rc;

    snprintf(path, sizeof path, "/v2/repository/models/%.500s/record-warmup", m->name);
    for (;;) {
        rc = mr_remote_text(&m->remote, path, body, &reply, err);
        if (rc < 0) {
            return rc;
        }
        rc = parse(reply.body, &a, err);
        if (rc < 0 || !m->opt.wait || !goes_on(&a)) {
            break;
        }
        mr_remote_reply_fini(&reply);
        nanosleep(&pause, NULL);
        mr_buf_reset(body);
        MR_BUF_LIT(body, "{\"action\":\"status\"");
        add_version(m, body);
    }
    if (rc == MR_OK) {
        print(m, &a, reply.body);
        if (strcmp(a.state, "failed") == 0) {
            rc = MR_FAIL(err, MR_E_UNAVAILABLE, "%s", a.reason);
        }
    }
    mr_remote_reply_fini(&reply);
    return rc;
}

int model_run_record(struct model_run *m, struct mr_err *err)
{
    struct mr_buf body;

    mr_buf_init(&body, 4096);
    if (m->opt.stop) {
        MR_BUF_LIT(&body, "{\"action\":\"stop\"");
    } else {
        mr_buf_printf(&body, "{\"requests\":%u,\"every\":%u,\"seconds\":%lld", m->opt.requests,
                      m->opt.every, (long long)(m->opt.record_ns / MR_NS_PER_S));
    }
    add_version(m, &body);
    int rc =
        body.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the request is too large") : ask(m, &body, err);
    mr_buf_fini(&body);
    return rc;
}
