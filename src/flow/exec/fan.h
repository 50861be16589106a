/* A node's model, or operator, for rows: as many calls as it needs for all of them, with no more than FAN_CALLS_MAX under way at once, and
 * what they give together, in the order of the rows.
 *
 *   fan_init; fan_input for each input; fan_start
 *   once it has ended: fan_output_of each output; fan_fini
 *
 * Thread: that of the walk. */
#ifndef FLOW_FAN_H
#define FLOW_FAN_H

#include "exec.h"

#define FAN_CALLS_MAX 32u

struct fan_input;
struct fan_output;

struct fan {
    struct walk *walk;
    uint32_t node;
    uint64_t rows;
    int64_t begun_ns; /* of nodes with a time-out */
    /** It was pending and has ended: `status`, and `err` if that is negative. */
    void (*done)(struct fan *f);
    void *user;
    int status;
    struct mr_err err;
    /* ---- private ---- */
    struct fan_input *inputs;   /* [input_count] */
    struct fan_output *outputs; /* [output_count] */
    struct call *idle;          /* calls that have ended and serve again, by next_end */
    uint64_t next;              /* the first row that no call has */
    uint32_t pending;           /* calls */
    bool is_busy;               /* it is starting or cancelling calls */
};

/** Makes one of a node with `rows`, at least 1. Errors: MR_E_EXHAUSTED. */
int fan_init(struct fan *f, struct walk *w, uint32_t node, uint64_t rows, struct mr_err *err);
/** Sets an input, which stays until the end, and so does `block`, its owner (may be NULL): with the rows in dimension 0 if the node's
 *  plan_rows divides it. One that is not set has no value. */
void fan_input(struct fan *f, uint32_t input, const struct mr_tensor *t, struct mr_block *block);
/** MR_OK: it has ended; MR_PENDING; or its failure. Errors: those of the model; MR_E_INVALID, naming node and tensor; MR_E_EXHAUSTED;
 *  MR_E_CANCELLED if the walk has failed. */
int fan_start(struct fan *f, struct mr_err *err);
/** Cancels calls that wait; it ends with MR_E_CANCELLED, if it has not failed, perhaps before this returns. */
void fan_cancel(struct fan *f);
/** What the calls gave: all rows in dimension 0, and the owner of the data (NULL: a call, until the walk ends). False: no
 *  value. The tensor's shape lives as long as the walk. */
bool fan_output_of(const struct fan *f, uint32_t output, struct mr_tensor *out,
                   struct mr_block **out_block);
/** Releases the outputs. */
void fan_fini(struct fan *f);

/* ---- for call.c ---- */
/** A call for the node, which has ended or is new. */
struct call *fan_call_new(struct fan *f);
/** The inputs of a call, by plan_rows. */
int fan_call_inputs(struct call *c, struct mr_err *err);
/** An input of the only call, of an operator. False: it has no value. */
bool fan_call_whole(const struct call *c, uint32_t input, struct mr_tensor *out,
                    struct mr_block **out_block);
/** Takes output `output` of a call. */
int fan_call_output(struct call *c, uint32_t output, const struct mr_tensor *t,
                    struct mr_block *block, struct mr_err *err);
/** A call that was pending has ended. */
void fan_call_ended(struct call *c, int rc, const struct mr_err *err);

#endif
