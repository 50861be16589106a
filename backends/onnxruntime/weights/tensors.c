/* Finds the initializers of an ONNX file that can be mapped: large ones of the main graph, of numbers of whole bytes,
 * in one contiguous piece. Unusual ones (a repeated field, a shape that does not fit the bytes, several graphs, which
 * readers join) are skipped or refused: ONNX Runtime reads them itself. */
#include "parameters.h"

#define TENSORS_MAX 65536
#define NAME_ROOM   1024

void onnx_tensors_free(struct onnx_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->at[i].name);
    }
    free(t->at);
    free(t->location);
    *t = (struct onnx_tensors){0};
}

static uint64_t element_bytes(uint64_t type)
{
    /* by TensorProto.DataType; 0: not a number of whole bytes, or unknown to ONNX Runtime 1.21 */
    static const uint8_t bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2, 1, 1, 1, 1};

    return type < sizeof bytes ? bytes[type] : 0;
}

/* One TensorProto while it is read. */
struct draft {
    struct onnx_tensor tensor;
    char name[NAME_ROOM];
    char location[NAME_ROOM];
    uint64_t type;
    int64_t length; /* of external data, -1 = not given */
    int has_offset;
    uint32_t seen[17];
    int is_odd;
};

static void dim_add(struct draft *d, uint64_t dim)
{
    if (d->tensor.rank == ONNX_TENSOR_RANK || dim > INT64_MAX) {
        d->is_odd = 1;
        return;
    }
    d->tensor.dims[d->tensor.rank++] = (int64_t)dim;
}

static int dims_read(struct onnx_reader *r, const struct onnx_field *f, struct draft *d)
{
    struct onnx_slice s = f->bytes;
    uint64_t dim;

    if (!f->has_bytes) {
        dim_add(d, f->value);
        return 1;
    }
    while (s.at < s.end) {
        if (!onnx_varint_read(r, &s, &dim)) {
            return 0;
        }
        dim_add(d, dim);
    }
    return 1;
}

static int number_of(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' && *out <= INT64_MAX;
}

/* One StringStringEntryProto: location, offset and length are accepted, once each. */
static int entry_read(struct onnx_reader *r, struct onnx_slice s, struct draft *d)
{
    struct onnx_field f;
    char key[16] = "";
    char value[NAME_ROOM] = "";
    uint64_t number = 0;

    while (s.at < s.end) {
        if (!onnx_field_next(r, &s, &f)) {
            return 0;
        }
        if (f.number == 1 && f.has_bytes) {
            d->is_odd |= !onnx_text_read(r, f.bytes, key, sizeof key);
        } else if (f.number == 2 && f.has_bytes) {
            d->is_odd |= !onnx_text_read(r, f.bytes, value, sizeof value);
        }
    }
    if (strcmp(key, "location") == 0) {
        d->is_odd |= d->location[0] != 0;
        memcpy(d->location, value, sizeof value);
    } else if (strcmp(key, "offset") == 0) {
        d->is_odd |= d->has_offset || !number_of(value, &number);
        d->has_offset = 1;
        d->tensor.offset = number;
    } else if (strcmp(key, "length") == 0) {
        d->is_odd |= d->length >= 0 || !number_of(value, &number);
        d->length = (int64_t)number;
    } else {
        d->is_odd |= strcmp(key, "checksum") != 0;
    }
    return 1;
}

static int draft_read(struct onnx_reader *r, struct onnx_slice s, struct draft *d)
{
    struct onnx_field f;

    while (s.at < s.end) {
        if (!onnx_field_next(r, &s, &f)) {
            return 0;
        }
        const uint32_t n = f.number < sizeof d->seen / sizeof *d->seen ? f.number : 0;
        d->seen[n]++;
        switch (n) {
        case 1:
            if (!dims_read(r, &f, d)) {
                return 0;
            }
            break;
        case 2: d->type = f.value; break;
        case 8:
            d->is_odd |= !f.has_bytes || !onnx_text_read(r, f.bytes, d->name, sizeof d->name);
            break;
        case 9:
            d->is_odd |= !f.has_bytes;
            d->tensor.offset = f.bytes.at;
            d->tensor.bytes = f.bytes.end - f.bytes.at;
            break;
        case 13:
            if (!f.has_bytes || !entry_read(r, f.bytes, d)) {
                return 0;
            }
            break;
        case 14: d->is_odd |= f.value != 1; break; /* EXTERNAL */
        case 12:
        case 16: break; /* documentation text */
        default: d->is_odd = 1;
        }
    }
    return 1;
}

/* True if the draft is a tensor of the wanted kind whose shape agrees with its bytes. */
static int draft_fits(struct draft *d, int is_external, uint64_t least)
{
    uint64_t unit = element_bytes(d->type);
    uint64_t bytes = 0;

    if (d->is_odd || d->seen[2] != 1 || d->seen[8] != 1 || !d->name[0] || unit == 0 ||
        !onnx_shape_bytes(d->tensor.dims, (int32_t)d->tensor.rank, unit, &bytes)) {
        return 0;
    }
    if (is_external) {
        if (d->seen[9] || d->seen[14] != 1 || d->seen[13] > 4 || !d->location[0] ||
            (d->length >= 0 && (uint64_t)d->length != bytes)) {
            return 0;
        }
        d->tensor.bytes = bytes;
    } else if (d->seen[9] != 1 || d->seen[13] || d->seen[14]) {
        return 0;
    }
    return bytes == d->tensor.bytes && bytes >= least;
}

static int tensor_add(struct onnx_tensors *t, const struct draft *d, int is_external)
{
    if (is_external && t->location && strcmp(t->location, d->location) != 0) {
        return 1; /* another file: left to ONNX Runtime */
    }
    if (t->count == TENSORS_MAX) {
        return 0;
    }
    if (t->count == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 32;
        void *more = realloc(t->at, cap * sizeof *t->at);
        if (!more) {
            return 0;
        }
        t->at = more;
        t->cap = cap;
    }
    if (is_external && !t->location && !(t->location = strdup(d->location))) {
        return 0;
    }
    struct onnx_tensor *to = &t->at[t->count];
    *to = d->tensor;
    to->type = (ONNXTensorElementDataType)d->type;
    to->name = strdup(d->name);
    t->count += to->name != NULL;
    t->bytes += to->bytes;
    return to->name != NULL;
}

static int graph_find(struct onnx_reader *r, uint64_t file_bytes, struct onnx_tensors *out)
{
    struct onnx_slice s = {0, file_bytes};
    struct onnx_field f;
    int graphs = 0;

    while (s.at < s.end) {
        if (!onnx_field_next(r, &s, &f)) {
            return 0;
        }
        if (f.number == 7) {
            graphs++;
            if (!f.has_bytes) {
                return 0;
            }
            out->graph = f.bytes;
            out->around = f.whole;
        }
    }
    return graphs == 1;
}

static int tensors_read(struct onnx_reader *r, int is_external, uint64_t least,
                        struct onnx_tensors *out)
{
    struct onnx_slice s = out->graph;
    struct onnx_field f;

    while (s.at < s.end) {
        if (!onnx_field_next(r, &s, &f)) {
            return 0;
        }
        if (f.number == 5 && f.has_bytes) {
            struct draft d = {.length = -1, .tensor.whole = f.whole};
            if (!draft_read(r, f.bytes, &d) ||
                (draft_fits(&d, is_external, least) && !tensor_add(out, &d, is_external))) {
                return 0;
            }
        }
    }
    return 1;
}

int onnx_tensors_list(int fd, uint64_t file_bytes, int is_external, uint64_t least,
                      struct onnx_tensors *out)
{
    struct onnx_reader r = {.fd = fd};

    *out = (struct onnx_tensors){0};
    if (!graph_find(&r, file_bytes, out) || !tensors_read(&r, is_external, least, out)) {
        onnx_tensors_free(out);
        return 0;
    }
    return 1;
}
