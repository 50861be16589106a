/* Creates ops for nodes, and checks what they say about their outputs.
 *
 * Thread: any; one node is created by one thread. */
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/tensor.h"

struct mr_op_node {
    struct mr_op *op;
    const struct mr_op_desc *desc;
    MR_VEC(char *) files; /* handed out during `create` */
};

/* ---- services ---- */

/* The file's real path is inside the folder. */
static int resolve(const char *dir, const char *path, char real[PATH_MAX], struct mr_err *err)
{
    char joined[PATH_MAX], root[PATH_MAX];
    int n = snprintf(joined, sizeof joined, "%s/%s", dir, path);

    if (n < 0 || n >= (int)sizeof joined || path[0] == '/') {
        return MR_FAIL(err, MR_E_INVALID,
                       "file '%.200s': the path must be relative to the model's folder", path);
    }
    if (!realpath(dir, root) || !realpath(joined, real)) {
        return MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO,
                       "file '%.200s' in the model's folder: %s", path, strerror(errno));
    }
    size_t len = strlen(root);
    if (strncmp(real, root, len) != 0 || (real[len] != '/' && root[len - 1] != '/')) {
        return MR_FAIL(err, MR_E_INVALID, "file '%.200s' is outside of the model's folder", path);
    }
    return MR_OK;
}

static int read_all(int fd, const char *path, uint64_t max_bytes, char **out, size_t *out_len,
                    struct mr_err *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return MR_FAIL(err, MR_E_INVALID, "file '%.200s' is no regular file", path);
    }
    if ((uint64_t)st.st_size > max_bytes) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "file '%.200s' has %lld bytes, at most %llu are allowed", path,
                       (long long)st.st_size, (unsigned long long)max_bytes);
    }
    char *data = mr_try_alloc((size_t)st.st_size + 1);
    size_t len = 0;
    while (data && len < (size_t)st.st_size) {
        ssize_t n = read(fd, data + len, (size_t)st.st_size - len);
        if (n <= 0) {
            mr_free(data);
            return MR_FAIL(err, MR_E_IO, "file '%.200s': %s", path,
                           n < 0 ? strerror(errno) : "it became shorter");
        }
        len += (size_t)n;
    }
    if (!data) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for file '%.200s'", path);
    }
    data[len] = '\0';
    *out = data;
    *out_len = len;
    return MR_OK;
}

int op_node_read_file(struct mr_op_node *node, const char *path, uint64_t max_bytes,
                      const char **out_data, uint64_t *out_bytes, struct mr_err *err)
{
    char real[PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    int rc = resolve(node->desc->model_dir ? node->desc->model_dir : "", path, real, err);

    if (rc < 0) {
        return rc;
    }
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0) {
        return MR_FAIL(err, MR_E_IO, "file '%.200s': %s", path, strerror(errno));
    }
    rc = read_all(fd, path, max_bytes, &data, &len, err);
    close(fd);
    if (rc == MR_OK) {
        MR_VEC_PUSH(&node->files, data);
        *out_data = data;
        *out_bytes = len;
    }
    return rc;
}

int op_node_counter(struct mr_op_node *node, const char *name, struct mr_op_metric **out,
                    struct mr_err *err)
{
    struct mr_op *op = node->op;
    size_t n = strnlen(name, OP_COUNTER_NAME_MAX + 1);

    if (n == 0 || n > OP_COUNTER_NAME_MAX ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n) {
        return MR_FAIL(err, MR_E_INVALID, "'%.80s' is no name of a counter: [a-z0-9_], at most %d",
                       name, OP_COUNTER_NAME_MAX);
    }
    for (uint32_t i = 0; i < op->counter_count; i++) {
        if (strcmp(op->counters[i].name, name) == 0) {
            return MR_FAIL(err, MR_E_INVALID, "there is a counter '%s' already", name);
        }
    }
    if (op->counter_count == OP_COUNTERS_MAX) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "more than %d counters", OP_COUNTERS_MAX);
    }
    *out = &op->counters[op->counter_count++];
    memcpy((*out)->name, name, n + 1);
    return MR_OK;
}

void op_node_count(struct mr_op_metric *metric, uint64_t n)
{
    atomic_fetch_add_explicit(&metric->value, n, memory_order_relaxed);
}

/* ---- creation ---- */

int op_result(const struct op_entry *e, const char *what, int rc, struct mr_err *err)
{
    if (rc == MR_OK) {
        return MR_OK;
    }
    if (rc > 0) {
        return MR_FAIL(err, MR_E_INTERNAL, "op '%s': %s returned %d, which is no status",
                       e->kind.name, what, rc);
    }
    err->msg[sizeof err->msg - 1] = '\0';
    err->where[sizeof err->where - 1] = '\0';
    err->status = rc;
    if (err->msg[0] == '\0') {
        return MR_FAIL(err, rc, "op '%s': %s failed (%s) without saying why", e->kind.name, what,
                       mr_status_text(rc));
    }
    return MR_WRAP(err, rc, "op '%s'", e->kind.name);
}

static int check_output(const struct op_entry *e, const struct mr_op_io *want,
                        const struct mr_op_io *io, struct mr_err *err)
{
    bool is_ok = io->dtype > MR_DTYPE_INVALID && io->dtype < MR_DTYPE_COUNT && io->rank >= -1 &&
                 io->rank <= MR_MAX_RANK && (io->rank <= 0 || io->dims);

    for (int i = 0; is_ok && i < io->rank; i++) {
        is_ok = io->dims[i] >= -1;
    }
    return is_ok ? MR_OK
                 : MR_FAIL(err, MR_E_INTERNAL, "op '%s' describes its output '%.80s' wrongly",
                           e->kind.name, want->name);
}

/* One block, with the dims and without names. */
static struct mr_op_io *copy_list(const struct mr_op_io *list, uint32_t count)
{
    size_t dims = 0;

    for (uint32_t i = 0; i < count; i++) {
        dims += (size_t)MR_MAX(list[i].rank, 0);
    }
    struct mr_op_io *copy = mr_alloc((count + (size_t)1) * sizeof *copy + dims * sizeof(int64_t));
    int64_t *to = (int64_t *)(void *)(copy + count + 1);
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = list[i];
        copy[i].name = NULL;
        copy[i].dims = list[i].dims ? to : NULL;
        for (int32_t k = 0; list[i].dims && k < list[i].rank; k++) {
            *to++ = list[i].dims[k];
        }
    }
    return copy;
}

/* What the op says of its outputs, as the node's own, with the names of the node. */
static void copy_outputs(struct mr_op *op, const struct mr_op_desc *desc)
{
    op->outputs = copy_list(op->signature.outputs, op->output_count);
    for (uint32_t i = 0; i < op->output_count; i++) {
        op->outputs[i].name = op->names[i] =
            mr_strndup(desc->outputs[i].name, strlen(desc->outputs[i].name));
    }
    op->signature.outputs = op->outputs;
}

static int check_signature(const struct op_entry *e, const struct mr_op_desc *desc,
                           const struct mr_op_signature *s, struct mr_err *err)
{
    int rc =
        s->outputs || desc->output_count == 0
            ? MR_OK
            : MR_FAIL(err, MR_E_INTERNAL, "op '%s' does not describe its outputs", e->kind.name);

    for (uint32_t i = 0; i < desc->output_count && rc == MR_OK; i++) {
        rc = check_output(e, &desc->outputs[i], &s->outputs[i], err);
    }
    return rc;
}

int mr_op_create(const struct mr_ops *ops, mr_str name, const struct mr_op_desc *desc,
                 struct mr_op **out, struct mr_err *err)
{
    struct mr_op_desc sized = *desc;
    const struct op_entry *e;
    struct mr_err detail;
    int rc = op_registry_find(ops, name, &e, err);

    if (rc < 0) {
        return rc;
    }
    mr_err_clear(&detail);
    sized.size = sizeof sized;
    struct mr_op *op = MR_NEW(struct mr_op);
    op->entry = e;
    op->signature.size = sizeof op->signature;
    op->input_count = desc->input_count;
    op->inputs = copy_list(desc->inputs, desc->input_count);
    op->output_count = desc->output_count;
    op->names = MR_NEW_ARRAY(char *, desc->output_count + (size_t)1);
    struct mr_op_node node = {.op = op, .desc = &sized};
    rc = op_result(e, "create", e->kind.create(&sized, &node, &op->signature, &op->object, &detail),
                   &detail);
    if (rc == MR_OK) {
        rc = check_signature(e, desc, &op->signature, &detail);
        if (rc == MR_OK) {
            copy_outputs(op, desc);
        }
    } else {
        op->entry = NULL; /* there is no object to destroy */
    }
    for (size_t i = 0; i < node.files.len; i++) {
        mr_free(node.files.at[i]);
    }
    MR_VEC_FINI(&node.files);
    if (rc < 0) {
        mr_op_free(&op);
        if (err) {
            *err = detail;
        }
        return rc;
    }
    *out = op;
    return MR_OK;
}

void mr_op_free(struct mr_op **op)
{
    struct mr_op *o = *op;

    *op = NULL;
    if (o && o->entry && o->entry->kind.destroy) {
        o->entry->kind.destroy(o->object);
    }
    for (uint32_t i = 0; o && o->outputs && i < o->output_count; i++) {
        mr_free(o->names[i]);
    }
    if (o) {
        mr_free(o->names);
        mr_free(o->inputs);
        mr_free(o->outputs);
    }
    mr_free(o);
}

const struct mr_op_io *mr_op_outputs(const struct mr_op *op)
{
    return op->signature.outputs;
}

uint32_t mr_op_flags(const struct mr_op *op)
{
    return op->signature.flags;
}

const char *mr_op_counter(const struct mr_op *op, size_t index, uint64_t *out_value)
{
    if (index >= op->counter_count) {
        return NULL;
    }
    *out_value = atomic_load_explicit(&op->counters[index].value, memory_order_relaxed);
    return op->counters[index].name;
}
