/* How a job is doing. On the loop's thread. */
#ifndef MR_BATCH_VIEW_H
#define MR_BATCH_VIEW_H

#include <stdbool.h>
#include <stdint.h>

struct calls;
struct mr_batch_view;
struct reader;
struct results;

/** What of a job is reported, here and in the other files of this folder. */
struct job_parts {
    struct calls *calls;
    const struct reader *reader;
    const struct results *results;
    const char *listen; /* the address of the control over TCP; "": none */
    bool is_refused;    /* the start was: what is wrong is in its error, and nowhere else */
    struct {
        int64_t at_ns;
        uint64_t rows;
    } marks[11]; /* of the last seconds, for the rate */
    uint64_t mark_count;
    void (*on_view)(void *ctx, const struct mr_batch_view *view); /* NULL: nothing */
    void *view_ctx;
};

/** Once a second: counts the rows. True: it was time to. */
bool view_mark(struct job_parts *parts, int64_t now_ns);
/** To on_view. */
void view_report(const struct job_parts *parts);
/** Valid until view_free, as long as nothing is done with the job. */
struct mr_batch_view *view_new(const struct job_parts *parts);
void view_free(struct mr_batch_view **v);

#endif
