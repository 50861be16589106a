/* The backends "xgboost" and "lightgbm": settings, models, executions.
 *
 * Input and output have the names that Triton's backend for such models gives them, input__0 and output__0, so that its
 * clients need no change; a configuration may name further outputs that the library's file offers. With the parameter
 * `interface` of the value mlserver, outputs are those of MLServer's runtime.
 *
 * A model is shared by its instances, on any thread. A prediction runs on its caller's thread alone, unless `threads` says
 * otherwise; then it never runs on a network thread. */
#include <sys/stat.h>

#include "trees.h"

const struct mr_host *trees_host;
int64_t trees_threads = 1;

static char version_text[96] = MR_VERSION;

struct instance {
    const struct trees_model *model;
    void *own;
};

/* ---- init ---- */

static int settings_check(const struct mr_setting *settings, uint32_t count, struct mr_err *err)
{
    /* default-max-batch-size is used by the host, which completes configs, and is passed here too */
    static const char *const known[] = {"library", "threads", "default-max-batch-size"};

    for (uint32_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(settings[i].key, known[k]) != 0) {
            k++;
        }
        if (k == sizeof known / sizeof *known) {
            return mr_backend_fail(err, MR_E_INVALID,
                                   "backend '%s' has no setting '%s'; it has library and threads",
                                   trees_name, settings[i].key);
        }
    }
    return mr_setting_i64(settings, count, "threads", 1, TREES_THREADS_MAX, &trees_threads, err);
}

static int backend_init(const struct mr_setting *settings, uint32_t setting_count,
                        void **out_backend, struct mr_err *err)
{
    char version[64] = "";
    void *library = NULL;
    int rc = settings_check(settings, setting_count, err);

    if (rc == MR_OK) {
        rc = trees_library_open(mr_setting_find(settings, setting_count, "library"), trees_files,
                                trees_wheel, &library, err);
    }
    if (rc == MR_OK) {
        rc = trees_bind(library, version, sizeof version, err);
    }
    if (rc == MR_OK) {
        snprintf(version_text, sizeof version_text, MR_VERSION " (%s)", version);
    }
    *out_backend = NULL;
    return rc;
}

/* ---- models ---- */

void trees_output_add(struct trees_model *m, const char *name, enum mr_dtype dtype, int64_t columns,
                      int kind)
{
    const uint32_t i = m->signature.output_count++;

    m->kinds[i] = kind;
    m->output_dims[i][0] = -1;
    m->output_dims[i][1] = columns;
    m->outputs[i] = (struct mr_io_desc){.name = name,
                                        .dims = m->output_dims[i],
                                        .dtype = dtype,
                                        .rank = 2,
                                        .flags = i > 0 && !m->is_mlserver ? MR_IO_OPTIONAL : 0};
}

static int io_fail(const char *path, struct mr_err *err)
{
    return mr_backend_fail(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO,
                           "cannot read the model file '%s': %s", path, strerror(errno));
}

/* The whole file, followed by a zero. */
static int file_read(const char *path, char **out, size_t *out_bytes, struct mr_err *err)
{
    FILE *f = fopen(path, "rbe");
    struct stat st;
    int rc = MR_OK;

    if (!f || fstat(fileno(f), &st) != 0) {
        rc = io_fail(path, err);
    } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        rc = mr_backend_fail(err, MR_E_INVALID, "the model file '%s' is %s", path,
                             S_ISREG(st.st_mode) ? "empty" : "no file");
    } else if (!(*out = malloc((size_t)st.st_size + 1))) {
        rc = mr_backend_fail(err, MR_E_NOMEM, "no memory for the model file '%s'", path);
    } else {
        *out_bytes = fread(*out, 1, (size_t)st.st_size, f);
        (*out)[*out_bytes] = '\0';
        rc = ferror(f) ? io_fail(path, err) : MR_OK;
    }
    if (f) {
        fclose(f);
    }
    return rc;
}

static int interface_read(const struct mr_model_desc *desc, int *out_is_mlserver,
                          struct mr_err *err)
{
    const char *text = mr_setting_find(desc->settings, desc->setting_count, "interface");

    *out_is_mlserver = text && strcmp(text, "mlserver") == 0;
    return !text || *out_is_mlserver
               ? MR_OK
               : mr_backend_fail(err, MR_E_INVALID,
                                 "parameter 'interface' is '%.64s', expected mlserver, or none",
                                 text);
}

static void signature_make(struct trees_model *m)
{
    m->input_dims[0] = -1;
    m->input.name = "input__0";
    m->input.dims = m->input_dims;
    m->input.rank = 2;
    m->signature.size = sizeof m->signature;
    m->signature.batchable = 1;
    m->signature.flags = trees_threads > 1 ? MR_BACKEND_NO_INLINE : 0;
    m->signature.input_count = 1;
    m->signature.inputs = &m->input;
    m->signature.outputs = m->outputs;
}

static int model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err)
{
    struct trees_model *m = calloc(1, sizeof *m);
    char *content = NULL;
    size_t bytes = 0;
    int rc;

    (void)backend;
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    rc = interface_read(desc, &m->is_mlserver, err);
    rc = rc < 0 ? rc : file_read(desc->model_file, &content, &bytes, err);
    rc = rc < 0 ? rc : trees_open(m, content, bytes, err);
    m->file_bytes = bytes;
    free(content);
    if (rc < 0) {
        free(m);
        return rc;
    }
    signature_make(m);
    *out_model = m;
    return MR_OK;
}

static void model_close(void *model)
{
    trees_close(model);
    free(model);
}

static int model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct trees_model *)model)->signature;
    return MR_OK;
}

static uint64_t model_bytes(void *model)
{
    return ((struct trees_model *)model)->file_bytes;
}

/* ---- instances ---- */

static int instance_open(void *model, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err)
{
    struct instance *in = calloc(1, sizeof *in);
    int rc;

    (void)desc;
    if (!in) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    in->model = model;
    rc = trees_instance_open(model, &in->own, err);
    if (rc < 0) {
        free(in);
        return rc;
    }
    *out = in;
    return MR_OK;
}

static void instance_close(void *instance)
{
    trees_instance_close(((struct instance *)instance)->own);
    free(instance);
}

int trees_output(const struct trees_model *m, struct mr_exec *exec, uint32_t index, void **out,
                 struct mr_err *err)
{
    const int64_t shape[] = {exec->inputs[0].shape[0], m->output_dims[index][1]};

    return trees_host->output(exec, index, m->outputs[index].dtype, 2, shape, 0, out, err);
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    const struct instance *in = instance;
    const int64_t rows = exec->inputs[0].shape[0];
    void *nothing = NULL;
    int rc = MR_OK;

    if (rows > 0) {
        return trees_predict(in->model, in->own, exec, rows, err);
    }
    for (uint32_t i = 0; i < in->model->signature.output_count && rc == MR_OK; i++) {
        rc = exec->output_wanted[i] ? trees_output(in->model, exec, i, &nothing, err) : MR_OK;
    }
    return rc;
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_CHEAP_INSTANCES | MR_BACKEND_DETERMINISTIC,
    .name = trees_name,
    .version = version_text,
    .init = backend_init,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
    .model_bytes = model_bytes,
};

int mr_backend_entry_v2(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    trees_host = h;
    *out = &table;
    return MR_OK;
}
