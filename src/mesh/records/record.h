/* What the peers of a mesh keep in the registry: keys and values.
 *
 *   mesh/m/<model>             definition, until unregistered                       struct mesh_def
 *   mesh/s/<model>             what was measured of it, written rarely              struct mesh_stat
 *   mesh/c/<model>/<instance>  a copy; written by that instance only, under its lease  struct mesh_copy
 *   mesh/l/<model>             who loads the first copy, under its lease            the instance's id
 *   mesh/i/<instance>          an instance, under its lease                         struct mesh_instance
 *   mesh/v/<vmodel>            an alias                                             struct mesh_vmodel
 *   mesh/e/registry            the registry's own id: another one after it has lost its data
 *
 * Values are protobuf messages; members that a reader does not know are skipped, so that peers of other versions can share a
 * registry. Everything that is read is checked: a record that breaks a limit is MR_E_INVALID, and the reader ignores it. */
#ifndef MESH_RECORDS_RECORD_H
#define MESH_RECORDS_RECORD_H

#include "base/buf.h"
#include "base/err.h"

#define MESH_ID_MAX       512  /* bytes of the id of a model or vmodel */
#define MESH_TEXT_MAX     4096 /* bytes of a path, a key, a reason, an address */
#define MESH_INSTANCE_MAX 64   /* bytes of the id of an instance: letters, digits, '.', '_', '-' */
#define MESH_LABELS_MAX   128
#define MESH_COPIES_MAX   255  /* minimum and maximum of a definition */
#define MESH_UNIT         8192 /* bytes; sizes are kept in units, rounded up */

#define MESH_ROOT      "mesh/"
#define MESH_EPOCH_KEY MESH_ROOT "e/registry"
#define MESH_EPOCH_MAX 64 /* bytes of its value */

enum mesh_key_kind {
    MESH_KEY_OTHER, /* not ours, or of a later version */
    MESH_KEY_MODEL,
    MESH_KEY_STAT,
    MESH_KEY_COPY,
    MESH_KEY_CLAIM,
    MESH_KEY_INSTANCE,
    MESH_KEY_VMODEL,
    MESH_KEY_EPOCH
};

struct mesh_key {
    enum mesh_key_kind kind;
    mr_str id;       /* of the model or vmodel */
    mr_str instance; /* of a copy or an instance */
};

/** Takes a key apart; MESH_KEY_OTHER if an id is empty, too long or has bytes that it may not have. The parts point into key. */
struct mesh_key mesh_key_parse(mr_str key);
/** Appends a key; instance: of a copy or an instance. */
void mesh_key_put(struct mr_buf *b, enum mesh_key_kind kind, mr_str id, mr_str instance);
/** Errors: MR_E_INVALID, with what is wrong: empty, longer than MESH_ID_MAX, not UTF-8, a control character. */
int mesh_id_check(mr_str id, struct mr_err *err);
bool mesh_instance_id_is_valid(mr_str id);

/** A model as it was registered. type, path and key do not change while it is registered. */
struct mesh_def {
    mr_str type, path, key;
    uint64_t size_bytes;   /* declared; 0 = not */
    uint64_t device_bytes; /* of device memory that it takes; 0 = none */
    uint32_t min_copies;   /* kept loaded; 0 = as it is used */
    uint32_t max_copies;   /* 0 = no limit */
    uint32_t refs;         /* vmodels whose active or target model it is */
    bool pinned;           /* is not evicted */
    bool auto_delete;      /* goes when refs becomes 0 */
    bool restored;         /* written by no call, but by a server after the registry had lost it */
};

struct mesh_stat {
    uint64_t size_bytes;
    uint32_t load_ms;
};

enum mesh_copy_state { MESH_NO_COPY, MESH_LOADING, MESH_LOADED, MESH_DRAINING, MESH_FAILED };

/** Why a load failed; how long it is remembered depends on it (struct mesh_core_options). */
enum mesh_fail {
    MESH_FAIL_OTHER,
    MESH_FAIL_TRANSIENT, /* a timeout, a connection, a store that is away */
    MESH_FAIL_RESOURCE,  /* memory or disk ran out */
    MESH_FAIL_MISSING,   /* there is no such artifact */
    MESH_FAIL_INVALID,   /* the artifact is damaged, or of a type that the runtime does not load */
    MESH_FAIL_TOO_LARGE, /* larger than the instance's capacity */
    MESH_FAIL_COUNT
};

struct mesh_copy {
    enum mesh_copy_state state;
    uint64_t size_bytes;
    enum mesh_fail fail;
    mr_str reason;    /* of FAILED, for people */
    uint64_t time_ms; /* when it came into that state, since the epoch; 0: not known */
    bool keeps_state; /* of LOADED: from one request to the next, as models with sequences do */
};

struct mesh_instance {
    mr_str address; /* HOST:PORT of its peer port */
    mr_str zone;
    mr_str labels[MESH_LABELS_MAX];
    size_t label_count;
    uint64_t capacity_bytes;
    uint64_t device_bytes; /* capacity of device memory; 0 = it is not looked at here */
    uint32_t loaders;      /* loads at once, 1 at least */
    bool draining;
};

struct mesh_vmodel {
    mr_str active, target; /* models; the same unless it is in transition */
    mr_str owner;
    bool failed;   /* the target could not be loaded; is tried again */
    bool restored; /* as of struct mesh_def */
};

/** Whether the registry takes it. Errors: MR_E_INVALID, with the member and its range. */
int mesh_def_check(const struct mesh_def *d, struct mr_err *err);
/** The same for the owner of a vmodel. */
int mesh_owner_check(mr_str owner, struct mr_err *err);

/** Append a value. */
void mesh_def_put(struct mr_buf *b, const struct mesh_def *d);
void mesh_stat_put(struct mr_buf *b, const struct mesh_stat *s);
void mesh_copy_put(struct mr_buf *b, const struct mesh_copy *c);
void mesh_instance_put(struct mr_buf *b, const struct mesh_instance *i);
void mesh_vmodel_put(struct mr_buf *b, const struct mesh_vmodel *v);

/** Read a value; texts point into it. Errors: MR_E_INVALID. */
int mesh_def_get(struct mesh_def *out, mr_bytes value, struct mr_err *err);
int mesh_stat_get(struct mesh_stat *out, mr_bytes value, struct mr_err *err);
int mesh_copy_get(struct mesh_copy *out, mr_bytes value, struct mr_err *err);
int mesh_instance_get(struct mesh_instance *out, mr_bytes value, struct mr_err *err);
int mesh_vmodel_get(struct mesh_vmodel *out, mr_bytes value, struct mr_err *err);

/** The same on all machines and versions: owners are found by it. */
uint64_t mesh_hash(mr_str a, mr_str b);
/** Units that a number of bytes takes. */
static inline uint32_t mesh_units(uint64_t bytes)
{
    uint64_t units = bytes / MESH_UNIT + (bytes % MESH_UNIT != 0);
    return units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

#endif
