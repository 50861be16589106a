/* What a client is to do, as checked structs: from a list of hosts, from a file of endpoints (proto/service.proto) with its
 * `client` block, or from Paddle Serving's predictors.prototxt. Private. Any thread. */
#ifndef MR_SDK_CONFIG_H
#define MR_SDK_CONFIG_H

#include "balance/balance.h"
#include "base/arena.h"
#include "net/compress.h"
#include "variant/config.h"

#define CONFIG_TEXT_MAX     MR_SERVICE_FILE_MAX
#define CONFIG_HOSTS_MAX    4096u
#define CONFIG_ATTEMPTS_MAX 16u
#define CONFIG_SHARDS_MAX   64u

/** A host, or a list of hosts that is looked up again and again. */
struct config_host {
    mr_str url; /* as of mr_url_parse, or file://PATH, or dns://[SCHEME://]NAME:PORT */
    double share;
};

/** How a variant's hosts are called. */
struct config_policy {
    enum mr_balance_strategy strategy;
    bool is_json;          /* tensors over REST as text */
    bool is_single;        /* over gRPC: one connection, which all calls share */
    enum mr_coding coding; /* of requests: identity, gzip or deflate */
    int64_t timeout_ms;
    int64_t connect_timeout_ms;
    int64_t attempt_timeout_ms; /* 0: by what the host usually takes */
    int64_t hedge_after_ms;     /* 0: no second copies */
    uint32_t attempts;
    uint32_t max_connections;
    uint32_t shard_rows; /* of a part of a request that may be divided */
    uint32_t max_shards;
};

struct config_variant {
    mr_str tag;
    mr_str model; /* "": the endpoint's name in the request */
    mr_str version;
    double weight;
    struct config_policy policy;
    const struct config_host *hosts;
    size_t host_count;
};

struct config_endpoint {
    mr_str name;
    enum mr_sticky_kind sticky;
    mr_str key; /* of the header or parameter */
    mr_str salt;
    size_t variant_count;
    const struct config_variant *variants;
    const struct mr_shadow_config *shadow; /* NULL: none */
    struct config_variant shadow_variant;  /* of the shadow */
};

struct config {
    struct mr_arena arena;
    struct mr_service_file *file; /* NULL: none; what endpoints point into */
    struct config_policy policy;
    const struct config_host *hosts; /* of models that are no endpoint */
    size_t host_count;
    const struct config_endpoint *endpoints;
    size_t endpoint_count;
    /** Fields of the text that have no effect. */
    bool is_pooled; /* a connection_type that is taken as "pooled" */
    bool has_filter;
};

/** What holds without any configuration. */
struct config_policy config_policy_default(void);
/** NULL for what is not to be changed. Errors: MR_E_INVALID. */
int config_strategy_set(struct config_policy *p, const char *name, struct mr_err *err);
int config_protocol_set(struct config_policy *p, const char *name, struct mr_err *err);
/** Errors: MR_E_UNSUPPORTED (any but "none", "gzip" and "deflate", whose other name is "zlib"). */
int config_coding_set(struct config_policy *p, const char *name, struct mr_err *err);
/** The ranges of numbers. Errors: MR_E_INVALID. */
int config_policy_check(const struct config_policy *p, struct mr_err *err);

/** text: a file of endpoints or predictors.prototxt, or empty. `policy` and `hosts` are those of the caller, which the text
 *  overrides. All is copied. Errors: MR_E_INVALID with the line, and endpoint and variant; MR_E_UNSUPPORTED (a way to find
 *  hosts that there is not; an endpoint with a ramp); MR_E_TOO_LARGE; MR_E_EXHAUSTED. */
int config_parse(mr_str text, const struct config_policy *policy, const mr_str *hosts,
                 size_t host_count, struct config **out, struct mr_err *err);
void config_free(struct config **c);
/** Which fields of the text have no effect, in a sentence; "": none. Static. */
const char *config_warning(const struct config *c);

/* of the parsers, one for each kind of text */
int config_no_memory(struct mr_err *err);
int config_copy(struct config *c, mr_str s, mr_str *out, struct mr_err *err);
/** Reads addresses, "ADDRESS[ SHARE]" or "list://ADDRESS[ SHARE],...", each checked. Errors: MR_E_INVALID, MR_E_UNSUPPORTED
 *  (bns://, consul://, nacos:// and others that there are not). */
int config_hosts_read(struct config *c, const mr_str *texts, size_t count,
                      const struct config_host **out, size_t *out_count, struct mr_err *err);
int config_service_parse(struct config *c, mr_str text, struct mr_err *err);
int config_paddle_parse(struct config *c, mr_str text, struct mr_err *err);

#endif
