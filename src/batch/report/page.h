/* The page of a job. */
#ifndef MR_BATCH_PAGE_H
#define MR_BATCH_PAGE_H

#include "batch/batch.h"

struct job_parts;

/** The page, and the part of it that changes. */
void page_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v);
void page_figures(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v);

#endif
