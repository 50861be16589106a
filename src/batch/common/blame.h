/* Whose fault a call is that had no answer: that of its rows, or that of hosts. Private.
 *
 * Failures (5xx, timeouts, wrong answers) count against rows only while other calls do well: one that was sent between the
 * failure before and this one, and succeeded. What fails at the beginning of an outage, during it or at its end is not counted.
 * It is often known only later, when those other calls have ended; until then the time is kept.
 *
 * A refusal (4xx) is the word of one host. It counts when a second host agrees, at least one of the two being one that
 * answers other calls; when all hosts agree that can be asked; or when there is only one host. A host that refuses what
 * another one answers is the one that is wrong. It may have been the size of the call: the host gets smaller ones from then
 * on. What it refuses all the same counts as a failure of the host, and balance stops using it when it goes on.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_BLAME_H
#define MR_BATCH_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLAME_SPELLS   8
#define BLAME_REFUSERS 3
#define BLAME_TIMES    4096

struct call;
struct host;
struct job;
struct work;

/** Of a work. */
struct blame {
    uint32_t attempts; /* failures while others did well, also of larger calls with these rows */
    int64_t since_ns;  /* the last failure, or when it was sent first */
    struct {
        int64_t from_ns;
        int64_t to_ns;
    } spells
        [BLAME_SPELLS]; /* failures of which it is not known yet whether others did well, oldest first */
    size_t spell_count;
    const struct host *refusers[BLAME_REFUSERS];
    uint64_t refuser_ok; /* good answers of the first one then */
    size_t refuser_count;
    uint32_t refusals;
    bool is_agreed; /* it is part of what more than one host refused */
};

/** When calls were sent that were answered well, the last ones. */
struct blame_times {
    int64_t at[BLAME_TIMES];
    uint64_t count;
};

/** A host takes no calls of more rows, as it refused some that others answered. */
struct blame_cap {
    uint64_t rows;  /* 0: any number */
    uint32_t good;  /* calls of as many that it answered since */
    uint32_t every; /* after so many it gets twice as many rows again */
    bool was_raised;
};

/** A call was answered well. */
void blame_answered(struct call *k, int64_t now_ns);
/** A call failed. True: others did well while it was under way, as far as is known. */
bool blame_failed(struct job *j, struct work *w, int64_t now_ns);
/** What is known by now of earlier failures; true: rows that go alone have failed often enough. */
bool blame_is_proven(struct job *j, struct work *w);
/** Parts of what failed have failed with it. */
void blame_inherit(struct blame *part, const struct blame *whole);

/** A host refused a work, which may have another copy under way. */
void blame_refused(struct call *k);
enum blame_verdict {
    BLAME_ROWS,  /* it counts */
    BLAME_OTHER, /* another host is to be asked, or the same one with fewer rows */
    BLAME_WAIT,  /* there is none just now, and nothing says that the one that refused it is well */
};
enum blame_verdict blame_verdict(struct call *k, int64_t now_ns);
/** May the host be asked, or is it one that has said no while others have not been asked? */
bool blame_may_ask(const struct job *j, const struct work *w, const struct host *h, int64_t now_ns);
/** The most rows of a call to the host, `rows` or fewer. */
uint64_t blame_rows(const struct host *h, uint64_t rows);

#endif
