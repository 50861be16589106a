/* Where the messages and strings of a text are in it, for messages about what their reader refuses. */
#ifndef MR_CODEC_PBTEXT_LINES_H
#define MR_CODEC_PBTEXT_LINES_H

#include "base/vec.h"
#include "codec/pbtext.h"

struct mr_pbtext_line {
    const void *value; /* a message, or the text of a string */
    uint32_t line;
    uint32_t order; /* of being read */
};

/** Of one text, or of several whose messages live at the same time. All-zero: of none. */
struct mr_pbtext_lines {
    MR_VEC(struct mr_pbtext_line) all;
    bool is_sorted;
};

/** As mr_pbtext_parse. The lines of its messages and strings are added to *lines, also if it fails. */
int mr_pbtext_parse_lines(const ProtobufCMessageDescriptor *desc, mr_str text,
                          struct mr_pbtext_lines *lines, ProtobufCMessage **out,
                          struct mr_err *err);
/** The line, from 1, on which a message or string begins; 1 of what is not there: the outermost message, a string that is
 *  not given. */
uint32_t mr_pbtext_line_of(struct mr_pbtext_lines *lines, const void *value);
void mr_pbtext_lines_fini(struct mr_pbtext_lines *lines);

/* of the parser */
void mr_pbtext_lines_add(struct mr_pbtext_lines *lines, const void *value, long line);

#endif
