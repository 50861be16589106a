/* Ensembles that ask a model which is unloaded or updated.
 *
 * The unload of the model waits for theirs as a load of a graph waits for its members (members.c), so that no ensemble is
 * ready without its models. One that was unloaded so has a job in the list of retries that has no time: it is due
 * when a model that it asks is ready. */
#include "users.h"

#include "base/log.h"
#include "jobs.h"
#include "members.h"
#include "model/config/config_priv.h"
#include "retry.h"

bool mr_user_goes_along(const struct mr_models *m, const struct mr_model *graph)
{
    for (size_t i = 0; i < graph->records.len; i++) {
        const struct mr_version_record *r = &graph->records.at[i];
        if (r->state == MR_VERSION_READY &&
            mr_config_is_workflow(mr_version_private_of(r->v)->config)) {
            return false;
        }
    }
    return !m->o.graphs_stay;
}

/* Lock held. The next one from *io_at that serves and asks the model; NULL at the end. */
static const struct mr_model *user_next(struct mr_models *m, const struct mr_model *model,
                                        size_t *io_at)
{
    struct mr_map_slot *slot;

    while (m->graph_count > 0 && (slot = mr_map_next(&m->models, io_at))) {
        if (mr_members_ask(slot->value, model) && mr_user_goes_along(m, slot->value)) {
            return slot->value;
        }
    }
    return NULL;
}

bool mr_users_serve(struct mr_models *m, const struct mr_model *model)
{
    size_t at = 0;

    return user_next(m, model, &at);
}

/* Takes `name`. */
static void user_unload(struct mr_models *m, char *name, const struct mr_model *model,
                        const char *why)
{
    struct mr_job *job = mr_job_new(MR_JOB_UNLOAD, NULL, NULL);

    mr_log(MR_LOG_WARN, "ensemble.unloaded", "model=%s asks=%s %s", MR_LOG_STR(mr_str_c(name)),
           MR_LOG_STR(model->name), why);
    job->is_for_member = true;
    pthread_mutex_lock(&m->lock);
    job->publishes = m->publishes;
    pthread_mutex_unlock(&m->lock);
    mr_job_submit(m, job, mr_str_c(name));
    mr_free(name);
}

bool mr_users_unload(struct mr_models *m, struct mr_job *job)
{
    MR_VEC(char *) names = {0};
    const struct mr_model *user;

    pthread_mutex_lock(&m->lock);
    for (size_t at = 0; !job->waits_no_more && (user = user_next(m, job->model, &at));) {
        MR_VEC_PUSH(&names, mr_strndup(user->name.ptr, user->name.len));
    }
    const bool are_some = names.len > 0;
    job->waits_for_users = are_some;
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < names.len; i++) {
        user_unload(m, names.at[i], job->model, "the model is unloaded");
    }
    MR_VEC_FINI(&names);
    return are_some;
}

void mr_users_return_later(struct mr_models *m, const struct mr_job *job)
{
    struct mr_job *load = mr_job_new(MR_JOB_LOAD, NULL, NULL);

    load->model = job->model;
    load->is_return = true;
    load->publishes = job->publishes;
    load->has_ended_load = job->has_ended_load;
    if (!mr_retry_keep(m, load)) {
        mr_free(load); /* a newer request waits */
    }
}

/* ---- updates ---- */

struct user {
    char *name;
    Inference__ModelConfig *config;
};

/* MR_OK: the ensemble would load. */
static int user_check(struct mr_models *m, const struct user *u, struct mr_err *err)
{
    const struct mr_model_desc desc = {.size = sizeof desc, .name = u->name};
    struct mr_executor *e = NULL;
    const int rc = m->o.maker.open(m->o.maker.ctx, u->config, &desc, &e, err);

    mr_executor_close(&e);
    return rc;
}

/* Lock held. The configuration that it serves with. */
static void user_copy(const struct mr_model *user, struct user *out)
{
    struct mr_err ignored;

    for (size_t i = 0; i < user->records.len; i++) {
        const struct mr_version_record *r = &user->records.at[i];
        if (r->state == MR_VERSION_READY && !out->config) {
            mr_config_copy(mr_version_private_of(r->v)->config, &out->config, &ignored);
        }
    }
    out->name = mr_strndup(user->name.ptr, user->name.len);
}

void mr_users_check(struct mr_models *m, const struct mr_model *model)
{
    MR_VEC(struct user) users = {0};
    const struct mr_model *user;

    pthread_mutex_lock(&m->lock);
    for (size_t at = 0; (user = user_next(m, model, &at));) {
        struct user u = {0};
        user_copy(user, &u);
        MR_VEC_PUSH(&users, u);
    }
    pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < users.len; i++) {
        struct mr_err err = {0};
        if (users.at[i].config && user_check(m, &users.at[i], &err) < 0) {
            user_unload(m, users.at[i].name, model, err.msg);
            users.at[i].name = NULL;
        }
        mr_free(users.at[i].name);
        mr_config_free(&users.at[i].config);
    }
    MR_VEC_FINI(&users);
}
