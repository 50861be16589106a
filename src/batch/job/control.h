/* Who asks about the job, and changes it while it runs. On the loop's thread. */
#ifndef MR_BATCH_CONTROL_H
#define MR_BATCH_CONTROL_H

#include "base/err.h"

struct job;
struct mr_batch;

/** The socket in the folder, without which the job runs as well, and what the options say. It stays when the job is
 *  begun again: requests in between wait for their answer. Errors: MR_E_INVALID, MR_E_IO (options.control.listen). */
int control_open(struct job *j, struct mr_err *err);
/** Says why there is no socket, once. */
void control_tell(struct mr_batch *b);
/** The socket is gone when this returns, connections when the loop is freed. */
void control_close(struct mr_batch *b);

#endif
