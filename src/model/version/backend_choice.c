/* Which backends a load request may choose.
 *
 * A backend is code: one that the operator did not choose must not run because a client names it, or because a file
 * that came with the request ends in its name. So a configuration or files of a request get only what the
 * operator has named, what a model of the repositories uses, or what is open, for which one of the two was true.
 * Where it is neither named nor open, the folders of the repositories are read until one is found that uses it.
 *
 * Thread: loaders; blocks on the file system. */
#include "backend_choice.h"

#include "backends.h"
#include "model/config/config_priv.h"
#include "model/records/names.h"

static bool is_listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* By its configuration, or by what is in its newest version. */
static bool folder_uses(const struct mr_folder *f, mr_str model, const char *backend)
{
    Inference__ModelConfig *c = NULL;
    struct mr_err ignored;
    char *data = NULL;
    mr_str text = {"", 0};
    const char *newest = f->versions.len > 0 ? f->versions.at[f->versions.len - 1].dir : NULL;
    bool uses = false;

    if (f->config_path &&
        mr_file_read(f->config_path, MR_CONFIG_MAX_BYTES, &data, &text.len, &ignored) < 0) {
        return false;
    }
    text.ptr = data ? data : text.ptr;
    if (mr_config_parse_text(text, "", &c, &ignored) == MR_OK) {
        uses = mr_config_basics(c, model, newest, &ignored) == MR_OK &&
               strcmp(c->backend, backend) == 0;
        mr_config_free(&c);
    }
    mr_free(data);
    return uses;
}

static bool is_used(struct mr_models *m, const char *backend)
{
    struct mr_repository_list list;
    struct mr_err ignored;
    bool uses = false;

    mr_repositories_get(m, &list);
    for (size_t k = 0; k < list.len && !uses; k++) {
        struct mr_name_list names = {0};
        const char *path = list.at[k].path;
        if (!path || mr_names_read(&path, 1, NULL, 0, &names, &ignored) < 0) {
            continue;
        }
        for (size_t i = 0; i < names.len && !uses; i++) {
            const mr_str model = mr_str_c(names.at[i].name);
            struct mr_folder f;
            uses = mr_repository_read(&f, m, &list.at[k], model, NULL, NULL, &ignored) == MR_OK &&
                   folder_uses(&f, model, backend);
            mr_folder_fini(&f);
        }
        mr_names_fini(&names);
    }
    mr_repositories_fini(&list);
    return uses;
}

int mr_backend_may_choose(struct mr_models *m, const char *name, struct mr_err *err)
{
    const struct mr_models_options *o = &m->o;

    if (is_listed(o->allowed_backends, o->allowed_backend_count, name) ||
        is_listed(o->backend_setting_names, o->backend_setting_name_count, name) ||
        mr_backend_is_open(m, name) || is_used(m, name)) {
        return MR_OK;
    }
    return MR_FAIL(
        err, MR_E_FORBIDDEN,
        "a load request may not choose backend '%.64s': no model of the repositories uses it, and "
        "the server was not started with --allow-backend=%.64s",
        name, name);
}
