#include "services.h"

#include <pthread.h>

#include "memory.h"
#include "millrace/backend_util.h"

static const struct mr_host *host;

static PyObject *raise_error(const struct mr_err *err)
{
    PyErr_Format(PyExc_RuntimeError, "%s", err->msg);
    return NULL;
}

/* ---- executions ---- */

/* Of `busy` of all runs, which changes without the GIL too. */
static pthread_mutex_t busy_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t busy_ended = PTHREAD_COND_INITIALIZER;

static void handle_end(PyObject *handle)
{
    struct py_run *r = PyCapsule_GetPointer(handle, NULL);

    Py_DECREF(r->kept);
    free(r);
}

PyObject *run_new(struct mr_exec *exec, const struct output_desc *descs, struct py_run **out)
{
    struct py_run *r = calloc(1, sizeof *r);
    PyObject *handle = NULL;

    if (!r) {
        return PyErr_NoMemory();
    }
    *r = (struct py_run){.exec = exec, .descs = descs, .kept = PyList_New(0)};
    if (r->kept) {
        handle = PyCapsule_New(r, NULL, handle_end);
    }
    if (!handle) {
        Py_XDECREF(r->kept);
        free(r);
        return NULL;
    }
    *out = r;
    return handle;
}

void run_close(struct py_run *r)
{
    r->exec = NULL;
    /* Seldom: another thread of the model calls or answers while this one ends. */
    if (r->busy > 0) {
        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&busy_lock);
        while (r->busy > 0) {
            pthread_cond_wait(&busy_ended, &busy_lock);
        }
        pthread_mutex_unlock(&busy_lock);
        Py_END_ALLOW_THREADS;
    }
}

/* NULL: it has ended, and an exception is set. */
static struct py_run *run_of(PyObject *handle)
{
    struct py_run *r = PyCapsule_GetPointer(handle, NULL);

    if (r && !r->exec) {
        PyErr_SetString(PyExc_RuntimeError, "the execution has ended");
        return NULL;
    }
    return r;
}

/* Between these the execution does not end, whoever has the GIL. */
static struct mr_exec *busy_begin(struct py_run *r)
{
    pthread_mutex_lock(&busy_lock);
    r->busy++;
    pthread_mutex_unlock(&busy_lock);
    return r->exec;
}

static void busy_end(struct py_run *r)
{
    pthread_mutex_lock(&busy_lock);
    r->busy--;
    pthread_cond_broadcast(&busy_ended);
    pthread_mutex_unlock(&busy_lock);
}

static PyObject *service_log(PyObject *self, PyObject *args)
{
    PyObject *message;
    int level;

    (void)self;
    if (!PyArg_ParseTuple(args, "iO", &level, &message) || !(message = outputs_text(message))) {
        return NULL;
    }
    host->log(host, level, PyBytes_AsString(message));
    Py_DECREF(message);
    return Py_NewRef(Py_None);
}

/* respond(handle, request, outputs or None, parameters or None, flags) */
static PyObject *service_respond(PyObject *self, PyObject *args)
{
    PyObject *handle, *outputs, *parameters;
    unsigned request, flags;
    struct mr_err err;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIOOI", &handle, &request, &outputs, &parameters, &flags)) {
        return NULL;
    }
    struct py_run *r = run_of(handle);
    if (!r) {
        return NULL;
    }
    const int rc = outputs_respond(host, busy_begin(r), request, outputs, parameters, flags, &err);
    busy_end(r);
    /* A client that has gone is no error: is_cancelled says it. */
    return rc < 0 && rc != MR_E_CANCELLED ? raise_error(&err) : PyBool_FromLong(rc == MR_OK);
}

/* parameters(handle, request, parameters): of the only answer to a request, as outputs_parameters takes them. */
static PyObject *service_parameters(PyObject *self, PyObject *args)
{
    PyObject *handle, *parameters;
    unsigned request;
    struct mr_err err;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIO", &handle, &request, &parameters)) {
        return NULL;
    }
    const struct py_run *r = run_of(handle);
    if (!r) {
        return NULL;
    }
    const int rc = outputs_parameters(host, r->exec, request, NULL, parameters, &err);
    return rc < 0 ? raise_error(&err) : Py_NewRef(Py_None);
}

/* fail(handle, request, status, message) */
static PyObject *service_fail(PyObject *self, PyObject *args)
{
    PyObject *handle, *message;
    unsigned request;
    int status;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIiO", &handle, &request, &status, &message) ||
        !(message = outputs_text(message))) {
        return NULL;
    }
    const struct py_run *r = run_of(handle);
    if (r) {
        host->fail_request(r->exec, request, status, PyBytes_AsString(message));
    }
    Py_DECREF(message);
    return r ? Py_NewRef(Py_None) : NULL;
}

static PyObject *service_is_cancelled(PyObject *self, PyObject *args)
{
    PyObject *handle;
    unsigned request;

    (void)self;
    if (!PyArg_ParseTuple(args, "OI", &handle, &request)) {
        return NULL;
    }
    const struct py_run *r = run_of(handle);
    return r ? PyBool_FromLong(host->is_cancelled(r->exec, request)) : NULL;
}

/* finish(handle, results): ends an execution for which `execute` has returned None. results: as outputs_set, None if it is
 * decoupled. */
static PyObject *service_finish(PyObject *self, PyObject *args)
{
    PyObject *handle, *results;
    struct mr_err err = {0};
    int rc = MR_OK;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO", &handle, &results)) {
        return NULL;
    }
    struct py_run *r = run_of(handle);
    if (!r) {
        return NULL;
    }
    struct mr_exec *exec = r->exec;
    run_close(r);
    if (results != Py_None) {
        rc = outputs_set(host, exec, r->descs, results, &err);
        PyList_SetSlice(results, 0, PyList_Size(results), NULL); /* which may refer to the inputs */
    }
    if (memory_end(r->kept) < 0) {
        rc = outputs_fail(&err);
    }
    Py_BEGIN_ALLOW_THREADS;
    host->complete(exec, rc, &err);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
}

/* ---- calls ---- */

#define CALL_INPUTS_MAX 256

/* A call as Python knows it: freed with the last reference. */
static void call_capsule_end(PyObject *capsule)
{
    struct mr_model_call *call = PyCapsule_GetPointer(capsule, "call");
    PyObject *notes = PyCapsule_GetContext(capsule);

    Py_BEGIN_ALLOW_THREADS;
    host->call_end(&call);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(notes);
}

/* Inputs of a call: tuples (name, dtype, shape, buffer). */
struct call_inputs {
    struct mr_call_input *list;
    struct {
        int64_t shape[MR_MAX_RANK];
        Py_buffer buffer;
    } * kept;
    uint32_t count;
};

static int call_input_read(PyObject *item, struct call_inputs *in)
{
    const uint32_t i = in->count;
    struct mr_tensor *t = &in->list[i].tensor;
    PyObject *shape, *data;

    if (!PyArg_ParseTuple(item, "siOO", &in->list[i].name, &t->dtype, &shape, &data)) {
        return -1;
    }
    t->rank = (int32_t)PyTuple_Size(shape);
    if (t->rank > MR_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "input '%s' of a call has %d dimensions, allowed are %d",
                     in->list[i].name, (int)t->rank, MR_MAX_RANK);
        return -1;
    }
    for (int32_t k = 0; k < t->rank; k++) {
        in->kept[i].shape[k] = PyLong_AsLongLong(PyTuple_GetItem(shape, k));
    }
    if (PyErr_Occurred() || PyObject_GetBuffer(data, &in->kept[i].buffer, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    t->shape = in->kept[i].shape;
    t->data = in->kept[i].buffer.buf;
    t->bytes = (uint64_t)in->kept[i].buffer.len;
    in->count++;
    return 0;
}

static int call_inputs_read(PyObject *list, struct call_inputs *in)
{
    const Py_ssize_t count = PyList_Size(list);

    if (count > CALL_INPUTS_MAX) {
        PyErr_Format(PyExc_ValueError, "a call has %zd inputs, allowed are %d", count,
                     CALL_INPUTS_MAX);
        return -1;
    }
    in->list = calloc((size_t)(count < 0 ? 0 : count) + 1, sizeof *in->list);
    in->kept = calloc((size_t)(count < 0 ? 0 : count) + 1, sizeof *in->kept);
    if (!in->list || !in->kept) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (call_input_read(PyList_GetItem(list, i), in) < 0) {
            return -1;
        }
    }
    return count < 0 ? -1 : 0;
}

/* Texts of a list of str, which they are borrowed from. */
static const char **texts_read(PyObject *list, uint32_t *out_count)
{
    const Py_ssize_t count = PyList_Size(list);
    const char **out = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *out);

    if (count >= 0 && !out) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; out && i < count; i++) {
        out[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (!out[i]) {
            free(out);
            return NULL;
        }
    }
    *out_count = (uint32_t)count;
    return out;
}

/* What a call holds while it begins. */
struct call_making {
    struct mr_call_args args;
    struct call_inputs inputs;
    const char **outputs, **parameters; /* the latter: keys and values in turn */
};

static int call_read(PyObject *args, struct call_making *m, struct py_run **out_run)
{
    struct mr_call_args *a = &m->args;
    PyObject *handle, *inputs, *outputs, *parameters;
    unsigned long long priority, timeout, correlation;
    const char *kinds;
    Py_ssize_t kind_count;
    uint32_t texts;

    a->size = sizeof *a;
    if (!PyArg_ParseTuple(args, "OsssOOOy#KKKsI", &handle, &a->model, &a->version, &a->id, &inputs,
                          &outputs, &parameters, &kinds, &kind_count, &priority, &timeout,
                          &correlation, &a->correlation_text, &a->sequence_flags)) {
        return -1;
    }
    a->priority = priority;
    a->timeout_us = timeout;
    a->correlation_id = correlation;
    *out_run = run_of(handle);
    if (!*out_run || call_inputs_read(inputs, &m->inputs) < 0) {
        return -1;
    }
    m->outputs = texts_read(outputs, &a->output_count);
    m->parameters = m->outputs ? texts_read(parameters, &texts) : NULL;
    if (!m->parameters) {
        return -1;
    }
    a->inputs = m->inputs.list;
    a->input_count = m->inputs.count;
    a->outputs = m->outputs;
    a->parameter_count = texts / 2;
    a->parameters = (const struct mr_setting *)(const void *)m->parameters;
    a->parameter_kinds = kind_count == (Py_ssize_t)(texts / 2) ? (const uint8_t *)kinds : NULL;
    return 0;
}

static void call_made(struct call_making *m)
{
    for (uint32_t i = 0; i < m->inputs.count; i++) {
        PyBuffer_Release(&m->inputs.kept[i].buffer);
    }
    free(m->inputs.list);
    free(m->inputs.kept);
    free(m->outputs);
    free(m->parameters);
}

static int call_begin(struct py_run *r, const struct call_making *m, struct mr_model_call **out,
                      struct mr_err *err)
{
    struct mr_exec *exec = busy_begin(r);
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = host->call_begin(exec, &m->args, out, err);
    busy_end(r);
    Py_END_ALLOW_THREADS;
    return rc;
}

/* call(handle, model, version, id, inputs, outputs, [key, value, …], kinds of the values (bytes), priority, timeout_us,
 * correlation id, correlation text, sequence flags): a call. */
static PyObject *service_call(PyObject *self, PyObject *args)
{
    struct call_making m = {0};
    struct mr_model_call *call = NULL;
    struct py_run *r = NULL;
    PyObject *out = NULL;
    struct mr_err err;

    (void)self;
    if (call_read(args, &m, &r) == 0) {
        out = call_begin(r, &m, &call, &err) < 0 ? raise_error(&err)
                                                 : PyCapsule_New(call, "call", call_capsule_end);
    }
    call_made(&m);
    return out;
}

static PyObject *answer_outputs(const struct mr_call_answer *a)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < a->output_count; i++) {
        const struct mr_tensor *t = &a->outputs[i];
        PyObject *shape = PyTuple_New(t->rank);
        for (int32_t k = 0; shape && k < t->rank; k++) {
            PyTuple_SetItem(shape, k, PyLong_FromLongLong(t->shape[k]));
        }
        PyObject *data = PyByteArray_FromStringAndSize(t->data, (Py_ssize_t)t->bytes);
        PyObject *item =
            shape && data ? Py_BuildValue("(siNN)", a->names[i], (int)t->dtype, shape, data) : NULL;
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* (name, value as text, kind) of each. */
static PyObject *answer_parameters(const struct mr_call_answer *a)
{
    const int has = a->size > offsetof(struct mr_call_answer, parameter_count);
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; has && list && i < a->parameter_count; i++) {
        PyObject *item = Py_BuildValue("(ssi)", a->parameters[i].key, a->parameters[i].value,
                                       (int)a->parameter_kinds[i]);
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

/* call_notify(call, notes, fd, token): as the host's, whether there is an answer already. `notes`, which has the descriptor,
 * lives as long as the call; it is the same each time. */
static PyObject *service_call_notify(PyObject *self, PyObject *args)
{
    PyObject *capsule, *notes;
    int fd;
    unsigned long long token;
    struct mr_err err;

    (void)self;
    if (!PyArg_ParseTuple(args, "OOiK", &capsule, &notes, &fd, &token)) {
        return NULL;
    }
    struct mr_model_call *call = PyCapsule_GetPointer(capsule, "call");
    if (!call) {
        return NULL;
    }
    if (!PyCapsule_GetContext(capsule)) {
        PyCapsule_SetContext(capsule, Py_NewRef(notes));
    }
    const int rc = host->call_notify(call, fd, token, &err);
    return rc < 0 ? raise_error(&err) : PyBool_FromLong(rc);
}

/* call_next(call, timeout_ns): (status, message, is the last, outputs, value, parameters), where outputs are (name, dtype,
 * shape, bytes); None when there is none in time, or none at all. */
static PyObject *service_call_next(PyObject *self, PyObject *args)
{
    PyObject *capsule;
    long long timeout_ns;
    struct mr_call_answer *a = NULL;
    struct mr_err err;
    int rc;

    (void)self;
    if (!PyArg_ParseTuple(args, "OL", &capsule, &timeout_ns)) {
        return NULL;
    }
    struct mr_model_call *call = PyCapsule_GetPointer(capsule, "call");
    Py_BEGIN_ALLOW_THREADS;
    rc = host->call_next(call, timeout_ns, &a, &err);
    Py_END_ALLOW_THREADS;
    if (rc < 0) {
        return Py_NewRef(Py_None);
    }
    const char *text = a->message ? a->message : "";
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    PyObject *outputs = message ? answer_outputs(a) : NULL;
    PyObject *parameters = outputs ? answer_parameters(a) : NULL;
    PyObject *out = parameters ? Py_BuildValue("(iOiOLO)", (int)a->status, message, (int)a->is_last,
                                               outputs, (long long)a->value, parameters)
                               : NULL;
    Py_XDECREF(message);
    Py_XDECREF(outputs);
    Py_XDECREF(parameters);
    host->call_answer_drop(&a);
    return out;
}

/* ---- control ---- */

static int control_files_read(PyObject *list, struct mr_control_file *files, Py_buffer *buffers,
                              Py_ssize_t *io_count)
{
    const Py_ssize_t count = PyList_Size(list);

    for (*io_count = 0; *io_count < count; (*io_count)++) {
        const Py_ssize_t i = *io_count;
        PyObject *data;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sO", &files[i].path, &data) ||
            PyObject_GetBuffer(data, &buffers[i], PyBUF_SIMPLE) < 0) {
            return -1;
        }
        files[i].data = buffers[i].buf;
        files[i].bytes = (uint64_t)buffers[i].len;
    }
    return 0;
}

static PyObject *control_begin(const struct mr_control_args *a)
{
    struct mr_model_call *call = NULL;
    struct mr_err err;
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = host->control_begin(a, &call, &err);
    Py_END_ALLOW_THREADS;
    return rc < 0 ? raise_error(&err) : PyCapsule_New(call, "call", call_capsule_end);
}

/* control(kind, model, version, config or None, [(path, data)], flags): a call. */
static PyObject *service_control(PyObject *self, PyObject *args)
{
    struct mr_control_args a = {.size = sizeof a};
    PyObject *list, *out = NULL;
    Py_ssize_t count = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "isszOI", &a.kind, &a.model, &a.version, &a.config, &list,
                          &a.flags)) {
        return NULL;
    }
    const size_t most = (size_t)PyList_Size(list) + 1;
    struct mr_control_file *files = calloc(most, sizeof *files);
    Py_buffer *buffers = calloc(most, sizeof *buffers);
    if (!files || !buffers) {
        PyErr_NoMemory();
    } else if (control_files_read(list, files, buffers, &count) == 0) {
        a.files = files;
        a.file_count = (uint32_t)count;
        out = control_begin(&a);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyBuffer_Release(&buffers[i]);
    }
    free(buffers);
    free(files);
    return out;
}

/* ---- metrics ---- */

static void metric_capsule_end(PyObject *capsule)
{
    struct mr_metric *metric = PyCapsule_GetPointer(capsule, "metric");

    host->metric_drop(&metric);
}

static PyObject *metric_make(const struct mr_metric_args *a)
{
    struct mr_metric *metric = NULL;
    struct mr_err err;
    int rc;

    Py_BEGIN_ALLOW_THREADS;
    rc = host->metric_new(a, &metric, &err);
    Py_END_ALLOW_THREADS;
    return rc < 0 ? raise_error(&err) : PyCapsule_New(metric, "metric", metric_capsule_end);
}

/* metric(kind, name, help, [label, value, …], [bound, …]) */
static PyObject *service_metric(PyObject *self, PyObject *args)
{
    struct mr_metric_args a = {.size = sizeof a};
    PyObject *labels, *bounds, *out = NULL;
    uint32_t texts = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "issOO", &a.kind, &a.name, &a.help, &labels, &bounds)) {
        return NULL;
    }
    const Py_ssize_t count = PyList_Size(bounds);
    double *list = calloc((size_t)(count < 0 ? 0 : count) + 1, sizeof *list);
    const char **pairs = texts_read(labels, &texts);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        list[i] = PyFloat_AsDouble(PyList_GetItem(bounds, i));
    }
    if (list && pairs && !PyErr_Occurred()) {
        a.labels = (const struct mr_setting *)(const void *)pairs;
        a.label_count = texts / 2;
        a.bounds = list;
        a.bound_count = (uint32_t)count;
        out = metric_make(&a);
    } else if (!PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    free(pairs);
    free(list);
    return out;
}

static PyObject *metric_change(PyObject *args, void (*change)(struct mr_metric *, double))
{
    PyObject *capsule;
    double value;

    if (!PyArg_ParseTuple(args, "Od", &capsule, &value)) {
        return NULL;
    }
    struct mr_metric *metric = PyCapsule_GetPointer(capsule, "metric");
    if (!metric) {
        return NULL;
    }
    change(metric, value);
    return Py_NewRef(Py_None);
}

/* metric_add(metric, value) */
static PyObject *service_metric_add(PyObject *self, PyObject *args)
{
    (void)self;
    return metric_change(args, host->metric_add);
}

/* metric_set(metric, value) */
static PyObject *service_metric_set(PyObject *self, PyObject *args)
{
    (void)self;
    return metric_change(args, host->metric_set);
}

static PyObject *service_metric_value(PyObject *self, PyObject *capsule)
{
    const struct mr_metric *metric = PyCapsule_GetPointer(capsule, "metric");

    (void)self;
    return metric ? PyFloat_FromDouble(host->metric_value(metric)) : NULL;
}

/* ---- strings ---- */

/* bytes_split(buffer): a list of bytes. */
static PyObject *service_bytes_split(PyObject *self, PyObject *data)
{
    Py_buffer b;
    uint32_t len;

    (void)self;
    if (PyObject_GetBuffer(data, &b, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    const uint8_t *at = b.buf, *end = at + b.len;
    while (list && end - at >= 4) {
        memcpy(&len, at, 4);
        if (len > (uint64_t)(end - at - 4)) {
            break;
        }
        PyObject *item = PyBytes_FromStringAndSize((const char *)at + 4, (Py_ssize_t)len);
        if (!item || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
        at += 4 + len;
    }
    PyBuffer_Release(&b);
    if (list && at != end) {
        Py_DECREF(list);
        PyErr_SetString(PyExc_ValueError, "strings are damaged: a length exceeds the buffer");
        return NULL;
    }
    return list;
}

/* Bytes of an element: those of bytes, UTF-8 of str. A new reference. */
static PyObject *element_bytes(PyObject *item)
{
    if (PyBytes_Check(item)) {
        return Py_NewRef(item);
    }
    PyObject *text = PyUnicode_Check(item) ? Py_NewRef(item) : PyObject_Str(item);
    PyObject *bytes = text ? PyUnicode_AsUTF8String(text) : NULL;
    Py_XDECREF(text);
    return bytes;
}

static PyObject *elements_join(PyObject *parts, size_t total)
{
    PyObject *out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    char *at = out ? PyBytes_AsString(out) : NULL;

    for (Py_ssize_t i = 0; out && i < PyList_Size(parts); i++) {
        PyObject *item = PyList_GetItem(parts, i);
        const uint32_t len = (uint32_t)PyBytes_Size(item);
        memcpy(at, &len, 4);
        memcpy(at + 4, PyBytes_AsString(item), len);
        at += 4 + (size_t)len;
    }
    return out;
}

/* bytes_join(list): each element with its length before it. */
static PyObject *service_bytes_join(PyObject *self, PyObject *items)
{
    const Py_ssize_t count = PyList_Size(items);
    PyObject *parts = PyList_New(0);
    size_t total = 0;

    (void)self;
    for (Py_ssize_t i = 0; parts && i < count; i++) {
        PyObject *bytes = element_bytes(PyList_GetItem(items, i));
        if (bytes && (size_t)PyBytes_Size(bytes) > UINT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a string has 4 GiB or more");
            Py_CLEAR(bytes);
        }
        total += bytes ? 4 + (size_t)PyBytes_Size(bytes) : 0;
        if (!bytes || PyList_Append(parts, bytes) < 0) {
            Py_CLEAR(parts);
        }
        Py_XDECREF(bytes);
    }
    PyObject *out = parts ? elements_join(parts, total) : NULL;
    Py_XDECREF(parts);
    return out;
}

static PyMethodDef methods[] = {{"log", service_log, METH_VARARGS, NULL},
                                {"respond", service_respond, METH_VARARGS, NULL},
                                {"parameters", service_parameters, METH_VARARGS, NULL},
                                {"fail", service_fail, METH_VARARGS, NULL},
                                {"is_cancelled", service_is_cancelled, METH_VARARGS, NULL},
                                {"finish", service_finish, METH_VARARGS, NULL},
                                {"call", service_call, METH_VARARGS, NULL},
                                {"call_next", service_call_next, METH_VARARGS, NULL},
                                {"call_notify", service_call_notify, METH_VARARGS, NULL},
                                {"control", service_control, METH_VARARGS, NULL},
                                {"metric", service_metric, METH_VARARGS, NULL},
                                {"metric_add", service_metric_add, METH_VARARGS, NULL},
                                {"metric_set", service_metric_set, METH_VARARGS, NULL},
                                {"metric_value", service_metric_value, METH_O, NULL},
                                {"bytes_split", service_bytes_split, METH_O, NULL},
                                {"bytes_join", service_bytes_join, METH_O, NULL},
                                {NULL, NULL, 0, NULL}};

PyObject *services_new(const struct mr_host *h)
{
    PyObject *out = PyDict_New();

    host = h;
    for (PyMethodDef *m = methods; out && m->ml_name; m++) {
        PyObject *f = PyCFunction_NewEx(m, NULL, NULL);
        if (!f || PyDict_SetItemString(out, m->ml_name, f) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(f);
    }
    return out;
}
