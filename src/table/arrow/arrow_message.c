/* Messages, and the buffers of record batches.
 *
 * A body is in a file, of which only the requested bytes are read, or in memory. A compressed buffer is decompressed
 * whole at the first access, within held_most. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#ifdef MR_HAVE_LZ4
#    include <lz4frame.h>
#endif

#include "arrow.h"
#include "base/mem.h"

int arrow_message_parse(struct arrow_message *out, mr_bytes metadata, struct mr_err *err)
{
    *out = (struct arrow_message){.flat = {metadata, false}};
    const struct flat_table m = flat_root(&out->flat);
    const int64_t body_bytes = flat_int(&m, 3, 8, 0);

    out->version = (int)flat_int(&m, 0, 2, 0);
    out->kind = (enum arrow_kind)flat_int(&m, 1, 1, 0);
    out->header = flat_child(&m, 2);
    out->body_bytes = (uint64_t)body_bytes;
    if (out->flat.is_bad || out->header.at == 0 || body_bytes < 0) {
        return MR_FAIL(err, MR_E_INVALID, "no message of Arrow is there");
    }
    if (out->version != ARROW_VERSION_4 && out->version != ARROW_VERSION_5) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "a message is of version %d of the format; 4 and 5 can be read",
                       out->version + 1);
    }
    if (out->kind < ARROW_SCHEMA || out->kind > ARROW_BATCH) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "a message is neither a schema nor a batch of rows");
    }
    return MR_OK;
}

/* ---- record batches ---- */

struct layout {
    struct arrow_batch *batch;
    const struct flat_vector *nodes;
    const struct flat_vector *views; /* number of additional buffers of each view */
    uint32_t view;
    uint64_t buffers;
    struct mr_err *err;
};

static int node_read(struct layout *l, const struct arrow_field *f)
{
    const uint32_t i = l->batch->node_count++;
    const int64_t rows = flat_list_i64(l->nodes, i, 0);
    const int64_t nulls = flat_list_i64(l->nodes, i, 8);
    const int64_t views =
        arrow_is_view(f) && l->view < l->views->count ? flat_list_i64(l->views, l->view++, 0) : 0;

    if (rows < 0 || nulls < 0 || nulls > rows || views < 0 || views > l->batch->buffer_count) {
        return MR_FAIL(l->err, MR_E_INVALID, "column '%s' has %lld rows, %lld of them null",
                       f->name, (long long)rows, (long long)nulls);
    }
    l->batch->nodes[i] =
        (struct arrow_node){(uint64_t)rows, (uint64_t)nulls, (uint32_t)l->buffers, (uint32_t)views};
    l->buffers += arrow_buffers_of(f) + (uint64_t)views;
    if (l->buffers > l->batch->buffer_count) {
        return MR_FAIL(l->err, MR_E_INVALID, "buffers of column '%s' are missing", f->name);
    }
    for (uint32_t k = 0; k < f->item_count && !f->is_dictionary; k++) {
        int rc = node_read(l, &f->items[k]);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int buffers_read(struct arrow_batch *b, const struct flat_vector *buffers,
                        struct mr_err *err)
{
    for (uint32_t i = 0; i < b->buffer_count; i++) {
        const int64_t at = flat_list_i64(buffers, i, 0);
        const int64_t bytes = flat_list_i64(buffers, i, 8);
        if (at < 0 || bytes < 0 || (uint64_t)at > b->body_bytes ||
            (uint64_t)bytes > b->body_bytes - (uint64_t)at) {
            return MR_FAIL(err, MR_E_INVALID, "a buffer lies outside of its batch");
        }
        b->buffers[i] = (struct arrow_buffer){.at = (uint64_t)at, .bytes = (uint64_t)bytes};
    }
    return MR_OK;
}

static int codec_read(struct arrow_batch *b, const struct flat_table *header, struct mr_err *err)
{
    const struct flat_table compression = flat_child(header, 3);

    b->codec = compression.at ? (int)flat_int(&compression, 0, 1, ARROW_LZ4) : -1;
    if (compression.at &&
        (b->codec < ARROW_LZ4 || b->codec > ARROW_ZSTD || flat_int(&compression, 1, 1, 0) != 0)) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "a batch is compressed in a way that is not known");
    }
    return MR_OK;
}

int arrow_batch_new(struct arrow_batch **out, const struct flat_table *header,
                    const struct arrow_field *fields, uint32_t count, uint32_t nodes,
                    uint64_t body_bytes, struct mr_err *err)
{
    const struct flat_vector node_list = flat_list(header, 1, 16);
    const struct flat_vector buffers = flat_list(header, 2, 16);
    const struct flat_vector views = flat_list(header, 4, 8);
    const int64_t rows = flat_int(header, 0, 8, 0);
    struct arrow_batch *b = MR_NEW(struct arrow_batch);
    struct layout l = {.batch = b, .nodes = &node_list, .views = &views, .err = err};
    int rc;

    if (node_list.count != nodes || rows < 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "a batch has %u columns, with those in others, and not %u",
                     node_list.count, nodes);
        goto out;
    }
    b->rows = (uint64_t)rows;
    b->fd = -1;
    b->body_bytes = body_bytes;
    b->buffer_count = buffers.count;
    b->nodes = MR_NEW_ARRAY(struct arrow_node, nodes + 1);
    b->buffers = MR_NEW_ARRAY(struct arrow_buffer, buffers.count + 1);
    MR_TRY(buffers_read(b, &buffers, err));
    MR_TRY(codec_read(b, header, err));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t node = b->node_count;
        MR_TRY(node_read(&l, &fields[i]));
        if (b->nodes[node].rows != b->rows) {
            rc = MR_FAIL(err, MR_E_INVALID, "column '%s' has %llu rows, and its batch %lld",
                         fields[i].name, (unsigned long long)b->nodes[node].rows, (long long)rows);
            goto out;
        }
    }
    rc = l.buffers != b->buffer_count || header->in->is_bad
             ? MR_FAIL(err, MR_E_INVALID, "a batch does not have the buffers of its columns")
             : MR_OK;
out:
    if (rc < 0) {
        arrow_batch_free(&b);
        return rc;
    }
    *out = b;
    return MR_OK;
}

void arrow_batch_free(struct arrow_batch **batch)
{
    struct arrow_batch *b = *batch;

    *batch = NULL;
    if (!b) {
        return;
    }
    for (uint32_t i = 0; b->buffers && i < b->buffer_count; i++) {
        mr_free(b->buffers[i].unpacked);
    }
    mr_free(b->buffers);
    mr_free(b->nodes);
    mr_free(b->body);
    mr_free(b);
}

/* ---- buffers' bytes ---- */

static int body_read(const struct arrow_batch *b, uint64_t from, uint64_t bytes, void *to,
                     struct mr_err *err)
{
    uint8_t *at = to;

    if (b->body) {
        memcpy(at, b->body + from, bytes);
        return MR_OK;
    }
    while (bytes > 0) {
        const ssize_t n = pread(b->fd, at, bytes, (off_t)(b->body_at + from));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return MR_FAIL(err, n < 0 ? MR_E_IO : MR_E_INVALID, "cannot read: %s",
                           n < 0 ? strerror(errno) : "the file has become shorter");
        }
        at += n;
        from += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return MR_OK;
}

static int hold(struct arrow_batch *b, uint64_t bytes, uint8_t **out, struct mr_err *err)
{
    *out = bytes <= b->held_most - MR_MIN(b->held, b->held_most)
               ? mr_try_alloc(MR_MAX(bytes, UINT64_C(1)))
               : NULL;
    if (!*out) {
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "a batch of rows needs more than %llu bytes: write smaller ones",
                       (unsigned long long)b->held_most);
    }
    b->held += bytes;
    return MR_OK;
}

#ifdef MR_HAVE_LZ4
static bool lz4_unpack(const uint8_t *from, size_t bytes, uint8_t *to, size_t room)
{
    LZ4F_dctx *lz4 = NULL;
    size_t done = 0;
    size_t used = 0;
    size_t more = LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION);

    while (!LZ4F_isError(more) && used < bytes) {
        size_t n = room - done;
        size_t taken = bytes - used;
        more = LZ4F_decompress(lz4, to + done, &n, from + used, &taken, NULL);
        if (n == 0 && taken == 0) {
            break; /* the output is longer than declared */
        }
        done += n;
        used += taken;
    }
    const bool ok = more == 0 && used == bytes && done == room;
    LZ4F_freeDecompressionContext(lz4);
    return ok;
}
#endif

static int unpack(int codec, const uint8_t *from, size_t bytes, uint8_t *to, size_t room,
                  struct mr_err *err)
{
    bool ok;

    if (codec == ARROW_ZSTD) {
        ok = ZSTD_decompress(to, room, from, bytes) == room;
    } else {
#ifdef MR_HAVE_LZ4
        ok = lz4_unpack(from, bytes, to, room);
#else
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "it is compressed with LZ4, which this build was made without: tools/setup "
                       "installs liblz4-dev");
#endif
    }
    return ok ? MR_OK : MR_FAIL(err, MR_E_INVALID, "a compressed buffer is damaged");
}

/* A length, -1 if the data is not compressed, and the data. */
static int buffer_unpack(struct arrow_batch *b, struct arrow_buffer *u, struct mr_err *err)
{
    uint8_t *packed = NULL;
    int64_t bytes;
    int rc;

    if (u->bytes < sizeof bytes) {
        return MR_FAIL(err, MR_E_INVALID, "a compressed buffer has %llu bytes",
                       (unsigned long long)u->bytes);
    }
    MR_TRY(body_read(b, u->at, sizeof bytes, &bytes, err));
    const uint64_t rest = u->bytes - sizeof bytes;
    if (bytes < -1) {
        rc = MR_FAIL(err, MR_E_INVALID, "a compressed buffer has a wrong length");
        goto out;
    }
    u->unpacked_bytes = bytes < 0 ? rest : (uint64_t)bytes;
    MR_TRY(hold(b, u->unpacked_bytes, &u->unpacked, err));
    if (bytes < 0) {
        MR_TRY(body_read(b, u->at + sizeof bytes, rest, u->unpacked, err));
        goto out;
    }
    packed = mr_try_alloc(rest + 1);
    if (!packed) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a compressed buffer");
        goto out;
    }
    MR_TRY(body_read(b, u->at + sizeof bytes, rest, packed, err));
    rc = unpack(b->codec, packed, rest, u->unpacked, u->unpacked_bytes, err);
out:
    mr_free(packed);
    if (rc < 0) {
        mr_freep(&u->unpacked);
    }
    return rc;
}

int arrow_fetch(struct arrow_batch *b, uint32_t buffer, uint64_t from, uint64_t bytes, void *to,
                struct mr_err *err)
{
    struct arrow_buffer *u = &b->buffers[buffer];

    if (b->codec >= 0 && u->bytes > 0 && !u->unpacked) {
        int rc = buffer_unpack(b, u, err);
        if (rc < 0) {
            return rc;
        }
    }
    const uint64_t size = b->codec >= 0 ? u->unpacked_bytes : u->bytes;
    if (from > size || bytes > size - from) {
        return MR_FAIL(err, MR_E_INVALID, "a buffer has %llu bytes, and its rows need more",
                       (unsigned long long)size);
    }
    if (u->unpacked) {
        memcpy(to, u->unpacked + from, bytes);
        return MR_OK;
    }
    return body_read(b, u->at + from, bytes, to, err);
}
