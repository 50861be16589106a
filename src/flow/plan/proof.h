/* Proofs over a linked plan. */
#ifndef FLOW_PROOF_H
#define FLOW_PROOF_H

#include "plan.h"

/** Whether all that nodes read, and each output, is written, and no node waits for itself. Errors: MR_E_INVALID. */
int plan_proof_reachable(const struct plan *p, struct mr_err *err);
/** Whether each output has a value or a default, whichever nodes do not run. Errors: MR_E_INVALID. */
int plan_proof_nulls(const struct plan *p, struct mr_err *err);
/** Whether each default is of its tensor's type. Errors: MR_E_INVALID. */
int plan_proof_defaults(const struct plan *p, struct mr_err *err);
/** Whether each node whose model gives several answers comes after those before it. Sets is_streaming of splits. Errors:
 *  MR_E_INVALID. */
int plan_proof_streams(struct plan *p, struct mr_err *err);

#endif
