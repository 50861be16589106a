/* Pages: data page v1 with a checksum, compressed or not.
 *
 * A page is repetition levels, definition levels, values. The first two are small and share one buffer, the values
 * are written in place. A page of the streamed leaf goes to the file, others are held until the row group ends,
 * because the pages of a leaf are contiguous in the file. */
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/mem.h"
#include "parquet.h"
#include "table/io/io.h"

#define ZSTD_LEVEL  1
#define BUFFER_KEPT (2 * (size_t)PARQUET_PAGE_BYTES)

static int parts_write(struct parquet_writer *w, const mr_bytes *parts, int count,
                       struct mr_err *err)
{
    struct iovec pieces[4];
    size_t bytes = 0;

    for (int i = 0; i < count; i++) {
        pieces[i] = (struct iovec){(void *)parts[i].ptr, parts[i].len};
        bytes += parts[i].len;
    }
    int rc = mr_fd_writev(w->fd, pieces, count, &w->no_room, err);
    if (rc == MR_OK) {
        w->at += bytes;
    }
    return rc;
}

int parquet_write(struct parquet_writer *w, const void *data, size_t bytes, struct mr_err *err)
{
    return parts_write(w, &(mr_bytes){data, bytes}, 1, err);
}

static int no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a page of a Parquet file");
}

/* ---- levels ---- */

static void levels_append(struct mr_buf *to, const struct mr_buf *levels)
{
    const uint32_t len = (uint32_t)levels->len;

    mr_buf_append(to, &len, sizeof len);
    mr_buf_append(to, levels->ptr, levels->len);
    to->failed |= levels->failed;
}

/* Repetition levels of a page of regular rows: those of the last such page, if it had as many. */
static const struct mr_buf *regular_rep(struct parquet_leaf *l)
{
    if (l->depth > 0 && l->regular_rep_rows != l->regular) {
        l->regular_rep_rows = l->regular;
        parquet_regular_spell(l);
        parquet_levels_finish(&l->rep);
        mr_buf_reset(&l->regular_rep);
        mr_buf_append(&l->regular_rep, l->rep.out.ptr, l->rep.out.len);
        l->regular_rep.failed |= l->rep.out.failed;
    }
    return &l->regular_rep;
}

static void levels_spell(struct parquet_leaf *l, struct mr_buf *to)
{
    const struct mr_buf *rep = &l->rep.out;

    if (l->entries == l->regular * l->fixed_items) {
        rep = regular_rep(l);
        parquet_levels_reset(&l->levels_def);
        parquet_levels_add(&l->levels_def, l->def_most, l->entries);
    } else {
        parquet_regular_spell(l);
        parquet_levels_finish(&l->rep);
    }
    parquet_levels_finish(&l->levels_def);
    if (l->depth > 0) {
        levels_append(to, rep);
    }
    if (l->def_most > 0) {
        levels_append(to, &l->levels_def.out);
    }
}

/* ---- compression ---- */

static int pack(struct parquet_writer *w, const mr_bytes parts[3], size_t plain, mr_bytes *out,
                struct mr_err *err)
{
    if (!w->zstd && !(w->zstd = ZSTD_createCCtx())) {
        return no_memory(err);
    }
    mr_buf_reset(&w->packed);
    if (!mr_buf_reserve(&w->packed, ZSTD_compressBound(plain))) {
        return no_memory(err);
    }
    ZSTD_outBuffer to = {w->packed.ptr, w->packed.cap, 0};
    ZSTD_CCtx_reset(w->zstd, ZSTD_reset_session_only);
    ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
    ZSTD_CCtx_setPledgedSrcSize(w->zstd, plain);
    for (int i = 0; i < 3; i++) {
        ZSTD_inBuffer from = {parts[i].ptr, parts[i].len, 0};
        const size_t left =
            ZSTD_compressStream2(w->zstd, &to, &from, i < 2 ? ZSTD_e_continue : ZSTD_e_end);
        if (ZSTD_isError(left) || from.pos < from.size || (i == 2 && left > 0)) {
            return ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation
                       ? no_memory(err)
                       : MR_FAIL(err, MR_E_INTERNAL, "zstd: %s", ZSTD_getErrorName(left));
        }
    }
    *out = (mr_bytes){to.dst, to.pos};
    return MR_OK;
}

/* ---- pages ---- */

static void header_write(struct mr_buf *to, const struct parquet_leaf *l, size_t plain,
                         size_t packed, uint32_t crc)
{
    struct parquet_thrift t = {.out = to};

    parquet_thrift_i32(&t, 1, 0); /* DATA_PAGE */
    parquet_thrift_i32(&t, 2, (int32_t)plain);
    parquet_thrift_i32(&t, 3, (int32_t)packed);
    parquet_thrift_i32(&t, 4, (int32_t)crc);
    parquet_thrift_begin(&t, 5);
    parquet_thrift_i32(&t, 1, (int32_t)l->entries);
    parquet_thrift_i32(&t, 2, 0); /* PLAIN */
    parquet_thrift_i32(&t, 3, 3); /* RLE */
    parquet_thrift_i32(&t, 4, 3);
    parquet_thrift_end(&t);
    parquet_thrift_end(&t);
}

static int page_hold(struct parquet_leaf *l, const mr_bytes *parts, int count, struct mr_err *err)
{
    size_t bytes = 0;

    for (int i = 0; i < count; i++) {
        bytes += parts[i].len;
    }
    struct parquet_held *page = mr_try_alloc(sizeof *page + bytes);
    if (!page) {
        return no_memory(err);
    }
    *page = (struct parquet_held){.bytes = bytes};
    uint8_t *to = page->data;
    for (int i = 0; i < count; i++) {
        if (parts[i].len > 0) {
            memcpy(to, parts[i].ptr, parts[i].len);
            to += parts[i].len;
        }
    }
    *l->held_end = page;
    l->held_end = &page->next;
    l->held_bytes += bytes;
    return MR_OK;
}

static void page_reset(struct parquet_leaf *l)
{
    l->chunk_entries += l->entries;
    l->chunk_values += l->value_count;
    l->entries = l->value_count = l->regular = l->near_bytes = 0;
    l->bit_count = 0;
    parquet_levels_reset(&l->rep);
    parquet_levels_reset(&l->levels_def);
    if (l->values.cap > BUFFER_KEPT) {
        mr_buf_fini(&l->values);
        mr_buf_init(&l->values, INT32_MAX);
    }
    mr_buf_reset(&l->values);
}

int parquet_page_end(struct parquet_writer *w, struct parquet_leaf *l, struct mr_err *err)
{
    if (l->entries == 0) {
        return MR_OK;
    }
    struct mr_buf *head = &w->head;
    parquet_values_count_near(l);
    mr_buf_reset(head);
    levels_spell(l, head);
    const size_t levels = head->len;
    const uint64_t plain = levels + l->values.len + l->near_bytes;
    if (l->is_too_large || plain > INT32_MAX || l->entries > INT32_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "column '%s': a value has 2 GiB or more, which Parquet has no page for",
                       l->path[0]->name);
    }
    if (head->failed || l->values.failed) {
        return no_memory(err);
    }
    /* Levels, values, values; or all of them compressed. */
    mr_bytes parts[4] = {{0},
                         {(const uint8_t *)head->ptr, levels},
                         {(const uint8_t *)l->values.ptr, l->values.len},
                         {l->near, l->near_bytes}};
    int rc = MR_OK;
    int count = 4;
    size_t bytes = plain;
    if (w->is_zstd) {
        mr_bytes packed;
        if ((rc = pack(w, parts + 1, plain, &packed, err)) < 0) {
            return rc;
        }
        parts[1] = packed;
        bytes = packed.len;
        count = 2;
    }
    uLong crc = 0;
    for (int i = 1; i < count; i++) {
        if (parts[i].len > 0) {
            crc = crc32_z(crc, parts[i].ptr, parts[i].len);
        }
    }
    /* After the levels, in the same buffer, which may move. */
    header_write(head, l, plain, bytes, (uint32_t)crc);
    if (head->failed) {
        return no_memory(err);
    }
    parts[0] = (mr_bytes){(const uint8_t *)head->ptr + levels, head->len - levels};
    if (!w->is_zstd) {
        parts[1].ptr = (const uint8_t *)head->ptr;
    }
    l->chunk_plain += parts[0].len + plain;
    l->chunk_bytes += parts[0].len + bytes;
    if (l != w->streamed) {
        rc = page_hold(l, parts, count, err);
    } else {
        rc = parts_write(w, parts, count, err);
    }
    page_reset(l);
    return rc;
}

int parquet_held_write(struct parquet_writer *w, struct parquet_leaf *l, struct mr_err *err)
{
    for (struct parquet_held *page = l->held; page; page = page->next) {
        int rc = parquet_write(w, page->data, page->bytes, err);
        if (rc < 0) {
            return rc;
        }
    }
    parquet_held_drop(l);
    return MR_OK;
}

void parquet_held_drop(struct parquet_leaf *l)
{
    for (struct parquet_held *page = l->held; page;) {
        struct parquet_held *next = page->next;
        mr_free(page);
        page = next;
    }
    l->held = NULL;
    l->held_end = &l->held;
    l->held_bytes = 0;
}
