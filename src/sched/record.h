/* The file that recorded requests go to, of record.c. */
#ifndef MR_SCHED_RECORD_H
#define MR_SCHED_RECORD_H

#include "sched_priv.h"

/* Written under another name beside its place, so that no reader sees half of it. Folder and file are held open: a
 * replacement of the folder in between is left alone. */
struct record_file {
    int dir;
    int fd;
    char name[64]; /* the other name */
};
/* Errors: MR_E_FORBIDDEN, MR_E_EXHAUSTED (disk full), MR_E_IO. */
int record_file_open(struct record_file *f, const struct mr_version *v, struct mr_err *err);
/* One record after its length. */
int record_file_add(struct record_file *f, const void *record, uint64_t bytes, struct mr_err *err);
/* To the disk, and to its place. */
int record_file_publish(struct record_file *f, struct mr_err *err);
/* Takes away what was not published. */
void record_file_close(struct record_file *f);

#endif
