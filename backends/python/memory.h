/* Input tensors as read-only buffers of Python.
 *
 * Small ones are copied into bytes objects. Large ones are read where they lie: the object maps their pages a second
 * time. The host uses the memory again once the execution has ended; what Python still refers to then is copied
 * to the same addresses, so that an array that a model keeps does not change. Thread: holder of the GIL. */
#ifndef PYTHON_MEMORY_H
#define PYTHON_MEMORY_H

#include "millrace/tensor.h"
#include "py.h"

/** Makes the type. Returns -1 with an exception set. */
int memory_init(void);
/** A buffer with the tensor's bytes, valid until memory_end. `kept`: a list, to which large ones are added. NULL: an
 *  exception is set. */
PyObject *memory_of(const struct mr_tensor *t, PyObject *kept);
/** The execution is about to end: detaches all in the list that are still referred to, and empties it. Returns -1 with
 *  an exception set if there is no memory for a copy. */
int memory_end(PyObject *kept);

#endif
