/* The result file of a batch file's job, when the job is finished: the lines of its parts and, for dead letters, lines of
 * the same form with an error. Made beside its place, and put there whole. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "batch/files/file.h"
#include "batch/manifest/manifest.h"
#include "codec/json.h"
#include "openai.h"

#define COPY_BYTES ((size_t)1 << 20)

/* ---- a dead letter as a line ---- */

struct dead_letter {
    mr_str kind;
    mr_str cause;
    mr_str custom_id;
    mr_str text; /* of the answer; ptr NULL: none came */
    int64_t status;
};

static void bytes_read(struct mr_json *j, struct mr_arena *arena, mr_str *out)
{
    mr_str packed = {0};
    size_t len = 0;

    if (mr_json_string(j, &packed) < 0) {
        return;
    }
    uint8_t *bytes = MR_ARENA_ARRAY(arena, uint8_t, packed.len / 4 * 3 + 1);
    if (!bytes) {
        mr_json_fail(j, MR_E_EXHAUSTED, "no memory for an answer");
    } else if (mr_base64_decode(packed, bytes, &len)) {
        *out = mr_str_n((const char *)bytes, len);
    } else {
        mr_json_fail(j, MR_E_INVALID, "an answer is no base64");
    }
}

static void answer_read(struct mr_json *j, struct mr_arena *arena, struct dead_letter *l)
{
    bool is_first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("status"))) {
            mr_json_i64(j, &l->status);
        } else if (mr_str_eq(key, MR_STR("text"))) {
            mr_json_string(j, &l->text);
        } else if (mr_str_eq(key, MR_STR("base64"))) {
            bytes_read(j, arena, &l->text);
        } else {
            mr_json_skip(j, NULL);
        }
    }
}

static void values_read(struct mr_json *j, struct dead_letter *l)
{
    bool is_first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("custom_id")) && mr_json_peek(j) == MR_JSON_STRING) {
            mr_json_string(j, &l->custom_id);
        } else {
            mr_json_skip(j, NULL);
        }
    }
}

static int dead_letter_read(mr_str line, struct mr_arena *arena, struct dead_letter *l,
                            struct mr_err *err)
{
    bool is_first = true;
    struct mr_json j;
    mr_str key;

    mr_json_init(&j, line, arena, 0, err);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        if (mr_str_eq(key, MR_STR("kind"))) {
            mr_json_string(&j, &l->kind);
        } else if (mr_str_eq(key, MR_STR("cause"))) {
            mr_json_string(&j, &l->cause);
        } else if (mr_str_eq(key, MR_STR("answer"))) {
            answer_read(&j, arena, l);
        } else if (mr_str_eq(key, MR_STR("values"))) {
            values_read(&j, l);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    return mr_json_finish(&j);
}

/* JSON as it is, all else (and what was cut) as a text. */
static void put_body(struct mr_buf *b, mr_str text, struct mr_arena *arena)
{
    struct mr_json j;

    mr_json_init(&j, text, arena, 0, NULL);
    if (mr_json_skip(&j, NULL) == MR_OK && mr_json_finish(&j) == MR_OK &&
        !memchr(text.ptr, '\n', text.len)) {
        mr_buf_str(b, text);
    } else {
        mr_json_put_string(b, text);
    }
}

/* number: of this dead letter among all of the job's, from 0. */
static void put_line(struct mr_buf *b, const struct dead_letter *l, uint64_t number,
                     struct mr_arena *arena)
{
    mr_buf_printf(b, "{\"id\":\"batch_req_dead_%llu\",\"custom_id\":", (unsigned long long)number);
    if (l->custom_id.ptr) {
        mr_json_put_string(b, l->custom_id);
    } else {
        MR_BUF_LIT(b, "null");
    }
    MR_BUF_LIT(b, ",\"response\":");
    if (l->text.ptr) {
        mr_buf_printf(b,
                      "{\"status_code\":%lld,\"request_id\":\"\",\"body\":", (long long)l->status);
        put_body(b, l->text, arena);
        mr_buf_char(b, '}');
    } else {
        MR_BUF_LIT(b, "null");
    }
    MR_BUF_LIT(b, ",\"error\":{\"code\":");
    mr_json_put_string(b, l->kind);
    MR_BUF_LIT(b, ",\"message\":");
    mr_json_put_string(b, l->cause);
    MR_BUF_LIT(b, "}}\n");
}

/* ---- files ---- */

struct file {
    const char *path;
    char *tmp;
    FILE *f;
};

static int file_begin(struct file *f, const char *path, struct mr_err *err)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_printf(&b, "%s.tmp-%ld", path, (long)getpid());
    f->path = path;
    f->tmp = mr_strndup(mr_buf_cstr(&b), b.len);
    mr_buf_fini(&b);
    unlink(f->tmp); /* of a start that was killed: in a container each has the same number */
    f->f = fopen(f->tmp, "wxe");
    return f->f ? MR_OK : batch_file_fail(err, "make", f->tmp);
}

static int file_end(struct file *f, struct mr_err *err)
{
    int rc = fflush(f->f) == 0 ? batch_file_sync(fileno(f->f), f->tmp, err)
                               : batch_file_fail(err, "write", f->tmp);

    if (rc == MR_OK && rename(f->tmp, f->path) < 0) {
        rc = batch_file_fail(err, "put in its place", f->path);
    }
    return rc;
}

/* What was not put in its place is gone. */
static void file_drop(struct file *f, int rc)
{
    if (f->f) {
        fclose(f->f);
        if (rc < 0) {
            unlink(f->tmp);
        }
    }
    mr_free(f->tmp);
}

static int part_copy(const struct mr_manifest *m, const char *name, FILE *to, struct mr_err *err)
{
    char *room = mr_alloc(COPY_BYTES);
    const int fd = mr_manifest_file_open(m, MR_MANIFEST_RESULTS, name, err);
    ssize_t n = 0;
    int rc = fd < 0 ? fd : MR_OK;

    while (rc == MR_OK && (n = read(fd, room, COPY_BYTES)) > 0) {
        rc = fwrite(room, 1, (size_t)n, to) == (size_t)n ? MR_OK
                                                         : batch_file_fail(err, "write", name);
    }
    if (rc == MR_OK && n < 0) {
        rc = batch_file_fail(err, "read", name);
    }
    if (fd >= 0) {
        close(fd);
    }
    mr_free(room);
    return rc;
}

static int letters_copy(const struct mr_manifest *m, const char *name, uint64_t number, FILE *to,
                        struct mr_err *err)
{
    const int fd = mr_manifest_file_open(m, MR_MANIFEST_DEAD_LETTERS, name, err);
    FILE *from = fd < 0 ? NULL : fdopen(fd, "r");
    struct mr_arena arena;
    struct mr_buf b;
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = from ? MR_OK : fd < 0 ? fd : batch_file_fail(err, "read", name);

    mr_arena_init(&arena, 4096, SIZE_MAX);
    mr_buf_init(&b, 0);
    while (rc == MR_OK && (n = getline(&line, &room, from)) > 0) {
        struct dead_letter l = {0};
        rc = dead_letter_read(mr_str_n(line, (size_t)n), &arena, &l, err);
        if (rc == MR_OK) {
            mr_buf_reset(&b);
            put_line(&b, &l, number++, &arena);
            rc = !b.failed && fwrite(b.ptr, 1, b.len, to) == b.len
                     ? MR_OK
                     : batch_file_fail(err, "write", name);
        }
        mr_arena_reset(&arena);
    }
    if (rc == MR_OK && ferror(from)) {
        rc = batch_file_fail(err, "read", name);
    }
    mr_buf_fini(&b);
    mr_arena_fini(&arena);
    mr_free(line);
    if (from) {
        fclose(from);
    }
    return rc;
}

/* ---- the whole ---- */

int mr_batch_openai_result(const char *folder, const char *output, const char *errors,
                           struct mr_batch_openai_counts *out, struct mr_err *err)
{
    const struct mr_manifest_options options = {.takes_any_job = true};
    struct mr_batch_openai_counts counts = {0};
    struct mr_manifest *m = NULL;
    struct file results = {0};
    struct file dead = {0};
    int rc;

    MR_TRY(mr_manifest_open(&m, folder, NULL, 0, &options, err));
    if (!mr_manifest_is_finished(m)) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID,
                       "%s is not made: the job in %s is not finished; run it to its end", output,
                       folder));
    }
    MR_TRY(file_begin(&results, output, err));
    MR_TRY(errors ? file_begin(&dead, errors, err) : MR_OK);
    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(m, i);
        MR_TRY(item->part ? part_copy(m, item->part, results.f, err) : MR_OK);
        MR_TRY(item->dlq
                   ? letters_copy(m, item->dlq, counts.errors, errors ? dead.f : results.f, err)
                   : MR_OK);
        counts.results += item->rows;
        counts.errors += item->dead;
    }
    MR_TRY(file_end(&results, err));
    MR_TRY(errors ? file_end(&dead, err) : MR_OK);
    *out = counts;
out:
    file_drop(&results, rc);
    file_drop(&dead, rc);
    mr_manifest_close(&m);
    return rc;
}
