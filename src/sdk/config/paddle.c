/* Paddle Serving's predictors.prototxt. A predictor is an endpoint. What its client read and did not use is used here:
 *
 *   max_connection_per_host    as many connections, and calls at a time; over gRPC with connection_type "single" calls alone
 *   hedge_request_timeout_ms   > 0: a second copy after this time; hedge_fetch_retry_count 0: none
 *   package_size               rows of each part of a request whose inputs are marked (pack_on), as many parts at most as
 *                              max_channel_per_request
 *   split_conf                 each tag candidate is a variant that a request may ask for by its tag; its hosts are those with
 *                              this word after their address. They take no share of the traffic by themselves.
 *
 * The model is the last part of service_name, as servers that read Paddle's files name it, or else the predictor's name.
 * Protocols are replaced by their nearest: baidu_std, http and h2 by REST, h2:grpc by gRPC. */
#include <stdio.h>

#include "codec/pbtext_lines.h"
#include "config.h"
#include "sdk_configure.pb-c.h"

typedef Millrace__Paddle__VariantConf variant_conf;

struct reader {
    struct config *c;
    struct mr_err *err;
    const variant_conf *fallback; /* default_variant_conf, or NULL */
    const void *at; /* the message or string that is being read, for the line of an error */
};

/* A field of a variant, of the default, or absent: in this order. */
#define PART(name)                                                                                 \
    const __typeof__(*(v->name)) *own_##name = v->name;                                            \
    const __typeof__(*(v->name)) *any_##name = r->fallback ? r->fallback->name : NULL
#define HAS_NUMBER(part, field)                                                                    \
    ((own_##part && own_##part->has_##field) || (any_##part && any_##part->has_##field))
#define NUMBER(part, field)                                                                        \
    (own_##part && own_##part->has_##field ? own_##part->field : any_##part->field)
/* The message that has the number. */
#define AT_NUMBER(part, field)                                                                     \
    (own_##part && own_##part->has_##field ? (const void *)own_##part : (const void *)any_##part)
#define TEXT(part, field)                                                                          \
    (own_##part && own_##part->field   ? own_##part->field                                         \
     : any_##part && any_##part->field ? any_##part->field                                         \
                                       : "")

static int connection_read(struct reader *r, const variant_conf *v, struct config_policy *p)
{
    PART(connection_conf);
    const char *type = TEXT(connection_conf, connection_type);

    p->connect_timeout_ms = HAS_NUMBER(connection_conf, connect_timeout_ms)
                                ? NUMBER(connection_conf, connect_timeout_ms)
                                : 2000;
    p->timeout_ms = HAS_NUMBER(connection_conf, rpc_timeout_ms)
                        ? NUMBER(connection_conf, rpc_timeout_ms)
                        : 20000;
    const int64_t retries = HAS_NUMBER(connection_conf, connect_retry_count)
                                ? NUMBER(connection_conf, connect_retry_count)
                                : 2;
    const int64_t connections = HAS_NUMBER(connection_conf, max_connection_per_host)
                                    ? NUMBER(connection_conf, max_connection_per_host)
                                    : 100;
    const int64_t hedge = HAS_NUMBER(connection_conf, hedge_request_timeout_ms)
                              ? NUMBER(connection_conf, hedge_request_timeout_ms)
                              : -1;
    const bool no_copies = HAS_NUMBER(connection_conf, hedge_fetch_retry_count) &&
                           NUMBER(connection_conf, hedge_fetch_retry_count) <= 0;
    if (retries < 0 || retries >= CONFIG_ATTEMPTS_MAX) {
        r->at = AT_NUMBER(connection_conf, connect_retry_count);
        return MR_FAIL(r->err, MR_E_INVALID, "connect_retry_count: %lld, possible is 0 to %u",
                       (long long)retries, CONFIG_ATTEMPTS_MAX - 1);
    }
    if (connections < 1 || connections > 65535) {
        r->at = AT_NUMBER(connection_conf, max_connection_per_host);
        return MR_FAIL(r->err, MR_E_INVALID,
                       "max_connection_per_host: %lld, possible is 1 to 65535",
                       (long long)connections);
    }
    if (type[0] && strcmp(type, "pooled") != 0 && strcmp(type, "single") != 0 &&
        strcmp(type, "short") != 0) {
        r->at = type;
        return MR_FAIL(r->err, MR_E_INVALID,
                       "connection_type '%.40s': possible are pooled, single and short", type);
    }
    r->c->is_pooled |= strcmp(type, "short") == 0;
    p->is_single = strcmp(type, "single") == 0;
    p->attempts = (uint32_t)retries + 1;
    p->max_connections = (uint32_t)connections;
    p->hedge_after_ms = hedge > 0 && !no_copies ? hedge : 0;
    r->at = own_connection_conf ? own_connection_conf : any_connection_conf;
    return config_policy_check(p, r->err);
}

static int compression_read(struct reader *r, int32_t type, struct config_policy *p)
{
    static const char *const names[] = {"none", "snappy", "gzip", "zlib", "lz4"};

    if (type < 0 || type > 4) {
        return MR_FAIL(r->err, MR_E_INVALID, "compress_type: %d, possible is 0, 2 and 3",
                       (int)type);
    }
    return config_coding_set(p, names[type], r->err);
}

static int count_read(struct reader *r, const char *name, int32_t value, uint32_t most,
                      uint32_t *out)
{
    if (value < 1 || (uint32_t)value > most) {
        return MR_FAIL(r->err, MR_E_INVALID, "%s: %d, possible is 1 to %u", name, (int)value, most);
    }
    *out = (uint32_t)value;
    return MR_OK;
}

static int rpc_read(struct reader *r, const variant_conf *v, struct config_policy *p,
                    bool *out_is_grpc)
{
    static const char *const rest[] = {"", "baidu_std", "http", "http1", "h2"};
    PART(rpc_parameter);
    const char *protocol = TEXT(rpc_parameter, protocol);
    bool is_known = false;
    int rc = MR_OK;

    *out_is_grpc = strcmp(protocol, "h2:grpc") == 0 || strcmp(protocol, "grpc") == 0;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        is_known = is_known || strcmp(protocol, rest[i]) == 0;
    }
    if (!is_known && !*out_is_grpc) {
        r->at = protocol;
        return MR_FAIL(r->err, MR_E_UNSUPPORTED,
                       "protocol '%.40s': possible are http, h2, h2:grpc, and baidu_std, which is "
                       "replaced by http",
                       protocol);
    }
    if (HAS_NUMBER(rpc_parameter, package_size)) {
        r->at = AT_NUMBER(rpc_parameter, package_size);
        MR_TRY(count_read(r, "package_size", NUMBER(rpc_parameter, package_size), INT32_MAX,
                          &p->shard_rows));
    }
    if (HAS_NUMBER(rpc_parameter, max_channel_per_request)) {
        r->at = AT_NUMBER(rpc_parameter, max_channel_per_request);
        MR_TRY(count_read(r, "max_channel_per_request",
                          NUMBER(rpc_parameter, max_channel_per_request), CONFIG_SHARDS_MAX,
                          &p->max_shards));
    }
    if (HAS_NUMBER(rpc_parameter, compress_type)) {
        r->at = AT_NUMBER(rpc_parameter, compress_type);
        MR_TRY(compression_read(r, NUMBER(rpc_parameter, compress_type), p));
    }
out:
    return rc;
}

/* The addresses of a cluster with those of their words that are no share: *out_words, as many as hosts. */
struct cluster {
    const struct config_host *hosts;
    size_t count;
};

/* Of one address, or those of a name. The lines of a file say it themselves. */
static int grpc_scheme(struct reader *r, mr_str *io)
{
    const mr_str dns = MR_STR("dns://");
    const bool is_name = mr_str_starts(*io, dns);
    const mr_str address = mr_str_sub(*io, is_name ? dns.len : 0, io->len);

    if (mr_str_find_str(address, MR_STR("://")) < 0) {
        *io = mr_arena_printf(&r->c->arena, "%sgrpc://%.*s", is_name ? "dns://" : "",
                              MR_STR_ARG(address));
    }
    return io->ptr ? MR_OK : config_no_memory(r->err);
}

/* "list://a:1 blue,b:2 green": the items with this word, or, without one, all with their words cut off if is_split. */
static int cluster_read(struct reader *r, mr_str cluster, mr_str word, bool is_split, bool is_grpc,
                        struct cluster *out)
{
    const mr_str prefix = MR_STR("list://");
    mr_str list[MR_REMOTES_MAX], rest, item;
    size_t n = 0;

    if (!mr_str_starts(cluster, prefix)) {
        const int rc = is_grpc ? grpc_scheme(r, &cluster) : MR_OK;
        return rc < 0 ? rc : config_hosts_read(r->c, &cluster, 1, &out->hosts, &out->count, r->err);
    }
    rest = mr_str_sub(cluster, prefix.len, cluster.len);
    while (mr_str_split(&rest, ',', &item)) {
        item = mr_str_trim(item);
        const ptrdiff_t blank = mr_str_find(item, ' ');
        const mr_str own =
            blank < 0 ? MR_STR("") : mr_str_trim(mr_str_sub(item, (size_t)blank, item.len));
        if (item.len == 0 || (word.len > 0 && !mr_str_eq(own, word))) {
            continue;
        }
        if (n == MR_REMOTES_MAX) {
            return MR_FAIL(r->err, MR_E_INVALID, "cluster: more than %u hosts", MR_REMOTES_MAX);
        }
        const mr_str address = is_split && blank >= 0 ? mr_str_sub(item, 0, (size_t)blank) : item;
        list[n] = is_grpc && mr_str_find_str(address, MR_STR("://")) < 0
                      ? mr_arena_printf(&r->c->arena, "grpc://%.*s", MR_STR_ARG(address))
                      : address;
        if (!list[n].ptr) {
            return config_no_memory(r->err);
        }
        n++;
    }
    return config_hosts_read(r->c, list, n, &out->hosts, &out->count, r->err);
}

static int naming_read(struct reader *r, const variant_conf *v, const variant_conf *split_of,
                       bool is_grpc, struct config_variant *out)
{
    PART(naming_conf);
    struct cluster cluster;
    const mr_str text = mr_str_c(TEXT(naming_conf, cluster));
    int rc;

    r->c->has_filter |= TEXT(naming_conf, cluster_filter_strategy)[0] != '\0';
    r->at = TEXT(naming_conf, load_balance_strategy);
    MR_TRY(config_strategy_set(&out->policy, TEXT(naming_conf, load_balance_strategy), r->err));
    r->at = text.len > 0 ? (const void *)text.ptr : v;
    if (text.len == 0) {
        MR_TRY(MR_FAIL(r->err, MR_E_INVALID, "naming_conf has no cluster"));
    }
    MR_TRY(cluster_read(r, text, MR_STR(""), split_of != NULL, is_grpc, &cluster));
    if (cluster.count == 0) {
        MR_TRY(MR_FAIL(r->err, MR_E_INVALID, "cluster: no host"));
    }
    out->hosts = cluster.hosts;
    out->host_count = cluster.count;
out:
    return rc;
}

static bool has_split(const struct reader *r, const variant_conf *v)
{
    PART(split_conf);

    return TEXT(split_conf, tag_candidates)[0] != '\0';
}

static int variant_read(struct reader *r, const variant_conf *v, mr_str model,
                        struct config_variant *out, bool *out_is_grpc)
{
    int rc;

    *out = (struct config_variant){.model = model, .policy = r->c->policy};
    r->at = v;
    MR_TRY(mr_variant_tag_check(mr_str_c(v->tag ? v->tag : ""), r->err));
    MR_TRY(config_copy(r->c, mr_str_c(v->tag), &out->tag, r->err));
    MR_TRY(connection_read(r, v, &out->policy));
    MR_TRY(rpc_read(r, v, &out->policy, out_is_grpc));
    r->c->is_pooled |= out->policy.is_single && !*out_is_grpc;
    MR_TRY(naming_read(r, v, has_split(r, v) ? v : NULL, *out_is_grpc, out));
out:
    return rc < 0 ? MR_WRAP(r->err, rc, "variant '%.64s'", v->tag ? v->tag : "") : MR_OK;
}

/* The variants of weight 0 that split_conf makes of a variant. */
static int split_read(struct reader *r, const variant_conf *v, const struct config_variant *of,
                      bool is_grpc, struct config_variant *list, size_t *io_count)
{
    PART(naming_conf);
    PART(split_conf);
    const mr_str cluster_text = mr_str_c(TEXT(naming_conf, cluster));
    mr_str rest = mr_str_c(TEXT(split_conf, tag_candidates)), tag;
    struct cluster cluster;
    int rc = MR_OK;

    r->at = rest.ptr;
    while (rest.len > 0 && mr_str_split(&rest, ',', &tag)) {
        tag = mr_str_trim(tag);
        if (*io_count == MR_VARIANTS_MAX) {
            return MR_FAIL(r->err, MR_E_INVALID, "more than %u variants with tag_candidates",
                           MR_VARIANTS_MAX);
        }
        MR_TRY(mr_variant_tag_check(tag, r->err));
        MR_TRY(cluster_read(r, cluster_text, tag, true, is_grpc, &cluster));
        if (cluster.count == 0 || !mr_str_starts(cluster_text, MR_STR("list://"))) {
            MR_TRY(MR_FAIL(r->err, MR_E_INVALID,
                           "tag_candidates: no host of cluster '%.200s' has the word '%.*s' after "
                           "its address",
                           cluster_text.ptr, MR_STR_ARG(tag)));
        }
        struct config_variant *one = &list[(*io_count)++];
        *one = *of;
        one->weight = 0;
        one->hosts = cluster.hosts;
        one->host_count = cluster.count;
        MR_TRY(config_copy(r->c, tag, &one->tag, r->err));
    }
out:
    return rc < 0 ? MR_WRAP(r->err, rc, "split_conf of variant '%.64s'", v->tag) : MR_OK;
}

/* "50|50", as many as variants. Absent: all alike. */
static int weights_read(struct reader *r, const Millrace__Paddle__PredictorConf *m,
                        struct config_variant *list)
{
    const char *text =
        m->weighted_random_render_conf && m->weighted_random_render_conf->variant_weight_list
            ? m->weighted_random_render_conf->variant_weight_list
            : "";
    double weights[MR_VARIANTS_MAX];
    mr_str tags[MR_VARIANTS_MAX], rest = mr_str_c(text), item;
    size_t n = 0;
    uint64_t weight;

    r->at = text[0] ? (const void *)text : m;
    for (size_t i = 0; i < m->n_variants; i++) {
        tags[i] = list[i].tag;
        weights[i] = 1;
    }
    while (text[0] && mr_str_split(&rest, '|', &item)) {
        if (n == m->n_variants || !mr_str_to_u64(mr_str_trim(item), &weight)) {
            n = m->n_variants + 1;
            break;
        }
        weights[n++] = (double)weight;
    }
    if (text[0] && n != m->n_variants) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "variant_weight_list '%.100s': expected are %zu whole numbers with '|' "
                       "between them",
                       text, m->n_variants);
    }
    for (size_t i = 0; i < m->n_variants; i++) {
        list[i].weight = weights[i];
    }
    return mr_variant_weights_check(weights, tags, m->n_variants, r->err);
}

static int tags_check(struct reader *r, const Millrace__Paddle__PredictorConf *m,
                      const struct config_variant *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        r->at = i < m->n_variants ? (const void *)m->variants[i] : m;
        for (size_t k = 0; k < i; k++) {
            if (mr_str_eq(list[i].tag, list[k].tag)) {
                return MR_FAIL(r->err, MR_E_INVALID, "two variants have the tag '%.*s'",
                               MR_STR_ARG(list[i].tag));
            }
        }
    }
    return MR_OK;
}

static int variants_read(struct reader *r, const Millrace__Paddle__PredictorConf *m, mr_str model,
                         struct config_variant *list, size_t *out_count)
{
    bool is_grpc[MR_VARIANTS_MAX];
    size_t count = m->n_variants;
    int rc = MR_OK;

    for (size_t i = 0; i < m->n_variants; i++) {
        MR_TRY(variant_read(r, m->variants[i], model, &list[i], &is_grpc[i]));
    }
    MR_TRY(weights_read(r, m, list));
    for (size_t i = 0; i < m->n_variants; i++) {
        MR_TRY(split_read(r, m->variants[i], &list[i], is_grpc[i], list, &count));
    }
    MR_TRY(tags_check(r, m, list, count));
    *out_count = count;
out:
    return rc;
}

static int predictor_read(struct reader *r, const Millrace__Paddle__PredictorConf *m,
                          struct config_endpoint *out)
{
    struct config_variant *list =
        MR_ARENA_ARRAY(&r->c->arena, struct config_variant, MR_VARIANTS_MAX);
    const char *service = m->service_name ? strrchr(m->service_name, '.') : NULL;
    mr_str model;
    int rc;

    if (!list) {
        return config_no_memory(r->err);
    }
    if (m->n_variants == 0 || m->n_variants > MR_VARIANTS_MAX) {
        return MR_FAIL(r->err, MR_E_INVALID, "%zu variants, possible is 1 to %u", m->n_variants,
                       MR_VARIANTS_MAX);
    }
    if (m->endpoint_router && strcmp(m->endpoint_router, "WeightedRandomRender") != 0) {
        return MR_FAIL(r->err, MR_E_UNSUPPORTED,
                       "endpoint_router '%.60s': possible is WeightedRandomRender",
                       m->endpoint_router);
    }
    service = service                                 ? service + 1
              : m->service_name && m->service_name[0] ? m->service_name
                                                      : m->name;
    MR_TRY(config_copy(r->c, mr_str_c(service), &model, r->err));
    MR_TRY(variants_read(r, m, model, list, &out->variant_count));
    out->variants = list;
    rc = config_copy(r->c, mr_str_c(m->name), &out->name, r->err);
out:
    return rc;
}

static int predictors_read(struct reader *r, const Millrace__Paddle__SDKConf *m)
{
    struct config_endpoint *list;

    if (m->n_predictors > MR_ENDPOINTS_MAX) {
        return MR_FAIL(r->err, MR_E_INVALID, "%zu predictors, possible are %u", m->n_predictors,
                       MR_ENDPOINTS_MAX);
    }
    list = MR_ARENA_ARRAY(&r->c->arena, struct config_endpoint, m->n_predictors + 1);
    if (!list) {
        return config_no_memory(r->err);
    }
    for (size_t i = 0; i < m->n_predictors; i++) {
        r->at = m->predictors[i];
        const char *name = m->predictors[i]->name;
        if (!name || !name[0]) {
            return MR_FAIL(r->err, MR_E_INVALID, "predictor %zu has no name", i + 1);
        }
        for (size_t k = 0; k < i; k++) {
            if (mr_str_eq_c(list[k].name, name)) {
                return MR_FAIL(r->err, MR_E_INVALID, "two predictors have the name '%.80s'", name);
            }
        }
        int rc = predictor_read(r, m->predictors[i], &list[i]);
        if (rc < 0) {
            return MR_WRAP(r->err, rc, "predictor '%.80s'", name);
        }
    }
    r->c->endpoints = list;
    r->c->endpoint_count = m->n_predictors;
    return MR_OK;
}

int config_paddle_parse(struct config *c, mr_str text, struct mr_err *err)
{
    struct mr_pbtext_lines lines = {0};
    ProtobufCMessage *m = NULL;
    int rc;

    MR_TRY(mr_pbtext_parse_lines(&millrace__paddle__sdkconf__descriptor, text, &lines, &m, err));
    const Millrace__Paddle__SDKConf *file = (const Millrace__Paddle__SDKConf *)m;
    struct reader r = {.c = c, .err = err, .fallback = file->default_variant_conf};
    rc = predictors_read(&r, file);
    MR_TRY(rc < 0 ? MR_WRAP(err, rc, "line %u", mr_pbtext_line_of(&lines, r.at)) : MR_OK);
out:
    mr_pbtext_lines_fini(&lines);
    if (m) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return rc;
}
