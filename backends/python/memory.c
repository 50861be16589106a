#include "memory.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COPY_BYTES ((size_t)64 << 10) /* up to this size a copy costs less than pages */
#define SPARE_MAX  8

/* Pages of the host, mapped a second time. */
struct pages {
    uintptr_t from; /* the host's address */
    void *map;
    size_t bytes;
};

struct memory {
    PyObject_HEAD struct pages pages;
    size_t offset; /* of the tensor, in the pages */
    size_t bytes;
    int is_private;
};

static PyObject *type;
static struct pages
    spare[SPARE_MAX]; /* mapped, and not in use: the host tends to use the same addresses again */
static unsigned next_spare;

static int pages_map(uintptr_t from, size_t bytes, struct pages *out)
{
    for (unsigned i = 0; i < SPARE_MAX; i++) {
        if (spare[i].from == from && spare[i].bytes == bytes) {
            *out = spare[i];
            spare[i] = (struct pages){0};
            return 0;
        }
    }
    /* Of a shared mapping, an old size of 0 asks for a second one of the same pages. */
    void *map = mremap((void *)from, 0, bytes, MREMAP_MAYMOVE); // NOLINT(performance-no-int-to-ptr)
    *out = (struct pages){from, map, bytes};
    return map == MAP_FAILED ? -1 : 0;
}

static void pages_spare(const struct pages *p)
{
    struct pages *at = &spare[next_spare++ % SPARE_MAX];

    if (at->map) {
        munmap(at->map, at->bytes);
    }
    *at = *p;
}

/* Puts copies of the pages in their place. */
static int pages_detach(const struct pages *p)
{
    void *copy = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED) {
        return -1;
    }
    memcpy(copy, p->map, p->bytes);
    if (mprotect(copy, p->bytes, PROT_READ) < 0 ||
        mremap(copy, p->bytes, p->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p->map) == MAP_FAILED) {
        munmap(copy, p->bytes);
        return -1;
    }
    return 0;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *m = (struct memory *)self;

    return PyBuffer_FillInfo(view, self, (char *)m->pages.map + m->offset, (Py_ssize_t)m->bytes, 1,
                             flags);
}

static void dealloc(PyObject *self)
{
    struct memory *m = (struct memory *)self;
    PyTypeObject *t = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(t, Py_tp_free);

    if (m->is_private) {
        munmap(m->pages.map, m->pages.bytes);
    } else if (m->pages.map) {
        pages_spare(&m->pages);
    }
    release(self);
    Py_DECREF(t);
}

int memory_init(void)
{
    static PyType_Slot slots[] = {
        {Py_bf_getbuffer, (void *)get_buffer}, {Py_tp_dealloc, (void *)dealloc}, {0, NULL}};
    static PyType_Spec spec = {"millrace.Memory", sizeof(struct memory), 0, Py_TPFLAGS_DEFAULT,
                               slots};

    if (!type) {
        type = PyType_FromSpec(&spec);
    }
    return type ? 0 : -1;
}

PyObject *memory_of(const struct mr_tensor *t, PyObject *kept)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)t->data;
    const uintptr_t from = at / page * page;
    const size_t bytes = (size_t)((at + t->bytes + page - 1) / page * page - from);
    struct pages pages;

    if (t->bytes <= COPY_BYTES || pages_map(from, bytes, &pages) < 0) {
        return PyBytes_FromStringAndSize(t->data, (Py_ssize_t)t->bytes);
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    struct memory *m = (struct memory *)alloc((PyTypeObject *)type, 0);
    if (!m) {
        pages_spare(&pages);
        return NULL;
    }
    m->pages = pages;
    m->offset = at - from;
    m->bytes = (size_t)t->bytes;
    if (PyList_Append(kept, (PyObject *)m) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return (PyObject *)m;
}

int memory_end(PyObject *kept)
{
    const Py_ssize_t count = PyList_Size(kept);

    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *o = PyList_GetItem(kept, i);
        struct memory *m = (struct memory *)o;
        if (Py_REFCNT(o) > 1 && !m->is_private) {
            if (pages_detach(&m->pages) < 0) {
                PyErr_NoMemory();
                return -1;
            }
            m->is_private = 1;
        }
    }
    return PyList_SetSlice(kept, 0, count, NULL);
}
