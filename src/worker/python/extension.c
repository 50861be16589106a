/* The worker process as a module of the interpreter: _millrace_worker.main(arguments) runs it, and returns the exit code. */
#include "worker/worker.h"
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000 /* one build for all versions from 3.9 on */
#include <Python.h>

#define ARGUMENTS 4

static PyObject *run(PyObject *self, PyObject *list)
{
    const Py_ssize_t count = PyList_Size(list);
    PyObject *bytes[ARGUMENTS] = {NULL};
    char *argv[ARGUMENTS + 1] = {NULL};
    int code = -1;

    (void)self;
    if (count < 0 || count > ARGUMENTS) {
        PyErr_SetString(PyExc_ValueError,
                        "arguments of a worker: itself, the model, the server, a cgroup");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!PyUnicode_FSConverter(PyList_GetItem(list, i), &bytes[i])) {
            goto out;
        }
        argv[i] = PyBytes_AsString(bytes[i]);
    }
    Py_BEGIN_ALLOW_THREADS;
    code = mr_worker_main((int)count, argv);
    Py_END_ALLOW_THREADS;
out:
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_XDECREF(bytes[i]);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLong(code);
}

PyMODINIT_FUNC PyInit__millrace_worker(void);

PyMODINIT_FUNC PyInit__millrace_worker(void)
{
    static PyMethodDef methods[] = {{"main", run, METH_O, NULL}, {NULL, NULL, 0, NULL}};
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_millrace_worker",
                                     .m_size = -1, .m_methods = methods};

    return PyModule_Create(&definition);
}
