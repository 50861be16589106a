/* A file of inference requests, one a line, sent to hosts of the Open Inference Protocol: an output file with one line for
 * each, as `mlserver infer` writes it.
 *
 * Requests that differ only in their data are joined, and their answers are split again. Lines of the output
 * come in the order of completion; `parameters.batch_index` says which line of the input each is for, from 0. A line
 * without an answer becomes an object with `error`. No line is left out and none is there twice.
 *
 * Thread: the one that calls mr_requests_run, which blocks it. */
#ifndef MR_BATCH_REQUESTS_H
#define MR_BATCH_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "net/tls.h"

/** A call or a line failed. */
struct mr_requests_failure {
    uint64_t line; /* the first of those in the call, from 0 */
    uint64_t count;
    uint32_t attempt; /* from 1; 0: no call was made */
    bool is_final;    /* the line has an error in the output */
    const char *host; /* NULL: none */
    mr_str text;
};

struct mr_requests_options {
    /** "host", "host:port", "host:port/prefix", optionally preceded by http:// or https://. A call goes to the host
     *  with the fewest calls under way; failing hosts are skipped. */
    const char *const *hosts;
    size_t host_count;
    const char *model;
    const char *input;
    const char *output;         /* is replaced */
    uint32_t workers;           /* calls at a time */
    uint32_t attempts;          /* of a call, a second apart */
    uint32_t batch_lines;       /* that go together, at most */
    bool is_binary;             /* tensors as binary data, both ways */
    const char *const *headers; /* "Name: value", of each request */
    size_t header_count;
    int64_t timeout_ns; /* of a call */
    /** Least time from the start of a worker's call to the start of its next one …. */
    int64_t interval_ns;
    int64_t jitter_ns; /* … and up to this much more, at random */
    bool is_tls;       /* where the host does not say it */
    struct mr_tls_client_options tls;
    void (*on_failure)(void *ctx, const struct mr_requests_failure *f); /* may be NULL */
    void (*on_progress)(void *ctx, uint64_t lines); /* some more are done; may be NULL */
    void *ctx;
};

struct mr_requests_done {
    uint64_t lines;
    uint64_t errors; /* of these, lines with `error` */
    uint64_t calls;
};

/** Errors: MR_E_INVALID (an option; names it), MR_E_NOT_FOUND, MR_E_IO (a file), MR_E_EXHAUSTED (disk full), those of
 *  mr_tls_client_new. *out on success. */
int mr_requests_run(const struct mr_requests_options *options, struct mr_requests_done *out,
                    struct mr_err *err);

#endif
