/* The mesh as one peer runs it: a state machine without sockets, threads or a clock. What happens is reported to it with the time, and what it
 * wants done comes out as actions; a driver (a server, or the simulator of the tests) carries them out.
 *
 * Any peer takes any request. A model that is loaded somewhere is asked for there. For one that is not, its owner, the peer with the
 * highest hash of model and peer, chooses an instance; a claim in the registry backs that up, for the time in which two
 * peers take themselves for the owner. An instance loads what it was chosen for, in a queue, and evicts what is worth least. Each copy has a
 * record under its instance's lease, so that copies go with their instance.
 *
 * One thread. Functions take the time in monotonic nanoseconds; it must not go back. After each of them the driver takes all actions. */
#ifndef MESH_CORE_CORE_H
#define MESH_CORE_CORE_H

#include "base/hist.h"
#include "mesh/records/message.h"
#include "mesh/records/record.h"

struct mesh_core;
struct mesh_view;

/** A rule for types: where their models may be loaded. */
struct mesh_constraint {
    mr_str type;            /* "_default": of types that no other rule names */
    const mr_str *required; /* labels that an instance must have, all of them */
    size_t required_count;
    const mr_str *preferred; /* one of these is better than none */
    size_t preferred_count;
};

/** How long things took, since the start. Written by the core. */
struct mesh_core_times {
    struct mr_hist queue_ns;   /* a load waited to begin */
    struct mr_hist miss_ns;    /* a request waited for a load here, until it ran */
    struct mr_hist evicted_ms; /* since the last use of a model that was evicted */
    struct mr_hist turn_ns;    /* a request waited as its copy here ran as many as it may */
    struct mr_hist bytes;      /* size of a model that was loaded */
};

/** Zero members: the default. */
struct mesh_core_options {
    mr_str id;                 /* of this instance */
    struct mesh_instance self; /* its record; draining is set by the core */
    mr_str vmodel_owner;       /* of vmodels that are made by calls without an owner; empty: none */
    uint64_t default_bytes;    /* size of a model that nothing is known of; 1 MiB */
    const struct mesh_constraint *constraints;
    size_t constraint_count;
    uint32_t max_queue;      /* loads that wait; 1024 */
    uint32_t max_requests;   /* that are under way here; 65536 */
    uint32_t max_failures;   /* instances that a load is tried on; 3 */
    uint32_t max_attempts;   /* of a request, at peers; 8 */
    uint32_t unknown_per_s;  /* ids that the registry is asked for; 5 */
    uint32_t max_intents;    /* changes that wait in the journal; 10000 */
    size_t max_intent_bytes; /* that they take; 16 MiB */
    int64_t claim_wait_ns;   /* how long a load waits for its claim; 100 ms */
    int64_t place_wait_ns;   /* how long an owner has to answer; 200 ms */
    /* a peer that has been silent this long with a request is asked whether it lives; after as long again the
     * request is sent elsewhere; 100 ms */
    int64_t probe_ns;
    int64_t state_ns;                 /* between messages about load; 1 s */
    int64_t rate_ns;                  /* window of rates, after which copies are added; 10 s */
    int64_t janitor_ns;               /* between looks for copies that are too many; 6 min */
    int64_t fail_ns[MESH_FAIL_COUNT]; /* how long a failed load is remembered, by kind */
    uint32_t scale_per_minute;        /* requests of a copy above which there is another; 2000 */
    /* concurrency of a copy above which there is another, as running requests on average; 8 */
    double scale_busy;
    /* a use this long after another brings a second copy; 7 min, 40 min */
    int64_t second_min_ns, second_max_ns;
    uint32_t move_parallel; /* copies that a draining instance has loaded elsewhere at a time; 8 */
    int64_t move_idle_ns;   /* copies unused for this long do not move; 1 h */
    struct mesh_core_times *times; /* NULL: they are not kept */
    int64_t (*wall_ns)(void);      /* for the records of copies; NULL: they have no time */
};

enum mesh_action_kind {
    MESH_ACT_RUN,     /* run the request here: end with mesh_core_result, attempt 0 */
    MESH_ACT_FORWARD, /* send it to instance at address, with load_here: end with mesh_core_result */
    MESH_ACT_CANCEL,  /* the attempt is not wanted any more; no result is expected */
    MESH_ACT_REPLY,   /* answer the request: status, why, text, retry_ns; it has ended */
    MESH_ACT_SEND,    /* bytes to instance at address; may be lost */
    MESH_ACT_TXN,     /* token, compares, then, otherwise: mesh_core_written */
    MESH_ACT_GET,     /* token, key: mesh_core_got */
    MESH_ACT_LOAD,    /* model id, type, path, key: mesh_core_loaded */
    MESH_ACT_UNLOAD,  /* model id: mesh_core_unloaded */
    MESH_ACT_ANSWER, /* of mesh_core_call: user, status, is_precondition, is_pending, is_refused, text */
    MESH_ACT_RECONCILED, /* a change of the journal, of model id or, with is_vmodel, of a vmodel, is over: status, text: what was made of it, or why nothing was */
    MESH_ACT_DRAINED     /* nothing is left to be done before the process ends */
};

/** Why a request that came from a peer is not answered here; the driver sends it back as it is. */
enum mesh_why {
    MESH_WHY_NONE,
    MESH_WHY_NOT_HERE,
    MESH_WHY_REFUSED,    /* it cannot be loaded here now */
    MESH_WHY_LOAD_FAILED /* status and text say why */
};

struct mesh_compare {
    mr_str key;
    int64_t revision; /* 0: there is no such key */
};

struct mesh_op {
    enum { MESH_OP_PUT, MESH_OP_DELETE, MESH_OP_GET } kind;
    mr_str key;
    mr_bytes value;
    bool is_leased; /* PUT: under this instance's lease */
};

/** Valid until the next call into the core that is not mesh_core_take. */
struct mesh_action {
    enum mesh_action_kind kind;
    uint64_t request; /* RUN, FORWARD, CANCEL, REPLY: what mesh_core_request returned */
    void *user;       /* of the request, or of the call */
    unsigned attempt; /* FORWARD, CANCEL */
    bool load_here;   /* FORWARD: the instance is to load the model if it has not got it */
    bool is_plain; /* FORWARD: it is loaded there, and other requests for it may go there as well */
    mr_str instance, address;
    mr_str id;      /* of the model */
    uint64_t names; /* RUN, FORWARD: mesh_core_names when it was looked up */
    mr_str type, path, key;
    mr_bytes bytes;
    uint64_t token;
    bool is_journal; /* TXN: of this instance's journal, not of the registry */
    const struct mesh_compare *compares;
    size_t compare_count;
    const struct mesh_op *then;
    size_t then_count;
    const struct mesh_op *otherwise;
    size_t otherwise_count;
    int status;
    /* ANSWER: the state of other records forbids it (gRPC's FAILED_PRECONDITION) */
    bool is_precondition;
    bool is_vmodel;  /* RECONCILED */
    bool is_pending; /* ANSWER: it is in the journal, and made in the registry when that is back */
    bool is_refused; /* ANSWER: the registry does not take changes now */
    enum mesh_why why;
    mr_str text;
    int64_t retry_ns; /* REPLY: a good time to wait before trying again; 0: none */
};

/** A request. */
struct mesh_ask {
    mr_str id;
    bool is_vmodel;
    bool may_be_vmodel; /* id is that of a model, or else of a vmodel */
    bool is_from_peer;  /* it has been sent on once, and is not again */
    bool load_here;     /* from a peer: the owner chose this instance */
    bool is_local;      /* with load_here: for this process, so that no other instance will do */
    bool is_safe;       /* may be run twice: it may be tried again after it was sent */
    bool is_sequence;   /* one of several that must reach the same copy */
    /* as attempt 0 to the instance at that address, which has not answered; ptr NULL: not */
    mr_str sent_to;
    void *user;
};

enum mesh_result {
    MESH_ENDED,       /* answered, with an answer of the model, good or bad */
    MESH_NOT_HERE,    /* the peer has not got it */
    MESH_REFUSED,     /* the peer cannot load it now */
    MESH_LOAD_FAILED, /* status and text say why */
    MESH_UNREACHABLE, /* nothing of it was sent */
    MESH_BROKEN       /* the connection broke after some was sent */
};

/** Copies the options, but for what constraints point to. Errors: MR_E_INVALID. */
int mesh_core_new(struct mesh_core **out, const struct mesh_core_options *options, int64_t now,
                  struct mr_err *err);
void mesh_core_free(struct mesh_core **core);

/** False: no action is left. */
bool mesh_core_take(struct mesh_core *c, struct mesh_action *out);
/** When mesh_core_tick has something to do; INT64_MAX: never. */
int64_t mesh_core_next(const struct mesh_core *c);
void mesh_core_tick(struct mesh_core *c, int64_t now);

/** The registry. Records come from a reading (begin, a record for each that there is, end) and then from the watch, value ptr NULL for
 *  a key that is deleted. Nothing is done before the end of the first reading. */
void mesh_core_read_begin(struct mesh_core *c, int64_t now);
void mesh_core_record(struct mesh_core *c, mr_str key, mr_bytes value, int64_t revision,
                      int64_t now);
void mesh_core_read_end(struct mesh_core *c, int64_t now);
/** The registry has lost its data: the reading that follows takes no definition and no vmodel away, they are written again. */
void mesh_core_registry_lost(struct mesh_core *c, int64_t now);
/** There is a lease: a first one, or a new one after the old one has ended. */
void mesh_core_lease(struct mesh_core *c, int64_t now);
/** The registry's id, of MESH_EPOCH_MAX bytes at most; before mesh_core_registry. */
void mesh_core_epoch(struct mesh_core *c, mr_str epoch, int64_t now);
/** Whether the registry can be reached, and is the one that was read. */
void mesh_core_registry(struct mesh_core *c, bool is_there, int64_t now);
/** Why the registry, or the journal, failed last: for the texts of answers. */
void mesh_core_why(struct mesh_core *c, mr_str why);
/** A transaction's end. value: of the one key that `otherwise` reads, ptr NULL if there is none. */
void mesh_core_written(struct mesh_core *c, uint64_t token, int status, bool succeeded,
                       mr_bytes value, int64_t now);
/** A read's end; value ptr NULL: there is no such key. */
void mesh_core_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value,
                   int64_t revision, int64_t now);
/** The journal, if there is one. Its records, as mesh_core wrote them, come first, once. */
void mesh_core_intent(struct mesh_core *c, mr_str key, mr_bytes value, int64_t now);
/** Whether changes can be written to it. */
void mesh_core_journal(struct mesh_core *c, bool is_there, int64_t now);

/** What a load has brought. */
struct mesh_loaded {
    uint64_t bytes; /* 0: not known */
    /* from one request to the next: it has one copy, and no request of it runs twice */
    bool keeps_state;
    /* requests that the copy takes at once; eight times as many wait, 16 at least, and more are refused; 0: any
     * number */
    uint32_t max_running;
};

/** Whether there is room for a load whose size was predicted. */
enum mesh_room {
    MESH_ROOM_NOW,
    MESH_ROOM_LATER, /* the load has not begun: another MESH_ACT_LOAD follows when there is room, or it fails */
    MESH_ROOM_NEVER /* it is larger than the capacity */
};
/** The runtime predicts `bytes` for a model of a MESH_ACT_LOAD: makes room for it. */
enum mesh_room mesh_core_predicted(struct mesh_core *c, mr_str id, uint64_t bytes, int64_t now);
void mesh_core_loaded(struct mesh_core *c, mr_str id, const struct mesh_loaded *what, int64_t now);
void mesh_core_load_failed(struct mesh_core *c, mr_str id, enum mesh_fail kind, mr_str reason,
                           int64_t now);
void mesh_core_unloaded(struct mesh_core *c, mr_str id, int64_t now);
/** Requests that did not come through the core: how many used it since the last report, and how many run now. */
void mesh_core_used(struct mesh_core *c, mr_str id, uint32_t count, uint32_t running, int64_t now);
/** The runtime has loaded the model without a MESH_ACT_LOAD; the model becomes a copy. No effect if the core knows the copy,
 *  on a model that keeps a state, is larger than the capacity, may not be here or is not registered, or is so with a path, where another
 *  one may be; and while this instance drains. */
void mesh_core_found(struct mesh_core *c, mr_str id, const struct mesh_loaded *what, int64_t now);
/** The runtime has lost the model: it is not loaded any more. */
void mesh_core_lost(struct mesh_core *c, mr_str id, int64_t now);

/** Returns the request's handle, never 0. Its end is a REPLY, or mesh_core_result with MESH_ENDED, or mesh_core_cancel. */
uint64_t mesh_core_request(struct mesh_core *c, const struct mesh_ask *ask, int64_t now);
/** An attempt has begun to be answered: the request is not tried again. */
void mesh_core_answering(struct mesh_core *c, uint64_t request, unsigned attempt, int64_t now);
/** status: of MESH_LOAD_FAILED, as the peer's answer had it. */
void mesh_core_result(struct mesh_core *c, uint64_t request, unsigned attempt,
                      enum mesh_result result, int status, mr_str text, int64_t now);
/** The caller has gone. Attempts get a CANCEL. */
void mesh_core_cancel(struct mesh_core *c, uint64_t request, int64_t now);

void mesh_core_message(struct mesh_core *c, mr_str from, mr_bytes bytes, int64_t now);
/** The instance is to end: its copies move, then comes MESH_ACT_DRAINED. Requests are taken all the time. */
void mesh_core_drain(struct mesh_core *c, int64_t now);

enum mesh_call_kind {
    MESH_CALL_REGISTER,      /* id, def, load_now; the same again is no error */
    MESH_CALL_UNREGISTER,    /* id; one that is not there is no error */
    MESH_CALL_ENSURE,        /* id: it is loaded if it is loaded nowhere */
    MESH_CALL_SET_VMODEL,    /* id, target and what follows it */
    MESH_CALL_DELETE_VMODEL, /* id, owner */
    MESH_CALL_SEE_MODEL,     /* id: the view has it when this is answered, if there is one */
    MESH_CALL_SEE_VMODEL
};

/** A call of an administrator. Texts are copied. */
struct mesh_call {
    enum mesh_call_kind kind;
    void *user;
    mr_str id;
    struct mesh_def def;
    bool load_now;
    mr_str target, expected, owner;
    bool has_def, update_only, force; /* as struct vmodel_set */
};

/** Its end is MESH_ACT_ANSWER. Errors there: MR_E_INVALID, MR_E_EXISTS (other attributes, another owner), MR_E_NOT_FOUND, MR_E_UNAVAILABLE (the
 *  registry), MR_E_EXHAUSTED. */
void mesh_core_call(struct mesh_core *c, const struct mesh_call *call, int64_t now);

/** Other rules for types; copies that are there stay. Borrowed as those of the options, which are not looked at any more. */
void mesh_core_constraints(struct mesh_core *c, const struct mesh_constraint *at, size_t count);

/** Another number once a name may stand for another model than before: a vmodel has changed, or a model of a vmodel's name has come or gone. */
uint64_t mesh_core_names(const struct mesh_core *c);

/** A call has it loaded, and that has not ended. */
bool mesh_core_is_wanted(const struct mesh_core *c, mr_str id);

#define MESH_WHY_MAX 300
/** It is registered, and no instance that is there may load it, for its labels or its memory: why. */
bool mesh_core_is_nowhere(const struct mesh_core *c, mr_str id, char text[MESH_WHY_MAX]);

/** It is registered, and a request for it would be answered, if need be after a load: not if that has failed wherever it may be. */
bool mesh_core_may_serve(struct mesh_core *c, mr_str id);

/** For reports and tests. */
const struct mesh_view *mesh_core_view(const struct mesh_core *c);
struct mesh_core_report {
    uint64_t held_units, limit_units, capacity_units;
    uint32_t loaded, queued, loading, requests;
    uint64_t loads, evictions, unknown_reads;
    uint64_t models;  /* definitions that are known */
    uint64_t intents; /* changes that wait in the journal */
    /* since the last use of what would be evicted next here; UINT32_MAX: there is room */
    uint32_t age_s;
    uint64_t asked,
        missed; /* requests of clients that came through the core; those that had to wait for a load */
};
void mesh_core_report(const struct mesh_core *c, struct mesh_core_report *out);
/** All instances that answer and do not drain, this one included. */
struct mesh_core_fleet {
    bool is_first;      /* this one has the least id: it reports what is the same for all */
    uint64_t instances; /* in the registry, whatever they do */
    uint64_t used_units, capacity_units;
    uint64_t queued; /* loads that wait or run, as each last said */
    /* the least: since the last use of what would be evicted next; UINT32_MAX: there is room */
    uint32_t age_s;
};
void mesh_core_fleet(const struct mesh_core *c, struct mesh_core_fleet *out);
enum mesh_copy_state mesh_core_copy(const struct mesh_core *c, mr_str id);

#endif
