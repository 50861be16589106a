/* A writer's text, buffered in a quarter of a megabyte. */
#include "base/mem.h"
#include "io.h"
#include "table/rows/formats.h"

#define HELD ((size_t)256 << 10)

int mr_out_init(struct mr_out *o, int fd, const struct mr_writer_options *options,
                struct mr_err *err)
{
    *o = (struct mr_out){.fd = fd, .no_room = options->on_no_room};
    mr_buf_init(&o->text, SIZE_MAX / 2);
    return mr_packer_new(&o->packer, fd, options, err);
}

void mr_out_fini(struct mr_out *o)
{
    mr_buf_fini(&o->text);
    mr_packer_free(&o->packer);
}

static int out_flush(struct mr_out *o, bool is_last, struct mr_err *err)
{
    if (o->text.failed) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to write a row");
    }
    const mr_str text = mr_buf_view(&o->text);
    int rc = o->packer ? mr_packer_write(o->packer, (mr_bytes){(const uint8_t *)text.ptr, text.len},
                                         is_last, err)
                       : mr_fd_writev(o->fd, &(struct iovec){(void *)(uintptr_t)text.ptr, text.len},
                                      1, &o->no_room, err);
    if (rc == MR_OK) {
        o->written = o->packer ? mr_packer_written(o->packer) : o->written + text.len;
        mr_buf_reset(&o->text);
    }
    return rc;
}

int mr_out_row(struct mr_out *o, struct mr_err *err)
{
    return o->text.len >= HELD || o->text.failed ? out_flush(o, false, err) : MR_OK;
}

int mr_out_flush(struct mr_out *o, struct mr_err *err)
{
    return out_flush(o, false, err);
}

int mr_out_finish(struct mr_out *o, struct mr_err *err)
{
    return out_flush(o, true, err);
}

uint64_t mr_out_bytes(const struct mr_out *o)
{
    return o->written + o->text.len;
}
