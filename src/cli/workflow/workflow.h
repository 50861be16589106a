/* Shared by the files of `millrace workflow`. */
#ifndef CLI_WORKFLOW_WORKFLOW_H
#define CLI_WORKFLOW_WORKFLOW_H

#include "base/options.h"
#include "cli/common/remote.h"
#include "codec/pbtext_lines.h"
#include "model_config.pb-c.h"

enum workflow_picture { PICTURE_TEXT, PICTURE_SVG, PICTURE_DOT };

struct workflow_options {
    const char *url;
    int protocol; /* enum infer_protocol */
    struct mr_remote_access access;
    int64_t timeout_ns;
    int from;
    const char *out;
    const char *repository;
    int picture; /* enum workflow_picture */
    /* of trace */
    const char *version;
    struct mr_option_list inputs;
    struct mr_option_list parameters;
    const char *svg;
    bool is_json;
};

/* The verbs; `path` is the argument. */
int workflow_import(const struct workflow_options *o, const char *path, struct mr_err *err);
int workflow_check(const struct workflow_options *o, const char *path, struct mr_err *err);
int workflow_draw(const struct workflow_options *o, const char *path, struct mr_err *err);
int workflow_trace(const struct workflow_options *o, const char *model, struct mr_err *err);

/** The choices of --from; the first one stands for what the file says. */
extern const char *const workflow_formats[];

/** The configuration in a file, or in the folder of a model. Free it with protobuf_c_message_free_unpacked. `text` and `lines`
 *  may be NULL; the caller frees what is in them, after an error as well. */
int workflow_read_config(const char *path, struct mr_buf *text, struct mr_pbtext_lines *lines,
                         Inference__ModelConfig **out, struct mr_err *err);
/** Writes `text` to a file that does not exist yet, or to standard output if `path` is NULL. */
int workflow_put(const char *path, mr_str text, struct mr_err *err);

#endif
