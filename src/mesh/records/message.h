/* What peers say to each other beside requests, on the connections that requests take. One message is one protobuf message; what
 * a reader does not know is skipped. */
#ifndef MESH_RECORDS_MESSAGE_H
#define MESH_RECORDS_MESSAGE_H

#include "record.h"

#define MESH_EXCLUDE_MAX 16

enum mesh_message_kind {
    MESH_MSG_PING = 1, /* answered at once by PONG */
    MESH_MSG_PONG,
    MESH_MSG_PLACE, /* to the owner of a model: where is it, or where is it to be loaded? answered by PLACED */
    MESH_MSG_PLACED, /* instance, or status and text */
    MESH_MSG_LOAD,   /* from the owner: load the model */
    MESH_MSG_STATE   /* how the sender is, at times */
};

/** Why a copy is wanted. Loads of requests go first. */
enum mesh_purpose {
    MESH_FOR_REQUEST, /* a request waits */
    MESH_FOR_MOVE,    /* a copy has to leave its instance */
    MESH_FOR_SCALE,   /* more copies */
    MESH_FOR_PRELOAD, /* no request waits */
    MESH_PURPOSES
};

struct mesh_message {
    enum mesh_message_kind kind;
    uint64_t seq; /* of PLACE, in its answer */
    mr_str model;
    enum mesh_purpose purpose;
    uint32_t copies;                  /* of PLACE for SCALE: how many there are to be */
    mr_str exclude[MESH_EXCLUDE_MAX]; /* of PLACE: instances that it must not be */
    size_t exclude_count;
    mr_str instance; /* of PLACED */
    int status;      /* of PLACED: enum mr_status */
    mr_str text;     /* of PLACED: what is wrong */
    /* STATE */
    uint32_t in_flight; /* requests that run there */
    uint32_t queued;    /* loads that wait or run */
    /* since the last use of what would be evicted next; UINT32_MAX: nothing would be */
    uint32_t age_s;
};

void mesh_message_put(struct mr_buf *b, const struct mesh_message *m);
/** Texts point into bytes. Errors: MR_E_INVALID. */
int mesh_message_get(struct mesh_message *out, mr_bytes bytes, struct mr_err *err);

#endif
