/* The ops of a process: the built-in ones and those of libraries. A library's tables are copied up to the size that it states, so that
 * one built with an older header leaves the slots that it does not know NULL. RTLD_LOCAL and RTLD_NOW as for backends. A library is
 * never closed: its ops' objects and threads may outlive what asked for it.
 *
 * Thread: open and close from one thread; everything else is read only. */
#include "host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "op/builtin/builtin.h"

_Static_assert(sizeof(struct mr_op_io) == 32, "frozen: travels in arrays");
_Static_assert(offsetof(struct mr_op_desc, version_dir) == 64, "append only");
_Static_assert(offsetof(struct mr_op_run, output_wanted) == 24, "append only");
_Static_assert(offsetof(struct mr_op_host, spend) == 64, "append only");
_Static_assert(offsetof(struct mr_op_kind, destroy) == 32, "append only");
_Static_assert(offsetof(struct mr_op_library, kinds) == 24, "append only");

static void host_log(const char *op, int level, const char *message)
{
    static struct mr_log_site site;

    level = level < MR_LOG_ERROR || level > MR_LOG_DEBUG ? MR_LOG_INFO : level;
    if (mr_log_enabled((enum mr_log_level)level)) {
        mr_log_line(&site, (enum mr_log_level)level, MR_HERE, "op.log", "op=%.64s %s", op,
                    MR_LOG_STR(mr_str_c(message)));
    }
}

static const struct mr_op_host host = {
    .size = sizeof host,
    .abi_minor = MR_OP_ABI_MINOR,
    .log = host_log,
    .read_file = op_node_read_file,
    .counter = op_node_counter,
    .count = op_node_count,
    .output = op_run_output,
    .output_view = op_run_output_view,
    .output_in_place = op_run_output_in_place,
    .spend = op_run_spend,
};

static const struct op_entry *find(const struct mr_ops *ops, mr_str name)
{
    for (size_t i = 0; i < ops->entries.len; i++) {
        if (mr_str_eq_c(name, ops->entries.at[i]->kind.name)) {
            return ops->entries.at[i];
        }
    }
    return NULL;
}

static bool name_is_valid(const char *name)
{
    size_t n = name ? strnlen(name, 65) : 0;

    return n > 0 && n <= 64 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == n;
}

static int add_kind(struct mr_ops *ops, const char *library, const struct mr_op_kind *kind,
                    bool is_builtin, struct mr_err *err)
{
    struct mr_op_kind copy = {0};

    if (!kind || kind->size < offsetof(struct mr_op_kind, destroy)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s: an op without a table, or with one that is too short", library);
    }
    memcpy(&copy, kind, MR_MIN(kind->size, sizeof copy));
    if (!name_is_valid(copy.name) || !copy.create || !copy.run) {
        return MR_FAIL(err, MR_E_INVALID, "%s: an op without a valid name, create or run", library);
    }
    if (find(ops, mr_str_c(copy.name))) {
        return MR_FAIL(err, MR_E_INVALID, "%s: there is another op '%s'", library, copy.name);
    }
    struct op_entry *e = MR_NEW(struct op_entry);
    e->kind = copy;
    e->is_builtin = is_builtin;
    MR_VEC_PUSH(&ops->entries, e);
    return MR_OK;
}

static int add_library(struct mr_ops *ops, const char *name, mr_op_entry_fn *entry, bool is_builtin,
                       struct mr_err *err)
{
    const struct mr_op_library *library = NULL;
    int rc = entry(&host, &library, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "%s", name);
    }
    if (rc > 0 || !library || library->size < sizeof *library ||
        (library->kind_count > 0 && !library->kinds)) {
        return MR_FAIL(err, MR_E_INVALID, "%s: " MR_OP_ENTRY " gives no table of ops", name);
    }
    for (uint32_t i = 0; i < library->kind_count && rc == MR_OK; i++) {
        rc = add_kind(ops, name, library->kinds[i], is_builtin, err);
    }
    return rc;
}

static int open_library(struct mr_ops *ops, const char *path, struct mr_err *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!handle) {
        return MR_FAIL(err, MR_E_INVALID, "%.200s", dlerror());
    }
    void *symbol = dlsym(handle, MR_OP_ENTRY);
    if (!symbol) {
        return MR_FAIL(err, MR_E_INVALID, "%.200s has no " MR_OP_ENTRY, path);
    }
    mr_op_entry_fn *entry;
    memcpy(&entry, &symbol,
           sizeof entry); /* an object pointer as a function: what POSIX promises and C does not */
    return add_library(ops, path, entry, false, err);
}

static int is_library(const struct dirent *e)
{
    mr_str name = mr_str_c(e->d_name);

    return mr_str_starts(name, MR_STR("libmillrace_op_")) && mr_str_ends(name, MR_STR(".so"));
}

/* In the order of names, so that errors do not depend on the disk. */
static int open_folder(struct mr_ops *ops, const char *dir, struct mr_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, is_library, alphasort);
    int rc = MR_OK;

    if (n < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "--op-directory %.200s: %s", dir, strerror(errno));
    }
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        int len = snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (rc == MR_OK) {
            rc = len < (int)sizeof path
                     ? open_library(ops, path, err)
                     : MR_FAIL(err, MR_E_INVALID, "--op-directory: a path that is too long");
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

int mr_ops_open(const char *const *dirs, size_t dir_count, struct mr_ops **out, struct mr_err *err)
{
    struct mr_ops *ops = MR_NEW(struct mr_ops);
    int rc = add_library(ops, "built-in ops", builtin_entry, true, err);

    for (size_t i = 0; i < dir_count && rc == MR_OK; i++) {
        rc = open_folder(ops, dirs[i], err);
    }
    if (rc < 0) {
        mr_ops_close(&ops);
        return rc;
    }
    *out = ops;
    return MR_OK;
}

void mr_ops_close(struct mr_ops **ops)
{
    struct mr_ops *o = *ops;

    *ops = NULL;
    for (size_t i = 0; o && i < o->entries.len; i++) {
        mr_free(o->entries.at[i]);
    }
    if (o) {
        MR_VEC_FINI(&o->entries);
        mr_free(o);
    }
}

/* The nearest name, "" if none is near. */
static const char *near_name(const struct mr_ops *ops, mr_str name)
{
    unsigned best = 4;
    const char *out = "";

    for (size_t i = 0; i < ops->entries.len; i++) {
        unsigned distance = mr_str_distance(name, mr_str_c(ops->entries.at[i]->kind.name));
        if (distance < best) {
            best = distance;
            out = ops->entries.at[i]->kind.name;
        }
    }
    return out;
}

int op_registry_find(const struct mr_ops *ops, mr_str name, const struct op_entry **out,
                     struct mr_err *err)
{
    *out = find(ops, name);
    if (*out) {
        return MR_OK;
    }
    const char *near = near_name(ops, name);
    return MR_FAIL(err, MR_E_NOT_FOUND, "there is no op '%.*s'%s%s%s",
                   MR_STR_ARG(mr_str_sub(name, 0, 80)), near[0] ? "; did you mean '" : "", near,
                   near[0] ? "'?" : "");
}
