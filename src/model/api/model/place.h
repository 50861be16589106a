/* Models whose files are elsewhere than in a repository, under names that their files need not know. A folder of links, the
 * caller's alone, is the repository of such a model. Blocks on the file system. */
#ifndef MR_MODEL_PLACE_H
#define MR_MODEL_PLACE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/** Makes what is at `path`, which is resolved, the model `name` of the folder `placed`, which is empty:
 *  - a folder with a config.pbtxt, or folders of versions: the model's folder;
 *  - a folder with MLServer's model-settings.json at its top: the model's folder, whatever the name in that file;
 *  - any other folder or file: its only version. A file takes the name "model" with its own ending.
 *  type: "onnx", "python", "sklearn", "xgboost" or "lightgbm", or such a one in KServe's form (mt:onnx:1|pv:v2): says the
 *  backend where there is no config.pbtxt; the files do with any other type.
 *  Nothing is copied. Errors: MR_E_NOT_FOUND, MR_E_IO, MR_E_INVALID (neither file nor folder; neither type nor files say the
 *  backend; a settings file that is no JSON); the folder may then have a part of it. Thread: any. */
int mr_model_place(const char *placed, mr_str name, const char *path, mr_str type,
                   struct mr_err *err);
/** The type for mr_model_place of a model that KServe's controller has registered: `type`, unless that says no backend, as "rt:RUNTIME"
 *  does, and `key` is JSON whose "model_type" is the name of a format, or an object with such a "name". In `arena`, or one of
 *  the arguments. */
mr_str mr_model_type_of(mr_str type, mr_str key, struct mr_arena *arena);

#endif
