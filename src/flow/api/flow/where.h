/* Which line of a graph's configuration a refusal is about. */
#ifndef MR_FLOW_WHERE_H
#define MR_FLOW_WHERE_H

#include "codec/pbtext_lines.h"
#include "model_config.pb-c.h"

/** The line of the node, switch, gather, step, default or tensor that the message names; 1: it names none of them. */
uint32_t mr_flow_where(const Inference__ModelConfig *c, struct mr_pbtext_lines *lines,
                       mr_str message);

/** Puts the file and the line of what it names before the refusal of the workflow c, if it is from that file: a request may have
 *  brought another one. Thread: loader. */
void mr_flow_where_add(const char *model_dir, const Inference__ModelConfig *c, struct mr_err *err);

#endif
