/* What Python may call of the host, and the executions that it refers to by number. */
#ifndef PYTHON_SERVICES_H
#define PYTHON_SERVICES_H

#include "millrace/backend.h"
#include "outputs.h"

/** An execution that Python knows. */
struct run {
    struct mr_exec *exec;
    const struct output_desc *descs;
    PyObject *kept; /* list, see memory.h */
};

/** A dict of functions: what they do is in lib/_millrace_host.py. Thread: holder of the GIL. NULL: an exception is set. */
PyObject *services_new(const struct mr_host *host);
/** Frees a run. Thread: holder of the GIL. */
void run_free(struct run *r);

#endif
