/* The core's state, between its files. */
#ifndef MESH_CORE_CORE_PRIV_H
#define MESH_CORE_CORE_PRIV_H

#include <sys/queue.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/vec.h"
#include "core.h"
#include "mesh/cache/cache.h"
#include "mesh/records/intent.h"
#include "mesh/view/view.h"
#include "mesh/vmodel/vmodel.h"
#include "slots.h"
#include "timers.h"

#define TRIED_MAX 16

enum { TRIED_HIT = 1, TRIED_LOAD = 2, TRIED_FAILED = 4 };

struct attempt {
    uint16_t peer;
    bool is_active, load_here;
    int64_t sent_ns;
};

struct mesh_req {
    uint64_t handle;
    void *user;
    struct mesh_local *local;
    struct mesh_req *prev, *next; /* of the model's waiting requests */
    bool is_waiting;              /* is in that list */
    bool is_from_peer, load_here, is_local, is_safe, is_sequence, is_answering, is_running;
    bool is_vmodel;      /* its id is that of a vmodel, or of nothing */
    bool may_be_vmodel;  /* its id, if it is not that of a model */
    bool is_missed;      /* it had to wait for a load */
    bool waits_for_load; /* here, so that the owner is not asked */
    bool waits_for_turn; /* in that list of the model */
    int64_t begun_ns;
    int64_t turn_ns; /* while it waits for its turn: since when */
    uint8_t attempts, refusals;
    struct attempt attempt[2];
    struct {
        uint16_t peer;
        uint8_t what;
    } tried[TRIED_MAX];
    uint8_t tried_count;
    int status; /* of the last failure; MR_OK: there was none */
    char *text; /* the same */
};

enum local_state {
    LOCAL_NONE,
    LOCAL_QUEUED,
    LOCAL_LOADING,
    LOCAL_LOADED,
    LOCAL_LEAVING, /* evicted, requests still run */
    LOCAL_UNLOADING
};

enum { CLAIM_NONE, CLAIM_SENT, CLAIM_HELD };

/* What this peer does with a model. Lives while any of it is in use (local_release). */
struct mesh_local {
    struct cache_entry entry; /* first: cache_victim gives it back */
    struct mesh_core *core;
    struct view_model *model;
    uint64_t handle;
    struct mesh_local *prev, *next; /* of all */
    uint32_t holds;                 /* requests, transactions and calls that refer to it */

    struct mesh_req *first, *last;           /* waiting requests */
    struct mesh_req *turn_first, *turn_last; /* those that wait until fewer run here */
    uint32_t turns;                          /* their number */
    uint64_t ask_seq;                        /* of the question to the owner; 0: none is open */
    uint16_t ask_peer;
    uint8_t ask_tries;
    bool asks_registry; /* whether there is such a model */

    /* as the owner */
    bool is_placed;
    uint16_t placed_peer;
    uint32_t placed_units, placed_device;
    int64_t placed_until;

    /* an administrator had it loaded: when, and until when something has to come of it; 0: no one waits */
    int64_t wanted_ns, wanted_until;
    int64_t want_pause;

    /* the copy here */
    enum local_state state;
    bool again;         /* load it again when it is unloaded */
    bool is_counted;    /* its load was counted in report.loads, and is queued again */
    bool is_outdated;   /* what loads or leaves is not of the definition that there is now */
    bool is_leased_out; /* draining: others have it, or need not */
    bool is_moving;     /* draining or spreading: the owner was asked for another copy */
    bool keeps_state;   /* from one request to the next */
    enum mesh_purpose purpose;
    uint32_t units;       /* as accounted */
    uint32_t device;      /* units of device memory, as accounted */
    uint32_t running;     /* requests */
    uint32_t max_running; /* as struct mesh_loaded */
    uint32_t outside;     /* those that did not come through the core, as was said last */
    int claim;
    int64_t claim_due, queued_ns, started_ns, loaded_ns, used_ns, moved_ns, leave_ns;
    struct mesh_local *queue_prev, *queue_next;
    enum mesh_fail fail;
    char *reason;
    int64_t fail_until; /* 0: it has not failed */

    /* the copy's record */
    enum mesh_copy_state in_state; /* as it is to say */
    uint64_t since_ms;             /* of that, since the epoch */
    enum mesh_copy_state have;     /* as written last */
    uint32_t have_units;
    bool have_is_unknown; /* a write may have been lost */
    bool stat_is_due;     /* what was measured of the model is to be written with it */
    bool is_writing, is_dirty;
    struct mesh_local *dirty_next;

    /* rates */
    uint32_t window_uses;
    int64_t busy_ns, busy_since; /* running requests, and outside ones, times time in this window */
    uint32_t uses_mask;          /* bit n: used n buckets ago */
    int64_t uses_at;             /* bucket of bit 0 */
    int64_t heavy_ns, scaled_ns;
};

struct lookup; /* unknown.c */

struct own_write {
    uint64_t token;
    bool is_claim;
    size_t count;
    struct {
        struct mesh_local *local;
        enum mesh_copy_state state;
        uint32_t units;
        bool frees_claim; /* the same transaction deletes the claim */
        bool has_stat;    /* and has what was measured */
    } item[40];
};

static inline bool call_changes_vmodel(const struct mesh_call *call)
{
    return call->kind == MESH_CALL_SET_VMODEL || call->kind == MESH_CALL_DELETE_VMODEL;
}

/* Of the intents in the journal each is in one of these lists, in the order in which they are tried. */
enum intent_list {
    INTENT_WAITS, /* to be made in the registry */
    INTENT_RUNS,  /* a call of it is under way */
    INTENT_ENDS,  /* done: the journal is to forget it */
    INTENT_LISTS
};

/* A change of a model or vmodel that is in the journal, or about to be. */
struct intent {
    TAILQ_ENTRY(intent) link;
    enum intent_list list;
    bool is_vmodel;
    mr_str id;
    struct mesh_intent what;
    char *text; /* of both */
    size_t bytes;
    bool is_nothing; /* about to be: with it the journal has no change of the model */
    bool is_done;    /* in the registry; the journal is to forget it */
    bool is_writing; /* token is that of the transaction */
    bool is_sent;    /* the registry may have taken it */
    uint64_t token;  /* of a call that is under way; 0: none */
    int64_t again_ns, forget_ns;
};

TAILQ_HEAD(intents, intent);

#define UNKNOWN_SLOTS 4096

struct mesh_core {
    struct mesh_core_options o;
    char *texts; /* of o.id and o.self */
    int64_t now;
    struct mesh_view view;
    uint64_t names; /* mesh_core_names */
    struct view_peer *me;
    bool has_lost_registry; /* until the next reading ends */
    /* what is still missing in a registry that lost its data is written then, whoever owns it; 0: nothing is */
    int64_t restore_ns;
    int64_t refs_ns; /* then references are looked at, after that; 0: they are right */
    bool is_read, registry_is_there, has_lease, is_draining, is_drained;
    struct slots reqs, locals;
    struct timers timers;
    struct mesh_local *first_local, *last_local;
    size_t local_count;
    size_t request_count;
    uint64_t seq;

    MR_VEC(struct mesh_action) actions;
    size_t taken;
    struct mr_arena arena;

    /* loads */
    struct mesh_cache cache;
    struct mesh_local *queue_first[MESH_PURPOSES], *queue_last[MESH_PURPOSES];
    uint32_t queued, loading;
    uint64_t held, leaving,
        limit; /* units: LOADING and LOADED; LEAVING and UNLOADING; most of held */
    uint64_t held_device, leaving_device; /* the same of device memory; the most is me->device */
    uint64_t evictable, evictable_device; /* of both, what is in the cache */
    double load_ns;                       /* a load takes, on average */
    uint32_t running;                     /* requests */

    /* records of this instance */
    struct mesh_local *dirty;
    MR_VEC(struct own_write *) writes;
    bool self_is_written, self_is_writing;
    uint64_t self_token;
    int64_t write_pause; /* until */

    /* ids that the registry does not know */
    struct {
        uint64_t hash;
        int64_t until;
    } unknown[UNKNOWN_SLOTS];
    MR_VEC(struct lookup *) lookups; /* of vmodels */
    double unknown_tokens;
    int64_t unknown_at;

    MR_VEC(struct manage *) manages;
    struct mr_map intents, vmodel_intents; /* id -> struct intent */
    struct intents intent_lists[INTENT_LISTS];
    size_t intents_run; /* in that list */
    size_t intent_bytes;
    bool journal_is_there;
    char why[208];              /* as mesh_core_why */
    char epoch[MESH_EPOCH_MAX]; /* of the registry */
    size_t epoch_len;
    bool transitions_are_due;
    bool minimum_is_due; /* a model may have less copies than it is to have at least */

    uint32_t moving;           /* copies that others are to have */
    int64_t drain_ns, away_ns; /* since when: it drains; the registry is away */
    bool drain_is_due;
    struct mesh_core_report report;
};

/* core.c */
struct mesh_action *core_act(struct mesh_core *c, enum mesh_action_kind kind);
mr_str core_text(struct mesh_core *c, mr_str s);
/** A key of the registry, as core_text. */
mr_str core_key(struct mesh_core *c, enum mesh_key_kind kind, mr_str id, mr_str instance);
void core_send(struct mesh_core *c, struct view_peer *to, const struct mesh_message *m);
struct mesh_local *core_local(struct mesh_core *c, struct view_model *m);
struct mesh_local *core_local_of(struct mesh_core *c, uint64_t handle);
/** Frees it if nothing of it is in use. */
void core_local_release(struct mesh_core *c, struct mesh_local *l);
struct view_peer *core_peer(struct mesh_core *c, uint16_t index);
/** It is there and answers, as far as is known; this one always does. */
bool core_peer_is_good(const struct mesh_core *c, const struct view_peer *p);
void core_suspect(struct mesh_core *c, struct view_peer *p);
void core_heard(struct mesh_core *c, struct view_peer *p);
/** The peer that decides about the model; NULL: there is none. */
struct view_peer *core_owner(struct mesh_core *c, mr_str id, const struct view_peer *not_this);
/** The same; of a model that the others do not know yet it is this one. */
struct view_peer *core_model_owner(struct mesh_core *c, const struct view_model *m,
                                   const struct view_peer *not_this);
/** As view_apply, with what follows from it. */
void core_apply(struct mesh_core *c, mr_str key, mr_bytes value, int64_t revision);

enum core_timer {
    TIMER_ASK,    /* local, ask_seq */
    TIMER_CLAIM,  /* local */
    TIMER_PROBE,  /* request; attempt and phase */
    TIMER_FAIL,   /* local */
    TIMER_PLACED, /* local, placed_until */
    TIMER_WANT,   /* local, wanted_ns */
    TIMER_LEAVE,  /* local, leave_ns */
    TIMER_WRITE,  /* writes are tried again */
    TIMER_MANAGE, /* calls go on */
    TIMER_STATE,
    TIMER_RATE,
    TIMER_JANITOR
};

/* own.c: the records of this instance */
/** The copy's record may have to change; it is written when the event has been worked off. */
void own_sync(struct mesh_core *c, struct mesh_local *l);
void own_claim(struct mesh_core *c, struct mesh_local *l);
void own_flush(struct mesh_core *c);
void own_written(struct mesh_core *c, uint64_t token, int status, bool succeeded, mr_bytes value);
/** All of them are written again, under a new lease. */
void own_again(struct mesh_core *c);
/** What was measured of the model is kept in the registry, with the copy's record. */
void own_measured(struct mesh_local *l, uint32_t load_ms);
void own_fini(struct mesh_core *c);

/* place.c: where a model is, or is to be */
/** The waiting requests of the model want a place for it. */
void place_ask(struct mesh_core *c, struct mesh_local *l);
void place_ask_timeout(struct mesh_core *c, struct mesh_local *l, uint64_t seq);
void place_asked(struct mesh_core *c, struct view_peer *from, const struct mesh_message *m);
void place_answered(struct mesh_core *c, const struct mesh_message *m);
/** So many copies there are to be, of a model that keeps state one; not this instance, if it is to move. True: this instance decides, and there
 *  may be more to do. */
bool place_more(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose,
                uint32_t copies);
void place_forget(struct mesh_core *c, struct mesh_local *l);
/** Why the model may not be loaded on this instance, whatever there is room for; NULL: it may. */
const char *place_forbids(struct mesh_core *c, const struct mesh_local *l);
/** The peer may load it now. */
bool place_may_have(const struct mesh_core *c, const struct mesh_local *l,
                    const struct view_peer *p);
/** A copy of it keeps state from one request to the next. */
bool place_keeps_state(const struct mesh_local *l);
/** Beside those that are loaded another copy loads, or may be loaded now. */
bool place_may_grow(struct mesh_core *c, const struct mesh_local *l, uint32_t loaded);
/** True if no peer has the model or loads it, and it has failed wherever it may be, or may be nowhere. */
bool place_is_hopeless(struct mesh_core *c, const struct mesh_local *l);
bool place_fits(const struct mesh_core *c, const struct view_peer *p, const struct view_model *m);

/* request.c, request_find.c: as the functions of core.h */
uint64_t request_begin(struct mesh_core *c, const struct mesh_ask *ask);
void request_answering(struct mesh_core *c, uint64_t handle, unsigned n);
void request_result(struct mesh_core *c, uint64_t handle, unsigned n, enum mesh_result result,
                    int status, mr_str text);
void request_cancel(struct mesh_core *c, uint64_t handle);
void request_waiting_wake(struct mesh_core *c, struct mesh_local *l);
/** The owner chose: requests that wait go there. */
void request_placed(struct mesh_core *c, struct mesh_local *l, struct view_peer *at);
/** The registry has no such model: those that wait end, or go on if it is the name of a vmodel. */
void request_unknown(struct mesh_core *c, struct mesh_local *l);
/** The view has the vmodel if there is one; status < 0: the registry does not answer. */
void request_looked_up(struct mesh_core *c, uint64_t handle, mr_str vmodel, int status);
/** All waiting ones end so. */
void request_waiting_fail(struct mesh_core *c, struct mesh_local *l, int status, mr_str text,
                          int64_t retry_ns);
/** The copy here is loaded: those that wait for it run. */
void request_loaded(struct mesh_core *c, struct mesh_local *l);
/** It will not be loaded here. */
void request_not_loaded(struct mesh_core *c, struct mesh_local *l, enum mesh_why why, mr_str text);
void request_probe(struct mesh_core *c, struct mesh_req *r, uint64_t check);
void request_fini(struct mesh_core *c);
/** Of requests for a model whose load failed so. */
int request_fail_status(enum mesh_fail fail);

/* unknown.c: ids that the registry may not know */
bool unknown_is_cached(const struct mesh_core *c, mr_str key);
void unknown_remember(struct mesh_core *c, mr_str key);
bool unknown_may_ask(struct mesh_core *c);
/** The registry has been asked for the vmodel, and has not answered yet. */
bool unknown_is_asked(const struct mesh_core *c, mr_str vmodel);
/** Asks for it; request_looked_up follows. */
void unknown_look_up(struct mesh_core *c, mr_str vmodel, uint64_t request);
/** False: the token is not of such a question. */
bool unknown_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value, int64_t revision);
void unknown_fini(struct mesh_core *c);

/* load.c */
/** Errors: MR_E_EXHAUSTED (the queue is full), MR_E_CLOSED (draining), MR_E_TOO_LARGE, MR_E_INTERNAL (it failed a short while ago). */
int load_want(struct mesh_core *c, struct mesh_local *l, enum mesh_purpose purpose);
/** As long as a load would wait now. */
int64_t load_wait_ns(const struct mesh_core *c);
/** Takes it out of the queue. */
void load_drop(struct mesh_core *c, struct mesh_local *l);
void load_pump(struct mesh_core *c);
/** The copy here goes, when its requests have ended. */
void load_evict(struct mesh_core *c, struct mesh_local *l);
/** Requests of a leaving copy have had LEAVE_NS: unloads it under them. */
void load_leave_due(struct mesh_core *c, struct mesh_local *l, uint64_t check);
/** A request of it has begun, or ended. */
void load_use(struct mesh_core *c, struct mesh_local *l, bool is_begin);
/** As the functions of core.h. */
void load_done(struct mesh_core *c, mr_str id, const struct mesh_loaded *what);
enum mesh_room load_predicted(struct mesh_core *c, mr_str id, uint64_t bytes);
void load_failed(struct mesh_core *c, mr_str id, enum mesh_fail kind, mr_str reason);
void load_unloaded(struct mesh_core *c, mr_str id);
/** The runtime has loaded it by itself. */
void load_found(struct mesh_core *c, struct mesh_local *l, const struct mesh_loaded *what);
/** The runtime has lost it. */
void load_lost(struct mesh_core *c, struct mesh_local *l);
/** Whether it may be evicted has changed. */
void load_pin(struct mesh_core *c, struct mesh_local *l);
/** It was used without the core. */
void load_used(struct mesh_core *c, struct mesh_local *l, uint32_t count, uint32_t running);
/** Adds to busy_ns what has passed. */
void load_busy(struct mesh_core *c, struct mesh_local *l);
/** The model is not registered any more. */
void load_unregistered(struct mesh_core *c, struct mesh_local *l);
/** Its definition is another one than before: what is loaded goes, and what loads goes when it is there. */
void load_outdated(struct mesh_core *c, struct mesh_local *l);
uint32_t load_age_s(const struct mesh_core *c);

/* scale.c */
void scale_used(struct mesh_core *c, struct mesh_local *l);
void scale_rates(struct mesh_core *c);
void scale_janitor(struct mesh_core *c);

/* want.c: loads that administrators asked for */
/** The model is to be loaded, if it is loaded nowhere. One that is not known: no effect. */
void want_load(struct mesh_core *c, mr_str id);
/** What was asked for may have come, or failed. */
void want_see(struct mesh_core *c, struct mesh_local *l);
void want_due(struct mesh_core *c, struct mesh_local *l, uint64_t check);

/* manage.c */
void manage_call(struct mesh_core *c, const struct mesh_call *call);
/** False: the transaction is not of a call. */
bool manage_written(struct mesh_core *c, uint64_t token, int status, bool succeeded);
/** What is to be written so that the registry, which has this vmodel (revision 0: none), has the change. Errors: as vmodel_plan_set. */
int manage_plan_intent(const struct mesh_core *c, const struct intent *i,
                       const struct mesh_vmodel *known, int64_t revision, struct vmodel_plan *out,
                       struct mr_err *err);
/** Returns the token of the transaction; 0: no memory. */
uint64_t manage_send(struct mesh_core *c, const struct vmodel_plan *p);
void manage_tick(struct mesh_core *c);
/** The registry is back, or the journal is there: calls that wait go on. */
void manage_wake(struct mesh_core *c);
/** True if a newer change of the same model or vmodel is being written to the journal, which will replace this one. */
bool manage_replaces(const struct mesh_core *c, const struct intent *i);
/** vmodels in transition go on. */
void manage_transitions(struct mesh_core *c);
/** By the view; revision 0: there is none. */
struct vmodel_model manage_model_of(const struct mesh_core *c, mr_str id);
void manage_fini(struct mesh_core *c);

/* restore.c */
/** Definitions and vmodels that the reading has not seen stay, and their owners write them again; what an owner does not know is written
 *  by others a while later. Then models get the references that the vmodels in the registry have to them. */
void restore_begin(struct mesh_core *c);
void restore_tick(struct mesh_core *c);

/* intent.c: changes that are made while the registry is away */
void intent_init(struct mesh_core *c);
/** Whether the journal may take it. */
bool intent_can(const struct mesh_core *c, const struct mesh_call *call);
/** NULL: no change of the model waits. */
struct intent *intent_find(const struct mesh_core *c, mr_str id);
/** Writes the change, which the registry may have taken, to the journal: *out_token. It counts from intent_commit on. shown: of a vmodel
 *  that is set: what it is until then. Errors: MR_E_UNAVAILABLE (the journal is full), MR_E_NOMEM. */
int intent_stage(struct mesh_core *c, const struct mesh_call *call, const struct mesh_vmodel *shown,
                 bool was_sent, struct intent **out, uint64_t *out_token, struct mr_err *err);
void intent_commit(struct mesh_core *c, struct intent **staged);
void intent_drop(struct intent **staged);
/** It is made, and not repeated any more. */
void intent_forget(struct mesh_core *c, struct intent *i);
/** Of an earlier process. */
void intent_add(struct mesh_core *c, bool is_vmodel, mr_str id, mr_bytes value);
/** A call of it is under way. */
void intent_runs(struct mesh_core *c, struct intent *i, uint64_t token);
void intent_again_later(struct mesh_core *c, struct intent *i);
/** It is in the registry. */
void intent_made(struct mesh_core *c, struct intent *i);
/** It is over; why_not NULL: it was made. */
void intent_end(struct mesh_core *c, struct intent *i, const char *why_not);
void intent_wake(struct mesh_core *c);
/** Makes them in the registry, if it is there. */
void intent_pump(struct mesh_core *c);
/** False: the token is not of an intent. */
bool intent_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value, int64_t revision);
bool intent_written(struct mesh_core *c, uint64_t token, int status, bool succeeded);
/** The registry has been read, and what is not in it is about to leave the view. */
void intent_read(struct mesh_core *c);
/** The registry has a definition: one that waits and says something else goes. */
void intent_meet(struct mesh_core *c, mr_str key, mr_bytes value);
void intent_fini(struct mesh_core *c);

/* intent_vmodel.c: what is other of the changes of vmodels */
/** NULL: no change of the vmodel waits. */
struct intent *intent_find_vmodel(const struct mesh_core *c, mr_str id);
/** A vmodel whose change waits is to have the model. */
bool intent_refers(const struct mesh_core *c, mr_str model);
/** What is to be in the journal, after what is there. False: nothing. */
bool intent_fold_vmodel(const struct mesh_core *c, const struct mesh_call *call,
                        const struct mesh_vmodel *shown, bool was_sent, struct mesh_intent *out);
/** The view has what is to be. */
void intent_show_vmodel(struct mesh_core *c, const struct intent *i);
/** The registry has this record, ptr NULL: none. */
void intent_proceed_vmodel(struct mesh_core *c, struct intent *i, mr_bytes value, int64_t revision);
void intent_read_vmodel(struct mesh_core *c, const struct intent *i);

/* drain.c */
void drain_pump(struct mesh_core *c);
/** A copy elsewhere has come: one that moves is not needed here any more. */
void drain_copied(struct mesh_core *c, struct mesh_local *l);
/** This instance has more than the others: some of it goes there. */
void drain_spread(struct mesh_core *c);
/** Instances that are there, good and not draining, and have it loaded, this one left out. */
uint32_t drain_others(const struct mesh_core *c, const struct mesh_local *l);

#endif
