/* Which line of a graph's configuration a refusal is about. */
#ifndef CLI_WORKFLOW_WHERE_H
#define CLI_WORKFLOW_WHERE_H

#include "codec/pbtext_lines.h"
#include "model_config.pb-c.h"

/** The line of the node, switch, gather, step, default or tensor that the message names; 1: it names none of them. */
uint32_t where_line(const Inference__ModelConfig *c, struct mr_pbtext_lines *lines, mr_str message);

#endif
