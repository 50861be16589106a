/* Messages of the server to one worker, in the order in which they are posted: blocks of the heap of inputs, which the worker
 * reads and the server frees once it has. They take no system call unless a thread of the worker waits for one.
 *
 * Thread: any, one at a time for a worker. */
#ifndef MR_SHM_MAIL_H
#define MR_SHM_MAIL_H

#include "shm/plane.h"

/** Posts the block (takes it), and returns its number. A worker that does not read loses the oldest. */
uint32_t mr_shm_mail_post(struct mr_shm *p, uint32_t worker, struct mr_block *block);
/** Wakes the thread that waits, if one does. May run beside the others. */
void mr_shm_mail_ring(struct mr_shm *p, uint32_t worker);
/** The worker says that it has read the message of that number. Thread: any. */
bool mr_shm_mail_is_read(const struct mr_shm *p, uint32_t worker, uint32_t number);
/** Frees what has been posted: the worker has no process, or one that has not begun to read. */
void mr_shm_mail_begin(struct mr_shm *p, uint32_t worker);

#endif
