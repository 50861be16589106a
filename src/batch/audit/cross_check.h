/* Cross-checks: finds a host with well-formed but wrong answers by sending it a row that another host has answered.
 *
 * After a number of answers a host gets one row that another host has answered, in a separate call. If the two
 * answers differ, both hosts are asked again, and others with them: a vote. A host against a majority of three hosts
 * or more is wrong. If hosts do not even repeat their own answers, the model is no function of its inputs, and there
 * are no cross-checks from then on. Without a majority it cannot be known which host is right, and the job stops.
 *
 * At the end each host that has answered since its last check is checked once more; if it is gone, or no other host
 * has answered a row, another host is asked about one of its rows. So each row of a finished job comes from a host
 * that was compared with another one, if another listed host answers.
 *
 * One check at a time. On the loop's thread. */
#ifndef MR_BATCH_CROSS_CHECK_H
#define MR_BATCH_CROSS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "table/rows.h"

struct call;
struct calls;
struct cross_check;
struct host;
struct results;
struct row_range;
struct transport_answer;
struct work;

/** Begins. NULL, which is allowed below: the options or the dialect say that hosts are not compared. */
struct cross_check *cross_check_new(struct calls *calls, const struct results *results);
void cross_check_free(struct cross_check **c);
/** calls_events.answered: keeps a row to ask other hosts about, and may begin a check. */
void cross_check_see(struct cross_check *c, struct call *k, const struct row_range *of,
                     const struct mr_rows *rows);
/** calls_events.asked */
void cross_check_answered(struct cross_check *c, struct call *k, const struct transport_answer *a);
/** calls_events.absent */
void cross_check_absent(struct cross_check *c, const struct work *w);
/** calls_events.before_calls: comes to a verdict when all have answered. May make new calls. */
void cross_check_evaluate(struct cross_check *c);
/** At the end of the job: compares each host once more. True: the job has to wait for that. */
bool cross_check_is_asking(struct cross_check *c);
/** At the very end: logs the hosts whose rows no other host has answered. */
void cross_check_end(const struct cross_check *c);
/** Gives up checks that hosts do not answer in time. */
void cross_check_tick(struct cross_check *c, int64_t now_ns);

#endif
