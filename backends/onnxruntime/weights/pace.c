/* The rate of a load, its progress, and its cancellation.
 *
 * Code that reads or writes many bytes calls onnx_pace_step about once per megabyte. It reports the progress to the
 * host, waits if a background load is too fast, and returns false when the load is no longer wanted, which also ends
 * a wait.
 *
 * Thread: the one that loads. */
#include <time.h>

#include "parameters.h"

#define NS_PER_S INT64_C(1000000000)
#define NAP_NS   (NS_PER_S / 50) /* between two checks during a wait */

void onnx_pace_plan(struct onnx_pace *p, const char *step, uint64_t left)
{
    p->step = step;
    p->total = p->done + left;
    onnx_host->load_progress(p->loading, step, p->done, p->total);
}

void onnx_pace_done(struct onnx_pace *p, uint64_t bytes)
{
    p->done = bytes < p->total - p->done ? p->done + bytes : p->total;
    onnx_host->load_progress(p->loading, p->step, p->done, p->total);
}

int onnx_pace_step(struct onnx_pace *p, uint64_t moved, uint64_t done)
{
    onnx_pace_done(p, done);
    if (p->bytes_per_second > 0) {
        p->begin_ns = p->begin_ns ? p->begin_ns : onnx_now_ns();
        p->bytes += moved;
        const double due_ns = (double)p->bytes * 1e9 / (double)p->bytes_per_second;
        int64_t ahead_ns;
        while ((ahead_ns = (int64_t)due_ns - (onnx_now_ns() - p->begin_ns)) > 0 &&
               !onnx_give_up(p->loading, onnx_low_here())) {
            nanosleep(&(struct timespec){0, ahead_ns < NAP_NS ? ahead_ns : NAP_NS}, NULL);
        }
    }
    return !onnx_give_up(p->loading, onnx_low_here());
}
