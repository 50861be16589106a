#include "remotes.h"

#include "base/buf.h"
#include "base/mem.h"

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

static bool target_settle(struct mr_service_file *f, struct mr_variant_target *t,
                          struct mr_remote_model *out)
{
    *out = (struct mr_remote_model){t->model, t->version, hosts_join(f, t)};
    char *name = mr_remote_name(out);
    t->model = mr_arena_str(&f->arena, mr_str_c(name));
    t->version = MR_STR("");
    mr_free(name);
    return out->hosts.ptr && t->model.ptr;
}

int endpoint_remotes_settle(struct mr_service_file *f, struct endpoint_remotes *out,
                            struct mr_err *err)
{
    bool is_whole;

    *out = (struct endpoint_remotes){
        0, MR_ARENA_ARRAY(&f->arena, struct mr_remote_model, count_of(f) + 1)};
    is_whole = out->list != NULL;
    for (size_t i = 0; i < f->endpoint_count && is_whole; i++) {
        const struct mr_endpoint_config *e = &f->endpoints[i];
        if (e->shadow && e->shadow->target.remote_count > 0) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "endpoint '%.*s': shadow: remote is for clients, a server's shadow is a "
                           "model of its own",
                           MR_STR_ARG(e->name));
        }
        for (size_t k = 0; k < f->endpoints[i].variant_count && is_whole; k++) {
            struct mr_variant_config *v =
                (struct mr_variant_config *)(uintptr_t)&f->endpoints[i].variants[k];
            is_whole =
                !v->target.remote_count || target_settle(f, &v->target, &out->list[out->count++]);
        }
    }
    return is_whole ? MR_OK : MR_FAIL(err, MR_E_EXHAUSTED, "no memory for endpoints");
}

void endpoint_remotes_ask(const struct endpoint_remotes *r, struct mr_models *models)
{
    for (size_t i = 0; i < r->count; i++) {
        mr_models_remote(models, &r->list[i]);
    }
}
