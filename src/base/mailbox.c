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

/* Push a chain that is linked newest first. */
static void push(struct mr_mailbox *box, struct mr_mail *newest, struct mr_mail *oldest)
{
    struct mr_mail *head = atomic_load_explicit(&box->head, memory_order_relaxed);

    do {
        oldest->next = head;
        /* Release: pairs with the acquire in mr_mailbox_drain, which then sees what the mails hold
         * and their `next`. Pushes by others between the two are read-modify-writes and so continue the release
         * sequence. */
    } while (!atomic_compare_exchange_weak_explicit(&box->head, &head, newest, memory_order_release,
                                                    memory_order_relaxed));
    /* The mails may have been freed by now; only the box may be accessed. */
    if (!head && box->wake) {
        box->wake(box->wake_ctx);
    }
}

void mr_mailbox_post(struct mr_mailbox *box, struct mr_mail *mail)
{
    push(box, mail, mail);
}

/* Reverses a chain that ends after `last` (or at NULL); returns its new first. */
static struct mr_mail *reverse(struct mr_mail *first, struct mr_mail *last)
{
    struct mr_mail *done = NULL;

    while (first) {
        struct mr_mail *next = first == last ? NULL : first->next;
        first->next = done;
        done = first;
        first = next;
    }
    return done;
}

void mr_mailbox_post_chain(struct mr_mailbox *box, struct mr_mail *first, struct mr_mail *last)
{
    push(box, reverse(first, last), first);
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
        reverse(atomic_exchange_explicit(&box->head, NULL, memory_order_acquire), NULL);
    while (mail) {
        struct mr_mail *next = mail->next;
        mail->run(mail);
        mail = next;
        count++;
    }
    return count;
}
