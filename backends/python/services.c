#include "services.h"

#include "memory.h"
#include "millrace/backend_util.h"

static const struct mr_host *host;

void run_free(struct run *r)
{
    Py_XDECREF(r->kept);
    free(r);
}

static PyObject *raise_error(const struct mr_err *err)
{
    PyErr_Format(PyExc_RuntimeError, "%s", err->msg);
    return NULL;
}

static struct run *run_of(PyObject *handle)
{
    return PyLong_AsVoidPtr(handle);
}

static PyObject *service_log(PyObject *self, PyObject *args)
{
    int level;
    const char *message;

    (void)self;
    if (!PyArg_ParseTuple(args, "is", &level, &message)) {
        return NULL;
    }
    host->log(host, level, message);
    return Py_NewRef(Py_None);
}

/* respond(handle, request, outputs or None, flags) */
static PyObject *service_respond(PyObject *self, PyObject *args)
{
    PyObject *handle, *outputs;
    unsigned request, flags;
    struct mr_err err;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIOI", &handle, &request, &outputs, &flags)) {
        return NULL;
    }
    const int rc = outputs_respond(host, run_of(handle)->exec, request, outputs, flags, &err);
    /* A client that has gone is no error: is_cancelled says it. */
    return rc < 0 && rc != MR_E_CANCELLED ? raise_error(&err) : PyBool_FromLong(rc == MR_OK);
}

/* fail(handle, request, status, message) */
static PyObject *service_fail(PyObject *self, PyObject *args)
{
    PyObject *handle;
    unsigned request;
    int status;
    const char *message;

    (void)self;
    if (!PyArg_ParseTuple(args, "OIis", &handle, &request, &status, &message)) {
        return NULL;
    }
    host->fail_request(run_of(handle)->exec, request, status, message);
    return Py_NewRef(Py_None);
}

static PyObject *service_is_cancelled(PyObject *self, PyObject *args)
{
    PyObject *handle;
    unsigned request;

    (void)self;
    if (!PyArg_ParseTuple(args, "OI", &handle, &request)) {
        return NULL;
    }
    return PyBool_FromLong(host->is_cancelled(run_of(handle)->exec, request));
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
    struct run *r = run_of(handle);
    struct mr_exec *exec = r->exec;
    if (results != Py_None) {
        rc = outputs_set(host, exec, r->descs, results, &err);
    }
    if (memory_end(r->kept) < 0) {
        rc = outputs_fail(&err);
    }
    run_free(r);
    Py_BEGIN_ALLOW_THREADS;
    host->complete(exec, rc, &err);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
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
                                {"fail", service_fail, METH_VARARGS, NULL},
                                {"is_cancelled", service_is_cancelled, METH_VARARGS, NULL},
                                {"finish", service_finish, METH_VARARGS, NULL},
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
