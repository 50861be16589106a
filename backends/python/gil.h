/* The interpreter's lock, taken by threads of the host.
 *
 * A thread keeps its Python thread state from one call to the next: variables of threading.local live as long as the
 * thread, and taking the lock costs no allocation. */
#ifndef PYTHON_GIL_H
#define PYTHON_GIL_H

/** Waits for the interpreter's lock. Not nested. */
void gil_take(void);
void gil_give(void);

#endif
