/* The configuration files of a Paddle Serving server, found from one of them and read. */
#ifndef IMPORT_PADDLE_CONFIG_H
#define IMPORT_PADDLE_CONFIG_H

#include "base/vec.h"
#include "codec/pbtext_lines.h"
#include "import_priv.h"
#include "paddle.pb-c.h"

/** An engine, and the tensors of its model. */
struct paddle_engine {
    const Paddle__EngineDesc *desc;
    const char *file;
    const Paddle__GeneralModelConfig *tensors; /* NULL: no file says them */
    const char *tensors_file;
    const char *model_file; /* an ONNX file; NULL: there is none */
};

struct paddle_config {
    struct mr_arena *arena;
    const char *workflow_file, *service_file, *resource_file; /* for messages */
    Paddle__InferServiceConf *services;                       /* NULL: there is no such file */
    Paddle__WorkflowConf *workflows;
    Paddle__ResourceConf *resources; /* NULL: there is no such file */
    MR_VEC(Paddle__ModelToolkitConf *) toolkits;
    MR_VEC(Paddle__GeneralModelConfig *) models;
    MR_VEC(struct paddle_engine) engines;
    struct mr_pbtext_lines lines; /* of all messages */
};

/** "FILE:LINE: …", the line of a message or string of `config`. */
#define PADDLE_FAIL(err, status, config, file, at, fmt, ...)                                       \
    MR_FAIL(err, status, "%s:%u: " fmt, file, mr_pbtext_line_of(&(config)->lines, at),             \
            ##__VA_ARGS__)

/** For the checks of all formats: a value on that line. */
#define PADDLE_DOC(config, at)                                                                     \
    (&(const struct doc){.line = mr_pbtext_line_of(&(config)->lines, at)})

/** Reads `text`, the content of im->file: infer_service.prototxt or workflow.prototxt; the other one and resource.prototxt
 *  are in the same folder, and resource.prototxt says where the rest is, from the working folder, the file's, or that
 *  one's parent. paddle_config_free in any case. Errors: MR_E_INVALID with file and line, those of reading. */
int paddle_config_read(struct mr_import *im, mr_str text, struct paddle_config *out,
                       struct mr_err *err);
void paddle_config_free(struct paddle_config *c);
/** NULL: there is none of that name. */
const struct paddle_engine *paddle_engine_find(const struct paddle_config *c, const char *name);

#endif
