/* A worker that writes anything anywhere it can, between the steps of a server and of honest workers. */
#ifndef SHM_HOSTILE_H
#define SHM_HOSTILE_H

#include <stddef.h>
#include <stdint.h>

/** Runs the steps of the bytes on a new plane; then all workers end. Aborts, with the name, if a
 *  slot is handed out that is not the caller's to get, an answer points outside of the memory for outputs, or a slot or
 *  a block does not come back. The same bytes do the same. */
void hostile_run(const char *name, const uint8_t *data, size_t size);

#endif
