/* Memory that a call shares with a server on the same host: a memfd that is passed with the request. Private. */
#ifndef MR_SDK_MEMORY_H
#define MR_SDK_MEMORY_H

#include <stdatomic.h>

#include "net/client.h"
#include "oip/oip.h"

struct call;

/** The memory of millrace/client.h. */
struct mr_sdk_memory {
    _Atomic uint32_t refs;
    /** A server that was not waited for may write to it. */
    _Atomic bool is_lost;
    struct mr_client_memory net;
    uint8_t *base;
    uint64_t bytes;
};

/** Where an output is to be written. */
struct memory_place {
    uint64_t offset;
    uint64_t bytes;
    bool is_set;
};

/** False: not all of it lies in the memory. Thread: any. */
bool memory_has(const struct mr_sdk_memory *m, const void *data, uint64_t bytes,
                uint64_t *out_offset);
/** NULL is allowed, and remains. */
void memory_unref(struct mr_sdk_memory **m);

/** Has the request name the memory for an attempt, of its inputs if is_shared, and of places for outputs if has_places. */
void memory_name(struct call *c, bool is_shared, bool has_places);
/** Outputs that the answer says are in the memory are there, and get their data. placed: the call whose attempt was given its places;
 *  NULL: there were none, and no output is in a memory. Errors: MR_E_INVALID. */
int memory_resolve(struct mr_oip_response *r, const struct call *placed, struct mr_err *err);

#endif
