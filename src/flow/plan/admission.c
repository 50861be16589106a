/* `admission` of a workflow. Thread: loader. */
#include "admission.h"

#define QUEUE     1024u
#define QUEUE_MAX 1000000u

int plan_admission_read(struct plan_build *b)
{
    const Millrace__WorkflowScheduling__Admission *a = b->w->admission;

    if (!a) {
        return MR_OK;
    }
    if (a->max_inflight == 0 && a->max_bytes == 0) {
        return PLAN_BAD(b, "workflow '%.*s': admission must specify 'max_inflight' or 'max_bytes'",
                        MR_STR_ARG(b->p->name));
    }
    if (a->max_queue > QUEUE_MAX) {
        return PLAN_BAD(b, "workflow '%.*s': admission has 'max_queue' %u, possible is 1 to %u",
                        MR_STR_ARG(b->p->name), a->max_queue, QUEUE_MAX);
    }
    b->p->admission = (struct plan_admission){
        .max_open = a->max_inflight,
        .max_bytes = a->max_bytes,
        .max_queue = a->max_queue ? a->max_queue : QUEUE,
        .rejects = a->on_full == MILLRACE__WORKFLOW_SCHEDULING__ADMISSION__ON_FULL__REJECT};
    return MR_OK;
}
