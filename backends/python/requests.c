#include "requests.h"

#include "memory.h"
#include "millrace/backend_util.h"

static PyObject *shape_new(const struct mr_tensor *t)
{
    PyObject *shape = PyTuple_New(t->rank);

    for (int32_t i = 0; shape && i < t->rank; i++) {
        PyObject *n = PyLong_FromLongLong(t->shape[i]);
        if (!n || PyTuple_SetItem(shape, i, n) < 0) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    return shape;
}

static PyObject *input_new(uint32_t index, const struct mr_tensor *t, PyObject *kept)
{
    PyObject *shape = shape_new(t);
    PyObject *data = shape ? memory_of(t, kept) : NULL;

    if (!data) {
        Py_XDECREF(shape);
        return NULL;
    }
    return Py_BuildValue("(IiNN)", index, (int)t->dtype, shape, data);
}

/* Inputs of a request: its own, or its rows of those that were joined. */
static PyObject *inputs_new(const struct mr_exec *exec, const struct mr_exec_request *q,
                            PyObject *kept)
{
    const struct mr_tensor *list = q->inputs ? q->inputs : exec->inputs;
    PyObject *out = PyList_New(0);

    for (uint32_t i = 0; out && i < exec->input_count; i++) {
        if (list[i].dtype == MR_DTYPE_INVALID) {
            continue;
        }
        PyObject *input = input_new(i, &list[i], kept);
        if (!input || PyList_Append(out, input) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(input);
    }
    PyObject *tuple = out ? PyList_AsTuple(out) : NULL;
    Py_XDECREF(out);
    return tuple;
}

/* Headers that are passed on may have any bytes; HTTP reads those that are no UTF-8 as Latin-1. */
static PyObject *text_new(const char *text)
{
    PyObject *out = PyUnicode_FromString(text);

    if (!out && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        out = PyUnicode_DecodeLatin1(text, (Py_ssize_t)strlen(text), NULL);
    }
    return out;
}

/* A value that does not read as what it should be stays a text. */
static PyObject *parameter_new(const char *text, int kind)
{
    PyObject *out = NULL;

    switch (kind) {
    case MR_PARAMETER_INT: out = PyLong_FromString(text, NULL, 10); break;
    case MR_PARAMETER_DOUBLE: {
        PyObject *s = PyUnicode_FromString(text);
        out = s ? PyFloat_FromString(s) : NULL;
        Py_XDECREF(s);
        break;
    }
    case MR_PARAMETER_BOOL: return PyBool_FromLong(strcmp(text, "true") == 0);
    default: return text_new(text);
    }
    if (!out) {
        PyErr_Clear();
        out = text_new(text);
    }
    return out;
}

static PyObject *parameters_new(const struct mr_exec_request *q)
{
    if (q->parameter_count == 0) {
        return Py_NewRef(Py_None);
    }
    PyObject *out = PyDict_New();
    for (uint32_t i = 0; out && i < q->parameter_count; i++) {
        PyObject *value = parameter_new(
            q->parameters[i].value, q->parameter_kinds ? q->parameter_kinds[i] : MR_PARAMETER_TEXT);
        if (!value || PyDict_SetItemString(out, q->parameters[i].key, value) < 0) {
            Py_CLEAR(out);
        }
        Py_XDECREF(value);
    }
    return out;
}

static PyObject *request_new(const struct mr_exec *exec, const struct mr_exec_request *q,
                             PyObject *kept)
{
    PyObject *parameters = parameters_new(q);
    PyObject *inputs = parameters ? inputs_new(exec, q, kept) : NULL;
    PyObject *correlation = NULL;

    if (inputs) {
        correlation = q->correlation_text && q->correlation_text[0]
                          ? PyUnicode_FromString(q->correlation_text)
                          : PyLong_FromUnsignedLongLong(q->correlation_id);
    }
    if (!correlation) {
        Py_XDECREF(inputs);
        Py_XDECREF(parameters);
        return NULL;
    }
    return Py_BuildValue("(sNILNNK)", q->id ? q->id : "", correlation, q->sequence_flags,
                         (long long)q->deadline_ns, parameters, inputs,
                         (unsigned long long)q->timeout_us);
}

PyObject *requests_new(const struct mr_exec *exec, PyObject *kept)
{
    PyObject *list = PyList_New((Py_ssize_t)exec->request_count);

    for (uint32_t i = 0; list && i < exec->request_count; i++) {
        PyObject *request = request_new(exec, mr_exec_request_at(exec, i), kept);
        if (!request || PyList_SetItem(list, i, request) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}
