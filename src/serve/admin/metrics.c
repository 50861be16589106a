/* GET /metrics: Prometheus text, packed with gzip for clients that accept it.
 *
 * With ten thousand models that is megabytes, which must not hold up requests. The administration thread makes the text in
 * chunks (metrics_models.c, metrics_process.c), in slices that others may come between, and packs it. The network thread
 * gets references and hands on a part per round, so that neither copying nor a fast reader holds it. Chunks are not
 * taken from the budget of requests: metrics are needed most when that is used up. */
#include "metrics.h"

#include <sched.h>
#include <zlib.h>

#include "admin.h"
#include "base/pool.h"
#include "net/compress.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

#define PACK_STEP ((size_t)16 << 10) /* of text, between two looks whether others want the CPU */
/* What one round of the loop hands on. */
#define SEND_MOST    ((size_t)256 << 10)
#define WHOLE_PIECES 64
#define GZIP_BITS    (15 + 16)

struct metrics_job {
    struct admin_job job;
    struct mr_server *server;
    struct mr_call *call;
    bool is_packed; /* the client takes gzip */
    bool is_whole;
    metrics_chunks chunks;
    size_t sent; /* chunks */
    struct mr_timer timer;
};

void metrics_head(struct mr_buf *b, const char *name, const char *type, const char *help)
{
    mr_buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_seal(struct mr_buf *b, size_t at_least, metrics_chunks *out)
{
    size_t max = b->max;

    if (b->len < at_least) {
        return;
    }
    MR_VEC_PUSH(out, ((struct metrics_chunk){b->ptr, b->len}));
    mr_buf_init(b, max);
}

/* ---- administration thread ---- */

/* Deflate one step of text; the last one is empty. False without memory. */
static bool pack_step(z_stream *z, const char *text, size_t len, struct mr_buf *b,
                      metrics_chunks *out)
{
    int rc = Z_OK;

    z->next_in = (unsigned char *)(uintptr_t)text;
    z->avail_in = (unsigned)len;
    do {
        char *room = mr_buf_reserve(b, METRICS_CHUNK - b->len);
        if (!room) {
            return false;
        }
        z->next_out = (unsigned char *)room;
        z->avail_out = (unsigned)(METRICS_CHUNK - b->len);
        rc = deflate(z, len ? Z_NO_FLUSH : Z_FINISH);
        b->len = METRICS_CHUNK - z->avail_out;
        metrics_seal(b, METRICS_CHUNK, out);
    } while (rc == Z_OK && (z->avail_in || !len));
    return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR;
}

static void chunks_free(metrics_chunks *chunks)
{
    for (size_t i = 0; i < chunks->len; i++) {
        mr_free(chunks->at[i].ptr);
    }
    MR_VEC_FINI(chunks);
}

static bool pack(metrics_chunks *io)
{
    z_stream z = {0};
    metrics_chunks packed = {0};
    struct mr_buf b;
    bool ok = deflateInit2(&z, 1, Z_DEFLATED, GZIP_BITS, 8, Z_DEFAULT_STRATEGY) == Z_OK;

    mr_buf_init(&b, METRICS_CHUNK * 2);
    for (size_t i = 0; i < io->len && ok; i++) {
        struct metrics_chunk *c = &io->at[i];
        for (size_t at = 0; at < c->len && ok; at += PACK_STEP) {
            ok = pack_step(&z, c->ptr + at, MR_MIN(c->len - at, PACK_STEP), &b, &packed);
            sched_yield();
        }
        mr_freep(&c->ptr);
    }
    ok = ok && pack_step(&z, NULL, 0, &b, &packed);
    metrics_seal(&b, 1, &packed);
    mr_buf_fini(&b);
    deflateEnd(&z);
    chunks_free(io);
    *io = packed;
    return ok;
}

static void metrics_run(struct admin_job *job)
{
    struct metrics_job *m = MR_CONTAINER_OF(job, struct metrics_job, job);
    uint64_t states[MR_VERSION_STATES] = {0};
    struct mr_buf b;

    m->is_whole = metrics_models(m->server, &m->chunks, states);
    mr_buf_init(&b, METRICS_MOST);
    metrics_process(m->server, states, &b);
    m->is_whole &= !b.failed;
    metrics_seal(&b, 1, &m->chunks);
    mr_buf_fini(&b);
    if (m->is_whole && m->is_packed) {
        m->is_whole = pack(&m->chunks);
    }
}

/* ---- network thread ---- */

static void chunk_release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

/* The chunk becomes the piece's. False without memory. */
static bool chunk_take(struct metrics_job *m, struct mr_piece *out)
{
    struct metrics_chunk *c = &m->chunks.at[m->sent];

    *out = (struct mr_piece){c->ptr, c->len, mr_block_wrap(c->ptr, c->len, chunk_release, NULL)};
    if (!out->block) {
        return false;
    }
    c->ptr = NULL;
    m->sent++;
    return true;
}

static void job_free(struct metrics_job *m)
{
    chunks_free(&m->chunks);
    mr_free(m);
}

static void on_timer(struct mr_timer *t);

/* When the client has gone, what is sent goes nowhere, and this is soon over. */
static void send_some(struct metrics_job *m)
{
    size_t bytes = 0;

    while (m->sent < m->chunks.len && bytes < SEND_MOST) {
        struct mr_piece piece;
        if (!chunk_take(m, &piece)) {
            mr_call_abort(m->call, 11); /* ENHANCE_YOUR_CALM: a part must not look like the whole */
            job_free(m);
            return;
        }
        bytes += piece.len;
        mr_call_write(m->call, &piece, 1);
    }
    if (m->sent == m->chunks.len) {
        mr_call_end(m->call, NULL, 0);
        job_free(m);
        return;
    }
    mr_timer_start(m->call->loop, &m->timer, 0, 0, on_timer);
}

static void on_timer(struct mr_timer *t)
{
    send_some(MR_CONTAINER_OF(t, struct metrics_job, timer));
}

/* Few models: one answer with its length. False: it is too long for that. */
static bool send_whole(struct metrics_job *m, const struct mr_header *headers, size_t count)
{
    struct mr_piece pieces[WHOLE_PIECES];
    struct mr_reply reply = {
        .status = 200, .headers = headers, .header_count = count, .pieces = pieces};
    size_t bytes = 0;

    for (size_t i = 0; i < m->chunks.len; i++) {
        bytes += m->chunks.at[i].len;
    }
    if (m->chunks.len > WHOLE_PIECES || bytes > SEND_MOST) {
        return false;
    }
    while (m->sent < m->chunks.len && chunk_take(m, &pieces[reply.piece_count])) {
        reply.piece_count++;
    }
    if (m->sent < m->chunks.len) {
        for (size_t i = 0; i < reply.piece_count; i++) {
            mr_block_unref(&pieces[i].block);
        }
        reply_error_text(m->call, MR_E_NOMEM, "no memory for the metrics");
    } else {
        mr_call_reply(m->call, &reply);
    }
    job_free(m);
    return true;
}

static void metrics_done(struct admin_job *job)
{
    static const struct mr_header headers[] = {
        {MR_STR_INIT("content-type"), MR_STR_INIT("text/plain; charset=utf-8")},
        {MR_STR_INIT("content-encoding"), MR_STR_INIT("gzip")},
    };
    struct metrics_job *m = MR_CONTAINER_OF(job, struct metrics_job, job);

    if (!m->is_whole) {
        reply_error_text(m->call, MR_E_EXHAUSTED, "the metrics are larger than the server allows");
        job_free(m);
        return;
    }
    if (send_whole(m, headers, m->is_packed ? 2 : 1)) {
        return;
    }
    mr_call_begin(m->call, 200, headers, m->is_packed ? 2 : 1);
    send_some(m);
}

void metrics_rest(struct mr_server *s, struct mr_call *call)
{
    mr_str accept = mr_call_header(call, "accept-encoding");
    struct metrics_job *m;

    if (!mr_str_eq_c(call->path, "/metrics")) {
        reply_status_text(call, 404, "Not Found");
        return;
    }
    if (!mr_str_eq_c(call->method, "GET") && !call->head_only) {
        reply_method(call, MR_STR("GET, HEAD"), MR_STR("{\"error\":\"Method Not Allowed\"}"));
        return;
    }
    m = MR_NEW(struct metrics_job);
    m->server = s;
    m->call = call;
    m->is_packed = accept.ptr && mr_coding_accept(accept) == MR_CODING_GZIP;
    m->job.run = metrics_run;
    m->job.done = metrics_done;
    admin_submit(s, &m->job);
}
