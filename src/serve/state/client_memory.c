/* Tensors in the memory of a client on the same host.
 *
 * Bytes are copied by pread and pwrite, once each way, never mapped: a client that writes during a call changes what it
 * sends, not what was checked, and a page that cannot be had is an error of the call instead of a signal. Each piece asks
 * for the descriptor anew, since the connection may have ended during a turn. */
#include "client_memory.h"

#include <unistd.h>

#include "state.h"
#include "tensor/tensor.h"

#define REGION      "descriptor"
#define PIECE_BYTES ((size_t)128 * 1024)

bool client_memory_is_there(const struct serve_infer *si)
{
    uint64_t bytes;

    return mr_call_passed_memory(si->call, &bytes) >= 0;
}

/* what: "input", "output". */
static int place_check(struct serve_infer *si, const char *what, mr_str name,
                       const struct mr_oip_shm *shm)
{
    struct mr_err *err = &si->infer.err;
    uint64_t bytes = 0;
    const bool is_there =
        si->infer.protocol == MR_INFER_REST && mr_call_passed_memory(si->call, &bytes) >= 0;

    if (!is_there && !si->loop->server->options.http.takes_memory) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "%s '%.*s' is in shared memory, which this server does not take "
                       "(--http-shared-memory)",
                       what, MR_STR_ARG(name));
    }
    if (!is_there) {
        return MR_FAIL(
            err, MR_E_UNSUPPORTED,
            "%s '%.*s' is in shared memory: no memfd of at most 1 GiB with F_SEAL_SHRINK "
            "and F_SEAL_GROW came on this connection, which must be REST over a socket "
            "file",
            what, MR_STR_ARG(name));
    }
    if (!mr_str_eq(shm->region, MR_STR(REGION))) {
        return MR_FAIL(err, MR_E_NOT_FOUND,
                       "Unable to find shared memory region: '%.*s'; the memory that came on this "
                       "connection is '" REGION "'",
                       MR_STR_ARG(mr_str_sub(shm->region, 0, 100)));
    }
    if (shm->offset > bytes || shm->byte_size > bytes - shm->offset) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s '%.*s' has %llu bytes at %llu of shared memory of %llu bytes", what,
                       MR_STR_ARG(name), (unsigned long long)shm->byte_size,
                       (unsigned long long)shm->offset, (unsigned long long)bytes);
    }
    return MR_OK;
}

static ssize_t piece_read(int fd, uint8_t *at, size_t n, uint64_t offset)
{
    return pread(fd, at, n, (off_t)offset);
}

static ssize_t piece_write(int fd, uint8_t *at, size_t n, uint64_t offset)
{
    return pwrite(fd, at, n, (off_t)offset);
}

/* MR_OK, MR_E_IO (not all could be moved), or MR_E_CANCELLED. */
static int move(const struct serve_infer *si, uint8_t *at, const struct mr_oip_shm *shm, size_t len,
                ssize_t (*piece)(int fd, uint8_t *at, size_t n, uint64_t offset))
{
    uint64_t bytes;

    for (size_t done = 0; done < len; done += PIECE_BYTES) {
        const size_t n = MR_MIN(PIECE_BYTES, len - done);
        const int fd = mr_call_passed_memory(si->call, &bytes);
        if (fd < 0 || piece(fd, at + done, n, shm->offset + done) != (ssize_t)n) {
            return MR_E_IO;
        }
        if (!mr_turn_spend(MR_TURN_STEP)) {
            return MR_E_CANCELLED;
        }
    }
    return MR_OK;
}

static int input_read(struct serve_infer *si, struct mr_oip_tensor *t)
{
    struct mr_err *err = &si->infer.err;
    struct mr_block *block = mr_block_new(MR_MAX(t->shm.byte_size, 1));

    if (!block || !mr_block_keep(block, si->infer.arena)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for input '%.*s', try later",
                       MR_STR_ARG(t->name));
    }
    int rc = move(si, block->data, &t->shm, (size_t)t->shm.byte_size, piece_read);
    if (rc < 0) {
        return MR_FAIL(err, rc == MR_E_IO ? MR_E_INVALID : rc,
                       "input '%.*s' cannot be read from shared memory", MR_STR_ARG(t->name));
    }
    t->tensor.data = block->data;
    t->tensor.bytes = t->shm.byte_size;
    t->block = block;
    t->shm = (struct mr_oip_shm){0};
    if (t->tensor.dtype == MR_DTYPE_BYTES && !mr_tensor_is_whole(&t->tensor)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "input '%.*s' in shared memory does not have as many elements as its shape",
                       MR_STR_ARG(t->name));
    }
    return MR_OK;
}

int client_memory_read(struct serve_infer *si)
{
    const uint64_t most = si->loop->server->options.http_max_input_bytes;
    struct mr_oip_request *q = &si->request;
    uint64_t left = most;
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && i < q->output_count; i++) {
        if (q->outputs[i].shm.region.ptr) {
            rc = place_check(si, "output", q->outputs[i].name, &q->outputs[i].shm);
        }
    }
    for (size_t i = 0; rc == MR_OK && i < q->input_count; i++) {
        struct mr_oip_tensor *t = &q->inputs[i];
        if (!t->shm.region.ptr) {
            continue;
        }
        MR_TRY(place_check(si, "input", t->name, &t->shm));
        if (t->shm.byte_size > left) {
            return MR_FAIL(&si->infer.err, MR_E_TOO_LARGE,
                           "the inputs in shared memory have more than %llu bytes. Use "
                           "--http-max-input-size to increase the limit.",
                           (unsigned long long)most);
        }
        left -= t->shm.byte_size;
        rc = input_read(si, t);
    }
out:
    return rc;
}

int client_memory_write(struct serve_infer *si, struct mr_oip_response *io)
{
    const struct mr_oip_request *q = &si->request;

    for (size_t i = 0; i < q->output_count; i++) {
        struct mr_oip_tensor *t = &io->outputs[i];
        struct mr_oip_shm shm = q->outputs[i].shm;
        if (!shm.region.ptr || t->tensor.bytes > shm.byte_size || !mr_tensor_is_whole(&t->tensor)) {
            continue;
        }
        int rc = move(si, (uint8_t *)(uintptr_t)t->tensor.data, &shm, (size_t)t->tensor.bytes,
                      piece_write);
        if (rc == MR_E_CANCELLED) {
            return MR_FAIL(&si->infer.err, rc, "the request was cancelled");
        }
        if (rc == MR_OK) {
            shm.byte_size = t->tensor.bytes;
            t->shm = shm;
        }
    }
    return MR_OK;
}
