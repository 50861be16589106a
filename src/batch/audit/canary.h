/* Canary rows: a host that answers well-formed rubbish is found by asking it what another host has answered. Private.
 *
 * Every so many answers of a host it gets one row that another one has answered, in a call of its own. If the two do not
 * say the same, both are asked again, and others with them: a vote. Who stands against a majority of three hosts or more is
 * wrong. Where hosts do not even say the same twice, the model is no function of its inputs, and there are no canaries
 * from then on. Where there is no majority, nobody can tell, and the job stops.
 *
 * At the end each host that has answered since its last trial has one more; where it is gone, or no other host has answered
 * a row, another one is asked what it has answered. So no row is in a finished job whose host was compared with none, as
 * long as another one is listed that answers.
 *
 * One trial at a time; thread: the loop's. */
#ifndef MR_BATCH_CANARY_H
#define MR_BATCH_CANARY_H

#include <stdbool.h>
#include <stdint.h>

#include "table/rows.h"

struct call;
struct canary;
struct host;
struct job;
struct row_range;
struct wire_answer;
struct work;

void canary_new(struct job *j);
void canary_free(struct canary **c);
/** A host has answered rows of the job, as `rows` says. */
void canary_see(struct call *k, const struct row_range *of, const struct mr_rows *rows);
/** What became of a call that a trial has asked for; a NULL: the host has not answered, for whatever reason. */
void canary_told(struct call *k, const struct wire_answer *a);
void canary_absent(struct job *j, const struct work *w);
/** Comes to a verdict when all have answered. May make new calls, so nobody walks through them. */
void canary_look(struct job *j);
/** At the end of the job, which has to wait for it: each host is compared once more. */
bool canary_is_asking(struct job *j);
/** All is done: names the hosts whose rows no other host has answered. */
void canary_end(const struct job *j);
void canary_tick(struct job *j, int64_t now_ns);

#endif
