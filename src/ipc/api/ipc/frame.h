/* Frames on the socket between the server and one worker, for infrequent messages. Executions use shared memory. */
#ifndef MR_IPC_FRAME_H
#define MR_IPC_FRAME_H

#include "base/buf.h"
#include "base/err.h"

enum mr_frame_type {
    /* to the worker */
    MR_FRAME_OPEN = 1,  /* struct mr_ipc_open; answered by OPENED or FAILED */
    MR_FRAME_CONFIGURE, /* a signature; answered by CONFIGURED or FAILED */
    MR_FRAME_WARMUP,    /* before INSTANCE: offset and bytes of a copy of mr_ipc_exec_keep */
    MR_FRAME_INSTANCE,  /* struct mr_instance_desc; answered by WARMED or FAILED */
    MR_FRAME_SERVE,     /* after WARMED: take executions; answered by READY or FAILED */
    MR_FRAME_CANCEL,    /* slot, generation: that execution is cancelled */
    MR_FRAME_STOP,      /* take no more executions; end after the running one */
    MR_FRAME_ANSWER,    /* struct mr_ipc_call_answer */
    /* to the server */
    MR_FRAME_KEPT, /* before OPENED, with descriptors: files that later workers of the model map (mr_model_kept) */
    MR_FRAME_OPENED, /* struct mr_ipc_opened */
    MR_FRAME_CONFIGURED,
    MR_FRAME_WARMED,   /* the instance is open and has run its warm-ups */
    MR_FRAME_READY,    /* struct mr_ipc_opened without the signature */
    MR_FRAME_FAILED,   /* an error; the worker ends after it */
    MR_FRAME_TAKEN,    /* number of a call, and of the answer that the worker has released */
    MR_FRAME_CALL_END, /* number of a call: no more answers are wanted */
    MR_FRAME_CONTROL,  /* ipc/control.h; answered by ANSWER */
    MR_FRAME_METRIC, /* ipc/control.h; answered by ANSWER, whose value is the metric's first cell */
    MR_FRAME_TYPES
};

#define MR_FRAME_MAX ((size_t)64 << 20)

struct mr_frame {
    uint32_t type;
    mr_bytes body;
};

/** Sends one frame; blocks while the socket is full. Errors: MR_E_CLOSED, MR_E_TOO_LARGE. */
int mr_frame_send(int fd, enum mr_frame_type type, mr_bytes body, struct mr_err *err);
#define MR_FRAME_FDS_MAX 4u

/** Descriptors that came with frames. */
struct mr_frame_fds {
    int at[MR_FRAME_FDS_MAX];
    uint32_t count;
};

/** As mr_frame_send, with descriptors, at most MR_FRAME_FDS_MAX. */
int mr_frame_send_fds(int fd, enum mr_frame_type type, const int *fds, uint32_t count,
                      struct mr_err *err);
/** Appends one frame to the output. `failed` of the buffer is set if the frame is too large. */
void mr_frame_append(struct mr_buf *out, enum mr_frame_type type, mr_bytes body);
/** Sends as much as the socket takes without blocking. Errors: MR_E_CLOSED. */
int mr_frame_flush(int fd, struct mr_buf *out, struct mr_err *err);
/** Finds the next whole frame in the input. 1: there is one, which lies in the buffer until mr_frame_drop. 0: not yet.
 *  Errors: MR_E_INVALID (no such type, larger than MR_FRAME_MAX). */
int mr_frame_next(const struct mr_buf *in, struct mr_frame *out, struct mr_err *err);
void mr_frame_drop(struct mr_buf *in, const struct mr_frame *f);
/** Reads available bytes into the buffer; blocks if the descriptor is blocking. Descriptors that come with them are added
 *  to `fds` (NULL: none are wanted); those beyond MR_FRAME_FDS_MAX are closed. Returns 1 if it has read something, 0 if
 *  nothing is available. Errors: MR_E_CLOSED, MR_E_EXHAUSTED (the buffer is full). */
int mr_frame_read(int fd, struct mr_buf *in, struct mr_frame_fds *fds, struct mr_err *err);

#endif
