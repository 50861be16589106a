/* Text of a config.pbtxt, written field by field. */
#ifndef IMPORT_EMIT_H
#define IMPORT_EMIT_H

#include "base/buf.h"

struct emit {
    struct mr_buf buf;
    int depth;
};

void emit_init(struct emit *e);
void emit_fini(struct emit *e);
/** `name {` on a line of its own, and its end. */
void emit_open(struct emit *e, const char *name);
void emit_close(struct emit *e);
/** `name: "value"`, quoted as protobuf text format wants it. */
void emit_str(struct emit *e, const char *name, mr_str value);
/** `name: word`: a number, an enumerator, a bool. */
void emit_word(struct emit *e, const char *name, const char *word);
void emit_int(struct emit *e, const char *name, int64_t value);
/** `name { key: "…" value: "…" }` */
void emit_pair(struct emit *e, const char *name, mr_str key, mr_str value);
/** `# text`; of several lines, each. */
void emit_comment(struct emit *e, mr_str text);
/** The bytes of the control character that `s`, which is not empty, begins with; 0: it begins with another one. */
size_t emit_control_bytes(mr_str s);

#endif
