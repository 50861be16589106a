/* The worker counts what it has read. A count that cannot be frees its own mail early, and does nothing else. */
#include "shm/mail.h"

#include "plane_priv.h"

static void release_to(struct mail *m, uint32_t to)
{
    while (m->released != to) {
        mr_block_unref(&m->blocks[m->released++ % SHM_MAIL_MAX]);
    }
}

uint32_t mr_shm_mail_post(struct mr_shm *p, uint32_t worker, struct mr_block *block)
{
    struct mail *m = &p->mail[worker];
    /* acquire: the worker has copied what it has read */
    const uint32_t read =
        atomic_load_explicit(&p->map.control->workers[worker].mail_read, memory_order_acquire);
    uint64_t offset = 0;
    int fd;

    if (!m->blocks) {
        m->blocks = MR_NEW_ARRAY(struct mr_block *, SHM_MAIL_MAX);
    }
    release_to(m, read - m->released <= m->tail - m->released ? read : m->tail);
    if (m->tail - m->released == SHM_MAIL_MAX) {
        release_to(m, m->released + 1);
    }
    mr_block_in_file(block, block->data, &fd, &offset);
    m->blocks[m->tail % SHM_MAIL_MAX] = block;
    atomic_store_explicit(shm_mail_cell(&p->map, worker, m->tail), offset, memory_order_relaxed);
    /* seq_cst: the message comes before, and the look at a thread that waits after */
    atomic_store(&p->map.directory->mail_tails[worker], ++m->tail);
    return m->tail;
}

bool mr_shm_mail_is_read(const struct mr_shm *p, uint32_t worker, uint32_t number)
{
    const uint32_t read =
        atomic_load_explicit(&p->map.control->workers[worker].mail_read, memory_order_relaxed);

    return (int32_t)(read - number) >= 0;
}

void mr_shm_mail_ring(struct mr_shm *p, uint32_t worker)
{
    if (atomic_load(&p->map.control->workers[worker].mail_waits)) {
        shm_futex_wake(&p->map.directory->mail_tails[worker], (int)SHM_WORKERS_MAX);
    }
}

void mr_shm_mail_begin(struct mr_shm *p, uint32_t worker)
{
    struct mail *m = &p->mail[worker];

    release_to(m, m->tail);
}
