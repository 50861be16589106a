/* Builds an inference request from arguments. An input's text becomes an array of the model's type and shape; a whole
 * request or rows may come from standard input instead. */
#include <errno.h>

#include "codec/json.h"
#include "infer.h"

#define FILE_BYTES_MAX ((size_t)4 << 30)

/* ---- files ---- */

int mr_read_whole(const char *path, struct mr_buf *out, struct mr_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char chunk[65536];
    size_t n;

    if (!f) {
        return MR_FAIL(err, MR_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    errno = 0;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0 && !out->failed) {
        mr_buf_append(out, chunk, n);
    }
    int failed = ferror(f) ? (errno ? errno : EIO) : 0;
    if (!is_stdin) {
        fclose(f);
    }
    if (failed) {
        return MR_FAIL(err, MR_E_IO, "cannot read %s: %s", is_stdin ? "standard input" : path,
                       strerror(failed));
    }
    return out->failed ? MR_FAIL(err, MR_E_TOO_LARGE, "%s is too large", path) : MR_OK;
}

static bool is_npy(const struct mr_buf *b)
{
    return b->len >= 6 && memcmp(b->ptr, "\x93NUMPY", 6) == 0;
}

/* @FILE: .npy by its first bytes; JSON; for a BYTES input any other file is one element. */
static int load_file(const char *path, const struct mr_oip_io *io, struct mr_array *a,
                     struct mr_err *err)
{
    struct mr_buf file;
    int rc;

    mr_buf_init(&file, FILE_BYTES_MAX);
    rc = mr_read_whole(path, &file, err);
    if (rc == MR_OK && is_npy(&file)) {
        rc = mr_npy_parse((mr_bytes){(const uint8_t *)file.ptr, file.len}, a, err);
        if (rc == MR_OK) {
            rc = mr_array_cast(a, io->dtype, err);
        }
    } else if (rc == MR_OK && io->dtype == MR_DTYPE_BYTES &&
               !mr_str_ends(mr_str_c(path), MR_STR(".json"))) {
        a->dtype = MR_DTYPE_BYTES;
        mr_array_add_bytes(a, file.ptr, file.len);
    } else if (rc == MR_OK) {
        rc = mr_array_parse(mr_buf_view(&file), io->dtype, a, err);
    }
    mr_buf_fini(&file);
    return rc;
}

/* ---- one input ---- */

struct mr_array *infer_new_array(struct infer *x)
{
    struct mr_array *a = MR_NEW(struct mr_array);

    mr_array_init(a);
    MR_VEC_PUSH(&x->arrays, a);
    return a;
}

static void put_names(const struct mr_oip_metadata *m, struct mr_buf *out)
{
    for (size_t i = 0; i < m->input_count; i++) {
        mr_buf_printf(out, "%s%.*s", i ? ", " : "", MR_STR_ARG(m->inputs[i].name));
    }
}

static int unknown_input(const struct infer *x, mr_str name, struct mr_err *err)
{
    struct mr_buf names;

    mr_buf_init(&names, 300);
    put_names(&x->meta, &names);
    int rc = MR_FAIL(err, MR_E_INVALID, "model %s has no input '%.*s'; it has: %s", x->opt.model,
                     MR_STR_ARG(name), mr_buf_cstr(&names));
    mr_buf_fini(&names);
    return rc;
}

/* The tensor of an input, over an array that has the right type. */
int infer_add_input(struct infer *x, const struct mr_oip_io *io, struct mr_array *a,
                    struct mr_err *err)
{
    struct mr_oip_tensor *t = &x->request.inputs[x->request.input_count];

    for (size_t i = 0; i < x->request.input_count; i++) {
        if (mr_str_eq(x->request.inputs[i].name, io->name)) {
            return MR_FAIL(err, MR_E_INVALID, "given twice");
        }
    }
    int rc = mr_array_fit(a, io->shape, io->rank, err);
    if (rc < 0) {
        return rc;
    }
    t->name = io->name;
    t->tensor = (struct mr_tensor){.dtype = a->dtype,
                                   .rank = a->rank,
                                   .shape = a->shape,
                                   .data = a->data.ptr,
                                   .bytes = a->data.len};
    t->binary = x->opt.protocol == INFER_BINARY;
    x->request.input_count++;
    return MR_OK;
}

int infer_read_value(const struct mr_oip_io *io, const char *value, struct mr_array *a,
                     struct mr_err *err)
{
    return value[0] == '@' ? load_file(value + 1, io, a, err)
                           : mr_array_parse(mr_str_c(value), io->dtype, a, err);
}

/* Adds an input from "NAME=VALUE"; without NAME= if the model has one input. */
static int add_typed(struct infer *x, const char *text, struct mr_err *err)
{
    const char *equals = strchr(text, '=');
    mr_str name = equals ? mr_str_n(text, (size_t)(equals - text)) : (mr_str){"", 0};
    const char *value = equals ? equals + 1 : text;
    const struct mr_oip_io *io = mr_oip_find_input(&x->meta, name);

    if (!io && x->meta.input_count == 1 && (text[0] == '@' || text[0] == '[')) {
        io = &x->meta.inputs[0];
        value = text;
    }
    if (!io) {
        return unknown_input(x, mr_str_sub(name.len ? name : mr_str_c(text), 0, 60), err);
    }
    struct mr_array *a = infer_new_array(x);
    int rc = infer_read_value(io, value, a, err);
    if (rc == MR_OK) {
        rc = infer_add_input(x, io, a, err);
    }
    return rc < 0 ? MR_WRAP(err, rc, "input %.*s", MR_STR_ARG(io->name)) : MR_OK;
}

/* ---- standard input ---- */

/* The rows read so far, as one JSON list for each input. */
struct rows {
    struct mr_buf *lists;
    size_t *counts; /* values in each list */
    size_t count;   /* rows */
};

static void value_add(struct rows *r, size_t input, mr_str text)
{
    struct mr_buf *list = &r->lists[input];

    mr_buf_printf(list, "%s", list->len > 1 ? "," : "");
    mr_buf_str(list, text);
    r->counts[input]++;
}

/* Each row must have one value for each input that the first row has. */
static int row_check(const struct infer *x, struct rows *r, struct mr_err *err)
{
    r->count++;
    for (size_t i = 0; i < x->meta.input_count; i++) {
        const bool is_there = r->counts[i] > 0;
        if (r->counts[i] != (is_there ? r->count : 0)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "each row must have exactly one value for each input that the first "
                           "row has; input %.*s does not",
                           MR_STR_ARG(x->meta.inputs[i].name));
        }
    }
    return MR_OK;
}

/* One line of rows: an object of values by input name, or a value for the only input. Appends each
 * value to the text of its input's list. */
static int add_row(struct infer *x, mr_str line, struct rows *r, struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key;
    mr_str text;

    mr_json_init(&j, line, &x->arena, 0, err);
    if (mr_json_peek(&j) != MR_JSON_OBJECT) {
        if (x->meta.input_count != 1) {
            return MR_FAIL(err, MR_E_INVALID,
                           "the model has %zu inputs: a row is an object {\"input\": value, ...}",
                           x->meta.input_count);
        }
        value_add(r, 0, line);
        r->count++;
        return mr_json_skip(&j, NULL) < 0 ? j.status : mr_json_finish(&j);
    }
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        const struct mr_oip_io *io = mr_oip_find_input(&x->meta, key);
        if (!io) {
            return unknown_input(x, mr_str_sub(key, 0, 60), err);
        }
        if (mr_json_skip(&j, &text) == MR_OK) {
            value_add(r, (size_t)(io - x->meta.inputs), text);
        }
    }
    const int rc = j.status < 0 ? j.status : mr_json_finish(&j);
    return rc < 0 ? rc : row_check(x, r, err);
}

static int add_lists(struct infer *x, struct mr_buf *lists, struct mr_err *err)
{
    for (size_t i = 0; i < x->meta.input_count; i++) {
        const struct mr_oip_io *io = &x->meta.inputs[i];
        struct mr_array *a;
        if (lists[i].len == 1) {
            continue;
        }
        mr_buf_char(&lists[i], ']');
        a = infer_new_array(x);
        int rc = mr_array_parse(mr_buf_view(&lists[i]), io->dtype, a, err);
        /* A row may be a bare number or text if the model expects a list of one. */
        if (rc == MR_OK && a->rank < io->rank && mr_array_count(a) == (uint64_t)a->shape[0]) {
            while (a->rank < io->rank) {
                a->shape[a->rank++] = 1;
            }
        }
        if (rc == MR_OK) {
            rc = infer_add_input(x, io, a, err);
        }
        if (rc < 0) {
            return MR_WRAP(err, rc, "input %.*s", MR_STR_ARG(io->name));
        }
    }
    return MR_OK;
}

/* One row per line, all of them one batch. */
static int rows_from_text(struct infer *x, struct mr_err *err)
{
    struct rows rows = {.lists = MR_NEW_ARRAY(struct mr_buf, x->meta.input_count + 1),
                        .counts = MR_NEW_ARRAY(size_t, x->meta.input_count + 1)};
    mr_str rest = mr_buf_view(&x->stdin_text);
    mr_str line;
    unsigned number = 0;
    int rc = MR_OK;

    for (size_t i = 0; i < x->meta.input_count; i++) {
        mr_buf_init(&rows.lists[i], FILE_BYTES_MAX);
        mr_buf_char(&rows.lists[i], '[');
    }
    while (rc == MR_OK && mr_str_split(&rest, '\n', &line)) {
        number++;
        line = mr_str_trim(line);
        if (line.len && (rc = add_row(x, line, &rows, err)) < 0) {
            rc = MR_WRAP(err, rc, "standard input line %u", number);
        }
    }
    if (rc == MR_OK) {
        rc = add_lists(x, rows.lists, err);
    }
    for (size_t i = 0; i < x->meta.input_count; i++) {
        mr_buf_fini(&rows.lists[i]);
    }
    mr_free(rows.lists);
    mr_free(rows.counts);
    return rc;
}

/* True when the text is one JSON object with "inputs": a request in the server's format. */
static bool is_whole_request(struct infer *x)
{
    struct mr_json j;
    bool first = true;
    bool found = false;
    mr_str key;

    mr_json_init(&j, mr_buf_view(&x->stdin_text), &x->arena, 0, NULL);
    if (mr_json_peek(&j) != MR_JSON_OBJECT) {
        return false;
    }
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        found |= mr_str_eq_c(key, "inputs");
        mr_json_skip(&j, NULL);
    }
    return found && mr_json_finish(&j) == MR_OK;
}

static int whole_request(struct infer *x, struct mr_err *err)
{
    struct mr_oip_limits limits = {.max_json_bytes = FILE_BYTES_MAX,
                                   .max_json_depth = 100,
                                   .max_tensors = 1024,
                                   .size_option = "4 GiB"};
    mr_bytes body = {(const uint8_t *)x->stdin_text.ptr, x->stdin_text.len};
    int rc = mr_oip_rest_decode_request(body, -1, mr_str_c(x->opt.model), &limits, &x->arena,
                                        &x->request, err);

    for (size_t i = 0; rc == MR_OK && i < x->request.input_count; i++) {
        x->request.inputs[i].binary = x->opt.protocol == INFER_BINARY;
    }
    return rc;
}

/* ---- the request ---- */

static int add_outputs(struct infer *x, struct mr_err *err)
{
    size_t count = x->opt.outputs.len;
    struct mr_oip_requested_output *out;

    /* Classification is requested per output, so all of them must be named. */
    bool all = count == 0 && x->opt.classification > 0;
    if (all) {
        count = x->meta.output_count;
    }
    if (count == 0) {
        return MR_OK;
    }
    out = MR_ARENA_ARRAY(&x->arena, struct mr_oip_requested_output, count);
    if (!out) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "too many outputs");
    }
    for (size_t i = 0; i < count; i++) {
        out[i].name = all ? x->meta.outputs[i].name : mr_str_c(x->opt.outputs.at[i]);
        out[i].classification = x->opt.classification;
        out[i].binary_data = -1;
        if (x->opt.classification == 0) {
            out[i].binary_data = x->opt.protocol == INFER_BINARY;
        }
    }
    x->request.outputs = out;
    x->request.output_count = count;
    return MR_OK;
}

int infer_build(struct infer *x, bool from_stdin, struct mr_err *err)
{
    struct mr_oip_request *r = &x->request;
    int rc = MR_OK;

    if (from_stdin) {
        MR_TRY(mr_read_whole("-", &x->stdin_text, err));
    }
    if (from_stdin && is_whole_request(x)) {
        if (x->opt.inputs.len > 0) {
            MR_TRY(MR_FAIL(err, MR_E_INVALID,
                           "standard input is a whole request, which has its own inputs: -i goes "
                           "with rows"));
        }
        MR_TRY(whole_request(x, err));
    } else {
        r->inputs = MR_ARENA_ARRAY(&x->arena, struct mr_oip_tensor,
                                   x->meta.input_count + x->opt.inputs.len + 1);
        if (!r->inputs) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "too many inputs");
        }
        if (from_stdin) {
            MR_TRY(rows_from_text(x, err));
        }
        for (size_t i = 0; i < x->opt.inputs.len; i++) {
            MR_TRY(add_typed(x, x->opt.inputs.at[i], err));
        }
    }
    r->model_name = mr_str_c(x->opt.model);
    r->model_version = mr_str_c(x->opt.version);
    if (x->opt.id) {
        r->id = mr_str_c(x->opt.id);
    }
    r->binary_data_output = x->opt.protocol == INFER_BINARY;
    MR_TRY(add_outputs(x, err));
    for (size_t i = 0; i < x->opt.parameters.len; i++) {
        MR_TRY(infer_add_parameter(x, x->opt.parameters.at[i], err));
    }
out:
    return rc;
}
