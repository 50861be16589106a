/* Ids that the registry may not know. This peer's view may lack a model or vmodel that was made a moment ago, so the registry is asked,
 * but only so often a second, and a key that it did not know is not asked for again for a while: a flood of made-up ids does not
 * reach it. Requests for a model wait at its local; those for a vmodel, which has none, wait here. */
#include "core_priv.h"

#define REMEMBERED_NS 5000000000ll

bool unknown_is_cached(const struct mesh_core *c, mr_str key)
{
    uint64_t hash = mr_hash(key);
    size_t at = hash % UNKNOWN_SLOTS;

    return c->unknown[at].hash == hash && c->unknown[at].until > c->now;
}

void unknown_remember(struct mesh_core *c, mr_str key)
{
    uint64_t hash = mr_hash(key);
    size_t at = hash % UNKNOWN_SLOTS;

    c->unknown[at].hash = hash;
    c->unknown[at].until = c->now + REMEMBERED_NS;
}

bool unknown_may_ask(struct mesh_core *c)
{
    double rate = c->o.unknown_per_s;

    c->unknown_tokens += rate * (double)(c->now - c->unknown_at) / 1e9;
    c->unknown_tokens = MR_MIN(c->unknown_tokens, rate);
    c->unknown_at = c->now;
    if (c->unknown_tokens < 1) {
        return false;
    }
    c->unknown_tokens -= 1;
    c->report.unknown_reads++;
    return true;
}

/* ---- vmodels ---- */

struct lookup {
    uint64_t token;
    MR_VEC(uint64_t) requests; /* handles; some may have ended */
    size_t id_len;
    char id[];
};

static mr_str id_of(const struct lookup *k)
{
    return mr_str_n(k->id, k->id_len);
}

static struct lookup *find(const struct mesh_core *c, mr_str vmodel)
{
    for (size_t i = 0; i < c->lookups.len; i++) {
        if (mr_str_eq(id_of(c->lookups.at[i]), vmodel)) {
            return c->lookups.at[i];
        }
    }
    return NULL;
}

static struct lookup *with_token(const struct mesh_core *c, uint64_t token)
{
    for (size_t i = 0; i < c->lookups.len; i++) {
        if (c->lookups.at[i]->token == token) {
            return c->lookups.at[i];
        }
    }
    return NULL;
}

static void free_lookup(struct lookup *k)
{
    MR_VEC_FINI(&k->requests);
    mr_free(k);
}

bool unknown_is_asked(const struct mesh_core *c, mr_str vmodel)
{
    return find(c, vmodel) != NULL;
}

void unknown_look_up(struct mesh_core *c, mr_str vmodel, uint64_t request)
{
    struct lookup *k = find(c, vmodel);

    if (!k) {
        k = mr_alloc(sizeof *k + vmodel.len);
        *k = (struct lookup){.token = ++c->seq, .id_len = vmodel.len};
        memcpy(k->id, vmodel.ptr, vmodel.len);
        MR_VEC_PUSH(&c->lookups, k);
        mr_str key = core_key(c, MESH_KEY_VMODEL, vmodel, (mr_str){0});
        struct mesh_action *a = core_act(c, MESH_ACT_GET);
        a->token = k->token;
        a->key = key;
    }
    MR_VEC_PUSH(&k->requests, request);
}

/* It is out of the list before its requests go on, as they may ask for another one. */
static void end(struct mesh_core *c, struct lookup *k, int status)
{
    for (size_t i = 0; i < c->lookups.len; i++) {
        if (c->lookups.at[i] == k) {
            c->lookups.at[i] = c->lookups.at[--c->lookups.len];
            break;
        }
    }
    for (size_t i = 0; i < k->requests.len; i++) {
        request_looked_up(c, k->requests.at[i], id_of(k), status);
    }
    free_lookup(k);
}

bool unknown_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value, int64_t revision)
{
    struct lookup *k = with_token(c, token);

    if (!k) {
        return false;
    }
    mr_str key = core_key(c, MESH_KEY_VMODEL, id_of(k), (mr_str){0});
    if (status == MR_OK && value.ptr) {
        core_apply(c, key, value, revision);
    } else if (status == MR_OK) {
        unknown_remember(c, key);
    }
    end(c, k, status);
    return true;
}

void unknown_fini(struct mesh_core *c)
{
    for (size_t i = 0; i < c->lookups.len; i++) {
        free_lookup(c->lookups.at[i]);
    }
    MR_VEC_FINI(&c->lookups);
}
