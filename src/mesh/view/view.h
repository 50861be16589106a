/* The registry as a peer sees it: what it has read, in memory, decoded once. A model takes 64 bytes, its texts, and 24 bytes for
 * each copy, so that a million of them fit; a look-up parses nothing. One thread.
 *
 * A model is in the view as long as there is a record of it, or a `local` of the core. Pointers to it stay valid that long. */
#ifndef MESH_VIEW_VIEW_H
#define MESH_VIEW_VIEW_H

#include <string.h>

#include "base/map.h"
#include "mesh/records/record.h"

#define VIEW_PEERS_MAX                                                                             \
    4096 /* instances at a time, those with copies but without a record included */
#define VIEW_REVISION_PENDING                                                                      \
    1 /* of a definition that is not in the registry: older than any that it gives */
#define VIEW_COPIES_MAX 255 /* of a model; records beyond are ignored */

struct mesh_local; /* of the core */

struct view_failure {
    uint64_t time_ms;
    char reason[]; /* may be empty */
};

struct view_copy {
    int64_t revision;
    union {
        struct view_failure *failure; /* of FAILED */
        uint64_t time_ms;             /* of others, as in the record */
    };
    uint32_t units;
    uint16_t peer;    /* index */
    uint8_t state;    /* enum mesh_copy_state */
    uint8_t fail : 6; /* enum mesh_fail */
    uint8_t keeps_state : 1;
    uint8_t is_seen : 1; /* by the reading that goes on */
};

struct view_model {
    char *text; /* id, type, path, key; then, with has_device, units of device memory as uint32_t */
    struct view_copy *copies;
    struct mesh_local *local;
    int64_t revision; /* of the definition; 0: there is none */
    uint32_t units_declared;
    uint32_t units_measured; /* 0: not yet */
    uint32_t load_ms;        /* measured; 0: not yet */
    uint32_t refs;
    float heat; /* of struct cache_entry, while it is not in the cache; by the core */
    uint16_t id_len, type_len, path_len, key_len;
    uint8_t min_copies, max_copies, copy_count;
    bool pinned : 1, auto_delete : 1, restored : 1;
    bool is_seen : 1, stat_is_seen : 1; /* by the reading that goes on */
    bool has_device : 1;
    bool is_pending : 1; /* its definition is not in the registry yet; by the core */
};

/** An instance. The first part is its record; `sums` are over the records of its copies; the rest is kept by the core. */
struct view_peer {
    char *text; /* owns what follows */
    mr_str id, address, zone;
    mr_str labels[MESH_LABELS_MAX];
    size_t label_count;
    int64_t revision;  /* 0: it has no record, so it is not there */
    uint32_t capacity; /* units */
    uint32_t device;   /* units of device memory; 0: it is not looked at */
    uint32_t loaders;
    uint16_t index;
    bool draining;
    bool is_seen;
    struct {
        uint64_t used;   /* units of LOADING, LOADED and DRAINING copies */
        uint64_t device; /* and of device memory */
        uint32_t copies, loading, all;
    } sums;
    /* by the core */
    bool is_suspect; /* is not asked: it did not answer */
    int64_t heard_ns, pinged_ns;
    uint32_t in_flight, queued, age_s; /* as it last said */
    uint32_t outstanding;              /* requests that this peer has there */
    uint64_t reserved; /* units that this peer placed there and the registry does not show yet */
    uint64_t reserved_device;
    uint32_t reserved_loads;
};

struct view_vmodel {
    mr_str id, active, target, owner;
    int64_t revision;
    bool failed, restored;
    bool is_seen;
    bool is_pending; /* its change is not in the registry yet; by the core */
    char *text;
};

struct mesh_view {
    struct view_model **models; /* open addressing by mr_hash of the id */
    size_t cap, count;
    size_t with_minimum;   /* models with min_copies */
    size_t loaded, failed; /* models with a copy that is LOADED or DRAINING; that is FAILED */
    struct view_slab *slabs;
    struct view_model *unused; /* linked by `local` */
    struct view_peer *peers[VIEW_PEERS_MAX];
    size_t peer_count; /* slots in use */
    struct mr_map peers_by_id;
    struct mr_map vmodels;
    bool is_reading;       /* between view_read_begin and _end */
    uint64_t bytes;        /* that models take, for reports and tests */
    uint64_t ignored;      /* records that could not be read */
    char ignored_key[128]; /* the first bytes of the last one's key */
    size_t sweep_at;       /* of view_sweep */
};

enum view_change_kind {
    VIEW_NOTHING,
    VIEW_MODEL,    /* a definition has come or changed */
    VIEW_NO_MODEL, /* it has gone */
    VIEW_COPY,     /* a copy of model at peer has come, changed or gone */
    VIEW_PEER,     /* an instance has come or changed */
    VIEW_NO_PEER,  /* it has gone; its copies go by their own changes */
    VIEW_VMODEL    /* has come, changed or gone */
};

struct view_change {
    enum view_change_kind kind;
    struct view_model *model; /* VIEW_MODEL, _NO_MODEL, _COPY; NULL if nothing of it is left */
    struct view_peer *peer;   /* VIEW_COPY, _PEER, _NO_PEER */
    mr_str id;                /* of the model or vmodel; points into the key that was applied */
    enum mesh_copy_state before, after; /* VIEW_COPY */
    /* VIEW_MODEL: with another type, path or key than it had, which is remembered while `model` is held */
    bool is_other;
};

void view_init(struct mesh_view *v);
/** Every model must have lost its local. */
void view_fini(struct mesh_view *v);

/** A record as the registry has it since `revision`; value ptr NULL: it is deleted. What is older than what is known is ignored, and so
 *  is what cannot be read, which counts as `ignored`. */
void view_apply(struct mesh_view *v, mr_str key, mr_bytes value, int64_t revision,
                struct view_change *out);
/** The whole registry is read again: between begin and end, view_apply gets every record that there is, and believes it
 *  whatever its revision. Then view_sweep is called until it returns false: each call gives one record that is not there any more. */
void view_read_begin(struct mesh_view *v);
bool view_sweep(struct mesh_view *v, struct mr_buf *key, struct view_change *out);

/** NULL: there is none. A model without a definition (revision 0) is returned as well. */
struct view_model *view_find(const struct mesh_view *v, mr_str id);
struct view_peer *view_peer_find(const struct mesh_view *v, mr_str id);
struct view_vmodel *view_vmodel_find(const struct mesh_view *v, mr_str id);
/** The copy of an instance; NULL: it has none. */
struct view_copy *view_copy_at(const struct view_model *m, const struct view_peer *p);
/** The model, made if need be, so that a local can hang on it. */
struct view_model *view_hold(struct mesh_view *v, mr_str id);
/** Its local has gone: frees it if there is no record of it. */
void view_release(struct mesh_view *v, struct view_model **m);
/** The slot of an instance, made if need be; NULL: too many. */
struct view_peer *view_peer_hold(struct mesh_view *v, mr_str id);

static inline mr_str view_id(const struct view_model *m)
{
    return (mr_str){m->text, m->id_len};
}
static inline mr_str view_type(const struct view_model *m)
{
    return (mr_str){m->text + m->id_len, m->type_len};
}
static inline mr_str view_path(const struct view_model *m)
{
    return (mr_str){m->text + m->id_len + m->type_len, m->path_len};
}
static inline mr_str view_model_key(const struct view_model *m)
{
    return (mr_str){m->text + m->id_len + m->type_len + m->path_len, m->key_len};
}
/** Declared, else measured, else 0. */
static inline uint32_t view_units(const struct view_model *m)
{
    return m->units_declared ? m->units_declared : m->units_measured;
}
/** Units of device memory. */
static inline uint32_t view_device(const struct view_model *m)
{
    uint32_t units = 0;

    if (m->has_device) {
        memcpy(&units, m->text + m->id_len + m->type_len + m->path_len + m->key_len, sizeof units);
    }
    return units;
}
static inline bool view_peer_is_there(const struct view_peer *p)
{
    return p->revision != 0;
}

#endif
