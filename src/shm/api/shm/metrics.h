/* Metrics that models define: numbers in memory that the server shares with the workers of Python models, so that a change
 * costs no message, and none is lost when a worker dies. What the numbers mean only the server knows: a worker that writes
 * where it must not damages these numbers and nothing else. */
#ifndef MR_SHM_METRICS_H
#define MR_SHM_METRICS_H

#include "base/buf.h"
#include "base/err.h"
#include "millrace/backend.h"

/* ---- the server's side (Thread: any) ---- */

struct mr_metrics;

/** Errors: MR_E_NOMEM, MR_E_UNSUPPORTED. */
int mr_metrics_new(struct mr_metrics **out, struct mr_err *err);
void mr_metrics_free(struct mr_metrics **m);
/** For mr_metrics_view_open in a worker; stays the module's. */
int mr_metrics_fd(const struct mr_metrics *m);
/** Gives the owner, a model, a metric, which is made if there is none of the name and labels. *out_cell: where its numbers
 *  begin. Everything is copied. Errors, with the name: MR_E_INVALID (a name or label that Prometheus does not allow or
 *  that the server uses itself; another kind or buckets than the family has), MR_E_EXHAUSTED. */
int mr_metrics_add(struct mr_metrics *m, const void *owner, const struct mr_metric_args *args,
                   uint64_t *out_cell, struct mr_err *err);
/** The owner's workers have ended: its metrics go, but for those that others own too. */
void mr_metrics_leave(struct mr_metrics *m, const void *owner);
/** Appends all in Prometheus' text format. */
void mr_metrics_print(struct mr_metrics *m, struct mr_buf *b);

/* ---- a worker's side (Thread: any) ---- */

struct mr_metrics_view;

/** Errors: MR_E_INVALID (not such memory), MR_E_IO. The descriptor stays the caller's. */
int mr_metrics_view_open(struct mr_metrics_view **out, int fd, struct mr_err *err);
void mr_metrics_view_close(struct mr_metrics_view **v);

/** A metric in a worker. Owns a copy of the bounds. */
struct mr_metric {
    /** Of a histogram: one for each bound, one for +Inf, and the sum; doubles, bit by bit. */
    _Atomic uint64_t *cells;
    uint32_t bound_count;
    bool is_histogram;
    double bounds[];
};

/** Errors: MR_E_INVALID (no such cell). */
int mr_metric_open(struct mr_metric **out, const struct mr_metrics_view *v,
                   const struct mr_metric_args *args, uint64_t cell, struct mr_err *err);
void mr_metric_add(struct mr_metric *m, double value);
void mr_metric_set(struct mr_metric *m, double value);
double mr_metric_value(const struct mr_metric *m);

#endif
