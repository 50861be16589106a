/* Compression of requests, where it pays. Private. Thread: any. */
#ifndef MR_CLIENT_PACK_H
#define MR_CLIENT_PACK_H

#include "base/arena.h"
#include "net/compress.h"
#include "oip/oip.h"

/** Replaces the pieces of a body by compressed ones, unless it is small, or what is tried of it does not become smaller. The references
 *  of the pieces are taken over: those of a body that was replaced are dropped. *out_coding: MR_CODING_IDENTITY if the body is as it
 *  was. Errors: MR_E_EXHAUSTED; the body is as it was. */
int pack_body(enum mr_coding coding, struct mr_oip_encoded *body, struct mr_arena *arena,
              enum mr_coding *out_coding, struct mr_err *err);

#endif
