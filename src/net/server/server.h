/* A server object and its share on each loop. */
#ifndef MR_NET_SERVER_H
#define MR_NET_SERVER_H

#include "conn.h"
#include "net/http.h"
#include "origin.h"

struct mr_listener;

/** The part of a server on one loop. Thread: loop, unless noted. */
struct mr_server_part {
    struct mr_server_part *next;
    struct mr_http_server *server;
    struct mr_loop *loop;
    const struct mr_http_handler *handler;
    const struct mr_http_options *options;
    LIST_HEAD(, mr_conn) conns;
    struct mr_listener *listeners;
    TAILQ_HEAD(mr_memory_backpressure, mr_conn)
    waits_memory;                 /* oldest first (memory_backpressure.c) */
    struct mr_timer memory_timer; /* active while there are any */
    struct mr_deadline retry;     /* resumes accepting after descriptors ran out */
    struct mr_good_host good_host;
    bool draining;
    bool closing;
    size_t live; /* connections and listeners whose handles are not closed */
    struct mr_mail drain_mail;
    struct mr_mail close_mail;
};

struct mr_http_server {
    struct mr_http_options options;
    struct mr_http_handler handler;
    char *server_name;
    struct mr_origin_rules origins;
    struct mr_server_part *parts; /* made by mr_http_listen on the boot thread */
    struct mr_listener *all_listeners;
    _Atomic int64_t connections;
    _Atomic int64_t refs; /* of the owner, open parts and connections */
    _Atomic int64_t parts_open;
    _Atomic int64_t parts_listening; /* those that do not drain */
    _Atomic bool draining;
    _Atomic bool closing;
    _Atomic bool unlinked;
    void (*on_closed)(void *ctx);
    void *on_closed_ctx;
};

/** True if the peer is another server, which sends the requests of many clients over this connection. Thread: loop. */
static inline bool mr_conn_is_relay(const struct mr_conn *c)
{
    const int tag = c->part->options->relay_tag;

    return tag && c->tag == tag;
}

/** True if one more connection is allowed; counts it. Thread: any. */
bool mr_server_admit(struct mr_http_server *s);
/** An admitted connection is closed. */
void mr_server_forget(struct mr_server_part *part);
/** A handle of the part is closed: the last one ends a closing part. */
void mr_part_let_go(struct mr_server_part *part);

/** The loop's side of listening (listen.c): stops accepting; removes socket files. */
void mr_listeners_stop(struct mr_server_part *part);
void mr_listeners_unlink(struct mr_http_server *s);
void mr_listeners_free(struct mr_http_server *s);

#endif
