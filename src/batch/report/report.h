/* What a job did, when it has ended. */
#ifndef MR_BATCH_REPORT_H
#define MR_BATCH_REPORT_H

#include "base/buf.h"

struct job_parts;

/** report.json. */
void report_put(const struct job_parts *parts, struct mr_buf *b);

#endif
