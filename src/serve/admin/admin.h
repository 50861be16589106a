/* The administration thread: reports over all models, which may take long with thousands. */
#ifndef MR_SERVE_ADMIN_ADMIN_H
#define MR_SERVE_ADMIN_ADMIN_H

#include "serve/state/state.h"

struct admin;

/* Work for it. */
struct admin_job {
    struct admin_job *next;
    void (*run)(struct admin_job *job);  /* on the administration thread */
    void (*done)(struct admin_job *job); /* on `loop` */
    struct serve_loop *loop;
    struct mr_mail mail;
};

int admin_start(struct admin **out, struct mr_err *err);
/* Runs the jobs that were submitted before. *a NULL: nothing to do. */
void admin_stop(struct admin **a);
/* Thread: a loop, which `done` runs on. */
void admin_submit(struct mr_server *s, struct admin_job *job);

#endif
