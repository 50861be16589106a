/* Whether the file of a model is whole. */
#ifndef TREES_WHOLE_H
#define TREES_WHOLE_H

#include <stddef.h>
#include <stdint.h>

/** UBJSON, the binary form of XGBoost's files: whether the bytes are one value, no part of it is missing, no length leads
 *  beyond the end, and no container is deeper than 64. What the value says is not judged. Thread: any. */
int whole_ubjson(const void *data, size_t bytes);

/** The text of LightGBM's files, which a zero byte follows: whether each tree is where the head says, up to the last one.
 *  What the trees say is not judged. Thread: any. */
int whole_lightgbm(const char *text, size_t bytes);

#endif
