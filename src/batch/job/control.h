/* Queries and changes of a running job. On the loop's thread. */
#ifndef MR_BATCH_CONTROL_H
#define MR_BATCH_CONTROL_H

#include "base/err.h"

struct job_parts;

/** It is kept when the job starts again: requests in between wait for their answer. */
struct control {
    struct mr_http_server *server;
    char trouble[464]; /* why there is no socket, until it is reported; "": nothing */
    char address[300]; /* of TCP, with the port that it became; "": none */
    /** The job's; NULL: its memory is being freed, and it must not be queried. */
    struct job_parts *parts;
};

/** The socket in the folder, without which the job runs as well, and what the options say; both stay if they are there.
 *  Errors: MR_E_INVALID, MR_E_IO (options.control.listen). */
int control_open(struct control *c, struct job_parts *parts, struct mr_err *err);
/** Says why there is no socket, once. */
void control_report(struct control *c);
/** The socket is gone when this returns, connections when the loop is freed. */
void control_close(struct control *c);

#endif
