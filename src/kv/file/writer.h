/* The thread `kv-disk`: does one thing after the other that blocks on a disk, for a loop. */
#ifndef MR_KV_FILE_WRITER_H
#define MR_KV_FILE_WRITER_H

#include "base/err.h"
#include "base/mailbox.h"

struct mr_loop;
struct kv_writer;

/** Embed it. */
struct kv_job {
    void (*run)(struct kv_job *job);  /* Thread: kv-disk */
    void (*done)(struct kv_job *job); /* Thread: loop; not if the writer is freed before */
};

/** Errors: those of mr_thread_start. Thread: loop. */
int kv_writer_new(struct kv_writer **out, struct mr_loop *loop, struct mr_err *err);
/** Starts a job; one at a time. Thread: loop. */
void kv_writer_start(struct kv_writer *w, struct kv_job *job);
bool kv_writer_is_busy(const struct kv_writer *w);
/** Waits until the job under way has run, whose `done` is not called any more, and ends the thread. Thread: loop. */
void kv_writer_free(struct kv_writer **w);

#endif
