/* Inferences for callers that have messages of the Open Inference Protocol: a decoded request as arguments, a finished
 * inference as a response. Tensors are referred to where they are.
 *
 * Thread: any, the request's own. */
#ifndef MR_ENGINE_WIRE_H
#define MR_ENGINE_WIRE_H

#include "oip/oip.h"
#include "sched/sched.h"

/** The request as arguments, which refer to it and to the arena. May be the work of a turn. Errors: MR_E_EXHAUSTED. */
int mr_wire_args(const struct mr_oip_request *q, struct mr_arena *arena, struct mr_infer_args *out,
                 struct mr_err *err);
/** Name, type and shape of the one input of a raw binary request, from the model that it is for. May be the work of a
 *  turn. Errors: MR_E_INVALID with Triton's texts, MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int mr_wire_complete_raw(struct mr_oip_request *q, const struct mr_version *v,
                         struct mr_arena *arena, struct mr_err *err);
/** Makes the bytes of a tensor, whatever they are, the one element of a BYTES tensor. May be the work of a turn. Errors:
 *  MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
int mr_wire_element(struct mr_tensor *t, struct mr_arena *arena, struct mr_err *err);
/** Makes a request for a model that reads_matrix one of that model: the input's name and type, and the first output if none
 *  is asked for. May be the work of a turn. Errors: MR_E_INVALID (not one input), MR_E_EXHAUSTED. */
int mr_wire_matrix(struct mr_oip_request *q, const struct mr_version *v, struct mr_arena *arena,
                   struct mr_err *err);
/** Parameters of an answer, in a list with room for `spare` more. Errors: MR_E_EXHAUSTED, MR_E_INTERNAL (no number of its
 *  type). */
int mr_wire_answer_params(const struct mr_answer_parameters *p, struct mr_arena *arena,
                          size_t spare, struct mr_oip_param **out, size_t *out_count,
                          struct mr_err *err);
/** The outputs of `r`, which succeeded, in the order in which `q` asks for them. What `out` has is r's, or in its arena;
 *  blocks are borrowed. Errors: MR_E_EXHAUSTED. */
int mr_wire_response(const struct mr_infer *r, const struct mr_oip_request *q,
                     struct mr_oip_response *out, struct mr_err *err);
/** Recorded requests as ModelInferRequest messages. */
extern const struct mr_record_format mr_wire_records;

#endif
