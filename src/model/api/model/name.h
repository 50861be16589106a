#ifndef MR_MODEL_NAME_H
#define MR_MODEL_NAME_H

#include "base/err.h"
#include "base/str.h"

/** A model's name, which is that of its folder: 1..255 bytes of UTF-8 without '/', "..", control characters; not ".". */
int mr_model_name_check(mr_str name, struct mr_err *err);

#endif
