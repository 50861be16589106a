/* The python backend: models written in Python, with Triton's interface.
 *
 * A worker process of such a model is the model's interpreter, which has loaded this library: what is undefined in it
 * is found there. It uses Python's stable ABI only, so that one build serves all versions from 3.9 on. What a model sees
 * is made by lib/_millrace_host.py; this side turns executions into tuples and answers into outputs. */
#include "gil.h"
#include "memory.h"
#include "millrace/backend_util.h"
#include "requests.h"
#include "services.h"

static const struct mr_host *host;

struct model {
    PyObject *object; /* _millrace_host.Model */
    struct mr_signature signature;
    struct mr_io_desc *io; /* [inputs, then outputs] of a signature of its own; NULL */
    int64_t (*dims)[MR_MAX_RANK];
    struct output_desc *outputs; /* [output_count] */
};

struct instance {
    const struct model *model;
    PyObject *execute; /* bound method */
    PyObject *close;
};

/* ---- opening ---- */

static PyObject *settings_new(const struct mr_model_desc *desc)
{
    PyObject *out = PyDict_New();

    for (uint32_t i = 0; out && i < desc->setting_count; i++) {
        PyObject *value = PyUnicode_FromString(desc->settings[i].value);
        if (!value || PyDict_SetItemString(out, desc->settings[i].key, value) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(value);
    }
    return out;
}

static PyObject *object_open(const struct mr_model_desc *desc)
{
    PyObject *settings = settings_new(desc);
    PyObject *services = settings ? services_new(host) : NULL;
    PyObject *module = services ? PyImport_ImportModule("_millrace_host") : NULL;
    PyObject *out = NULL;

    if (module) {
        out = PyObject_CallMethod(
            module, "open_model", "({s:s,s:L,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:O}O)", "name",
            desc->name, "version", (long long)desc->version, "model_dir", desc->model_dir,
            "version_dir", desc->version_dir, "file", desc->model_file, "repository_dir",
            desc->repository_dir, "config", desc->config_json, "max_batch_size",
            (int)desc->max_batch_size, "completes", !(desc->load_flags & MR_LOAD_AS_CONFIGURED),
            "settings", settings, services);
    }
    Py_XDECREF(module);
    Py_XDECREF(services);
    Py_XDECREF(settings);
    return out;
}

/* (name, dtype, dims) of an input or output that the model states; the name lives as long as the model. */
static int io_read(PyObject *item, struct mr_io_desc *d, int64_t dims[MR_MAX_RANK])
{
    PyObject *shape;
    int is_optional;

    if (!PyArg_ParseTuple(item, "siOp", &d->name, &d->dtype, &shape, &is_optional)) {
        return -1;
    }
    d->rank = (int32_t)PyList_Size(shape);
    d->dims = dims;
    d->flags = is_optional ? MR_IO_OPTIONAL : 0;
    for (int32_t i = 0; i < d->rank && i < MR_MAX_RANK; i++) {
        dims[i] = PyLong_AsLongLong(PyList_GetItem(shape, i));
    }
    return d->rank > MR_MAX_RANK || PyErr_Occurred() ? -1 : 0;
}

/* (inputs, outputs, batchable, largest batch or 0, MR_BACKEND_*) */
static int signature_read(struct model *m, PyObject *stated)
{
    PyObject *inputs, *outputs;
    struct mr_signature *s = &m->signature;
    uint32_t flags;

    if (!PyArg_ParseTuple(stated, "OOiII", &inputs, &outputs, &s->batchable, &s->max_batch_size,
                          &flags)) {
        return -1;
    }
    s->flags |= flags;
    const Py_ssize_t in = PyList_Size(inputs), out = PyList_Size(outputs);
    if (in < 0 || out < 0) {
        return -1;
    }
    m->io = calloc((size_t)(in + out) + 1, sizeof *m->io);
    m->dims = calloc((size_t)(in + out) + 1, sizeof *m->dims);
    for (Py_ssize_t i = 0; m->io && m->dims && i < in + out; i++) {
        PyObject *item = i < in ? PyList_GetItem(inputs, i) : PyList_GetItem(outputs, i - in);
        if (io_read(item, &m->io[i], m->dims[i]) < 0) {
            return -1;
        }
    }
    if (!m->io || !m->dims) {
        PyErr_NoMemory();
        return -1;
    }
    s->input_count = (uint32_t)in;
    s->output_count = (uint32_t)out;
    s->inputs = m->io;
    s->outputs = m->io + in;
    return 0;
}

static PyObject *io_list(const struct mr_io_desc *list, uint32_t count)
{
    PyObject *out = PyList_New(0);

    for (uint32_t i = 0; out && i < count; i++) {
        PyObject *item = Py_BuildValue("(si)", list[i].name, (int)list[i].dtype);
        if (!item || PyList_Append(out, item) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(item);
    }
    return out;
}

/* Passes the order of inputs and outputs to Python. */
static int names_settle(struct model *m, const struct mr_signature *s)
{
    PyObject *inputs = io_list(s->inputs, s->input_count);
    PyObject *outputs = inputs ? io_list(s->outputs, s->output_count) : NULL;
    PyObject *done =
        outputs ? PyObject_CallMethod(m->object, "settle", "(OO)", inputs, outputs) : NULL;

    Py_XDECREF(inputs);
    Py_XDECREF(outputs);
    Py_XDECREF(done);
    m->outputs = calloc((size_t)s->output_count + 1, sizeof *m->outputs);
    for (uint32_t i = 0; m->outputs && i < s->output_count; i++) {
        const struct mr_io_desc *d = &s->outputs[i];
        m->outputs[i].dtype = d->dtype;
        m->outputs[i].rank = d->rank < 0 ? 0 : d->rank;
        memcpy(m->outputs[i].dims, d->dims, (size_t)m->outputs[i].rank * sizeof *d->dims);
    }
    return done && m->outputs ? 0 : -1;
}

static void model_free(struct model *m)
{
    Py_XDECREF(m->object);
    free(m->io);
    free(m->dims);
    free(m->outputs);
    free(m);
}

/* A model that never gives several answers is spared what they take. */
static int flags_read(struct model *m)
{
    PyObject *streams = PyObject_GetAttrString(m->object, "streams");
    PyObject *most = streams ? PyObject_GetAttrString(m->object, "max_pending") : NULL;
    const int is_true = most ? PyObject_IsTrue(streams) : -1;

    m->signature.flags = is_true ? MR_BACKEND_DECOUPLED : 0;
    m->signature.max_pending = most ? (uint32_t)PyLong_AsLong(most) : 1;
    Py_XDECREF(most);
    Py_XDECREF(streams);
    return is_true < 0 ? -1 : 0;
}

static int model_begin(struct model *m, const struct mr_model_desc *desc)
{
    if (memory_init() < 0 || !(m->object = object_open(desc))) {
        return -1;
    }
    m->signature.size = sizeof m->signature;
    m->signature.batchable = -1;
    if (flags_read(m) < 0) {
        return -1;
    }
    PyObject *stated = PyObject_CallMethod(m->object, "signature", NULL);
    int rc = stated ? 0 : -1;
    if (stated == Py_None) {
        m->signature.from_config = 1;
    } else if (stated) {
        rc = signature_read(m, stated);
        if (rc == 0) {
            rc = names_settle(m, &m->signature);
        }
        /* Its names are used as long as the model. */
        if (rc == 0 && PyObject_SetAttrString(m->object, "stated", stated) < 0) {
            rc = -1;
        }
    }
    Py_XDECREF(stated);
    return rc;
}

static int model_open(void *backend, const struct mr_model_desc *desc, void **out_model,
                      struct mr_err *err)
{
    struct model *m = calloc(1, sizeof *m);

    (void)backend;
    if (!m) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    gil_take();
    int rc = model_begin(m, desc);
    if (rc < 0) {
        outputs_fail(err);
        rc = err->status = MR_E_INVALID;
        model_free(m);
    } else {
        *out_model = m;
    }
    gil_give();
    return rc;
}

static void model_close(void *model)
{
    gil_take();
    model_free(model);
    gil_give();
}

static int model_signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)err;
    *out = &((struct model *)model)->signature;
    return MR_OK;
}

static int model_configure(void *model, const struct mr_signature *s, struct mr_err *err)
{
    gil_take();
    const int rc = names_settle(model, s) < 0 ? outputs_fail(err) : MR_OK;
    gil_give();
    return rc;
}

/* ---- instances ---- */

static void instance_free(struct instance *i)
{
    Py_XDECREF(i->execute);
    Py_XDECREF(i->close);
    free(i);
}

static int instance_begin(struct instance *i, const struct mr_instance_desc *desc)
{
    PyObject *object = PyObject_CallMethod(i->model->object, "instance", "(Iiis)", desc->index,
                                           (int)desc->kind, (int)desc->device_id, desc->name);

    if (object) {
        i->execute = PyObject_GetAttrString(object, "execute");
        i->close = PyObject_GetAttrString(object, "close");
    }
    Py_XDECREF(object);
    return i->execute && i->close ? 0 : -1;
}

static int instance_open(void *model, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err)
{
    struct instance *i = calloc(1, sizeof *i);
    int rc = MR_OK;

    if (!i) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    i->model = model;
    gil_take();
    if (instance_begin(i, desc) < 0) {
        outputs_fail(err);
        rc = err->status = MR_E_INVALID;
        instance_free(i);
    } else {
        *out = i;
    }
    gil_give();
    return rc;
}

static void instance_close(void *instance)
{
    struct instance *i = instance;
    struct mr_err err;

    gil_take();
    PyObject *done = PyObject_CallObject(i->close, NULL);
    if (!done) {
        outputs_fail(&err);
        host->log(host, 1, err.msg);
    }
    Py_XDECREF(done);
    instance_free(i);
    gil_give();
}

/* ---- executions ---- */

/* What Python answers at once; None: later. NULL: an exception is set. */
static PyObject *results_of(const struct instance *i, struct py_run *r, PyObject *handle)
{
    struct mr_exec *exec = r->exec;
    PyObject *requests = requests_new(exec, r->kept);
    PyObject *wanted = NULL, *results = NULL;

    if (requests) {
        wanted = PyBytes_FromStringAndSize((const char *)exec->output_wanted,
                                           (Py_ssize_t)exec->output_count);
    }
    if (wanted) {
        results = PyObject_CallFunctionObjArgs(i->execute, handle, requests, wanted,
                                               exec->flags & MR_EXEC_DECOUPLED ? Py_True : Py_False,
                                               NULL);
    }
    Py_XDECREF(wanted);
    Py_XDECREF(requests);
    return results;
}

/* Answers of a decoupled execution have been sent. */
static int answers_set(const struct instance *i, struct mr_exec *exec, PyObject *results,
                       struct mr_err *err)
{
    return exec->flags & MR_EXEC_DECOUPLED
               ? MR_OK
               : outputs_set(host, exec, i->model->outputs, results, err);
}

static int run_now(const struct instance *i, struct mr_exec *exec, struct mr_err *err)
{
    struct py_run *r;
    PyObject *handle = run_new(exec, i->model->outputs, &r);
    PyObject *results = handle ? results_of(i, r, handle) : NULL;
    int rc = handle ? MR_PENDING : outputs_fail(err);

    if (handle && results != Py_None) { /* None: it ends later, or has ended already */
        run_close(r);
        rc = results ? answers_set(i, exec, results, err) : outputs_fail(err);
        Py_CLEAR(results); /* which may refer to the inputs */
        if (memory_end(r->kept) < 0) {
            rc = outputs_fail(err);
        }
    }
    Py_XDECREF(results);
    Py_XDECREF(handle);
    return rc;
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    gil_take();
    const int rc = run_now(instance, exec, err);
    gil_give();
    return rc;
}

static const struct mr_backend table = {
    .size = sizeof(struct mr_backend),
    .abi_minor = MR_BACKEND_ABI_MINOR,
    .flags = MR_BACKEND_NO_INLINE | MR_BACKEND_PER_REQUEST | MR_BACKEND_NO_WARMUP,
    .name = "python",
    .version = MR_VERSION,
    .model_open = model_open,
    .model_close = model_close,
    .model_signature = model_signature,
    .model_configure = model_configure,
    .instance_open = instance_open,
    .instance_close = instance_close,
    .execute = execute,
};

int mr_backend_entry_v2(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)err;
    host = h;
    *out = &table;
    return MR_OK;
}
