/* Messages of a stream that is read once, from a pipe.
 *
 * A message comes in pieces: the prefix, its length, the metadata, the body. A wait may end between any two bytes; an
 * incomplete message is kept and continued. The magic of a file is skipped, as its messages follow like those of a
 * stream. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "arrow.h"
#include "base/mem.h"
#include "table/io/io.h"
#include "table/rows/formats.h"

enum phase { PIPE_ANNOUNCED, PIPE_LENGTH, PIPE_METADATA, PIPE_BODY, PIPE_WHOLE, PIPE_OVER };

struct arrow_pipe {
    struct mr_input in; /* for waiting */
    mr_str first;       /* bytes read before and not consumed */
    uint64_t most;      /* limit of a message */
    enum phase phase;
    int32_t word; /* the prefix, or the length */
    uint8_t *metadata;
    uint64_t metadata_bytes;
    uint8_t *body;
    uint64_t have; /* of the current phase */
    bool is_begun; /* at least one byte was read */
    struct arrow_message message;
};

void arrow_pipe_new(struct arrow_pipe **out, const struct mr_source_setup *setup)
{
    const struct mr_source_stream *stream = setup->options->stream;
    struct arrow_pipe *p = MR_NEW(struct arrow_pipe);

    p->in = (struct mr_input){
        .file = setup->files, .fd = stream->fd, .is_stream = true, .cancel_fd = setup->cancel_fd};
    p->first = stream->first;
    p->most = setup->options->memory_bytes;
    *out = p;
}

void arrow_pipe_free(struct arrow_pipe **pipe)
{
    struct arrow_pipe *p = *pipe;

    if (p) {
        mr_free(p->metadata);
        mr_free(p->body);
        mr_freep(pipe);
    }
}

uint8_t *arrow_pipe_body(struct arrow_pipe *p)
{
    uint8_t *body = p->body;

    p->body = NULL;
    return body;
}

/* ---- bytes ---- */

/* Reads some bytes of `want`; *out_n 0: the end. *out_is_idle: none yet. */
static int some_read(struct arrow_pipe *p, uint8_t *to, uint64_t want, int64_t until_ns,
                     uint64_t *out_n, bool *out_is_idle, struct mr_err *err)
{
    *out_is_idle = false;
    if (p->first.len > 0) {
        *out_n = MR_MIN(want, (uint64_t)p->first.len);
        memcpy(to, p->first.ptr, *out_n);
        p->first = mr_str_n(p->first.ptr + *out_n, p->first.len - *out_n);
        return MR_OK;
    }
    for (;;) {
        bool is_there;
        int rc = mr_input_wait(&p->in, until_ns, &is_there, err);
        if (rc < 0 || !is_there) {
            *out_is_idle = true;
            return rc;
        }
        const ssize_t n = read(p->in.fd, to, MR_MIN(want, (uint64_t)1 << 30));
        if (n >= 0) {
            *out_n = (uint64_t)n;
            return MR_OK;
        }
        if (errno != EINTR && errno != EAGAIN) {
            return MR_FAIL(err, MR_E_IO, "cannot read '%s': %s", p->in.file->path, strerror(errno));
        }
    }
}

/* Reads the data of the phase. *out_is_idle: incomplete so far; *out_is_end: the stream has ended. */
static int fill(struct arrow_pipe *p, void *to, uint64_t want, int64_t until_ns, bool *out_is_idle,
                bool *out_is_end, struct mr_err *err)
{
    *out_is_idle = *out_is_end = false;
    while (p->have < want) {
        uint64_t n = 0;
        int rc =
            some_read(p, (uint8_t *)to + p->have, want - p->have, until_ns, &n, out_is_idle, err);
        if (rc < 0 || *out_is_idle) {
            return rc;
        }
        p->is_begun |= n > 0;
        if (n == 0 && p->have == 0 && p->phase == PIPE_ANNOUNCED && p->is_begun) {
            *out_is_end = true;
            return MR_OK;
        }
        if (n == 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           p->is_begun
                               ? "'%s' is cut off within a message of Arrow"
                               : "'%s' is empty, and a stream of Arrow has a schema at least",
                           p->in.file->path);
        }
        p->have += n;
    }
    p->have = 0;
    return MR_OK;
}

/* ---- messages ---- */

static int room_make(struct arrow_pipe *p, uint64_t bytes, uint8_t **out, struct mr_err *err)
{
    mr_free(*out);
    *out = bytes <= p->most ? mr_try_alloc(MR_MAX(bytes, UINT64_C(1))) : NULL;
    return *out ? MR_OK
                : MR_FAIL(
                      err, MR_E_EXHAUSTED,
                      "'%s': a batch of rows has %llu bytes, and %llu may be: write smaller ones",
                      p->in.file->path, (unsigned long long)bytes, (unsigned long long)p->most);
}

/* The length is complete. */
static int length_take(struct arrow_pipe *p, struct mr_err *err)
{
    if (p->word == 0) {
        p->phase = PIPE_OVER;
        return MR_OK;
    }
    if (p->word < 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%s': a message has a negative length",
                       p->in.file->path);
    }
    p->phase = PIPE_METADATA;
    p->metadata_bytes = (uint64_t)p->word;
    return room_make(p, p->metadata_bytes, &p->metadata, err);
}

static int word_take(struct arrow_pipe *p, struct mr_err *err)
{
    if (p->phase == PIPE_ANNOUNCED && p->word == -1) {
        p->phase = PIPE_LENGTH;
        return MR_OK;
    }
    if (p->phase == PIPE_ANNOUNCED && memcmp(&p->word, ARROW_MAGIC, 4) == 0) {
        p->phase = PIPE_LENGTH; /* the rest of the magic takes the place of a length */
        return MR_OK;
    }
    if (p->phase == PIPE_LENGTH && memcmp(&p->word, &ARROW_MAGIC[4], 4) == 0) {
        p->phase = PIPE_ANNOUNCED;
        return MR_OK;
    }
    return length_take(p, err);
}

static int metadata_take(struct arrow_pipe *p, struct mr_err *err)
{
    int rc = arrow_message_parse(&p->message, (mr_bytes){p->metadata, p->metadata_bytes}, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "'%s'", p->in.file->path);
    }
    p->phase = PIPE_BODY;
    return room_make(p, p->message.body_bytes, &p->body, err);
}

/* A step from phase to phase. */
static int step(struct arrow_pipe *p, int64_t until_ns, bool *out_is_idle, struct mr_err *err)
{
    const bool is_word = p->phase == PIPE_ANNOUNCED || p->phase == PIPE_LENGTH;
    void *to = is_word                     ? (void *)&p->word
               : p->phase == PIPE_METADATA ? (void *)p->metadata
                                           : (void *)p->body;
    const uint64_t want = is_word                     ? sizeof p->word
                          : p->phase == PIPE_METADATA ? p->metadata_bytes
                                                      : p->message.body_bytes;
    bool is_end;
    int rc = fill(p, to, want, until_ns, out_is_idle, &is_end, err);

    if (rc < 0 || *out_is_idle) {
        return rc;
    }
    if (is_end) {
        p->phase = PIPE_OVER;
        return MR_OK;
    }
    if (is_word) {
        return word_take(p, err);
    }
    if (p->phase == PIPE_METADATA) {
        return metadata_take(p, err);
    }
    p->phase = PIPE_WHOLE;
    return MR_OK;
}

int arrow_pipe_next(struct arrow_pipe *p, int64_t until_ns, enum arrow_pipe_state *out_state,
                    const struct arrow_message **out, struct mr_err *err)
{
    bool is_idle = false;

    p->phase = p->phase == PIPE_WHOLE ? PIPE_ANNOUNCED : p->phase;
    while (!is_idle && p->phase < PIPE_WHOLE) {
        int rc = step(p, until_ns, &is_idle, err);
        if (rc < 0) {
            return rc;
        }
    }
    *out = &p->message;
    *out_state = is_idle                 ? ARROW_PIPE_IDLE
                 : p->phase == PIPE_OVER ? ARROW_PIPE_END
                                         : ARROW_PIPE_MESSAGE;
    return MR_OK;
}
