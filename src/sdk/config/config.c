/* What is common to all kinds of text, and which kind a text is: by its first word. */
#include "config.h"

#define ARENA_MAX ((size_t)64 << 20)
#define MS_MAX    ((int64_t)86400000)

struct config_policy config_policy_default(void)
{
    return (struct config_policy){.strategy = MR_BALANCE_PEAK_EWMA,
                                  .timeout_ms = 20000,
                                  .connect_timeout_ms = 2000,
                                  .attempts = 3,
                                  .max_connections = 100,
                                  .shard_rows = 20,
                                  .max_shards = 3};
}

int config_strategy_set(struct config_policy *p, const char *name, struct mr_err *err)
{
    if (name && name[0] && !mr_balance_strategy_parse(mr_str_c(name), &p->strategy)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "strategy '%.40s': possible are peak_ewma, p2c, least_request, round_robin, "
                       "weighted_round_robin, random, weighted_random, hash, and brpc's rr, wrr, "
                       "wr, la, c_murmurhash, c_md5",
                       name);
    }
    return MR_OK;
}

int config_protocol_set(struct config_policy *p, const char *name, struct mr_err *err)
{
    if (!name || !name[0]) {
        return MR_OK;
    }
    if (strcmp(name, "binary") != 0 && strcmp(name, "json") != 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "protocol '%.40s': possible are binary and json; hosts that are spoken to "
                       "by gRPC begin with grpc://",
                       name);
    }
    p->is_json = name[0] == 'j';
    return MR_OK;
}

int config_coding_set(struct config_policy *p, const char *name, struct mr_err *err)
{
    if (!name || !name[0]) {
        return MR_OK;
    }
    if (strcmp(name, "none") == 0) {
        p->coding = MR_CODING_IDENTITY;
    } else if (strcmp(name, "gzip") == 0) {
        p->coding = MR_CODING_GZIP;
    } else if (strcmp(name, "deflate") == 0 || strcmp(name, "zlib") == 0) {
        p->coding = MR_CODING_DEFLATE;
    } else {
        return MR_FAIL(
            err, MR_E_UNSUPPORTED,
            "compression '%.40s': possible are none, gzip and deflate (zlib), as servers "
            "read no other",
            name);
    }
    return MR_OK;
}

static int range(const char *name, int64_t value, int64_t least, int64_t most, struct mr_err *err)
{
    if (value < least || value > most) {
        return MR_FAIL(err, MR_E_INVALID, "%s: %lld, possible is %lld to %lld", name,
                       (long long)value, (long long)least, (long long)most);
    }
    return MR_OK;
}

int config_policy_check(const struct config_policy *p, struct mr_err *err)
{
    int rc;

    MR_TRY(range("timeout_ms", p->timeout_ms, 1, MS_MAX, err));
    MR_TRY(range("connect_timeout_ms", p->connect_timeout_ms, 1, MS_MAX, err));
    MR_TRY(range("attempt_timeout_ms", p->attempt_timeout_ms, 0, MS_MAX, err));
    MR_TRY(range("hedge_after_ms", p->hedge_after_ms, 0, MS_MAX, err));
    MR_TRY(range("attempts", p->attempts, 1, CONFIG_ATTEMPTS_MAX, err));
    MR_TRY(range("max_connections", p->max_connections, 1, 65535, err));
    MR_TRY(range("package_size", p->shard_rows, 1, INT32_MAX, err));
    MR_TRY(range("max_channel_per_request", p->max_shards, 1, CONFIG_SHARDS_MAX, err));
out:
    return rc;
}

int config_no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "the configuration needs more than %zu MiB",
                   ARENA_MAX >> 20);
}

int config_copy(struct config *c, mr_str s, mr_str *out, struct mr_err *err)
{
    *out = mr_arena_str(&c->arena, s);
    return out->ptr ? MR_OK : config_no_memory(err);
}

/* The first word of a text in protobuf's text format, after blanks and comments. */
static mr_str first_word(mr_str text)
{
    size_t i = 0, from;

    while (i < text.len) {
        if (text.ptr[i] == '#') {
            while (i < text.len && text.ptr[i] != '\n') {
                i++;
            }
        } else if (strchr(" \t\r\n,;", text.ptr[i]) && text.ptr[i]) {
            i++;
        } else {
            break;
        }
    }
    from = i;
    while (i < text.len && (text.ptr[i] == '_' || (text.ptr[i] >= 'a' && text.ptr[i] <= 'z'))) {
        i++;
    }
    return mr_str_sub(text, from, i);
}

static int text_parse(struct config *c, mr_str text, struct mr_err *err)
{
    const mr_str word = first_word(text);

    if (text.len > CONFIG_TEXT_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%zu bytes, a configuration may have %zu", text.len,
                       CONFIG_TEXT_MAX);
    }
    if (mr_str_eq_c(word, "predictors") || mr_str_eq_c(word, "default_variant_conf")) {
        return config_paddle_parse(c, text, err);
    }
    return config_service_parse(c, text, err);
}

int config_parse(mr_str text, const struct config_policy *policy, const mr_str *hosts,
                 size_t host_count, struct config **out, struct mr_err *err)
{
    struct config *c = MR_NEW(struct config);
    int rc;

    mr_arena_init(&c->arena, 4096, ARENA_MAX);
    c->policy = *policy;
    MR_TRY(config_policy_check(policy, err));
    MR_TRY(config_hosts_read(c, hosts, host_count, &c->hosts, &c->host_count, err));
    MR_TRY(text_parse(c, text, err));
    *out = c;
    c = NULL;
out:
    config_free(&c);
    return rc;
}

const char *config_warning(const struct config *c)
{
#define POOLED_TEXT                                                                                \
    "connection_type \"short\", and \"single\" over REST, is taken as \"pooled\": "                \
    "connections are kept, and have one call at a time"
#define FILTER_TEXT "cluster_filter_strategy has no effect, as in Paddle's own client"
    static const char *const texts[2][2] = {{"", FILTER_TEXT},
                                            {POOLED_TEXT, POOLED_TEXT "; " FILTER_TEXT}};

    return texts[c->is_pooled][c->has_filter];
}

void config_free(struct config **c)
{
    if (*c) {
        mr_service_file_free(&(*c)->file);
        mr_arena_fini(&(*c)->arena);
    }
    mr_freep(c);
}
