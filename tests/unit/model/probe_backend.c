/* A backend with a signature of its own, for the tests of module model: it checks the description
 * of the model, and its file `model.probe` selects the signature:
 *
 *   batch    inputs X and outputs Y of [-1,4], batchable
 *   fixed    the same of [1,4], not batchable
 *   together as batch, once eight of them are being opened at the same time
 *   broken   does not open */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "millrace/backend_util.h"

struct model {
    struct mr_signature s;
    struct mr_io_desc in;
    struct mr_io_desc out;
};

static const int64_t batch_dims[] = {-1, 4};
static const int64_t fixed_dims[] = {1, 4};

static int kind_read(const char *path, char kind[16], struct mr_err *err)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        return mr_backend_fail(err, MR_E_NOT_FOUND, "no file %s", path);
    }
    size_t n = fread(kind, 1, 15, f);
    fclose(f);
    kind[n] = '\0';
    return MR_OK;
}

/* Fails after a time that only loads one after the other reach. */
static int together_wait(struct mr_err *err)
{
    static _Atomic int opening;
    atomic_fetch_add(&opening, 1);
    for (int ms = 0; atomic_load(&opening) < 8; ms++) {
        if (ms == 10000) {
            return mr_backend_fail(err, MR_E_DEADLINE, "only %d are opened at once",
                                   atomic_load(&opening));
        }
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return MR_OK;
}

/* The host keeps what backend.h promises. */
static int desc_check(const struct mr_model_desc *d, struct mr_err *err)
{
    const char *count = mr_setting_find(d->settings, d->setting_count, "instance_group.count");
    const char *level = mr_setting_find(d->settings, d->setting_count, "optimization.graph.level");
    const char *want = mr_setting_find(d->settings, d->setting_count, "want");
    char got[64];
    snprintf(got, sizeof got, "%s,%s,%d", count ? count : "-", level ? level : "-",
             (int)d->max_batch_size);
    if (want && strcmp(want, got) != 0) {
        return mr_backend_fail(err, MR_E_INVALID, "the host says %s, the test wants %s", got, want);
    }
    if (d->version < 1 || !strstr(d->config_json, "\"name\"") ||
        strncmp(d->version_dir, d->model_dir, strlen(d->model_dir)) != 0) {
        return mr_backend_fail(err, MR_E_INVALID, "the model is described badly");
    }
    return MR_OK;
}

static int model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err)
{
    char kind[16] = "";
    (void)backend;
    int rc = desc_check(desc, err);
    rc = rc < 0 ? rc : kind_read(desc->model_file, kind, err);
    if (rc < 0) {
        return rc;
    }
    if (strcmp(kind, "broken") == 0) {
        return mr_backend_fail(err, MR_E_INVALID, "the file is damaged");
    }
    if (strcmp(kind, "together") == 0 && (rc = together_wait(err)) < 0) {
        return rc;
    }
    struct model *m = calloc(1, sizeof *m);
    const int64_t *dims = strcmp(kind, "fixed") == 0 ? fixed_dims : batch_dims;
    m->in = (struct mr_io_desc){.name = "X", .dims = dims, .dtype = MR_DTYPE_FP32, .rank = 2};
    m->out = m->in;
    m->out.name = "Y";
    m->s = (struct mr_signature){.size = sizeof m->s,
                                 .input_count = 1,
                                 .output_count = 1,
                                 .inputs = &m->in,
                                 .outputs = &m->out,
                                 .batchable = dims == batch_dims};
    *out_model = m;
    return MR_OK;
}

static int model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct model *)model)->s;
    return MR_OK;
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    (void)instance, (void)exec;
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "only for loading");
}

static uint64_t model_bytes(void *model)
{
    (void)model;
    return 4096;
}

static int init(const struct mr_setting *settings, uint32_t count, void **out_backend,
                struct mr_err *err)
{
    (void)out_backend;
    const char *fail = mr_setting_find(settings, count, "fail");
    return fail ? mr_backend_fail(err, MR_E_INVALID, "setting fail=%s", fail) : MR_OK;
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .name = "probe",
    .version = "1",
    .init = init,
    .model_open = model_open,
    .model_close = free,
    .model_signature = model_signature,
    .execute = execute,
    .model_bytes = model_bytes,
};

MR_BACKEND_EXPORT int mr_backend_entry_v2(const struct mr_host *host, const struct mr_backend **out,
                                          struct mr_err *err)
{
    (void)host, (void)err;
    *out = &table;
    return MR_OK;
}
