/* Answers of etcd's API, as the process that serves the others gives them. */
#ifndef MR_KV_WIRE_REPLY_WRITE_H
#define MR_KV_WIRE_REPLY_WRITE_H

#include "base/buf.h"
#include "kv/core/conn.h"
#include "reply_read.h"

/** The answer to such a request. */
void kv_wire_put_reply(struct mr_buf *b, const struct kv_wire_header *header,
                       const struct kv_request *asked, const struct mr_kv_reply *reply);
/** is_created: that a watch begins. */
void kv_wire_put_watched(struct mr_buf *b, const struct kv_wire_watched *watched);
void kv_wire_put_status(struct mr_buf *b, const struct kv_wire_header *header);
/** KeyValue, as field `number`. */
void kv_wire_put_item(struct mr_buf *b, uint32_t number, const struct mr_kv_item *item);
/** Event, as field `number`. */
void kv_wire_put_event(struct mr_buf *b, uint32_t number, const struct mr_kv_change *change);

#endif
