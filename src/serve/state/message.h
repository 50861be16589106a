/* Models that take messages as they come (mr_version.has_messages). On network threads. */
#ifndef MR_SERVE_STATE_MESSAGE_H
#define MR_SERVE_STATE_MESSAGE_H

#include "infer.h"

#define MESSAGE_CUSTOM "custom" /* the kind of a request for a path of the model's own */

/* Arguments of a request whose version is known: si->message and its headers. May be the work of a turn. */
int message_args(struct serve_infer *si, mr_str version, struct mr_infer_args *out);
/* At the end of an inference, before its reply: a decoupled model's answer becomes that of the inference. Its absence is
 * an error. */
void message_take(struct serve_infer *si);
/* Releases it. */
void message_end(struct serve_infer *si);
/* An answer: the body, which is sent as it is, and headers and status of the model. */
struct message_answer {
    struct mr_oip_encoded body;
    struct mr_header *headers; /* arena; content-type is among them */
    size_t header_count;
    int http_status;
};
#define MESSAGE_HEADERS_MAX 64
/* Errors: MR_E_INTERNAL (no such answer), MR_E_EXHAUSTED. */
int message_answer(struct serve_infer *si, struct message_answer *out, struct mr_err *err);
/* Removes what is no trailing metadata of gRPC from the headers. Returns how many are left. */
size_t message_trailers(struct message_answer *a);
/* Before infer_end: an answer with which the model refuses the request counts as a failure. */
void message_judge(struct serve_infer *si, const struct message_answer *a);

#endif
