/* One load of one model: read its folder, decide what to do, do it beside the serving versions, publish.
 *
 * What the folder holds unchanged stays as it is; what has changed or is new is made; how it ends
 * is in publish.c.
 *
 * Runs on a loader thread, for one model at a time (jobs.c); the lock is taken for the changes of
 * records only, never while files are read or a backend works. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json.h"
#include "jobs.h"
#include "members.h"
#include "model/config/config_priv.h"
#include "model/records/admit.h"
#include "model/records/job.h"
#include "model/records/load_history.h"
#include "model/records/measure.h"
#include "model/records/names.h"
#include "model/records/records.h"
#include "model/records/table.h"
#include "model/records/version_labels.h"
#include "model/version/version.h"
#include "publish.h"
#include "users.h"

#define RETRY_FIRST_NS (100 * MR_NS_PER_MS)
#define RETRY_MOST_NS  (5 * MR_NS_PER_S)
#define CONFIG_MAX     ((size_t)1 << 20)
#define INSTANCES_MAX  64   /* processes of a model */
#define BATCH_MAX      4096 /* requests */
#define DELAY_MAX_S    60.0

#define POLL_FAILED     "failed to load '%.128s', failed to poll from model repository"
#define NO_VERSION_TEXT "at least one version must be available under the version policy of model"

static bool is_cancelled(const struct mr_load *l)
{
    return atomic_load_explicit(&l->job->is_cancelled, memory_order_relaxed);
}

/* Between steps: is there a reason to go on? */
static int still_wanted(const struct mr_load *l, struct mr_err *err)
{
    if (is_cancelled(l)) {
        return MR_FAIL(err, MR_E_CANCELLED, "cancelled: a newer request for the model has come");
    }
    return mr_job_is_unwanted(l->m, l->job)
               ? MR_FAIL(err, MR_E_UNAVAILABLE, "the server is stopping")
               : MR_OK;
}

/* A temporary folder is no client's business, and another one at each load: files are named as the load did. */
static void temp_hide(const struct mr_load *l, char *text)
{
    size_t n = l->temp ? strlen(l->temp->path) : 0;

    for (char *at = text; n > 0 && (at = strstr(at, l->temp->path));) {
        size_t cut = n + (at[n] == '/');
        memmove(at, at + cut, strlen(at + cut) + 1);
    }
}

/* ---- where the model is ---- */

static int temp_fill(struct mr_load *l)
{
    const struct mr_job *job = l->job;
    int rc = mr_temp_new(&l->temp, l->err);

    for (size_t i = 0; i < job->file_count && rc == MR_OK; i++) {
        rc = mr_temp_write(l->temp, l->model->name, mr_str_c(job->files[i].path),
                           job->files[i].data, job->files[i].len, l->err);
    }
    if (rc == MR_OK) {
        rc = mr_folder_read(&l->folder, l->temp->path, NULL, l->model->name, NULL, NULL, NULL,
                            l->err);
    }
    return rc;
}

/* The one repository that has a folder of that name. The error of a repository that is away counts only if no other one has
 * it. */
static int repository_find(struct mr_models *m, mr_str name, struct mr_folder *out,
                           struct mr_err *err)
{
    struct mr_repository_list list;
    struct mr_folder found = {0};
    size_t count = 0;
    int rc = MR_FAIL(err, MR_E_NOT_FOUND, "model '%.*s' is in no repository",
                     MR_STR_ARG(mr_str_sub(name, 0, 128)));

    mr_repositories_get(m, &list);
    for (size_t i = 0; i < list.len; i++) {
        struct mr_folder f = {0};
        struct mr_err why = {0};
        int one = mr_repository_read(&f, m, &list.at[i], name, NULL, NULL, &why);
        const bool has_it = one != MR_E_NOT_FOUND && !mr_repository_is_away(&list.at[i], &f, one);
        if (count == 0 && one != MR_E_NOT_FOUND) {
            rc = one;
            *err = why;
        }
        if (has_it && count++ == 0) {
            found = f;
        } else {
            mr_folder_fini(&f);
        }
    }
    mr_repositories_fini(&list);
    *out = found;
    if (count > 1) {
        return MR_FAIL(err, MR_E_INVALID, "model appears in two or more repositories");
    }
    return rc;
}

static uint64_t folder_fingerprint(const struct mr_folder *f)
{
    uint64_t sum = f->shared.sum;

    for (size_t i = 0; i < f->versions.len; i++) {
        const struct mr_fingerprint *p = &f->versions.at[i].fingerprint;
        uint64_t parts[2] = {(uint64_t)f->versions.at[i].number, p->sum + p->beside};
        sum += mr_hash(mr_str_n((const char *)parts, sizeof parts));
    }
    return sum | 1;
}

uint64_t mr_load_files_fingerprint(const struct mr_load *l)
{
    uint64_t sum = l->folder.shared.sum;

    for (size_t i = 0; i < l->folder.versions.len; i++) {
        const struct mr_folder_version *fv = &l->folder.versions.at[i];
        uint64_t parts[2] = {(uint64_t)fv->number, fv->fingerprint.sum};
        sum += mr_hash(mr_str_n((const char *)parts, sizeof parts));
    }
    return sum | 1;
}

uint64_t mr_load_folder_fingerprint(struct mr_models *m, mr_str name)
{
    struct mr_folder f = {0};
    struct mr_err ignored = {0};

    repository_find(m, name, &f, &ignored); /* a folder that is away has another fingerprint, too */
    uint64_t fingerprint = folder_fingerprint(&f);
    mr_folder_fini(&f);
    return fingerprint;
}

/* A load that a client asked for finds archives that came since. Unpacking takes no place from other loads. */
static void archives_check(const struct mr_load *l)
{
    struct mr_models *m = l->m;

    if (m->o.control != MR_MODEL_CONTROL_EXPLICIT || l->job->kind != MR_JOB_LOAD ||
        l->job->file_count > 0 || l->job->is_first) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    mr_load_place_leave(m, l->job);
    pthread_mutex_unlock(&m->lock);
    archives_refresh(m->archives, 0, NULL);
    pthread_mutex_lock(&m->lock);
    mr_load_place_take(m, l->job);
    pthread_mutex_unlock(&m->lock);
}

static int folder_find(struct mr_load *l)
{
    archives_check(l);
    int rc = l->job->file_count > 0 ? temp_fill(l)
                                    : repository_find(l->m, l->model->name, &l->folder, l->err);

    pthread_mutex_lock(&l->m->lock);
    l->job->folder_fingerprint = folder_fingerprint(&l->folder);
    l->model->is_in_folder = rc != MR_E_NOT_FOUND && l->job->file_count == 0;
    pthread_mutex_unlock(&l->m->lock);
    return rc;
}

/* ---- what it should be ---- */

/* MLServer's number of processes; 0 means its own. */
static int settings_instances(void)
{
    const char *given = getenv("MLSERVER_PARALLEL_WORKERS");
    int64_t count;

    return given && mr_str_to_i64(mr_str_c(given), &count) && count > 0
               ? (int)MR_MIN(count, INSTANCES_MAX)
               : 1;
}

static double variable_number(const char *name)
{
    const char *given = getenv(name);
    double number = 0;

    return given && mr_text_double(mr_str_c(given), &number) ? number : 0;
}

/* Adaptive batching, as the last version has it: requests of a batch, and how long the first one waits. */
static void settings_batching(const struct mr_folder *f, struct mr_buf *b)
{
    double size = (double)f->max_batch_size, seconds = f->max_batch_time_s;

    size = size > 0 ? size : variable_number("MLSERVER_MODEL_MAX_BATCH_SIZE");
    seconds = seconds > 0 ? seconds : variable_number("MLSERVER_MODEL_MAX_BATCH_TIME");
    if (size > 1 && seconds > 0) {
        mr_buf_printf(b,
                      "max_batch_size: %d\n"
                      "dynamic_batching { max_queue_delay_microseconds: %lld }\n",
                      (int)MR_MIN(size, BATCH_MAX),
                      (long long)(MR_MIN(seconds, DELAY_MAX_S) * 1e6));
    }
}

/* What the files of a model of MLServer say of the server, as a configuration. *out on the heap. */
static void settings_text(const struct mr_folder *f, char **out, size_t *out_len)
{
    size_t labels = 0;
    struct mr_buf b;

    mr_buf_init(&b, CONFIG_MAX);
    MR_BUF_LIT(&b, "version_policy { all {} }\n");
    MR_BUF_LIT(&b, "model_transaction_policy { decoupled: true }\n"); /* predict_stream */
    for (size_t i = 0; i < f->versions.len; i++) {
        const struct mr_folder_version *v = &f->versions.at[i];
        if (v->label && mr_label_is_name(mr_str_c(v->label))) {
            mr_buf_c(&b, labels++ ? ","
                                  : "parameters { key: \"millrace.version_labels\" value { "
                                    "string_value: \"");
            mr_buf_printf(&b, "%s=%lld", v->label, (long long)v->number);
        }
    }
    mr_buf_c(&b, labels ? "\" } }\n" : "");
    mr_buf_printf(&b, "instance_group [ { count: %d } ]\n", settings_instances());
    settings_batching(f, &b);
    *out_len = b.len;
    *out = mr_strndup(mr_buf_cstr(&b), b.len);
    mr_buf_fini(&b);
}

static bool is_placed(const struct mr_load *l)
{
    return l->folder.archive && l->folder.archive->is_placed;
}

static int config_parse(struct mr_load *l)
{
    mr_str text = mr_str_n(l->config_json, l->config_len);
    const char *file = l->folder.config_path ? l->folder.config_path : MR_MODEL_SETTINGS;
    char *data = NULL;
    int rc = MR_OK;

    if (!l->config_json && l->folder.is_mlserver) {
        settings_text(&l->folder, &data, &text.len);
        text.ptr = data;
    } else if (!l->config_json && l->folder.config_path) {
        rc = mr_file_read(l->folder.config_path, CONFIG_MAX, &data, &text.len, l->err);
        text.ptr = data;
    }
    if (rc == MR_OK && l->config_json) {
        rc = mr_config_parse_json(text, &l->config, l->err);
        if (rc < 0) {
            MR_WRAP(l->err, rc, "failed to load the request's 'config'"); /* clients look for it */
        }
        l->has_max_batch = rc == MR_OK && mr_config_json_has(text, MR_STR("max_batch_size"));
    } else if (rc == MR_OK && data) {
        rc = mr_config_parse_text(text, file, &l->config, l->err);
        l->has_max_batch = rc == MR_OK && mr_config_text_has(text, MR_STR("max_batch_size"));
    } else if (rc == MR_OK) {
        l->config = mr_config_new();
    }
    if (rc == MR_OK && is_placed(l)) {
        mr_config_set_string(&l->config->name, ""); /* that of the model */
    }
    l->config_fingerprint = mr_hash(text) + (l->config_json ? 1 : 0);
    mr_free(data);
    return rc;
}

/* What is wrong with the configuration itself concerns the model, whatever versions and files it has,
 * and is said first. */
static int config_judge(struct mr_load *l)
{
    Inference__ModelConfig *c = NULL;
    bool is_given = l->config_json || l->folder.config_path;
    size_t unused;
    int rc;

    MR_TRY(mr_config_copy(l->config, &c, l->err));
    MR_TRY(mr_config_name(c, l->model->name, l->err));
    /* Where the configuration does not say it, each version's folder does. */
    if (mr_config_says_backend(c) || (is_given && l->folder.versions.len == 0)) {
        MR_TRY(mr_config_basics(c, l->model->name, NULL, l->err));
    }
    MR_TRY(mr_config_normalize(c, l->err));
    MR_TRY(mr_config_check(c, !l->m->o.auto_complete && !mr_config_is_remote(c), NULL, 0, &unused,
                           l->err));
out:
    mr_config_free(&c);
    return rc;
}

static int config_load(struct mr_load *l)
{
    int rc = config_parse(l);

    if (rc == MR_OK) {
        rc = mr_config_check_own(l->config, l->err);
    }
    return rc < 0 ? rc : config_judge(l);
}

/* What the configuration says of labels, if it is not what was taken before. */
static int labels_read(struct mr_load *l)
{
    const char *given = mr_config_parameter(l->config, "millrace.version_labels");

    pthread_mutex_lock(&l->m->lock);
    bool are_new = mr_labels_are_new(l->model, given);
    pthread_mutex_unlock(&l->m->lock);
    if (!are_new) {
        return MR_OK;
    }
    l->labels_are_new = true;
    l->labels_given = given;
    int rc = mr_label_list_parse(given ? mr_str_c(given) : (mr_str){NULL, 0}, &l->labels, l->err);
    for (size_t i = 0; i < l->labels.len && rc == MR_OK; i++) {
        if (!mr_folder_find(&l->folder, l->labels.at[i].number)) {
            rc = MR_FAIL(l->err, MR_E_INVALID,
                         "label '%.64s' names version %lld, which does not exist",
                         l->labels.at[i].name, (long long)l->labels.at[i].number);
        }
    }
    return rc < 0 ? MR_WRAP(l->err, rc, "parameter millrace.version_labels") : MR_OK;
}

/* Poll mode: the folder is as it was when it had come to rest. */
static bool is_settled(const struct mr_job *job, const struct mr_folder_version *fv)
{
    for (size_t i = 0; i < job->settled_count; i++) {
        if (job->settled[i].number == fv->number) {
            return job->settled[i].sum == fv->fingerprint.sum;
        }
    }
    return false;
}

/* A configuration can ask for a file that says that the version is whole. */
static bool is_marked(const struct mr_load *l, const struct mr_folder_version *fv)
{
    const char *asked = mr_config_parameter(l->config, "millrace.ready_marker");

    return !asked || strcmp(asked, "true") != 0 || fv->has_marker;
}

/* Whether the folder of the version may be taken: poll mode leaves alone what is still being
 * written. One that already serves counts, too: it stays while its folder changes. */
static bool is_available(struct mr_load *l, const struct mr_folder_version *fv)
{
    if (l->job->kind != MR_JOB_SYNC || (is_settled(l->job, fv) && is_marked(l, fv))) {
        return true;
    }
    pthread_mutex_lock(&l->m->lock);
    const struct mr_version_record *r = mr_record_find(l->model, fv->number);
    bool serves = r && r->state == MR_VERSION_READY;
    pthread_mutex_unlock(&l->m->lock);
    return serves;
}

static bool specific_has(const Inference__ModelVersionPolicy__Specific *s, int64_t number)
{
    for (size_t i = 0; i < s->n_versions; i++) {
        if (s->versions[i] == number) {
            return true;
        }
    }
    return false;
}

static void specific_warn(const struct mr_load *l, const Inference__ModelVersionPolicy__Specific *s)
{
    for (size_t i = 0; i < s->n_versions && i < 100; i++) {
        if (!mr_folder_find(&l->folder, s->versions[i])) {
            mr_log(MR_LOG_WARN, "model.version_missing",
                   "model=%s version=%lld is named by version_policy, but does not exist",
                   MR_LOG_STR(l->model->name), (long long)s->versions[i]);
        }
    }
}

/* Beside what the policy picks: versions with a label, and the one that a rollback names. Returns how
 * many these are. */
static size_t kept_apply(struct mr_load *l)
{
    size_t count = 0;

    for (size_t i = 0; i < l->folder.versions.len; i++) {
        const struct mr_folder_version *fv = &l->folder.versions.at[i];
        bool is_kept = fv->number == l->pin;
        for (size_t k = 0; k < l->labels.len; k++) {
            is_kept |= l->labels.at[k].number == fv->number;
        }
        pthread_mutex_lock(&l->m->lock);
        is_kept |= mr_labels_keep(l->model, l->labels_are_new ? &l->labels : NULL, fv->number);
        pthread_mutex_unlock(&l->m->lock);
        if (is_kept && !l->is_wanted[i]) {
            l->is_wanted[i] = is_available(l, fv);
            count += l->is_wanted[i];
        }
    }
    return count;
}

/* Marks in is_wanted what the policy picks. Returns how many. */
static size_t policy_apply(struct mr_load *l)
{
    const Inference__ModelVersionPolicy *p = l->config->version_policy;
    int which = p ? (int)p->policy_choice_case : 0;
    size_t latest = 1;
    size_t count = 0;

    if (which == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_LATEST) {
        latest = MR_MAX(p->latest->num_versions, 1u);
    } else if (which == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_ALL) {
        latest = SIZE_MAX;
    } else if (which == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC) {
        latest = SIZE_MAX;
        specific_warn(l, p->specific);
    }
    l->latest = latest;
    l->is_wanted = MR_NEW_ARRAY(bool, l->folder.versions.len + 1);
    for (size_t i = l->folder.versions.len; i-- > 0 && count < latest;) {
        const struct mr_folder_version *fv = &l->folder.versions.at[i];
        if (l->pin && fv->number > l->pin) {
            continue;
        }
        if (which == INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC &&
            !specific_has(p->specific, fv->number)) {
            continue;
        }
        l->is_wanted[i] = is_available(l, fv);
        count += l->is_wanted[i];
    }
    return count + kept_apply(l);
}

/* ---- what is to be done ---- */

/* What a version is made of, in one number: its files, the files that versions share, the config,
 * and where all that lies. Never 0. */
static uint64_t fingerprint_of(const struct mr_load *l, const struct mr_folder_version *fv)
{
    const struct archive_repository *archive = l->folder.archive;
    const char *where = archive && archive->is_temp ? archive->file : l->folder.dir;
    uint64_t parts[4] = {fv->fingerprint.sum, l->folder.shared.sum, l->config_fingerprint,
                         mr_hash(mr_str_c(where))};

    return mr_hash(mr_str_n((const char *)parts, sizeof parts)) | 1;
}

enum fate { KEEP, MAKE, HOPELESS };

/* Lock held. */
static enum fate fate_of(const struct mr_load *l, const struct mr_folder_version *fv,
                         uint64_t fingerprint)
{
    const struct mr_version_record *r = mr_record_find(l->model, fv->number);
    bool is_sync = l->job->kind == MR_JOB_SYNC;

    if (l->pin && fv->number != l->pin) {
        return KEEP; /* a rollback is about one version; others go on as they are, or stay away */
    }
    if (!r) {
        return MAKE;
    }
    if (is_sync && !l->job->is_retry &&
        r->failed_fingerprint == fingerprint + fv->fingerprint.beside) {
        return HOPELESS; /* it would fail again */
    }
    if (r->state != MR_VERSION_READY) {
        return MAKE;
    }
    if (is_sync && !is_settled(l->job, fv)) {
        return KEEP; /* it serves while its folder is being written */
    }
    return mr_version_private_of(r->v)->fingerprint == fingerprint ? KEEP : MAKE;
}

/* Lists what is to be made. False: a version of the load is known to fail, so the whole load
 * would, at least until its next try. */
static bool plan_list(struct mr_load *l)
{
    bool has_hope = true;

    pthread_mutex_lock(&l->m->lock);
    for (size_t i = 0; i < l->folder.versions.len; i++) {
        const struct mr_folder_version *fv = &l->folder.versions.at[i];
        uint64_t fingerprint = fingerprint_of(l, fv);
        enum fate fate = l->is_wanted[i] ? fate_of(l, fv, fingerprint) : KEEP;
        has_hope &= fate != HOPELESS;
        if (fate == MAKE) {
            MR_VEC_PUSH(&l->fresh, ((struct mr_fresh){.from = fv, .fingerprint = fingerprint}));
        }
    }
    l->job->is_early = !has_hope && l->model->tries > 0;
    pthread_mutex_unlock(&l->m->lock);
    return has_hope;
}

/* Keeps what a later check of the folder compares. Lock held. */
static void making_note(struct mr_load *l)
{
    struct mr_job *job = l->job;

    mr_free(job->making); /* of an earlier try */
    job->making = MR_NEW_ARRAY(struct mr_settled_version, l->fresh.len + 1);
    job->making_count = l->fresh.len;
    job->latest = l->latest;
    for (size_t i = 0; i < l->fresh.len; i++) {
        const struct mr_folder_version *fv = l->fresh.at[i].from;
        job->making[i] = (struct mr_settled_version){fv->number, fv->fingerprint.sum};
    }
}

/* What MLServer's file calls the version. Lock held. */
static void given_note(struct mr_version_record *r, const struct mr_folder_version *fv)
{
    const char *given = fv->is_unnamed ? "" : fv->label;

    mr_free(r->given);
    r->given = given ? mr_strndup(given, strlen(given)) : NULL;
}

/* True: a version of the model serves. */
static bool plan_begin(struct mr_load *l)
{
    pthread_mutex_lock(&l->m->lock);
    const bool is_update = mr_model_serves(l->model);
    l->model->is_desired = true;
    for (size_t i = 0; i < l->fresh.len; i++) {
        struct mr_fresh *f = &l->fresh.at[i];
        struct mr_version_record *r = mr_record_get(l->model, f->from->number);
        uint64_t bytes = f->from->fingerprint.bytes;
        f->entry = mr_load_entry_begin(l->m, l->model, l->job, f->from->number, bytes);
        given_note(r, f->from);
        r->is_wanted = true;
        r->failed_fingerprint = 0;
        r->file_bytes = r->state == MR_VERSION_READY ? r->file_bytes : bytes;
        if (r->state != MR_VERSION_READY) {
            mr_record_set(l->m, l->model, r, MR_VERSION_LOADING, "");
        }
    }
    if (l->fresh.len > 0) {
        mr_table_publish(l->m, l->model);
    }
    making_note(l);
    mr_model_count_unready(l->m, l->model);
    pthread_mutex_unlock(&l->m->lock);
    mr_changes_report(l->m);
    return is_update;
}

/* ---- doing it ---- */

/* Sleeps between tries without a place among the loads; false when the load was cancelled. */
static bool retry_wait(struct mr_models *m, struct mr_job *job, int64_t pause_ns)
{
    int64_t until = mr_now_ns() + pause_ns;
    struct timespec ts = {until / MR_NS_PER_S, until % MR_NS_PER_S};

    pthread_mutex_lock(&m->lock);
    mr_load_place_leave(m, job);
    while (!mr_job_is_unwanted(m, job) && mr_now_ns() < until) {
        pthread_cond_timedwait(&m->idle, &m->lock, &ts);
    }
    mr_load_place_take(m, job);
    pthread_mutex_unlock(&m->lock);
    return !mr_job_is_unwanted(m, job);
}

static void loading_note(struct mr_load *l, struct mr_fresh *f)
{
    pthread_mutex_lock(&l->m->lock);
    mr_load_entry_set(l->m, l->model, f->entry, MR_VERSION_LOADING, "");
    pthread_mutex_unlock(&l->m->lock);
}

/* Versions may serve during this load. */
static bool is_in_background(const struct mr_load *l)
{
    struct mr_map_slot *slot;
    bool is_any = false;

    pthread_mutex_lock(&l->m->lock);
    const bool is_start = l->job->is_first && !l->job->is_retry;
    for (size_t i = 0; !is_start && !is_any && (slot = mr_map_next(&l->m->models, &i));) {
        is_any = mr_model_serves(slot->value);
    }
    pthread_mutex_unlock(&l->m->lock);
    return is_any;
}

/* reserved: what mr_admit gave it. From here on the version counts as held. */
static void warming_report(struct mr_load *l, struct mr_fresh *f, uint64_t reserved)
{
    pthread_mutex_lock(&l->m->lock);
    l->m->reserved_bytes -= reserved;
    f->made->v.is_update = mr_model_serves(l->model);
    f->made->v.is_first = !l->m->is_started;
    struct mr_version_record *r = mr_record_find(l->model, f->from->number);
    mr_load_entry_set(l->m, l->model, f->entry, MR_VERSION_WARMING, "");
    if (r && r->state == MR_VERSION_LOADING) {
        mr_record_set(l->m, l->model, r, MR_VERSION_WARMING, "");
    }
    pthread_mutex_unlock(&l->m->lock);
    mr_changes_report(l->m);
}

/* Completion lets a model batch that turns out not to be able to: it is served without. */
static int version_serve(struct mr_load *l, const struct mr_version_source *source,
                         struct mr_version_private *p, struct mr_err *err)
{
    const struct mr_model_hooks *hooks = &l->m->hooks;
    int rc = hooks->serve ? hooks->serve(hooks->ctx, &p->v, err) : MR_OK;

    if (rc == MR_OK && p->v.cannot_batch && !l->has_max_batch) {
        hooks->unserve(hooks->ctx, &p->v);
        MR_TRY(mr_version_unbatch(l->m, source, p, err));
        MR_TRY(hooks->serve(hooks->ctx, &p->v, err));
    }
out:
    return rc;
}

bool mr_load_is_requested(const struct mr_load *l)
{
    return (l->config_json || l->job->file_count > 0) && !l->job->is_remote;
}

static int version_try(struct mr_load *l, struct mr_fresh *f, bool warn, struct mr_err *err)
{
    const struct mr_version_source source = {.model = l->model,
                                             .folder = &l->folder,
                                             .version = f->from,
                                             .config = l->config,
                                             .has_max_batch = l->has_max_batch,
                                             .is_requested = mr_load_is_requested(l),
                                             .warn = warn,
                                             .temp = l->temp,
                                             .fingerprint = f->fingerprint,
                                             .entry = f->entry,
                                             .in_background = is_in_background(l)};
    uint64_t reserved;

    loading_note(l, f);
    int rc = mr_admit(l->m, l->model, f->from->fingerprint.bytes, &reserved, err);
    if (rc < 0) {
        return rc;
    }
    rc = mr_version_open(l->m, &source, &f->made, err);
    if (rc == MR_OK && (rc = still_wanted(l, err)) < 0) {
        mr_version_close(l->m, &f->made);
    }
    if (rc < 0) {
        mr_admit_end(l->m, reserved);
        return rc;
    }
    /* Release is not needed: the version is not published yet. */
    atomic_store_explicit(&f->made->v.state, MR_VERSION_WARMING, memory_order_relaxed);
    warming_report(l, f, reserved);
    mr_job_opened(l->m, l->job); /* a warm-up may need the room of what it kept */
    rc = version_serve(l, &source, f->made, err);
    if (rc < 0) {
        mr_version_close(l->m, &f->made);
        return rc;
    }
    f->made->is_served = true;
    f->made->v.load_ns = mr_now_ns() - f->began_ns;
    return MR_OK;
}

static int version_measure(struct mr_load *l, struct mr_fresh *f, bool warn, struct mr_err *err)
{
    struct mr_measure measure;

    mr_measure_begin(l->m, &measure);
    int rc = version_try(l, f, warn, err);
    f->grown_bytes = mr_measure_end(l->m, &measure);
    return rc;
}

static int version_make(struct mr_load *l, struct mr_fresh *f, bool warn, struct mr_err *err)
{
    int64_t pause_ns = RETRY_FIRST_NS;

    f->began_ns = mr_now_ns();
    for (uint32_t tries = 0;; tries++) {
        *err = (struct mr_err){0};
        int rc = version_measure(l, f, warn && tries == 0, err);
        /* What a config asks for and this server does not have will not come by itself. */
        l->job->is_hopeless |= rc == MR_E_UNSUPPORTED;
        if (rc < 0 && mr_job_is_unwanted(l->m, l->job)) {
            return still_wanted(l, err); /* whatever the backend made of it */
        }
        if (rc >= 0 || rc == MR_E_UNSUPPORTED || tries >= l->m->o.load_retries) {
            return rc;
        }
        mr_log(MR_LOG_WARN, "model.load_retry", "model=%s version=%lld try=%u %s",
               MR_LOG_STR(l->model->name), (long long)f->from->number, tries + 1, err->msg);
        if (!retry_wait(l->m, l->job, pause_ns)) {
            return rc;
        }
        pause_ns = MR_MIN(pause_ns * 2, RETRY_MOST_NS);
    }
}

static int one_make(struct mr_load *l, size_t i, struct mr_err *err)
{
    int rc = i == 0 ? mr_load_retire_first(l, err) : MR_OK;

    if (rc == MR_OK) {
        rc = still_wanted(l, err);
    }
    return rc < 0 ? rc : version_make(l, &l->fresh.at[i], i == 0, err);
}

/* Makes every fresh version; the first failure ends it. *err: the client's text with all causes. */
static int versions_make(struct mr_load *l)
{
    int rc = MR_OK;

    for (size_t i = 0; i < l->fresh.len && rc == MR_OK; i++) {
        struct mr_fresh *f = &l->fresh.at[i];
        struct mr_err why = {0};
        rc = one_make(l, i, &why);
        if (rc < 0) {
            temp_hide(l, why.msg);
            f->reason = mr_strndup(why.msg, strlen(why.msg));
            MR_FAIL(l->err, MR_E_INVALID,
                    "load failed for model '%.128s': version %lld is at UNAVAILABLE state: %s;",
                    l->model->name.ptr, (long long)f->from->number, why.msg);
        }
    }
    if (rc == MR_OK && l->fresh.len > 0) {
        return still_wanted(l, l->err);
    }
    return rc < 0 ? MR_E_INVALID : MR_OK;
}

/* There is no such folder. In poll mode its model goes, too. */
static int missing_run(struct mr_load *l)
{
    if (l->job->kind == MR_JOB_SYNC) {
        return mr_users_unload(l->m, l->job) ? MR_PENDING : mr_unload_run(l->m, l->model, l->err);
    }
    if (l->job->is_first) {
        /* Only for names of the command line: what clients ask for would be without end. */
        mr_load_fail(l, "not in any model repository");
    }
    l->job->is_hopeless |= l->job->is_return; /* the ensemble has gone as well */
    if (l->m->o.mlserver_errors) {
        return MR_FAIL(l->err, MR_E_NOT_FOUND, "Model %.128s not found", l->model->name.ptr);
    }
    return MR_FAIL(l->err, MR_E_INTERNAL, POLL_FAILED, l->model->name.ptr);
}

/* Nothing was made of the folder. */
static int load_failed(struct mr_load *l, int rc)
{
    char cause[sizeof l->err->msg];

    temp_hide(l, l->err->msg);
    snprintf(cause, sizeof cause, "%s", l->err->msg);
    mr_load_fail(l, cause);
    l->job->is_hopeless |= rc == MR_E_UNSUPPORTED;
    return rc == MR_E_UNAVAILABLE
               ? rc
               : MR_FAIL(l->err, MR_E_INVALID, POLL_FAILED ": %s", l->model->name.ptr, cause);
}

static int no_version_fail(struct mr_load *l)
{
    char reason[sizeof l->err->msg];

    snprintf(reason, sizeof reason, NO_VERSION_TEXT " '%.128s'", l->model->name.ptr);
    mr_load_fail(l, reason);
    mr_load_show(l);
    return MR_FAIL(l->err, MR_E_INTERNAL, "failed to load '%.128s', no version is available",
                   l->model->name.ptr);
}

/* Mode `poll`: of what a failed load leaves in service, versions whose folders are gone go all the same. */
static void gone_retire(struct mr_load *l)
{
    if (l->job->kind == MR_JOB_SYNC && !is_cancelled(l) && mr_load_retire_gone(l)) {
        mr_users_check(l->m, l->model);
    }
}

/* From a folder and its config to the versions. */
static int versions_load(struct mr_load *l)
{
    bool is_sync = l->job->kind == MR_JOB_SYNC;

    if (is_sync && l->folder.shared.sum != l->job->settled_shared) {
        return MR_OK; /* changed since it was at rest: the next scan reports it */
    }
    if (policy_apply(l) == 0) {
        /* In poll mode a version may be under way. */
        return is_sync && l->folder.versions.len > 0 ? MR_OK : no_version_fail(l);
    }
    if (!plan_list(l)) {
        gone_retire(l);         /* the rest is as it was left after the last failure */
        return l->job->is_early /* its error is not reported: a job of mode `poll` has no caller */
                   ? MR_FAIL(l->err, MR_E_UNAVAILABLE, "a version that failed is tried again later")
                   : MR_OK;
    }
    const bool is_update = plan_begin(l);
    int rc = versions_make(l);
    if (rc == MR_OK && !mr_load_publish(l)) {
        rc = still_wanted(l, l->err);
        rc = rc < 0 ? rc
                    : MR_FAIL(l->err, MR_E_UNAVAILABLE,
                              "a model of ensemble '%.128s' was unloaded while it was loaded",
                              l->model->name.ptr);
    }
    if (rc < 0) {
        mr_load_take_back(l);
        gone_retire(l);
    } else if (is_update) {
        mr_users_check(l->m, l->model);
    }
    return rc;
}

/* Which version a rollback goes back to: the one named, or the newest below the one that requests get
 * now that is not known to fail. */
static int rollback_aim(struct mr_load *l)
{
    pthread_mutex_lock(&l->m->lock);
    int64_t below = l->model->pinned;
    for (size_t i = 0; i < l->model->records.len && !l->model->pinned; i++) {
        const struct mr_version_record *r = &l->model->records.at[i];
        below = r->state == MR_VERSION_READY ? r->number : below;
    }
    for (size_t i = 0; i < l->folder.versions.len; i++) {
        int64_t number = l->folder.versions.at[i].number;
        const struct mr_version_record *r = mr_record_find(l->model, number);
        bool fits = l->job->back_to ? number == l->job->back_to
                                    : number < below && !(r && r->state == MR_VERSION_FAILED);
        l->pin = fits ? number : l->pin;
    }
    pthread_mutex_unlock(&l->m->lock);
    if (l->pin) {
        return MR_OK;
    }
    return l->job->back_to
               ? MR_FAIL(l->err, MR_E_NOT_FOUND, "model '%.128s' has no version %lld to go back to",
                         l->model->name.ptr, (long long)l->job->back_to)
               : MR_FAIL(l->err, MR_E_NOT_FOUND, "model '%.128s' has no version to go back to",
                         l->model->name.ptr);
}

/* The configuration with which the version serves, if it came with a load request. Lock held. */
static void config_take(struct mr_load *l, int64_t version)
{
    const struct mr_version_record *r = mr_record_find(l->model, version);

    if (r && r->config_json) {
        l->config_json = l->kept = mr_strndup(r->config_json, r->config_len);
        l->config_len = r->config_len;
    }
}

/* A rollback gives back what served: also the configuration, if it came with a load request. */
static void rollback_config(struct mr_load *l)
{
    pthread_mutex_lock(&l->m->lock);
    config_take(l, l->pin);
    pthread_mutex_unlock(&l->m->lock);
}

/* The configuration of an earlier load request stays until the files of the model change. */
static void override_keep(struct mr_load *l)
{
    const struct mr_model *model = l->model;

    pthread_mutex_lock(&l->m->lock);
    bool are_same = model->override_fingerprint == mr_load_files_fingerprint(l);
    for (size_t i = model->records.len; are_same && !l->kept && i-- > 0;) {
        const struct mr_version_record *r = &model->records.at[i];
        if (r->state == MR_VERSION_READY) {
            config_take(l, r->number);
        }
    }
    pthread_mutex_unlock(&l->m->lock);
}

static int load_steps(struct mr_load *l)
{
    int rc = folder_find(l);

    if (rc == MR_E_NOT_FOUND && l->job->file_count == 0) {
        return missing_run(l);
    }
    if (rc == MR_OK && l->job->is_rollback) {
        rc = rollback_aim(l);
        if (rc < 0) {
            return rc; /* nothing was touched */
        }
        rollback_config(l);
    } else if (rc == MR_OK && !l->config_json && l->job->kind == MR_JOB_LOAD) {
        override_keep(l);
    }
    if (rc == MR_OK) {
        rc = config_load(l);
    }
    const bool is_graph = rc == MR_OK && mr_config_is_graph(l->config);
    if (rc == MR_OK && (is_graph || l->model->members.len > 0) && mr_members_wait(l)) {
        return MR_PENDING;
    }
    if (rc == MR_OK) {
        rc = labels_read(l);
    }
    return rc < 0 ? load_failed(l, rc) : versions_load(l);
}

int mr_load_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    struct mr_load l = {.m = m,
                        .job = job,
                        .model = job->model,
                        .err = err,
                        .config_json = job->config_json,
                        .config_len = job->config_len};
    int rc = load_steps(&l);

    for (size_t i = 0; i < l.fresh.len; i++) {
        mr_free(l.fresh.at[i].reason);
    }
    MR_VEC_FINI(&l.fresh);
    mr_label_list_fini(&l.labels);
    mr_free(l.is_wanted);
    mr_config_free(&l.config);
    mr_free(l.kept);
    mr_folder_fini(&l.folder);
    mr_temp_unref(&l.temp);
    return rc;
}
