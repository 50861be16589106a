/* ONNX Runtime's messages, rewritten for operators. */
#ifndef MR_ONNX_MESSAGE_H
#define MR_ONNX_MESSAGE_H

#include <stdio.h>
#include <string.h>

/* The text without places in ONNX Runtime's source, C++ signatures, the path of the model and line breaks; cut to
 * `room` (at least 1). */
void onnx_message_clean(const char *text, char *out, size_t room);

#endif
