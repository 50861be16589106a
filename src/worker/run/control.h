/* What the model asks of the server besides other models' answers: to load and unload them, and metrics. */
#ifndef WORKER_CONTROL_H
#define WORKER_CONTROL_H

#include "base/err.h"
#include "shm/metrics.h"

/** Memory for metrics, by descriptor; without it, control and metrics are refused. The descriptor is closed. */
int worker_control_start(int metrics_fd, struct mr_err *err);
void worker_control_stop(void);

/* Services of backend.h. */
int worker_control(const struct mr_control_args *args, struct mr_model_call **out,
                   struct mr_err *err);
int worker_metric_new(const struct mr_metric_args *args, struct mr_metric **out,
                      struct mr_err *err);
void worker_metric_drop(struct mr_metric **metric);

#endif
