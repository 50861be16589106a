/* Loading a backend library: find the file, dlopen, call the entry symbol, check and copy the table.
 *
 * The table is copied field by field up to the size that the backend states, so a backend built with
 * an older header leaves the slots that it does not know NULL, and the additions of one built with a newer header
 * are ignored. A library is loaded RTLD_LOCAL: two backends may carry different versions of the same symbols.
 * RTLD_NOW: a missing symbol fails the load, not a request.
 *
 * Threads: open and close from any one thread at a time per plugin; the services that the table of the
 * host offers may be called from any thread. This file checks neither signatures (exec/signature.c) nor executions
 * (exec.c). */
#include "plugin_priv.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

/* The layout is the contract with libraries that were built at another time. */
_Static_assert(sizeof(void *) == 8, "the offsets below are those of a 64-bit ABI");
_Static_assert(sizeof(struct mr_err) == 512, "crosses the backend ABI");
_Static_assert(sizeof(struct mr_setting) == 16, "frozen: travels in arrays");
_Static_assert(sizeof(struct mr_tensor) == 40, "frozen: travels in arrays");
_Static_assert(sizeof(struct mr_io_desc) == 32, "frozen: travels in arrays");
_Static_assert(offsetof(struct mr_exec_request, correlation_text) == 64, "append only");
_Static_assert(offsetof(struct mr_model_desc, max_batch_size) == 64, "append only");
_Static_assert(offsetof(struct mr_model_desc, repository_dir) == 72, "append only");
_Static_assert(offsetof(struct mr_model_desc, load_flags) == 80, "append only");
_Static_assert(offsetof(struct mr_model_desc, loading) == 88, "append only");
_Static_assert(offsetof(struct mr_signature, max_pending) == 40, "append only");
_Static_assert(offsetof(struct mr_instance_desc, name) == 16, "append only");
_Static_assert(offsetof(struct mr_exec, flags) == 68, "append only");
_Static_assert(offsetof(struct mr_host, is_cancelled) == 40, "append only");
_Static_assert(offsetof(struct mr_host, load_progress) == 56, "append only");
_Static_assert(offsetof(struct mr_host, respond) == 104, "append only");
_Static_assert(offsetof(struct mr_host, call_end) == 136, "append only");
_Static_assert(sizeof(struct mr_call_input) == 48, "frozen: travels in arrays");
_Static_assert(offsetof(struct mr_call_args, sequence_flags) == 96, "append only");
_Static_assert(offsetof(struct mr_call_answer, outputs) == 32, "append only");
_Static_assert(offsetof(struct mr_host, metric_drop) == 184, "append only");
_Static_assert(offsetof(struct mr_host, answer_parameters) == 192, "append only");
_Static_assert(offsetof(struct mr_host, call_notify) == 200, "append only");
_Static_assert(sizeof(struct mr_control_file) == 24, "frozen: travels in arrays");
_Static_assert(offsetof(struct mr_control_args, flags) == 44, "append only");
_Static_assert(offsetof(struct mr_metric_args, bound_count) == 44, "append only");
_Static_assert(offsetof(struct mr_backend, init) == 32, "append only");
_Static_assert(offsetof(struct mr_backend, execute) == 88, "append only");
_Static_assert(offsetof(struct mr_backend, model_configure) == 104, "append only");
_Static_assert(offsetof(struct mr_backend, cancel) == 120, "append only");
_Static_assert(offsetof(struct mr_model_memory, resident_bytes) == 48, "append only");

/* What every backend must at least have: everything up to execute. */
#define TABLE_MIN_BYTES (offsetof(struct mr_backend, execute) + sizeof(void *))

/* The table of the host as one backend sees it. A backend keeps the pointer in a static variable, and
 * the same library may be opened twice, or again after it was closed; so there is one per backend name,
 * and it lives as long as the process. */
struct host_entry {
    struct mr_host host; /* first: the log service finds the entry by it */
    struct mr_log_site log_site;
    struct host_entry *next;
    char name[];
};

static pthread_mutex_t hosts_lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards hosts; held for a list walk */
static struct host_entry *hosts;

static void host_log(const struct mr_host *host, int level, const char *message)
{
    struct host_entry *e = (struct host_entry *)(uintptr_t)host;
    if (level < MR_LOG_ERROR || level > MR_LOG_DEBUG) {
        level = MR_LOG_INFO;
    }
    if (mr_log_enabled((enum mr_log_level)level)) {
        mr_log_line(&e->log_site, (enum mr_log_level)level, MR_HERE, "backend.log",
                    "backend=%s \"%s\"", e->name, message);
    }
}

static int load_is_unwanted(const struct mr_loading *l)
{
    return l && l->is_unwanted && l->is_unwanted(l);
}

/* Relaxed: figures for people, which need not belong together. */
static void load_progress(struct mr_loading *l, const char *step, uint64_t done, uint64_t total)
{
    if (l) {
        atomic_store_explicit(&l->step, step, memory_order_relaxed);
        atomic_store_explicit(&l->total, total, memory_order_relaxed);
        atomic_store_explicit(&l->done, done, memory_order_relaxed);
        if (l->on_progress) {
            l->on_progress(l);
        }
    }
}

static const struct mr_host *host_get(const char *name)
{
    struct host_entry *e;
    pthread_mutex_lock(&hosts_lock);
    for (e = hosts; e && strcmp(e->name, name) != 0; e = e->next) {
    }
    if (!e) {
        const size_t len = strlen(name) + 1;
        e = mr_alloc(sizeof *e + len);
        memcpy(e->name, name, len);
        e->host = (struct mr_host){
            .size = sizeof e->host,
            .abi_minor = MR_BACKEND_ABI_MINOR,
            .log = host_log,
            .output = mr_plugin_exec_output,
            .output_give = mr_plugin_exec_give,
            .fail_request = mr_plugin_exec_fail_request,
            .is_cancelled = mr_plugin_exec_is_cancelled,
            .load_is_unwanted = load_is_unwanted,
            .load_progress = load_progress,
            .complete = mr_plugin_exec_complete,
            .response_new = mr_plugin_exec_response_new,
            .response_output = mr_plugin_response_output,
            .response_give = mr_plugin_response_give,
            .response_drop = mr_response_free,
            .respond = mr_plugin_exec_respond,
            .call_begin = mr_plugin_call_begin,
            .call_next = mr_plugin_call_next,
            .call_answer_drop = mr_plugin_call_answer_drop,
            .call_end = mr_plugin_call_end,
            .control_begin = mr_plugin_control_begin,
            .metric_new = mr_plugin_metric_new,
            .metric_add = mr_plugin_metric_add,
            .metric_set = mr_plugin_metric_set,
            .metric_value = mr_plugin_metric_value,
            .metric_drop = mr_plugin_metric_drop,
            .answer_parameters = mr_plugin_exec_answer_parameters,
            .call_notify = mr_plugin_call_notify,
        };
        e->next = hosts;
        hosts = e;
    }
    pthread_mutex_unlock(&hosts_lock);
    return &e->host;
}

int mr_plugin_result(const struct mr_plugin *p, const char *what, int rc, struct mr_err *err)
{
    if (rc == MR_OK) {
        return MR_OK;
    }
    if (rc > 0) {
        return MR_FAIL(err, MR_E_INTERNAL, "backend '%s': %s returned %d, which is no status",
                       p->name, what, rc);
    }
    if (err) {
        mr_err_tidy(err);
        err->where[sizeof err->where - 1] = '\0';
        if (err->msg[0] == '\0') {
            return MR_FAIL(err, rc, "backend '%s': %s failed (%s) without saying why", p->name,
                           what, mr_status_text(rc));
        }
        err->status = rc;
    }
    return rc;
}

static bool name_is_valid(mr_str name)
{
    if (name.len == 0 || name.len > 64) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-')) {
            return false;
        }
    }
    return true;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Path of the library into `path`; MR_E_NOT_FOUND lists every place searched. */
static int library_find(char path[PATH_MAX], mr_str name, const char *const *dirs, size_t dir_count,
                        struct mr_err *err)
{
    char searched[300] = "";
    size_t used = 0;
    for (size_t d = 0; d < dir_count; d++) {
        for (size_t f = 0; f < 2; f++) {
            int n = f == 0 ? snprintf(path, PATH_MAX, "%s/libmillrace_%.*s.so", dirs[d],
                                      MR_STR_ARG(name))
                           : snprintf(path, PATH_MAX, "%s/%.*s/libmillrace_%.*s.so", dirs[d],
                                      MR_STR_ARG(name), MR_STR_ARG(name));
            if (n > 0 && n < PATH_MAX && is_file(path)) {
                return MR_OK;
            }
        }
        int n = snprintf(searched + used, sizeof searched - used, "%s%s", d ? ", " : "", dirs[d]);
        used += n > 0 ? MR_MIN((size_t)n, sizeof searched - used - 1) : 0;
    }
    return MR_FAIL(err, MR_E_NOT_FOUND,
                   "backend '%.*s': no libmillrace_%.*s.so in %s (nor in a folder '%.*s' there)",
                   MR_STR_ARG(name), MR_STR_ARG(name),
                   searched[0] ? searched : "any directory (none given)", MR_STR_ARG(name));
}

static int name_check(mr_str name, struct mr_err *err)
{
    return name_is_valid(name)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "'%.*s' is no backend name: letters, digits, '_' and '-', at most 64",
                         MR_STR_ARG(mr_str_sub(name, 0, 80)));
}

int mr_plugin_find(mr_str name, const char *const *dirs, size_t dir_count, struct mr_err *err)
{
    char path[PATH_MAX];
    int rc = name_check(name, err);

    return rc < 0 ? rc : library_find(path, name, dirs, dir_count, err);
}

/* The last dlerror as a sentence's end. */
static const char *dl_reason(void)
{
    const char *text = dlerror();
    return text ? text : "no reason given";
}

static int library_load(struct mr_plugin *p, const char *path, mr_backend_entry_fn **out_entry,
                        struct mr_err *err)
{
    p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!p->library) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "backend '%s': cannot load: %s", p->name,
                       dl_reason());
    }
    void *symbol = dlsym(p->library, MR_BACKEND_ENTRY);
    if (!symbol) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "backend '%s': %s exports no " MR_BACKEND_ENTRY
                       ": it is not a Millrace backend, or one for another version of the server",
                       p->name, path);
    }
    memcpy(out_entry, &symbol, sizeof symbol); /* ISO C has no cast from object to function */
    return MR_OK;
}

/* Copies the fields that both sides know, then checks the required ones. */
static int table_copy(struct mr_plugin *p, const struct mr_backend *table, struct mr_err *err)
{
    if (!table || table->size < TABLE_MIN_BYTES) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "backend '%s': its table has %u bytes, needed are %zu", p->name,
                       table ? table->size : 0, TABLE_MIN_BYTES);
    }
    memcpy(&p->table, table, MR_MIN((size_t)table->size, sizeof p->table));
    p->table.size = sizeof p->table;
    const struct mr_backend *t = &p->table;
    const char *missing = !t->model_open                             ? "model_open"
                          : !t->model_close                          ? "model_close"
                          : !t->model_signature                      ? "model_signature"
                          : !t->execute                              ? "execute"
                          : (t->instance_open && !t->instance_close) ? "instance_close"
                                                                     : NULL;
    if (missing) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "backend '%s': its table lacks %s", p->name, missing);
    }
    if (!p->table.version) {
        p->table.version = "";
    }
    return MR_OK;
}

static int library_start(struct mr_plugin *p, mr_backend_entry_fn *entry,
                         const struct mr_setting *settings, size_t setting_count,
                         struct mr_err *err)
{
    struct mr_err local = {0};
    const struct mr_backend *table = NULL;
    int rc =
        mr_plugin_result(p, "its entry function", entry(host_get(p->name), &table, &local), &local);
    if (rc == MR_OK) {
        rc = table_copy(p, table, &local);
    }
    if (rc == MR_OK && p->table.init) {
        rc = mr_plugin_result(p, "init",
                              p->table.init(settings, (uint32_t)setting_count, &p->backend, &local),
                              &local);
    } else if (rc == MR_OK && setting_count > 0) {
        rc = MR_FAIL(&local, MR_E_INVALID, "backend '%s' has no settings, but '%s' was given",
                     p->name, settings[0].key);
    }
    if (rc < 0 && err) {
        *err = local;
    }
    return rc;
}

/* Unloads without fini. */
static void plugin_drop(struct mr_plugin *p)
{
    if (p->library) {
        dlclose(p->library);
    }
    mr_free(p->name);
    mr_free(p);
}

int mr_plugin_open(struct mr_plugin **out, mr_str name, const char *const *dirs, size_t dir_count,
                   const struct mr_setting *settings, size_t setting_count, struct mr_err *err)
{
    char path[PATH_MAX];
    mr_backend_entry_fn *entry = NULL;
    struct mr_plugin *p = NULL;
    int rc;

    if ((rc = name_check(name, err)) < 0) {
        return rc;
    }
    if (setting_count > UINT32_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "backend '%.*s': too many settings", MR_STR_ARG(name));
    }
    MR_TRY(library_find(path, name, dirs, dir_count, err));
    p = mr_alloc(sizeof *p);
    p->name = mr_strndup(name.ptr, name.len);
    MR_TRY(library_load(p, path, &entry, err));
    MR_TRY(library_start(p, entry, settings, setting_count, err));
    *out = p;
    return MR_OK;
out:
    if (p) {
        plugin_drop(p);
    }
    return rc;
}

void mr_plugin_close(struct mr_plugin **p)
{
    if (!*p) {
        return;
    }
    MR_ASSERT(atomic_load_explicit(&(*p)->models, memory_order_relaxed) == 0);
    if ((*p)->table.fini) {
        (*p)->table.fini((*p)->backend);
    }
    plugin_drop(*p);
    *p = NULL;
}

const char *mr_plugin_name(const struct mr_plugin *p)
{
    return p->name;
}

const char *mr_plugin_version(const struct mr_plugin *p)
{
    return p->table.version;
}

uint32_t mr_plugin_flags(const struct mr_plugin *p)
{
    return p->table.flags;
}
