/* The file of endpoints: what the servers read (variant/config.h), and its `client` block. */
#include "codec/pbtext_lines.h"
#include "config.h"
#include "service.pb-c.h"

static void number_set(int64_t *to, int64_t value)
{
    *to = value ? value : *to;
}

static void count_set(uint32_t *to, uint32_t value)
{
    *to = value ? value : *to;
}

static int client_read(struct config *c, const Millrace__ClientConfig *m, struct mr_err *err)
{
    struct config_policy *p = &c->policy;
    mr_str hosts[MR_REMOTES_MAX];
    int rc;

    MR_TRY(config_strategy_set(p, m->strategy, err));
    MR_TRY(config_protocol_set(p, m->protocol, err));
    MR_TRY(config_coding_set(p, m->compression, err));
    number_set(&p->timeout_ms, m->timeout_ms);
    number_set(&p->connect_timeout_ms, m->connect_timeout_ms);
    number_set(&p->attempt_timeout_ms, m->attempt_timeout_ms);
    number_set(&p->hedge_after_ms, m->hedge_after_ms);
    count_set(&p->attempts, m->attempts);
    count_set(&p->max_connections, m->max_connections);
    count_set(&p->shard_rows, m->package_size);
    count_set(&p->max_shards, m->max_channel_per_request);
    MR_TRY(config_policy_check(p, err));
    if (m->n_remote > MR_REMOTES_MAX) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "%zu times remote, possible are %u", m->n_remote,
                       MR_REMOTES_MAX));
    }
    for (size_t i = 0; i < m->n_remote; i++) {
        hosts[i] = mr_str_c(m->remote[i]);
    }
    if (m->n_remote > 0) {
        MR_TRY(config_hosts_read(c, hosts, m->n_remote, &c->hosts, &c->host_count, err));
    }
out:
    return rc;
}

/* What a variant and a shadow have in common. */
static int target_read(struct config *c, mr_str tag, const struct mr_variant_target *in,
                       struct config_variant *out, struct mr_err *err)
{
    int rc = MR_OK;

    *out = (struct config_variant){.tag = tag,
                                   .model = in->model,
                                   .version = in->version,
                                   .policy = c->policy,
                                   .hosts = c->hosts,
                                   .host_count = c->host_count};
    if (in->remote_count > 0) {
        MR_TRY(config_hosts_read(c, in->remotes, in->remote_count, &out->hosts, &out->host_count,
                                 err));
    }
    if (out->host_count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "no host: neither `remote` here nor in `client`");
    }
out:
    return rc < 0 ? MR_WRAP(err, rc, "variant '%.*s'", MR_STR_ARG(tag)) : MR_OK;
}

/* Weights of a file that has a ramp are those before its first step, and change on the server alone. */
static int ramp_refuse(const struct mr_endpoint_config *in, struct mr_err *err)
{
    return in->ramp ? MR_FAIL(err, MR_E_UNSUPPORTED,
                              "ramp: a client has none; it belongs to an endpoint of a server, "
                              "whose name the client uses as its model")
                    : MR_OK;
}

static int endpoint_read(struct config *c, const struct mr_endpoint_config *in,
                         struct config_endpoint *out, struct mr_err *err)
{
    struct config_variant *list =
        MR_ARENA_ARRAY(&c->arena, struct config_variant, in->variant_count);
    int rc = ramp_refuse(in, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "line %u: endpoint '%.*s'", in->line, MR_STR_ARG(in->name));
    }
    if (!list) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < in->variant_count; i++) {
        const struct mr_variant_config *v = &in->variants[i];
        rc = target_read(c, v->tag, &v->target, &list[i], err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "line %u: endpoint '%.*s'", v->line, MR_STR_ARG(in->name));
        }
        list[i].weight = v->weight;
    }
    *out = (struct config_endpoint){.name = in->name,
                                    .sticky = in->sticky,
                                    .key = in->key,
                                    .salt = in->salt,
                                    .variant_count = in->variant_count,
                                    .variants = list,
                                    .shadow = in->shadow};
    if (in->shadow) {
        rc = target_read(c, in->shadow->tag, &in->shadow->target, &out->shadow_variant, err);
    }
    return rc < 0 ? MR_WRAP(err, rc, "line %u: endpoint '%.*s', shadow", in->shadow->line,
                            MR_STR_ARG(in->name))
                  : MR_OK;
}

static int endpoints_read(struct config *c, struct mr_err *err)
{
    const struct mr_service_file *f = c->file;
    struct config_endpoint *list =
        MR_ARENA_ARRAY(&c->arena, struct config_endpoint, f->endpoint_count + 1);

    if (!list) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < f->endpoint_count; i++) {
        int rc = endpoint_read(c, &f->endpoints[i], &list[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    c->endpoints = list;
    c->endpoint_count = f->endpoint_count;
    return MR_OK;
}

int config_service_parse(struct config *c, mr_str text, struct mr_err *err)
{
    struct mr_pbtext_lines lines = {0};
    ProtobufCMessage *m = NULL;
    int rc;

    MR_TRY(mr_service_file_parse(text, &c->file, err));
    MR_TRY(mr_pbtext_parse_lines(&millrace__service_config__descriptor, text, &lines, &m, err));
    const Millrace__ServiceConfig *file = (const Millrace__ServiceConfig *)m;
    if (file->client) {
        rc = client_read(c, file->client, err);
        MR_TRY(rc < 0 ? MR_WRAP(err, rc, "line %u: client", mr_pbtext_line_of(&lines, file->client))
                      : MR_OK);
    }
    rc = endpoints_read(c, err);
out:
    mr_pbtext_lines_fini(&lines);
    if (m) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return rc;
}
