/* What Python may call of the host, and the executions that it calls it for. */
#ifndef PYTHON_SERVICES_H
#define PYTHON_SERVICES_H

#include "millrace/backend.h"
#include "outputs.h"

/** An execution that Python knows; freed with its handle. */
struct py_run {
    struct mr_exec *exec; /* NULL: it has ended */
    const struct output_desc *descs;
    PyObject *kept; /* list, see memory.h */
    unsigned busy;  /* threads that begin a call or answer for it without the GIL */
};

/** A dict of functions: what they do is in lib/_millrace_host.py. Thread: holder of the GIL. NULL: an exception is set. */
PyObject *services_new(const struct mr_host *host);
/** The handle by which Python refers to an execution, which has a run until run_end and a handle as long as Python
 *  keeps it. *out: borrowed from the handle. NULL: an exception is set. Thread: holder of the GIL. */
PyObject *run_new(struct mr_exec *exec, const struct output_desc *descs, struct py_run **out);
/** The execution is about to get its outputs and to end: services refuse its handle afterwards. Waits for calls that are
 *  just beginning, and for answers that are being sent. Thread: holder of the GIL, which others may take while this waits. */
void run_close(struct py_run *r);

#endif
