/* Nodes whose model gives several answers (decoupled).
 *
 * When such a node has an answer, and nothing else runs, what follows the node runs for that answer, and the outputs are one answer
 * of the graph. Then that part of the run is undone, and the next answer follows. So answers keep their order, each has its
 * memory only while it is there, and a model whose answers are not taken waits, as it does for any client. A node of this kind
 * after another one gives all of its answers for each of the first one's. One that fails before its first answer fails like any
 * other node, with its retry and policy; one that fails later fails the request.
 *
 * Thread: that of the walk. */
#ifndef FLOW_STREAM_CALL_H
#define FLOW_STREAM_CALL_H

#include "exec.h"

/** The call of such a node is about to be made. Errors: MR_E_EXHAUSTED. */
int flow_stream_begin(struct call *c, struct mr_err *err);
/** The call was refused. */
void flow_stream_drop(struct call *c);
/** The call has ended. False: its model gives one answer by now, and the call is like any other. */
bool flow_stream_ended(struct call *c);
/** Does what can be done now, of walks whose execution has several answers. Nothing is ready. */
void flow_streams_go(struct walk *w);
/** Whether the walk waits for something that run_is_over does not know. */
bool flow_streams_wait(const struct walk *w);

#endif
