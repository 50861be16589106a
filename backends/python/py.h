/* Python's stable ABI, as of 3.9. PyObject_GetBuffer and the slots of the buffer protocol are part of it since 3.11;
 * earlier versions have them, with the same layout. */
#ifndef PYTHON_PY_H
#define PYTHON_PY_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#endif
