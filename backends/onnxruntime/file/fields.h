/* Reading the protobuf messages of an ONNX file through a window of the file. Not a mapping, which would kill the
 * process if the file were truncated during the read; weights are skipped by their length. */
#ifndef MR_ONNX_FIELDS_H
#define MR_ONNX_FIELDS_H

#include <stddef.h>
#include <stdint.h>

/* Positions in the file. */
struct onnx_slice {
    uint64_t at;
    uint64_t end;
};

/* One field: its number, and its bytes if it has any. */
struct onnx_field {
    uint32_t number;
    int has_bytes;
    struct onnx_slice bytes;
    uint64_t value;          /* of a varint */
    struct onnx_slice whole; /* with its tag */
};

struct onnx_reader {
    int fd;
    uint64_t base; /* of the window in the file */
    uint64_t have;
    uint8_t window[16384];
};

/* The next varint in `s`, which advances; false at its end or if it cannot be read. */
int onnx_varint_read(struct onnx_reader *r, struct onnx_slice *s, uint64_t *out);
/* The next field in `s`, which advances; false if it is invalid. */
int onnx_field_next(struct onnx_reader *r, struct onnx_slice *s, struct onnx_field *f);
/* The text of a field; false if it is longer than the room, truncated, or contains a NUL. */
int onnx_text_read(struct onnx_reader *r, struct onnx_slice s, char *out, size_t room);

#endif
