/* A string in a protobuf message, found and replaced without the message's schema: a path of field numbers from the outside in.
 *
 * As parsers read it: of several occurrences the last one counts, messages that occur several times are merged, and a field of
 * another wire type is one that is not known. Groups are refused. Pure functions. */
#ifndef MR_CODEC_SPLICE_H
#define MR_CODEC_SPLICE_H

#include "base/err.h"
#include "base/str.h"

#define MR_SPLICE_DEPTH_MAX  8
#define MR_SPLICE_PIECES_MAX (2 * MR_SPLICE_DEPTH_MAX + 4)
/** Fields that a message may have beside and around the string: the time that one takes is bounded, a millisecond or two. */
#define MR_SPLICE_FIELDS_MAX 200000

/** depth 0: no path. */
struct mr_splice_path {
    unsigned depth;
    uint32_t field[MR_SPLICE_DEPTH_MAX]; /* 1 to 2^29 - 1 */
};

/** A message in pieces: parts of the one that it is made of, of the string, and of `text`. It must not be moved. */
struct mr_splice {
    mr_bytes pieces[MR_SPLICE_PIECES_MAX];
    size_t count;
    size_t len; /* of all pieces */
    uint8_t text[MR_SPLICE_DEPTH_MAX * 16];
};

/** Returns 1, 0 if there is no such string, or MR_E_INVALID: a message on the way is damaged, or has more fields than
 *  MR_SPLICE_FIELDS_MAX. The string points into the message, and is not checked for UTF-8. depth > 0. */
int mr_splice_find(mr_bytes message, const struct mr_splice_path *path, mr_str *out,
                   struct mr_err *err);
/** The message with this string at the path: lengths on the way are written anew, parents that are not there are added. Borrows
 *  message and string for as long as *out is used. Errors: as above. */
int mr_splice_put(mr_bytes message, const struct mr_splice_path *path, mr_str string,
                  struct mr_splice *out, struct mr_err *err);

#endif
