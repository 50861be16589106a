/* A fleet in one thread, under a virtual clock: peers that run the real core and the real binding to the registry, the registry's store
 * in memory, a network that delays, loses and cuts, runtimes and clients. The same seed gives the same run. */
#ifndef SIM_H
#define SIM_H

#include "base/rng.h"
#include "base/vec.h"
#include "kv/memory.h"
#include "mesh/core/core.h"
#include "mesh/registry/registry.h"
#include "mesh/view/view.h"

#define SIM_PEERS  16
#define SIM_MODELS 2048
#define MS         INT64_C(1000000)
#define S          INT64_C(1000000000)
#define MIB        (UINT64_C(1) << 20)

struct sim_model {
    uint64_t bytes; /* measured */
    int64_t load_ns, unload_ns, run_ns;
    bool keeps_state;
    uint32_t max_running;
    const char *error; /* that its runs are answered with; NULL: none */
    unsigned fail_at;  /* peers where loads fail, one bit each */
    enum mesh_fail fail;
    const char *fails_with; /* the text of that; NULL: boom */
    unsigned loads;         /* begun, over all peers */
    unsigned fails_first;   /* loads that fail, however many there were before */
};

struct sim_peer {
    struct mesh_core *core;
    struct registry *registry;
    struct mr_kv *kv;
    struct mr_kv_memory *disk; /* of its journal, which outlives it; NULL: it has none */
    struct mr_kv *journal;
    struct sim *sim;
    char id[16];
    unsigned index, epoch; /* epoch: changes when it is killed */
    bool is_up, is_stopped, is_draining, is_drained;
    unsigned side;                  /* of a partition: peers of other sides are not reached */
    uint8_t in_runtime[SIM_MODELS]; /* 1: loading, 2: loaded, 3: unloading */
    char path_end[SIM_MODELS];      /* the last letter of the path that was loaded last */
    uint64_t resident, most_resident;
    unsigned loading, loads, unloads;
    unsigned running[SIM_MODELS], most_running[SIM_MODELS];
    uint32_t loaders;
    uint64_t capacity;
};

/* A client's request. */
struct sim_call {
    unsigned peer, model;
    uint64_t handle;
    int64_t begin_ns, end_ns;
    bool has_ended;
    bool is_at_draining; /* its peer was about to end when it came */
    int status;
    unsigned runs;   /* times that it ran to its end in a runtime */
    unsigned ran_at; /* the last of them */
    int64_t retry_ns;
    char text[200];
    uint8_t not_here
        [SIM_PEERS]
        [2]; /* times that a peer said that it has not got it; [1]: and was asked to load it */
};

struct sim_answer {
    bool is_done, is_precondition, is_pending;
    int status;
    char text[200];
};

struct sim {
    int64_t now;
    struct mr_rng rng;
    struct mr_kv_memory *store;
    struct sim_peer peers[SIM_PEERS];
    unsigned peer_count;
    struct sim_model models[SIM_MODELS];
    struct mesh_core_options options; /* of the peers that are added */
    int64_t delay_ns;                 /* one way between peers; up to twice as much */
    double loss;                      /* of messages */
    MR_VEC(struct sim_event) events;
    uint64_t seq;
    MR_VEC(struct sim_call *) calls;
    MR_VEC(struct sim_answer *) answers;
    unsigned hops;
    bool sizes_are_declared;
    bool has_journals;     /* peers that are added have one */
    uint64_t device_bytes; /* of peers that are added */
};

struct sim_event {
    int64_t at_ns;
    uint64_t seq;
    int kind;
    unsigned peer, epoch, from, model, attempt;
    bool flag;
    int status, fail_status;
    uint64_t request;
    struct sim_call *call;
    char *text;
    size_t text_len;
};

void sim_init(struct sim *s, uint64_t seed);
void sim_fini(struct sim *s);
/** A peer of that capacity; returns its index. It is there after sim_run. */
unsigned sim_add(struct sim *s, uint64_t capacity, uint32_t loaders, const char *zone,
                 const char *label);
/** As many that are alike. */
void sim_add_many(struct sim *s, unsigned count, uint64_t capacity, uint32_t loaders);
void sim_kill(struct sim *s, unsigned peer);
/** The same instance begins again, under the same id. */
void sim_restart(struct sim *s, unsigned peer);
void sim_stop(struct sim *s, unsigned peer);
void sim_continue(struct sim *s, unsigned peer);
void sim_drain(struct sim *s, unsigned peer);
/** Definitions of models first..first+count-1 into the store: declared: with their size. */
void sim_register(struct sim *s, unsigned first, unsigned count, uint64_t bytes, int64_t load_ns);
void sim_unregister(struct sim *s, unsigned model);
/** A record as anybody may have written it, under no lease. */
void sim_put(struct sim *s, const char *key, mr_bytes value);
void sim_define(struct sim *s, unsigned model, const struct mesh_def *d);
/** The peer's runtime has loaded the model by itself. */
void sim_found(struct sim *s, unsigned peer, unsigned model);
struct sim_call *sim_call(struct sim *s, unsigned peer, unsigned model);
/** For the peer's own process: it runs there. */
struct sim_call *sim_call_local(struct sim *s, unsigned peer, unsigned model);
/** By an alias; the call's model is the one that ran. */
struct sim_call *sim_call_vmodel(struct sim *s, unsigned peer, const char *id);
/** The same, of a model or an alias. */
struct sim_call *sim_call_name(struct sim *s, unsigned peer, const char *name);
/** A call of an administrator. */
const struct sim_answer *sim_manage(struct sim *s, unsigned peer, const struct mesh_call *call);
/** Until that much time has passed. */
void sim_run(struct sim *s, int64_t ns);
/** Until every call has ended; false: not within that time. */
bool sim_settle(struct sim *s, int64_t ns);
/** Copies that are loaded in runtimes of peers that are up. */
unsigned sim_copies(const struct sim *s, unsigned model);
unsigned sim_copies_at(const struct sim *s, unsigned peer);
unsigned sim_loads(const struct sim *s);
void sim_id(char out[24], unsigned model);
/** What holds at any time: capacities, single instances of a load, what the registry shows when all is quiet. */
void sim_check(const struct sim *s);

#endif
