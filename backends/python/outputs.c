#include "outputs.h"

#include <stdbool.h>

#include "millrace/backend_util.h"

#define PARAMETERS_MAX 64 /* of a response, as the host has it */

/* An output of one request, as Python describes it. */
struct part {
    uint32_t index;
    int32_t dtype, rank;
    int64_t shape[MR_MAX_RANK];
    Py_buffer buffer;
};

static void part_drop(struct part *p)
{
    PyBuffer_Release(&p->buffer);
}

PyObject *outputs_text(PyObject *o)
{
    PyObject *text = PyObject_Str(o);
    PyObject *bytes = text ? PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace") : NULL;

    Py_XDECREF(text);
    return bytes;
}

int outputs_fail(struct mr_err *err)
{
    PyObject *kind = NULL, *value = NULL, *trace = NULL;
    const char *text = NULL;

    PyErr_Fetch(&kind, &value, &trace);
    PyObject *bytes = value ? outputs_text(value) : NULL;
    text = bytes ? PyBytes_AsString(bytes) : NULL;
    mr_backend_fail(err, MR_E_INTERNAL, "%s", text ? text : "Python failed without an error");
    Py_XDECREF(bytes);
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    PyErr_Clear();
    return MR_E_INTERNAL;
}

static int shape_read(PyObject *shape, struct part *p, struct mr_err *err)
{
    const Py_ssize_t rank = PyTuple_Size(shape);

    if (rank < 0 || rank > MR_MAX_RANK) {
        return rank < 0 ? outputs_fail(err)
                        : mr_backend_fail(err, MR_E_INVALID,
                                          "an output has %zd dimensions, allowed are %d", rank,
                                          MR_MAX_RANK);
    }
    p->rank = (int32_t)rank;
    for (Py_ssize_t i = 0; i < rank; i++) {
        p->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
        if (p->shape[i] < 0) {
            return outputs_fail(err);
        }
    }
    return MR_OK;
}

static int part_read(PyObject *output, struct part *p, struct mr_err *err)
{
    PyObject *shape, *data;

    memset(p, 0, sizeof *p);
    if (!PyArg_ParseTuple(output, "IiOO", &p->index, &p->dtype, &shape, &data)) {
        return outputs_fail(err);
    }
    int rc = shape_read(shape, p, err);
    if (rc == MR_OK && PyObject_GetBuffer(data, &p->buffer, PyBUF_SIMPLE) < 0) {
        rc = outputs_fail(err);
    }
    return rc;
}

/* ---- one request ---- */

/* Into `response`, or without one as the outputs of `exec`. */
static int parts_set(const struct mr_host *host, struct mr_exec *exec, struct mr_response *response,
                     PyObject *outputs, struct mr_err *err)
{
    const Py_ssize_t count = PyList_Size(outputs);
    int rc = MR_OK;

    for (Py_ssize_t i = 0; i < count && rc == MR_OK; i++) {
        struct part p;
        void *to = NULL;
        rc = part_read(PyList_GetItem(outputs, i), &p, err);
        if (rc < 0) {
            return rc;
        }
        const uint64_t bytes = (uint64_t)p.buffer.len;
        rc = response ? host->response_output(response, p.index, p.dtype, p.rank, p.shape, bytes,
                                              &to, err)
                      : host->output(exec, p.index, p.dtype, p.rank, p.shape, bytes, &to, err);
        if (rc == MR_OK && p.buffer.len > 0) {
            memcpy(to, p.buffer.buf, (size_t)p.buffer.len);
        }
        part_drop(&p);
    }
    return rc;
}

/* ---- a batch ---- */

/* The rows of one output, over all requests. */
struct joint {
    int32_t dtype, rank;
    int64_t shape[MR_MAX_RANK];
    uint64_t row_elements;
    uint64_t row_bytes; /* 0: strings */
    uint64_t bytes;
    bool is_known;
};

static PyObject *output_of(PyObject *result, Py_ssize_t position)
{
    return PyList_Check(result) ? PyList_GetItem(result, position) : NULL;
}

static uint64_t elements(const int64_t *dims, int32_t from, int32_t rank)
{
    uint64_t n = 1;

    for (int32_t i = from; i < rank; i++) {
        n *= (uint64_t)(dims[i] < 0 ? 0 : dims[i]);
    }
    return n;
}

/* The host runs the requests in smaller batches. */
static int apart(int rc, struct mr_err *err)
{
    err->flags |= MR_ERR_APART;
    return rc;
}

static int part_join(struct joint *j, const struct part *p, int64_t rows, struct mr_err *err)
{
    if (p->rank < 1 || p->shape[0] != rows) {
        return apart(mr_backend_fail(err, MR_E_INVALID,
                                     "output %u has %lld rows, its request has %lld", p->index,
                                     p->rank < 1 ? 0LL : (long long)p->shape[0], (long long)rows),
                     err);
    }
    if (!j->is_known) {
        j->is_known = true;
        j->dtype = p->dtype;
        j->rank = p->rank;
        memcpy(j->shape, p->shape, sizeof j->shape);
        j->row_elements = elements(p->shape, 1, p->rank);
        j->row_bytes =
            p->dtype == MR_DTYPE_BYTES || rows == 0 ? 0 : (uint64_t)p->buffer.len / (uint64_t)rows;
    } else if (j->dtype != p->dtype || j->rank != p->rank ||
               memcmp(j->shape + 1, p->shape + 1, (size_t)(p->rank - 1) * sizeof *p->shape) != 0) {
        return apart(mr_backend_fail(err, MR_E_INVALID,
                                     "output %u has another shape or data type for one request of "
                                     "a batch than for another",
                                     p->index),
                     err);
    }
    j->bytes += (uint64_t)p->buffer.len;
    return MR_OK;
}

/* Rows of a request that failed, or of none: zeros, or empty strings. */
static uint64_t filler(const struct joint *j, int64_t rows)
{
    return (uint64_t)rows * (j->dtype == MR_DTYPE_BYTES ? 4 * j->row_elements : j->row_bytes);
}

/* What the rows are like that no request has: the model's output. */
static void joint_default(struct joint *j, const struct output_desc *d)
{
    static const uint8_t sizes[MR_DTYPE_COUNT] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 4, 2};

    j->is_known = true;
    j->dtype = d->dtype;
    j->rank = d->rank < 1 ? 1 : d->rank;
    for (int32_t i = 0; i < d->rank; i++) {
        j->shape[i] = d->dims[i] < 0 ? 0 : d->dims[i];
    }
    j->row_elements = elements(j->shape, 1, j->rank);
    j->row_bytes = d->dtype == MR_DTYPE_BYTES ? 0 : j->row_elements * sizes[d->dtype];
}

static int joint_measure(const struct mr_exec *exec, PyObject *results, Py_ssize_t position,
                         const struct output_desc *d, struct joint *j, struct mr_err *err)
{
    for (uint32_t i = 0; i < exec->request_count; i++) {
        PyObject *output = output_of(PyList_GetItem(results, i), position);
        struct part p;
        int rc;
        if (!output) {
            continue;
        }
        rc = part_read(output, &p, err);
        if (rc < 0) {
            return rc;
        }
        rc = part_join(j, &p, mr_exec_request_at(exec, i)->row_count, err);
        part_drop(&p);
        if (rc < 0) {
            return rc;
        }
    }
    if (!j->is_known) {
        joint_default(j, d);
    }
    int64_t rows = exec->row_count;
    for (uint32_t i = 0; i < exec->request_count; i++) {
        if (output_of(PyList_GetItem(results, i), position)) {
            rows -= mr_exec_request_at(exec, i)->row_count;
        }
    }
    j->bytes += filler(j, rows);
    j->shape[0] = exec->row_count;
    return MR_OK;
}

/* Rows [*row, to), which no request has answered. */
static void fill_to(const struct joint *j, int64_t to, int64_t *row, uint8_t **at)
{
    const uint64_t bytes = filler(j, to - *row);

    if (bytes > 0) {
        memset(*at, 0, bytes);
        *at += bytes;
    }
    *row = to;
}

static int joint_set(const struct mr_host *host, struct mr_exec *exec, PyObject *results,
                     Py_ssize_t position, uint32_t index, const struct joint *j, struct mr_err *err)
{
    void *to = NULL;
    int rc = host->output(exec, index, j->dtype, j->rank, j->shape, j->bytes, &to, err);
    uint8_t *at = to;
    int64_t row = 0;

    for (uint32_t i = 0; i < exec->request_count && rc == MR_OK; i++) {
        const struct mr_exec_request *q = mr_exec_request_at(exec, i);
        PyObject *output = output_of(PyList_GetItem(results, i), position);
        struct part p;
        if (!output) {
            continue;
        }
        fill_to(j, q->row_begin, &row, &at);
        rc = part_read(output, &p, err);
        if (rc == MR_OK) {
            memcpy(at, p.buffer.buf, (size_t)p.buffer.len);
            at += p.buffer.len;
            row += q->row_count;
            part_drop(&p);
        }
    }
    if (rc == MR_OK) {
        fill_to(j, exec->row_count, &row, &at);
    }
    return rc;
}

/* (status, message); *out: the message, a new reference to bytes, NULL: none, and what is returned is in `err`. */
static int failure_read(PyObject *result, PyObject **out, struct mr_err *err)
{
    PyObject *message;
    int status;

    *out = PyArg_ParseTuple(result, "iO", &status, &message) ? outputs_text(message) : NULL;
    return *out ? status : outputs_fail(err);
}

static int failure_set(PyObject *result, struct mr_err *err)
{
    PyObject *message;
    const int status = failure_read(result, &message, err);

    if (message) {
        mr_backend_fail(err, status, "%s", PyBytes_AsString(message));
        Py_DECREF(message);
    }
    return status;
}

static int failures_note(const struct mr_host *host, struct mr_exec *exec, PyObject *results,
                         struct mr_err *err)
{
    for (uint32_t i = 0; i < exec->request_count; i++) {
        PyObject *result = PyList_GetItem(results, i);
        PyObject *message;
        if (!PyTuple_Check(result)) {
            continue;
        }
        const int status = failure_read(result, &message, err);
        if (!message) {
            return status;
        }
        const int rc = host->fail_request(exec, i, status, PyBytes_AsString(message));
        Py_DECREF(message);
        if (rc < 0) {
            return mr_backend_fail(err, rc, "request %u could not be failed", i);
        }
    }
    return MR_OK;
}

int outputs_set(const struct mr_host *host, struct mr_exec *exec, const struct output_desc *descs,
                PyObject *results, struct mr_err *err)
{
    PyObject *first = PyList_GetItem(results, 0);
    Py_ssize_t position = 0;

    if (exec->request_count == 1 && mr_exec_request_at(exec, 0)->row_count == exec->row_count) {
        return PyTuple_Check(first) ? failure_set(first, err)
                                    : parts_set(host, exec, NULL, first, err);
    }
    int rc = failures_note(host, exec, results, err);
    for (uint32_t i = 0; i < exec->output_count && rc == MR_OK; i++) {
        struct joint j = {0};
        if (!exec->output_wanted[i]) {
            continue;
        }
        rc = joint_measure(exec, results, position, &descs[i], &j, err);
        if (rc == MR_OK) {
            rc = joint_set(host, exec, results, position, i, &j, err);
        }
        position++;
    }
    return rc;
}

/* ---- several answers ---- */

/* NULL: an exception is set. */
static const char *text_of(PyObject *text)
{
    Py_ssize_t len;
    const char *s = PyUnicode_AsUTF8AndSize(text, &len);

    if (s && strlen(s) != (size_t)len) {
        PyErr_SetString(PyExc_ValueError, "a parameter of a response has a character NUL");
        return NULL;
    }
    return s;
}

int outputs_parameters(const struct mr_host *host, struct mr_exec *exec, uint32_t request,
                       struct mr_response *response, PyObject *parameters, struct mr_err *err)
{
    struct mr_setting list[PARAMETERS_MAX];
    PyObject *texts;
    const char *kinds;
    Py_ssize_t count;

    if (!PyArg_ParseTuple(parameters, "O!y#", &PyList_Type, &texts, &kinds, &count)) {
        return outputs_fail(err);
    }
    if (count > PARAMETERS_MAX || PyList_Size(texts) != 2 * count) {
        return mr_backend_fail(err, MR_E_INVALID, "a response has %zd parameters, allowed are %d",
                               count, PARAMETERS_MAX);
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        list[i].key = text_of(PyList_GetItem(texts, 2 * i));
        list[i].value = text_of(PyList_GetItem(texts, 2 * i + 1));
        if (!list[i].key || !list[i].value) {
            return outputs_fail(err);
        }
    }
    return host->answer_parameters(exec, request, response, list, (const uint8_t *)kinds,
                                   (uint32_t)count, err);
}

int outputs_respond(const struct mr_host *host, struct mr_exec *exec, uint32_t request,
                    PyObject *outputs, PyObject *parameters, uint32_t flags, struct mr_err *err)
{
    struct mr_response *response = NULL;
    int rc = MR_OK;

    if (outputs != Py_None) {
        rc = host->response_new(exec, request, &response, err);
        if (rc == MR_OK) {
            rc = parts_set(host, NULL, response, outputs, err);
        }
        if (rc == MR_OK && parameters != Py_None) {
            rc = outputs_parameters(host, exec, request, response, parameters, err);
        }
    }
    if (rc < 0) {
        host->response_drop(&response);
        return rc;
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = host->respond(exec, request, &response, flags, err);
    Py_END_ALLOW_THREADS;
    return rc;
}
