/* What sequence.c and form.c share: the set and its sequences. */
#ifndef MR_SCHED_SEQUENCE_SET_H
#define MR_SCHED_SEQUENCE_SET_H

#include "base/map.h"
#include "sequence.h"

enum seq_list_of { SEQ_IN_NONE = 0, SEQ_IN_BACKLOG, SEQ_IN_READY, SEQ_IN_IDLE };

struct seq {
    struct seq_requests waiting; /* in order */
    struct seq_request *running; /* NULL: none */
    TAILQ_ENTRY(seq) link;
    enum seq_list_of in; /* the list that `link` is in */
    uint32_t instance;   /* SEQ_NONE: in the backlog */
    uint32_t place;
    bool is_known;  /* in the map */
    bool is_named;  /* as its last start */
    bool is_ending; /* over when nothing of it waits or runs */
    bool has_begun; /* a request has run, or runs */
    int64_t idle_since_ns;
    void *data; /* the owner's */
    size_t key_len;
    char key[];
};
TAILQ_HEAD(seq_list, seq);

struct seq_instance {
    struct seq **places;   /* NULL: free */
    struct seq_list ready; /* a request waits and none runs; by the arrival of that request */
    uint32_t ready_count;
    uint32_t used;      /* places that are taken */
    uint32_t free_from; /* no lower place is free */
};

struct seq_set {
    struct seq_options o;
    struct mr_map known; /* key -> struct seq */
    struct seq_list backlog;
    struct seq_list idle; /* by idle_since_ns */
    struct seq_instance *instances;
    uint32_t count;
    bool is_hasty;
};

/** The first waiting request of a ready sequence begins to run. */
void sequence_run(struct seq_set *s, struct seq *q, uint32_t row);

#endif
