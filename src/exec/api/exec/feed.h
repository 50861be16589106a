/* Further messages of a client to a request that runs: its model asks for one after the other.
 *
 * The side that has the client puts messages in; the side that runs calls of models (a call of the model MR_FEED_MODEL)
 * takes them out. Each holds a reference. */
#ifndef MR_EXEC_FEED_H
#define MR_EXEC_FEED_H

#include "base/err.h"
#include "base/str.h"

struct mr_feed;

/** The name by which the model of the request asks, which no model can have. */
#define MR_FEED_MODEL ":feed"

/** A message, in memory of its owner, which keeps it and its bytes until `done`. */
struct mr_feed_item {
    mr_bytes message;
    /** The feed does not need it any more: it was taken, or no one will take it. Once. Thread: any; must not call the feed. */
    void (*done)(struct mr_feed_item *i);
    struct mr_feed_item *next; /* the feed's */
};

/** Never NULL. With one reference. */
struct mr_feed *mr_feed_new(void);
/** NULL: returns NULL. Thread: any. */
struct mr_feed *mr_feed_ref(struct mr_feed *f);
/** Sets *f to NULL, which may be NULL. Thread: any. */
void mr_feed_unref(struct mr_feed **f);

/* ---- the client's side. Thread: one at a time ---- */

/** Takes a message; when the feed is closed or has ended, `done` is called before this returns. */
void mr_feed_put(struct mr_feed *f, struct mr_feed_item *i);
/** No message follows. Any number of times. */
void mr_feed_end(struct mr_feed *f);
/** The request is over or cancelled: its messages are dropped, and later ones too. Any number of times. */
void mr_feed_close(struct mr_feed *f);

/* ---- the model's side. Thread: any ---- */

/** `ready` is called once, as soon as mr_feed_take has something to say, perhaps before this returns; must not call the feed.
 *  Instead of an earlier one that has not been called: that is called, too. */
void mr_feed_ask(struct mr_feed *f, void (*ready)(void *ctx), void *ctx);
/** True: `ready` is not called. False: it was called, or will be. */
bool mr_feed_withdraw(struct mr_feed *f, const void *ctx);
/** MR_OK: a message, for whose `done` the caller sees; NULL: none follows. Errors: MR_E_CANCELLED (closed, or there is none
 *  now). */
int mr_feed_take(struct mr_feed *f, struct mr_feed_item **out, struct mr_err *err);
/** A message was taken, so that the request cannot run again. */
bool mr_feed_is_used(struct mr_feed *f);

#endif
