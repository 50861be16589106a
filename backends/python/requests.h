/* An execution as Python sees it. Thread: holder of the GIL. */
#ifndef PYTHON_REQUESTS_H
#define PYTHON_REQUESTS_H

#include "millrace/backend.h"
#include "py.h"

/** A list with a tuple for each request: (id, correlation id (int or str), sequence flags, deadline in ns of the monotonic
 *  clock or 0, parameters (dict of str, int, bool and float) or None, inputs, timeout in microseconds or 0), where inputs is a tuple of (index, dtype, shape, buffer) of those
 *  that were sent. kept: see memory_of. NULL: an exception is set. */
PyObject *requests_new(const struct mr_exec *exec, PyObject *kept);

#endif
