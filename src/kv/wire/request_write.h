/* Requests to etcd as protobuf messages. Keys have `root` in front. */
#ifndef MR_KV_WIRE_REQUEST_WRITE_H
#define MR_KV_WIRE_REQUEST_WRITE_H

#include "base/buf.h"
#include "kv/core/conn.h"

/** The gRPC method that carries out such a request. Static. */
const char *kv_wire_method(enum kv_ask ask);
/** Appends the message of a checked request. */
void kv_wire_request(struct mr_buf *b, mr_str root, const struct kv_request *request);
/** A watch of a prefix; from 0: what changes after the start. */
void kv_wire_watch(struct mr_buf *b, mr_str root, mr_str prefix, int64_t from);
void kv_wire_authenticate(struct mr_buf *b, mr_str name, mr_str password);

#endif
