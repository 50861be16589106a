/* A call of a work to a host. On the loop's thread. */
#ifndef MR_BATCH_CALL_H
#define MR_BATCH_CALL_H

#include "base/buf.h"
#include "host.h"
#include "work.h"

struct calls;
struct dialect_model;

struct call {
    struct calls *calls;
    struct dialect_model *model;
    struct work *work;
    struct host *host;
    uint64_t ticket;
    uint32_t index; /* of calls.in_flight */
    int64_t sent_ns;
    struct mr_arena arena;
    struct mr_buf head;
    struct transport_call transport;
    uint64_t made_bytes; /* of memory that its request takes beside the rows */
};

#endif
