/* The mailbox: a stack onto which posters push (Treiber); the receiver takes it whole and reverses it. Single nodes
 * are never popped, so there is no ABA problem. Only the post that finds the box empty wakes: after that the receiver
 * is on its way and will take later mails too. */
#include "base/mailbox.h"

void mr_mailbox_init(struct mr_mailbox *box, void (*wake)(void *ctx), void *ctx)
{
    atomic_init(&box->head, NULL);
    box->wake = wake;
    box->wake_ctx = ctx;
}

void mr_mailbox_post(struct mr_mailbox *box, struct mr_mail *mail)
{
    struct mr_mail *head = atomic_load_explicit(&box->head, memory_order_relaxed);

    do {
        mail->next = head;
        /* Release: pairs with the acquire in mr_mailbox_drain, which then sees what the mail holds
         * and its `next`. Pushes by others between the two are read-modify-writes and so continue the release
         * sequence. */
    } while (!atomic_compare_exchange_weak_explicit(&box->head, &head, mail, memory_order_release,
                                                    memory_order_relaxed));
    /* The mail may have been freed by now; only the box may be accessed. */
    if (!head && box->wake) {
        box->wake(box->wake_ctx);
    }
}

/* Reverses a chain; returns its new first. */
static struct mr_mail *reverse(struct mr_mail *first)
{
    struct mr_mail *done = NULL;

    while (first) {
        struct mr_mail *next = first->next;
        first->next = done;
        done = first;
        first = next;
    }
    return done;
}

size_t mr_mailbox_drain(struct mr_mailbox *box)
{
    size_t count = 0;

    /* A load first: an exchange would take the cache line from posters even if the box is empty. */
    if (!atomic_load_explicit(&box->head, memory_order_relaxed)) {
        return 0;
    }
    /* Acquire: pairs with the release in push. */
    struct mr_mail *mail =
        reverse(atomic_exchange_explicit(&box->head, NULL, memory_order_acquire));
    while (mail) {
        struct mr_mail *next = mail->next;
        mail->run(mail);
        mail = next;
        count++;
    }
    return count;
}
