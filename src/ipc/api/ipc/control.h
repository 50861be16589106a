/* What a model asks of the server about other models, and the metrics that it defines: each a frame, answered by
 * MR_FRAME_ANSWER under the number that it begins with. */
#ifndef MR_IPC_CONTROL_H
#define MR_IPC_CONTROL_H

#include "base/arena.h"
#include "base/err.h"
#include "ipc/pack.h"
#include "millrace/backend.h"

/** `failed` of the buffer: it has more than the buffer takes. */
void mr_ipc_control_pack(struct mr_buf *b, uint64_t number, const struct mr_control_args *args);
/** Into the arena, but for data of files, which lie in `data`. Errors: MR_E_INVALID. */
int mr_ipc_control_unpack(mr_bytes data, struct mr_arena *arena, uint64_t *out_number,
                          struct mr_control_args *out, struct mr_err *err);

void mr_ipc_metric_pack(struct mr_buf *b, uint64_t number, const struct mr_metric_args *args);
/** Into the arena. Errors: MR_E_INVALID. */
int mr_ipc_metric_unpack(mr_bytes data, struct mr_arena *arena, uint64_t *out_number,
                         struct mr_metric_args *out, struct mr_err *err);

#endif
