#include "gil.h"

#include "py.h"

static _Thread_local PyThreadState *state;

void gil_take(void)
{
    if (state) {
        PyEval_RestoreThread(state);
        return;
    }
    (void)PyGILState_Ensure();
    state = PyThreadState_Get();
}

void gil_give(void)
{
    PyEval_SaveThread();
}
