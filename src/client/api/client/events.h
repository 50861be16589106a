/* Server-sent events of a REST endpoint. Source: WHATWG HTML, "Server-sent events"; of its fields `event` and `data` count. */
#ifndef MR_CLIENT_EVENTS_H
#define MR_CLIENT_EVENTS_H

#include "base/buf.h"
#include "net/client.h"

/** An event that begins to come, or the line of one. */
struct mr_event_text {
    struct mr_buf line, name, data;
    bool has_data, ends_in_cr;
};
/** max_bytes: of a line, and of the data of an event. */
void mr_event_text_init(struct mr_event_text *t, size_t max_bytes);
void mr_event_text_fini(struct mr_event_text *t);
/** Takes the next bytes of a stream, however it is cut. on_event: for each event that they end, with its name ("message" without
 *  one), and for each comment, with a name that is empty; valid until it returns. Errors: MR_E_TOO_LARGE. */
int mr_event_text_feed(struct mr_event_text *t, mr_bytes bytes,
                       void (*on_event)(void *ctx, mr_str name, mr_str data), void *ctx,
                       struct mr_err *err);

struct mr_events_listener {
    /** As that of mr_event_text_feed. May close the stream, may not free the client. */
    void (*on_event)(void *ctx, mr_str name, mr_str data);
    /** The end. MR_E_UNAVAILABLE: the connection broke, the server ended the stream, or nothing came for as long as it may be
     *  silent. Otherwise as of mr_client_send; with another HTTP status than 200 rc is MR_OK, and `body` is the answer's.
     *  Called exactly once, never from within mr_events_open. */
    void (*on_end)(void *ctx, int rc, const struct mr_err *err, int status, mr_bytes body);
};

/** Events that are under way. Valid until on_end has returned. */
struct mr_events;
/** GET of a path, with query, of a client with HTTP/2. silence_ns: how long nothing may come; 0: for ever. Thread: loop. */
struct mr_events *mr_events_open(struct mr_client *c, struct mr_loop *loop, mr_str path,
                                 int64_t silence_ns, const struct mr_events_listener *listener,
                                 void *ctx);

#endif
