/* Prints answers as tables (with bars for classes), as lines (one per output), as JSON in the server's format, or as
 * .npy files. */
#include <errno.h>
#include <sys/stat.h>

#include "cli/common/term.h"
#include "codec/json.h"
#include "infer.h"

#define ROWS_MAX    40
#define COLUMNS_MAX 64
#define BAR_COLUMNS 24

/* ---- one element as text ---- */

static void put_number(struct mr_buf *out, int dtype, const char *p)
{
    uint64_t u = 0;
    double d;
    float f;
    uint16_t h;

    memcpy(&u, p, mr_dtype_size(dtype));
    switch (dtype) {
    case MR_DTYPE_BOOL: mr_buf_c(out, u ? "true" : "false"); break;
    case MR_DTYPE_INT8: mr_buf_i64(out, (int8_t)u); break;
    case MR_DTYPE_INT16: mr_buf_i64(out, (int16_t)u); break;
    case MR_DTYPE_INT32: mr_buf_i64(out, (int32_t)u); break;
    case MR_DTYPE_INT64: mr_buf_i64(out, (int64_t)u); break;
    case MR_DTYPE_FP64: memcpy(&d, p, sizeof d), mr_json_put_double(out, d); break;
    case MR_DTYPE_FP32: memcpy(&f, p, sizeof f), mr_json_put_float(out, f); break;
    case MR_DTYPE_FP16: memcpy(&h, p, sizeof h), mr_json_put_float(out, mr_fp16_to_float(h)); break;
    case MR_DTYPE_BF16: memcpy(&h, p, sizeof h), mr_json_put_float(out, mr_bf16_to_float(h)); break;
    default: mr_buf_u64(out, u); break;
    }
}

/* Floats in a table are rounded so that columns stay narrow; --json has all digits. */
static void put_short_number(struct mr_buf *out, int dtype, const char *p)
{
    double d = 0;
    float f;
    uint16_t h;

    switch (dtype) {
    case MR_DTYPE_FP64: memcpy(&d, p, sizeof d); break;
    case MR_DTYPE_FP32: memcpy(&f, p, sizeof f), d = (double)f; break;
    case MR_DTYPE_FP16: memcpy(&h, p, sizeof h), d = (double)mr_fp16_to_float(h); break;
    case MR_DTYPE_BF16: memcpy(&h, p, sizeof h), d = (double)mr_bf16_to_float(h); break;
    default: put_number(out, dtype, p); return;
    }
    mr_buf_printf(out, "%.5g", d);
}

/* Steps over the elements of a tensor, whatever their type. */
struct walk {
    const struct mr_tensor *t;
    mr_bytes rest; /* BYTES */
    uint64_t at;
};

static struct walk walk_begin(const struct mr_tensor *t)
{
    return (struct walk){.t = t, .rest = {t->data, t->bytes}};
}

/* The next element's text into *out; false at the end. */
static bool walk_next(struct walk *w, bool is_short, struct mr_buf *out)
{
    size_t size = mr_dtype_size(w->t->dtype);
    mr_str s;

    mr_buf_reset(out);
    if (w->t->dtype == MR_DTYPE_BYTES) {
        if (!mr_bytes_tensor_next(&w->rest, &s)) {
            return false;
        }
        mr_buf_str(out, is_short && s.len > 200 ? mr_str_sub(s, 0, 200) : s);
        return true;
    }
    if (size == 0 || (w->at + 1) * size > w->t->bytes) {
        return false;
    }
    const char *p = (const char *)w->t->data + w->at++ * size;
    if (is_short) {
        put_short_number(out, w->t->dtype, p);
    } else {
        put_number(out, w->t->dtype, p);
    }
    return true;
}

/* ---- plain lines ---- */

static void put_json_data(const struct mr_tensor *t, struct mr_buf *out)
{
    struct walk w = walk_begin(t);
    struct mr_buf element;
    bool first = true;

    mr_buf_init(&element, 0);
    mr_buf_char(out, '[');
    while (walk_next(&w, false, &element)) {
        if (!first) {
            mr_buf_char(out, ',');
        }
        first = false;
        if (t->dtype == MR_DTYPE_BYTES) {
            mr_json_put_string(out, mr_buf_view(&element));
        } else {
            mr_buf_str(out, mr_buf_view(&element));
        }
    }
    mr_buf_char(out, ']');
    mr_buf_fini(&element);
}

/* NAME, type, shape and data, separated by tabs; the data is JSON. */
static void print_plain(const struct mr_oip_response *r)
{
    struct mr_buf line;
    char shape[160];

    mr_buf_init(&line, (size_t)8 << 30);
    for (size_t i = 0; i < r->output_count; i++) {
        const struct mr_tensor *t = &r->outputs[i].tensor;
        mr_buf_reset(&line);
        mr_text_clean(&line, r->outputs[i].name);
        mr_buf_printf(&line, "\t%s\t%s\t", mr_dtype_name(t->dtype),
                      mr_shape_text(t->shape, t->rank, shape, sizeof shape));
        put_json_data(t, &line);
        mr_buf_char(&line, '\n');
        fwrite(line.ptr, 1, line.len, stdout);
    }
    mr_buf_fini(&line);
}

/* ---- tables ---- */

static uint64_t rows_of(const struct mr_tensor *t, uint64_t *out_columns)
{
    uint64_t rows = 1;

    *out_columns = t->rank > 1 ? (uint64_t)t->shape[t->rank - 1] : 1;
    for (int i = 0; i < t->rank - (t->rank > 1); i++) {
        rows *= (uint64_t)t->shape[i];
    }
    return rows;
}

/* The index of a row in all but the last dimension: "2" or "0,3". */
static void put_index(const struct mr_tensor *t, uint64_t row, struct mr_buf *out)
{
    int dims = t->rank > 1 ? t->rank - 1 : t->rank;
    uint64_t index[MR_MAX_RANK];

    for (int i = dims - 1; i >= 0; i--) {
        uint64_t dim = (uint64_t)MR_MAX(t->shape[i], 1);
        index[i] = row % dim;
        row /= dim;
    }
    mr_buf_reset(out);
    for (int i = 0; i < dims; i++) {
        mr_buf_printf(out, "%s%llu", i ? "," : "", (unsigned long long)index[i]);
    }
}

/* Head line of a matrix: an index column and one per element of the last dimension. */
struct matrix_head {
    const char *names[COLUMNS_MAX + 3];
    char texts[COLUMNS_MAX][8];
};

static void make_head(struct matrix_head *h, uint64_t columns, bool is_cut, bool has_index)
{
    size_t n = 0;

    if (has_index) {
        h->names[n++] = "";
    }
    for (uint64_t c = 0; c < columns; c++) {
        snprintf(h->texts[c], sizeof h->texts[c], "%u", (unsigned)c);
        h->names[n++] = columns == 1 && !is_cut ? "" : h->texts[c];
    }
    if (is_cut) {
        h->names[n++] = "...";
    }
    h->names[n] = NULL;
}

static void add_matrix_rows(struct mr_grid *table, const struct mr_tensor *t, uint64_t rows,
                            uint64_t columns, uint64_t shown)
{
    struct walk w = walk_begin(t);
    struct mr_buf text;

    mr_buf_init(&text, 0);
    for (uint64_t r = 0; r < rows; r++) {
        if (t->rank > 0) {
            put_index(t, r, &text);
            mr_grid_add_str(table, MR_STYLE_DIM, mr_buf_view(&text));
        }
        for (uint64_t c = 0; c < columns && walk_next(&w, true, &text); c++) {
            if (c < shown) {
                mr_grid_add_str(table, MR_STYLE_PLAIN, mr_buf_view(&text));
            } else if (c == shown) {
                mr_grid_add(table, MR_STYLE_DIM, "...");
            }
        }
    }
    mr_buf_fini(&text);
}

static void print_matrix(const struct mr_tensor *t)
{
    struct mr_term term = mr_term_of(stdout);
    struct matrix_head head;
    struct mr_grid table;
    uint64_t columns;
    uint64_t rows = rows_of(t, &columns);
    uint64_t room = MR_MIN((uint64_t)COLUMNS_MAX, term.width / 9);
    uint64_t shown = MR_MIN(columns, MR_MAX(room, (uint64_t)1));

    if (rows == 0 || columns == 0) {
        printf("  empty\n");
        return;
    }
    make_head(&head, shown, shown<columns, t->rank> 0);
    mr_grid_init(&table, head.names);
    add_matrix_rows(&table, t, MR_MIN(rows, (uint64_t)ROWS_MAX), columns, shown);
    mr_grid_print(&table, stdout, true, 2);
    mr_grid_fini(&table);
    if (rows > ROWS_MAX) {
        printf("  ... %llu more rows; --output plain, json or npy has all\n",
               (unsigned long long)(rows - ROWS_MAX));
    }
}

/* "0.971:3:three" of the classification extension, cut into its parts. */
static bool split_class(mr_str element, double *out_value, mr_str *out_index, mr_str *out_label)
{
    mr_str rest = element;
    mr_str value;

    *out_label = (mr_str){"", 0};
    if (!mr_str_split(&rest, ':', &value) || !mr_text_double(value, out_value) ||
        !mr_str_split(&rest, ':', out_index)) {
        return false;
    }
    if (rest.ptr) {
        *out_label = rest;
    }
    return true;
}

static void put_bar(struct mr_buf *out, double share)
{
    int n = share > 0 ? (int)(share * BAR_COLUMNS + 0.5) : 0;

    mr_buf_reset(out);
    for (int i = 0; i < MR_MIN(n, BAR_COLUMNS); i++) {
        mr_buf_c(out, "\u2588");
    }
}

static void print_classes(const struct mr_tensor *t)
{
    static const char *const names[] = {"", "CLASS", "LABEL", "VALUE", "", NULL};
    struct walk w = walk_begin(t);
    struct mr_grid table;
    struct mr_buf text;
    struct mr_buf bar;
    double value;
    double best = 0;
    mr_str index;
    mr_str label;
    uint64_t per_row = t->rank > 0 ? (uint64_t)t->shape[t->rank - 1] : 1;

    mr_buf_init(&text, 0);
    mr_buf_init(&bar, 0);
    mr_grid_init(&table, names);
    for (uint64_t i = 0; i < (uint64_t)ROWS_MAX * per_row && walk_next(&w, false, &text); i++) {
        if (!split_class(mr_buf_view(&text), &value, &index, &label)) {
            break;
        }
        bool first = per_row == 0 || i % per_row == 0;
        best = first ? MR_MAX(value, 1.0) : best; /* values above 1 are not probabilities */
        mr_grid_add(&table, MR_STYLE_DIM, "%llu", (unsigned long long)(per_row ? i / per_row : 0));
        mr_grid_add_str(&table, first ? MR_STYLE_BOLD : MR_STYLE_PLAIN, index);
        mr_grid_add_str(&table, first ? MR_STYLE_BOLD : MR_STYLE_PLAIN, label);
        mr_grid_add(&table, MR_STYLE_PLAIN, "%.6g", value);
        put_bar(&bar, value / best);
        mr_grid_add_str(&table, first ? MR_STYLE_GOOD : MR_STYLE_DIM, mr_buf_view(&bar));
    }
    mr_grid_print(&table, stdout, true, 2);
    mr_grid_fini(&table);
    mr_buf_fini(&text);
    mr_buf_fini(&bar);
}

static void print_tables(const struct infer *x, const struct mr_oip_response *r, int64_t took_ns)
{
    struct mr_term term = mr_term_of(stdout);
    struct mr_buf name;
    char shape[160];
    char took[32];

    mr_buf_init(&name, 0);
    mr_text_duration(took, (double)took_ns);
    mr_text_clean(&name, r->model_name.len ? r->model_name : mr_str_c(x->opt.model));
    printf("%s%s%s version %.*s, %s\n", mr_term_on(term, MR_STYLE_BOLD), mr_buf_cstr(&name),
           mr_term_off(term), MR_STR_ARG(r->model_version), took);
    for (size_t i = 0; i < r->output_count; i++) {
        const struct mr_tensor *t = &r->outputs[i].tensor;
        mr_buf_reset(&name);
        mr_text_clean(&name, r->outputs[i].name);
        printf("\n%s%s%s  %s %s\n", mr_term_on(term, MR_STYLE_BOLD), mr_buf_cstr(&name),
               mr_term_off(term), mr_dtype_name(t->dtype),
               mr_shape_text(t->shape, t->rank, shape, sizeof shape));
        if (x->opt.classification > 0 && t->dtype == MR_DTYPE_BYTES) {
            print_classes(t);
        } else {
            print_matrix(t);
        }
    }
    mr_buf_fini(&name);
}

/* ---- JSON and .npy ---- */

static int print_json(const struct mr_oip_response *r, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_buf buf;
    struct mr_oip_encoded e;
    struct mr_oip_response plain = *r;

    for (size_t i = 0; i < plain.output_count; i++) {
        plain.outputs[i].binary = false;
        plain.outputs[i].params = NULL; /* binary_data_size would be wrong now */
        plain.outputs[i].param_count = 0;
    }
    mr_arena_init(&arena, 4096, (size_t)1 << 30);
    mr_buf_init(&buf, (size_t)8 << 30);
    int rc = mr_oip_rest_encode_response(&plain, &buf, &arena, &e, err);
    for (size_t i = 0; rc == MR_OK && i < e.piece_count; i++) {
        fwrite(e.pieces[i].ptr, 1, e.pieces[i].len, stdout);
        mr_block_unref(&e.pieces[i].block);
    }
    if (rc == MR_OK) {
        printf("\n");
    }
    mr_buf_fini(&buf);
    mr_arena_fini(&arena);
    return rc;
}

static int write_file(const char *path, const struct mr_buf *data, struct mr_err *err)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");

    if (!f) {
        return MR_FAIL(err, MR_E_IO, "cannot write %s: %s", path, strerror(errno));
    }
    bool ok = fwrite(data->ptr, 1, data->len, f) == data->len;
    ok = (f == stdout ? fflush(f) : fclose(f)) == 0 && ok;
    return ok ? MR_OK : MR_FAIL(err, MR_E_IO, "cannot write %s: %s", path, strerror(errno));
}

/* Output names come from the model and must not lead out of the folder. */
static bool is_file_name(mr_str name)
{
    return name.len && name.len < 200 && name.ptr[0] != '.' && mr_str_find(name, '/') < 0 &&
           mr_str_find(name, '\0') < 0;
}

static bool is_folder(const char *path)
{
    struct stat st;
    size_t n = strlen(path);

    return (n && path[n - 1] == '/') || (stat(path, &st) == 0 && S_ISDIR(st.st_mode));
}

static int write_npy(const struct infer *x, const struct mr_oip_response *r, struct mr_err *err)
{
    const char *to = x->opt.to ? x->opt.to : "-";
    bool folder = strcmp(to, "-") != 0 && is_folder(to);
    int rc = MR_OK;

    if (!folder && r->output_count != 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%zu outputs: --to must be a folder, or one output be chosen by --want",
                       r->output_count);
    }
    for (size_t i = 0; rc == MR_OK && i < r->output_count; i++) {
        mr_str name = r->outputs[i].name;
        char path[4600];
        struct mr_buf file;
        if (folder && !is_file_name(name)) {
            return MR_FAIL(err, MR_E_INVALID, "output '%.*s' is no file name", MR_STR_ARG(name));
        }
        snprintf(path, sizeof path, folder ? "%.4000s/%.*s.npy" : "%.4000s", to, MR_STR_ARG(name));
        mr_buf_init(&file, (size_t)8 << 30);
        rc = mr_npy_write(&r->outputs[i].tensor, &file, err);
        if (rc == MR_OK) {
            rc = write_file(path, &file, err);
        }
        mr_buf_fini(&file);
    }
    return rc;
}

int infer_print(const struct infer *x, const struct mr_oip_response *r, int64_t took_ns,
                struct mr_err *err)
{
    int form = x->opt.json ? INFER_JSON : x->opt.form;

    if (form == INFER_AUTO) {
        form = x->opt.to ? INFER_NPY : mr_term_of(stdout).is_terminal ? INFER_TABLE : INFER_PLAIN;
    }
    switch (form) {
    case INFER_JSON: return print_json(r, err);
    case INFER_NPY: return write_npy(x, r, err);
    case INFER_TABLE: print_tables(x, r, took_ns); return MR_OK;
    default: print_plain(r); return MR_OK;
    }
}
