/* Label files: one class name a line, for the classification extension. Blank lines count as names,
 * so that numbers and lines stay together; a last line without end counts too. Thread: loader. */
#include "labels.h"

#include "model/folder/folder.h"

#define LABEL_MAX_BYTES ((size_t)16 << 20)
#define LABEL_MAX_COUNT ((size_t)1 << 20)

static mr_str line_trim(mr_str line)
{
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    return line;
}

static size_t line_count(mr_str text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.len; i++) {
        n += text.ptr[i] == '\n';
    }
    return n + (text.len > 0 && text.ptr[text.len - 1] != '\n');
}

int mr_labels_read(struct mr_arena *arena, const char *path, const mr_str **out, size_t *out_count,
                   struct mr_err *err)
{
    char *data = NULL;
    size_t len = 0;
    int rc;

    MR_TRY(mr_file_read(path, LABEL_MAX_BYTES, &data, &len, err));
    size_t count = line_count(mr_str_n(data, len));
    mr_str text = mr_arena_str(arena, mr_str_n(data, len));
    mr_str *labels = MR_ARENA_ARRAY(arena, mr_str, count + 1);
    if (count > LABEL_MAX_COUNT || !text.ptr || !labels) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "%.300s has %zu labels, allowed are %zu", path, count,
                     LABEL_MAX_COUNT);
        goto out;
    }
    if (!mr_utf8_valid(text)) {
        rc = MR_FAIL(err, MR_E_INVALID, "%.300s is not UTF-8", path);
        goto out;
    }
    mr_str line;
    for (size_t i = 0; i < count && mr_str_split(&text, '\n', &line); i++) {
        labels[i] = line_trim(line);
    }
    *out = labels;
    *out_count = count;
    rc = MR_OK;
out:
    mr_free(data);
    return rc;
}
