/* The faults to inject, from parameters of the model or of a request. */
#ifndef MR_FAULT_PLAN_H
#define MR_FAULT_PLAN_H

#include "millrace/backend_util.h"

#define FAULT_PATH_SIZE 256

/* X(field, least, most, meaning): whole numbers; 0 = off unless said otherwise. */
#define FAULT_NUMBERS(X)                                                                           \
    X(open_delay_ms, 0, 3600000, "model_open takes that much longer")                              \
    X(delay_ms, 0, 3600000, "execute sleeps first")                                                \
    X(async, 0, 2, "1: a thread ends the execution later; 2: before execute returns")              \
    X(max_pending, 0, 1000, "of a model: executions of an instance that may be pending")           \
    X(responses, 0, 1000000,                                                                       \
      "answers to each request of a decoupled execution, after which it is final")                 \
    X(hold_after, 0, 1000000,                                                                      \
      "hold_file holds after this many answers of a decoupled execution, not before the first")    \
    X(stuck_first, 0, 1000000,                                                                     \
      "hold_file and until_cancelled are for the model's first N executions only")                 \
    X(spin_ms, 0, 3600000, "execute computes first")                                               \
    X(fail_every, 0, INT64_MAX, "only each Nth execution of the model does what fail_status says") \
    X(fail_instance, -1, 4096, "opening this instance fails; -1 = none")                           \
    X(fail_request, -1, 1000000, "only this request of the batch fails; -1 = none")                \
    X(fail_times, 0, 100,                                                                          \
      "all requests up to fail_request fail, each so often; 0 = only this one")                    \
    X(exit, -1, 255, "execute ends the process with this code; -1 = does not")                     \
    X(exit_rows, 0, 1000000, "`exit` is for executions of more rows only")

/* Y(field, meaning): true or false. */
#define FAULT_SWITCHES(Y)                                                                          \
    Y(fail_open, "model_open fails with fail_status and fail_message")                             \
    Y(deaf, "model_open does not ask whether it is still wanted")                                  \
    Y(no_message, "failures come without a sentence")                                              \
    Y(apart, "executions of several requests fail with MR_ERR_APART")                              \
    Y(wrong_size, "the first output states one byte too many")                                     \
    Y(wrong_dtype, "the first output comes as another data type")                                  \
    Y(wrong_rank, "the first output comes with rank 99")                                           \
    Y(wrong_rows, "the first output has one row too many")                                         \
    Y(negative_dim, "the first output has a dimension of -5")                                      \
    Y(missing_output, "the last wanted output is left out")                                        \
    Y(twice, "the first output is set twice")                                                      \
    Y(bad_index, "an output that does not exist is set")                                           \
    Y(bad_strings, "a BYTES output is filled with 0xff")                                           \
    Y(give, "outputs are given from memory of the backend")                                        \
    Y(on_device, "the same, as memory of a device")                                                \
    Y(abort, "execute aborts the process")                                                         \
    Y(segv, "execute ends by SIGSEGV")                                                             \
    Y(hang, "execute never returns")                                                               \
    Y(until_cancelled, "of async 1: the execution ends when it is cancelled")                      \
    Y(after_final, "an answer follows the final one")                                              \
    Y(fail_last, "of a decoupled model: fail_request fails after the answers")                     \
    Y(no_final, "no answer is the final one")                                                      \
    Y(sums, "an instance gives the sum of each sequence so far, of one INT32 a request")           \
    Y(warmup, "of a model: it runs made-up requests when it is loaded")                            \
    Y(may_inline, "of a model: fast executions run on network threads")

struct plan {
#define FAULT_FIELD_NUMBER(field, least, most, text) int64_t field;
#define FAULT_FIELD_SWITCH(field, text)              int field;
    FAULT_NUMBERS(FAULT_FIELD_NUMBER)
    FAULT_SWITCHES(FAULT_FIELD_SWITCH)
#undef FAULT_FIELD_NUMBER
#undef FAULT_FIELD_SWITCH
    /* parameter fail_status: MR_OK = do not fail; a name ("NOT_FOUND") or number */
    int fail_status;
    char fail_message[64]; /* parameter fail_message */
    /* Parameter attempt: what execute tries, and says as its failure whether that was possible (attempt.c). */
    char attempt[FAULT_PATH_SIZE];
    /* Parameter hold_file: execute creates <hold_file>.held and waits until hold_file is removed. */
    char hold_file[FAULT_PATH_SIZE];
    /* Parameter open_hold_file: model_open waits until it is removed, or until the load is unwanted (which it ignores
     * if `deaf`). */
    char open_hold_file[FAULT_PATH_SIZE];
};

/* No faults. */
void plan_init(struct plan *p);
/* Changes the members named by the settings and keeps the rest. Errors: MR_E_INVALID naming the setting. */
int plan_read(struct plan *p, const struct mr_setting *settings, uint32_t count,
              struct mr_err *err);

#endif
