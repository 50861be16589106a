/* Dead letters: why a row has no result, and what is needed to try it again or to look into it elsewhere.
 *
 * A line is bounded whatever the row and the answer are: large cells are left out by name, of the answer there is the
 * begin.
 *
 * Columns that neither calls nor results need are not read with all rows, but only of rows that become letters. */
#include "dead_letter.h"

#include "base/log.h"
#include "batch/common/extent.h"
#include "codec/json.h"
#include "committer.h"
#include "results.h"

#define VALUES_BYTES ((size_t)64 << 10)

static void answer_put(struct mr_buf *b, const struct raw_answer *a)
{
    mr_str text = {a->text, a->len};

    mr_buf_printf(b, ",\"answer\":{\"status\":%d,\"bytes\":%llu,", a->status,
                  (unsigned long long)a->bytes);
    /* A character that the cut went through does not make it binary. */
    for (int i = 0; i < 3 && a->len < a->bytes && !mr_utf8_valid(text) && text.len > 0; i++) {
        text.len--;
    }
    if (mr_utf8_valid(text)) {
        MR_BUF_LIT(b, "\"text\":");
        mr_json_put_string(b, text);
    } else {
        MR_BUF_LIT(b, "\"base64\":\"");
        mr_base64_encode((mr_bytes){(const uint8_t *)a->text, a->len}, b);
        mr_buf_char(b, '"');
    }
    mr_buf_char(b, '}');
}

/* What could not be read has nulls for its columns, which are none of its own. */
static bool has_values(const struct extent *e, uint64_t row)
{
    return e->rows->fault_count == 0 || !mr_rows_fault_of(e->rows, row);
}

struct mr_rows *dead_letter_full_row(struct full_rows *w, const struct results *rs,
                                     const struct extent *e, uint64_t row)
{
    struct mr_rows *rows = NULL;
    struct mr_err err;
    int rc = MR_OK;

    if (w->is_over || !has_values(e, row)) {
        return NULL;
    }
    if (!w->source) {
        rc = mr_source_whole(&w->source, rs->input->source, &err);
        w->is_over = !w->source;
    }
    if (w->source) {
        rc = mr_source_read(w->source, e->file, e->first + row, 1, UINT64_MAX, &rows, &err);
    }
    if (rc < 0) {
        mr_log(MR_LOG_WARN, "batch.dead_letters",
               "reason=%s; dead letters have only the columns that the model and the results need",
               err.msg);
        dead_letter_full_rows_close(w);
        w->is_over = true;
    }
    if (rows && rows->fault_count > 0) { /* in a column that is not needed */
        mr_rows_unref(&rows);
    }
    return rows;
}

void dead_letter_full_rows_close(struct full_rows *w)
{
    mr_source_close(&w->source);
}

static void values_put(struct mr_buf *b, const struct mr_rows *rows, uint64_t row)
{
    struct mr_buf left;

    mr_buf_init(&left, 0);
    MR_BUF_LIT(b, ",\"values\":");
    mr_row_put_json(b, rows, row, VALUES_BYTES, &left);
    if (left.len > 0) {
        MR_BUF_LIT(b, ",\"truncated\":[");
        mr_buf_str(b, mr_buf_view(&left));
        mr_buf_char(b, ']');
    }
    b->failed |= left.failed;
    mr_buf_fini(&left);
}

void dead_letter_put(struct mr_buf *b, const char *path, const struct extent *e,
                     const struct dead_row *d, const struct mr_rows *whole)
{
    MR_BUF_LIT(b, "{\"file\":");
    mr_json_put_string(b, mr_str_c(path));
    mr_buf_printf(b, ",\"row\":%llu,\"kind\":\"%s\",\"cause\":",
                  (unsigned long long)(e->first + d->row), d->kind);
    mr_json_put_string(b, mr_str_c(d->cause));
    if (d->host) {
        MR_BUF_LIT(b, ",\"host\":");
        mr_json_put_string(b, mr_str_c(d->host));
    }
    if (d->attempts > 0) {
        mr_buf_printf(b, ",\"attempts\":%u", d->attempts);
    }
    if (d->answer.text) {
        answer_put(b, &d->answer);
    }
    if (has_values(e, d->row)) {
        values_put(b, whole ? whole : e->rows, whole ? 0 : d->row);
    }
    MR_BUF_LIT(b, "}\n");
}
