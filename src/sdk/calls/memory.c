/* A server may write to a place until its answer has come. Where that is not waited for, the memory as a whole is lost: another one,
 * with a descriptor of its own, takes its place, and no late write reaches that. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "millrace/client.h"
#include "tensor/tensor.h"

#define REGION      MR_STR("descriptor")
#define MEMORY_MOST ((uint64_t)1 << 30) /* of servers */

int mr_sdk_memory_new(struct mr_sdk_memory **out, uint64_t bytes, struct mr_err *err)
{
    static _Atomic uint64_t ids;
    void *base = MAP_FAILED;

    if (bytes < 1 || bytes > MEMORY_MOST) {
        return MR_FAIL(err, MR_E_INVALID, "%llu bytes of memory, possible are 1 to %llu",
                       (unsigned long long)bytes, (unsigned long long)MEMORY_MOST);
    }
    const int fd = memfd_create("millrace-client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
        base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (base == MAP_FAILED) {
        const int why = errno;
        if (fd >= 0) {
            close(fd);
        }
        return MR_FAIL(err, MR_E_EXHAUSTED, "%llu bytes of memory: %s", (unsigned long long)bytes,
                       strerror(why));
    }
    struct mr_sdk_memory *m = MR_NEW(struct mr_sdk_memory);
    m->refs = 1;
    m->net = (struct mr_client_memory){fd, atomic_fetch_add(&ids, 1) + 1};
    m->base = base;
    m->bytes = bytes;
    *out = m;
    return MR_OK;
}

void *mr_sdk_memory_data(const struct mr_sdk_memory *m)
{
    return m->base;
}

uint32_t mr_sdk_memory_is_lost(const struct mr_sdk_memory *m)
{
    return atomic_load(&m->is_lost);
}

void memory_unref(struct mr_sdk_memory **pm)
{
    struct mr_sdk_memory *m = *pm;

    *pm = NULL;
    if (m && atomic_fetch_sub(&m->refs, 1) == 1) {
        munmap(m->base, (size_t)m->bytes);
        close(m->net.fd);
        mr_free(m);
    }
}

void mr_sdk_memory_free(struct mr_sdk_memory **m)
{
    memory_unref(m);
}

bool memory_has(const struct mr_sdk_memory *m, const void *data, uint64_t bytes,
                uint64_t *out_offset)
{
    const uintptr_t at = (uintptr_t)data, base = (uintptr_t)m->base;

    if (at < base || at - base > m->bytes || bytes > m->bytes - (at - base)) {
        return false;
    }
    *out_offset = at - base;
    return true;
}

void memory_name(struct call *c, bool is_shared, bool has_places)
{
    struct mr_oip_request *r = &c->request;
    const bool is_binary = !c->cluster->policy.is_json;
    struct mr_oip_shm shm = {.region = REGION};

    for (size_t i = 0; i < r->input_count; i++) {
        const struct mr_tensor *t = &r->inputs[i].tensor;
        shm.byte_size = t->bytes;
        r->inputs[i].shm = is_shared && memory_has(c->memory, t->data, t->bytes, &shm.offset)
                               ? shm
                               : (struct mr_oip_shm){0};
    }
    for (size_t i = 0; c->places && i < r->output_count; i++) {
        const struct memory_place *p = &c->places[i];
        r->outputs[i].shm = has_places && p->is_set
                                ? (struct mr_oip_shm){REGION, p->offset, p->bytes}
                                : (struct mr_oip_shm){0};
    }
    /* For outputs that do not fit in their places, which cannot say it themselves. */
    r->binary_data_output = is_binary && (r->output_count == 0 || has_places);
}

static const struct memory_place *place_of(const struct call *c, mr_str name)
{
    for (size_t i = 0; c->places && i < c->request.output_count; i++) {
        if (mr_str_eq(c->request.outputs[i].name, name)) {
            return c->places[i].is_set ? &c->places[i] : NULL;
        }
    }
    return NULL;
}

int memory_resolve(struct mr_oip_response *r, const struct call *placed, struct mr_err *err)
{
    for (size_t i = 0; i < r->output_count; i++) {
        struct mr_oip_tensor *t = &r->outputs[i];
        if (!t->shm.region.ptr) {
            continue;
        }
        const struct memory_place *p = placed ? place_of(placed, t->name) : NULL;
        if (!p || t->shm.offset != p->offset || t->shm.byte_size > p->bytes) {
            return MR_FAIL(err, MR_E_INVALID, "output '%.*s' is said to be in shared memory",
                           MR_STR_ARG(t->name));
        }
        t->tensor.data = placed->memory->base + p->offset;
        t->tensor.bytes = t->shm.byte_size;
        if (!mr_tensor_is_whole(&t->tensor)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "output '%.*s' in shared memory does not have the bytes of its shape",
                           MR_STR_ARG(t->name));
        }
    }
    return MR_OK;
}
