/* Messages to a thread: many posters, one receiver, lock-free, intrusive. A poster that finds the
 * box empty calls the wake function (an eventfd write, say); the receiver takes all at once. */
#ifndef MR_BASE_MAILBOX_H
#define MR_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stddef.h>

/** Embed it; it belongs to the mailbox from post until `run` is called on the receiving thread. */
struct mr_mail {
    struct mr_mail *next;
    void (*run)(struct mr_mail *mail);
};

struct mr_mailbox {
    _Atomic(struct mr_mail *) head;
    void (*wake)(void *ctx); /* Thread: any */
    void *wake_ctx;
};

void mr_mailbox_init(struct mr_mailbox *box, void (*wake)(void *ctx), void *ctx);
/** Thread: any. Wakes the receiver if the box was empty. */
void mr_mailbox_post(struct mr_mailbox *box, struct mr_mail *mail);
/** Thread: receiver. Runs all posted mails, oldest first; returns their number. A mail may free or post itself and
 *  others from `run`; mails posted during the call wait for the next one. */
size_t mr_mailbox_drain(struct mr_mailbox *box);

#define MR_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
