/* A request on its way to another server, between the files that send it. All of it belongs to the network thread of the call.
 *
 * A hop outlives its call: the mesh may still have something to say about it, and so may a connection. */
#ifndef MR_SERVE_MESH_HOP_PRIV_H
#define MR_SERVE_MESH_HOP_PRIV_H

#include "hop.h"
#include "hop_send.h"

struct hop_attempt {
    struct hop *hop;
    unsigned number;
    int64_t sent_ns;                 /* to the runtime */
    struct mr_client_call *call;     /* NULL: none is under way */
    struct mr_client_stream *stream; /* of an exchange that is passed on; the same */
    struct mr_client_response head;  /* of that: status and headers; status 0: not there yet */
    bool is_at_runtime;
    bool is_short;           /* there was no memory for a piece of the request */
    bool is_refused;         /* by the server itself */
    enum mr_mesh_result why; /* of that */
    int status;              /* the same, of a load that failed */
    struct mr_buf text;      /* the same */
};

struct hop {
    struct mr_mesh_ticket ticket;
    struct serve_arrival *arrival; /* in the call's memory; NULL: the call is answered */
    struct serve_loop *loop;
    struct hop_attempt attempt[2];
    unsigned calls;            /* whose end has not come yet, those that were given up included */
    bool is_closed;            /* the mesh has nothing more to say */
    bool is_asked_again;       /* the mesh was asked once more, as its vmodel's model was gone */
    bool is_direct;            /* sent without the mesh, which does not know of it */
    struct mr_timer slow;      /* of that: the mesh is to hear of it */
    mr_str model;              /* of that: which it was sent for; in `text` */
    struct mr_mesh_copy *lost; /* a lost copy, whose loss has not been reported yet */
    struct mr_mesh_copy *copy; /* of that: it goes to the runtime here, and uses this */
    /* passed on */
    struct hop_attempt *chosen; /* its answer is the client's: the others are given up */
    bool has_begun;             /* the client has the head of the answer */
    bool is_lost; /* the copy here that ran it is lost, and that is not reported yet */
    bool input_ended;
    bool is_cut; /* this server ends, and takes nothing more from the client */
    struct {
        uint8_t prefix[5];
        size_t prefix_len;
        uint64_t left;  /* bytes of the message after it */
        bool has_whole; /* a message has come to its end */
    } frames;           /* in what the client streams */
    char text[];
};

/* The call ends with this. */
struct mr_call *hop_take_call(struct hop *h);
/* The attempt has ended, or is chosen; with ENDED the hop may be gone. */
void hop_result(struct hop *h, const struct hop_attempt *at, enum mr_mesh_result result,
                mr_str text);
/* Without the mesh: it has ended; if it was not answered by the model, the mesh is asked after all. Frees the hop if that was all. */
void hop_end_direct(struct hop *h, bool is_answered);
/* The attempt that is chosen has ended, and the call with it. The hop may be gone. */
void hop_end_chosen(struct hop *h, const struct hop_attempt *at);
/* The answer is not wanted any more: attempts are given up. The hop may be gone. The call ends with this, too. */
struct mr_call *hop_abandon(struct hop *h);
/* Answers the call with this answer. */
void hop_reply(struct mr_call *call, const struct mr_client_response *r);
/* Answers a call of another server, which is to send it elsewhere. */
void hop_refuse_exiting(struct mr_call *call);
/* An attempt has ended. Frees the hop if that was all. */
void hop_release(struct hop *h);

/* hop_pass.c: answers, and streams of requests, piece by piece */

/* Sends the request. False: nothing was sent. */
bool hop_pass_begin(struct hop *h, struct hop_attempt *at, struct mr_client *c,
                    const struct mr_client_request *q);
/* Takes note of what the client has sent before. */
void hop_pass_first(struct hop *h);
/* What the client sends, its room, and its end; for serve_arrival.pending. */
void hop_pass_data(struct serve_pending *p, mr_bytes data, bool last);
void hop_pass_room(struct serve_pending *p);
void hop_pass_changed(struct serve_pending *p);

/* hop_runtime.c */

/* The runtime of this server has the model. The end is as that of other attempts. */
void hop_run_at_runtime(struct hop *h, unsigned attempt);
/* Of an attempt there that has ended, whose call has not. r NULL: there is no answer. */
void hop_count_run(const struct hop_attempt *at, int rc, const struct mr_client_response *r);
/* Of an attempt there that has ended before anything of its answer was passed on: it says that the runtime has not got the model, or is not there.
 * True: the mesh has a report of this, or the runtime is asked again. */
bool hop_is_missing(struct hop *h, struct hop_attempt *at, int rc,
                    const struct mr_client_response *r);
/* The same of an attempt that is chosen, so that its call ends as it does. True: the mesh is to hear that the copy is lost. */
bool hop_is_lost(struct hop *h, const struct hop_attempt *at, int rc,
                 const struct mr_client_response *r);

#endif
