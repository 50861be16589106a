/* Ensembles and workflows: models that are a graph of other models.
 *
 * The graph is compiled when the model is loaded (src/flow/plan), and each request walks it (src/flow/run): a node runs when
 * all that it reads is there, on the thread that had the last of it, by mr_engine_infer. Tensors are handed on by
 * reference.
 *
 *   options.models.maker.open = mr_flow_open;
 *   mr_engine_new(&engine, &options, err); */
#ifndef MR_FLOW_FLOW_H
#define MR_FLOW_FLOW_H

#include "engine/engine.h"

/** mr_model_maker.open, whose ctx is the engine. Errors: MR_E_INVALID with Triton's texts where it has some. */
int mr_flow_open(void *engine, Inference__ModelConfig *c, const struct mr_model_desc *desc,
                 struct mr_executor **out, struct mr_err *err);

/** As mr_flow_open, without the file and the line before the refusal of a workflow: for those who have the file themselves. */
int mr_flow_open_bare(void *engine, Inference__ModelConfig *c, const struct mr_model_desc *desc,
                      struct mr_executor **out, struct mr_err *err);

/** Checks the text of a workflow's config.pbtxt as far as that is possible without its models: the settings, names, splits, orders,
 *  and which node writes which tensor. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, with the node. Thread: any. */
int mr_flow_check(mr_str config, struct mr_err *err);

/** Something that a node counts; n > 0. `event`: "operator", "operator_failed", "skipped", "failed", "default", "fallback", "repeat", "second_call",
 *  "second_call_won", "second_call_refused", "shadow", "shadow_dropped", "shadow_failed", "shadow_equal",
 *  "shadow_different"; with node "", "admission_waited", "admission_refused". Names live as long as the executor. */
typedef void(mr_flow_count_fn)(void *ctx, mr_str node, const char *event, uint64_t n);
/** Calls `see` for what the nodes of an ensemble or workflow have counted, and not at all for another executor. A node and its fallback
 *  model have one name. Thread: any. */
void mr_flow_counts(const struct mr_executor *e, mr_flow_count_fn *see, void *ctx);
/** Appends what a workflow's operator should know, a line of text that names a node, or nothing; nothing for another executor.
 *  Thread: any. */
void mr_flow_warning(const struct mr_executor *e, struct mr_buf *out);

#endif
