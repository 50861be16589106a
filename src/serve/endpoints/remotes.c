#include "remotes.h"

#include <limits.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sdk/hosts.h"

static size_t count_of(const struct mr_service_file *f)
{
    size_t count = 0;

    for (size_t i = 0; i < f->endpoint_count; i++) {
        count += f->endpoints[i].variant_count;
    }
    return count;
}

/* In the arena; ptr NULL: it is full. */
static mr_str hosts_join(struct mr_service_file *f, const struct mr_variant_target *t)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    for (size_t i = 0; i < t->remote_count; i++) {
        mr_buf_printf(&b, "%s%.*s", i ? ";" : "", MR_STR_ARG(t->remotes[i]));
    }
    const mr_str hosts = mr_arena_str(&f->arena, mr_buf_view(&b));
    mr_buf_fini(&b);
    return hosts;
}

/* Each of them is an address, or several with ';' between them. */
static int hosts_check(const struct mr_variant_target *t, struct mr_err *err)
{
    for (size_t i = 0; i < t->remote_count; i++) {
        mr_str rest = t->remotes[i], one;
        bool has_one = false;
        while (mr_str_split(&rest, ';', &one)) {
            const int rc = one.len > 0 ? mr_hosts_check(one, err) : MR_OK;
            if (rc < 0) {
                return MR_WRAP(err, rc, "remote");
            }
            has_one |= one.len > 0;
        }
        if (!has_one) {
            return MR_FAIL(err, MR_E_INVALID, "remote '%.*s' has no address",
                           MR_STR_ARG(t->remotes[i]));
        }
    }
    return MR_OK;
}

static int no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for endpoints");
}

static int target_settle(struct mr_service_file *f, struct mr_variant_target *t,
                         struct mr_remote_model *out, struct mr_err *err)
{
    int rc = hosts_check(t, err);

    if (rc < 0) {
        return rc;
    }
    *out = (struct mr_remote_model){t->model, t->version, hosts_join(f, t)};
    char *name = mr_remote_name(out);
    const size_t len = strlen(name);
    t->model = mr_arena_str(&f->arena, mr_str_n(name, len));
    t->version = MR_STR("");
    mr_free(name);
    if (len > NAME_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the model's name with all that is in `remote` has %zu bytes, possible are "
                       "%d",
                       len, NAME_MAX);
    }
    return out->hosts.ptr && t->model.ptr ? MR_OK : no_memory(err);
}

static int endpoint_settle(struct mr_service_file *f, const struct mr_endpoint_config *e,
                           struct endpoint_remotes *out, struct mr_err *err)
{
    if (e->shadow && e->shadow->target.remote_count > 0) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "line %u: endpoint '%.*s': shadow: remote is for clients, a server's shadow "
                       "is a model of its own",
                       e->shadow->line, MR_STR_ARG(e->name));
    }
    for (size_t i = 0; i < e->variant_count; i++) {
        struct mr_variant_config *v = (struct mr_variant_config *)(uintptr_t)&e->variants[i];
        const int rc = v->target.remote_count > 0
                           ? target_settle(f, &v->target, &out->list[out->count++], err)
                           : MR_OK;
        if (rc < 0) {
            return MR_WRAP(err, rc, "line %u: endpoint '%.*s': variant '%.*s'", v->line,
                           MR_STR_ARG(e->name), MR_STR_ARG(v->tag));
        }
    }
    return MR_OK;
}

int endpoint_remotes_settle(struct mr_service_file *f, struct endpoint_remotes *out,
                            struct mr_err *err)
{
    int rc = MR_OK;

    *out = (struct endpoint_remotes){
        0, MR_ARENA_ARRAY(&f->arena, struct mr_remote_model, count_of(f) + 1)};
    if (!out->list) {
        return no_memory(err);
    }
    for (size_t i = 0; i < f->endpoint_count && rc == MR_OK; i++) {
        rc = endpoint_settle(f, &f->endpoints[i], out, err);
    }
    return rc;
}

void endpoint_remotes_ask(const struct endpoint_remotes *r, struct mr_models *models)
{
    for (size_t i = 0; i < r->count; i++) {
        mr_models_remote(models, &r->list[i]);
    }
}
