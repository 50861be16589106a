/* labels: numbers to texts. */
#include "labels.h"

#include "builtin.h"

#define FILE_BYTES_MAX (16u << 20)

static int split_labels(struct labels *l, mr_str text, char sep, struct mr_err *err)
{
    mr_str rest, piece;
    uint64_t n = 0;

    l->text = mr_strndup(text.ptr, text.len);
    rest = mr_str_n(l->text, text.len);
    while (mr_str_split(&rest, sep, &piece)) {
        n++;
    }
    l->list = mr_alloc_array(n + 1, sizeof *l->list);
    rest = mr_str_n(l->text, text.len);
    while (mr_str_split(&rest, sep, &piece)) {
        l->list[l->count++] = mr_str_trim(piece);
    }
    /* what follows the last end of line is no label */
    if (l->count > 0 && l->list[l->count - 1].len == 0) {
        l->count--;
    }
    return l->count > 0 ? MR_OK : MR_FAIL(err, MR_E_INVALID, "there are no labels");
}

int labels_parse(struct labels *l, const struct mr_op_desc *d, struct mr_op_node *node,
                 bool is_needed, struct mr_err *err)
{
    const char *list = op_text(d, "labels");
    const char *file = op_text(d, "labels_file");
    const char *fallback = op_text(d, "default");
    const char *text;
    uint64_t len;
    int rc;

    if ((list && file) || (is_needed && !list && !file)) {
        return MR_FAIL(err, MR_E_INVALID, "needs one of the parameters 'labels' and 'labels_file'");
    }
    if (fallback) {
        l->fallback = l->fallback_text = mr_strndup(fallback, strlen(fallback));
    }
    if (list) {
        return split_labels(l, mr_str_c(list), ',', err);
    }
    if (!file) {
        return MR_OK;
    }
    MR_TRY(builtin_host->read_file(node, file, FILE_BYTES_MAX, &text, &len, err));
    rc = split_labels(l, mr_str_n(text, len), '\n', err);
out:
    return rc;
}

void labels_fini(struct labels *l)
{
    mr_freep(&l->list);
    mr_freep(&l->text);
    mr_freep(&l->fallback_text);
}

static int label_of(const struct labels *l, __int128 number, mr_str *out, struct mr_err *err)
{
    if (number >= 0 && number < l->count) {
        *out = l->list[(uint64_t)number];
        return MR_OK;
    }
    if (!l->fallback) {
        return MR_FAIL(err, MR_E_INVALID, "%s%llu has no label; there are %llu",
                       number < 0 ? "-" : "", (unsigned long long)(number < 0 ? -number : number),
                       (unsigned long long)l->count);
    }
    *out = mr_str_c(l->fallback);
    return MR_OK;
}

int labels_output(const struct labels *l, struct mr_op_run *run, uint32_t index,
                  const struct mr_tensor *numbers, int rank, const int64_t *shape,
                  struct mr_err *err)
{
    uint64_t count = op_product(shape, 0, rank);
    uint64_t bytes = 0;
    mr_str *found = count < UINT32_MAX ? mr_try_alloc((count + 1) * sizeof *found) : NULL;
    void *data;
    int rc;

    if (!found) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu labels", (unsigned long long)count);
    }
    /* Once: a process that made the numbers may still write them. */
    for (uint64_t i = 0; i < count; i++) {
        MR_TRY(label_of(l, op_load_int(numbers, i), &found[i], err));
        bytes += 4 + found[i].len;
        MR_TRY(op_spend(run, 4, err));
    }
    MR_TRY(builtin_host->output(run, index, MR_DTYPE_BYTES, rank, shape, bytes, &data, err));
    char *to = data;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t len = (uint32_t)found[i].len;
        memcpy(to, &len, 4);
        memcpy(to + 4, found[i].ptr, len);
        to += 4 + len;
    }
out:
    mr_free(found);
    return rc;
}

struct op_labels {
    uint32_t in, out;
    struct labels labels;
    struct op_outputs outputs;
};

static void destroy(void *op)
{
    struct op_labels *o = op;

    labels_fini(&o->labels);
    op_outputs_fini(&o->outputs);
    mr_free(o);
}

static int create(const struct mr_op_desc *d, struct mr_op_node *node, struct mr_op_signature *out,
                  void **out_op, struct mr_err *err)
{
    static const char *const known[] = {"labels", "labels_file", "default", NULL};
    static const int types[] = {MR_DTYPE_INT32,  MR_DTYPE_INT64,  MR_DTYPE_UINT8,
                                MR_DTYPE_INT8,   MR_DTYPE_UINT16, MR_DTYPE_INT16,
                                MR_DTYPE_UINT32, MR_DTYPE_UINT64, 0};
    struct op_labels *o = MR_NEW(struct op_labels);
    int rc;

    op_outputs_init(&o->outputs, d);
    MR_TRY(op_known(d, known, err));
    MR_TRY(op_input(d, "indices", false, &o->in, err));
    MR_TRY(op_output(d, "labels", false, &o->out, err));
    MR_TRY(op_no_more(d, 1, 1, err));
    MR_TRY(op_known_input(d, o->in, 0, err));
    MR_TRY(op_input_types(d, o->in, types, err));
    MR_TRY(labels_parse(&o->labels, d, node, true, err));
    MR_TRY(op_outputs_set(&o->outputs, o->out, MR_DTYPE_BYTES, d->inputs[o->in].rank,
                          d->inputs[o->in].dims, err));
    out->outputs = o->outputs.list;
    *out_op = o;
    return MR_OK;
out:
    destroy(o);
    return rc;
}

static int run(void *op, struct mr_op_run *run, struct mr_err *err)
{
    const struct op_labels *o = op;
    const struct mr_tensor *in = &run->inputs[o->in];

    return labels_output(&o->labels, run, o->out, in, in->rank, in->shape, err);
}

const struct mr_op_kind labels_kind = {.size = sizeof(struct mr_op_kind),
                                       .name = "labels",
                                       .create = create,
                                       .run = run,
                                       .destroy = destroy};
