#include "control.h"

#include <unistd.h>

#include "base/mem.h"
#include "calls.h"
#include "ipc/control.h"

static struct mr_metrics_view
    *view; /* NULL: the server takes no requests for control and metrics */

int worker_control_start(int metrics_fd, struct mr_err *err)
{
    const int rc = mr_metrics_view_open(&view, metrics_fd, err);

    close(metrics_fd);
    return rc;
}

void worker_control_stop(void)
{
    mr_metrics_view_close(&view);
}

static int refused(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_UNSUPPORTED,
                   "only models in Python load other models and have metrics of their own");
}

int worker_control(const struct mr_control_args *args, struct mr_model_call **out,
                   struct mr_err *err)
{
    struct mr_model_call *c = NULL;
    struct mr_buf body;
    uint64_t number;
    int rc = view ? worker_call_new(&c, &number, err) : refused(err);

    if (rc < 0) {
        return rc;
    }
    mr_buf_init(&body, MR_FRAME_MAX);
    mr_ipc_control_pack(&body, number, args);
    rc = worker_call_send(&c, MR_FRAME_CONTROL, &body, err);
    mr_buf_fini(&body);
    *out = c;
    return rc;
}

static int cell_ask(const struct mr_metric_args *args, uint64_t *out, struct mr_err *err)
{
    struct mr_call_answer *a = NULL;
    struct mr_model_call *c = NULL;
    struct mr_buf body;
    uint64_t number;
    int rc = worker_call_new(&c, &number, err);

    mr_buf_init(&body, MR_FRAME_MAX);
    if (rc == MR_OK) {
        mr_ipc_metric_pack(&body, number, args);
        rc = worker_call_send(&c, MR_FRAME_METRIC, &body, err);
    }
    if (rc == MR_OK) {
        rc = worker_call_next(c, 0, &a, err);
    }
    if (rc == MR_OK) {
        *out = (uint64_t)a->value;
        rc = a->status < 0 ? MR_FAIL(err, a->status, "%s", a->message) : MR_OK;
        worker_call_answer_drop(&a);
    }
    if (c) {
        worker_call_end(&c);
    }
    mr_buf_fini(&body);
    return rc;
}

int worker_metric_new(const struct mr_metric_args *args, struct mr_metric **out, struct mr_err *err)
{
    uint64_t cell = 0;
    const int rc = view ? cell_ask(args, &cell, err) : refused(err);

    return rc < 0 ? rc : mr_metric_open(out, view, args, cell, err);
}

void worker_metric_drop(struct mr_metric **metric)
{
    mr_freep(metric);
}
