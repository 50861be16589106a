/* Is there memory for a version? Asked before it is loaded, so that a load that cannot fit is refused with
 * figures instead of taking the machine down.
 *
 * What a version needs is its files times what memory and files of this model's last load had to do with each
 * other. If those files were small, it is no more than the sum of its files, a margin and the memory of that load, as most of what a
 * small model takes does not grow with its files. Without an earlier load it is its files and a margin. What there is, is the least of what the machine
 * has available, what the memory limits of the cgroup (version 2) and its parents leave, and what the option for
 * it leaves. Loads that go on have their need set aside, as their memory shows only later.
 *
 * An estimate: a backend may use more. Thread: loader. */
#include "admit.h"

#include <stdio.h>

#include "base/machine.h"
#include "load_history.h"

#define MARGIN_BYTES (UINT64_C(4) << 20)
#define FILE_BYTES   8192
#define PATH_BYTES   1056

/* The least of the limits that were looked at. */
struct room {
    uint64_t available;
    uint64_t limit;
    const char *what; /* NULL = none is known */
};

static void room_less(struct room *r, uint64_t available, uint64_t limit, const char *what)
{
    if (!r->what || available < r->available) {
        *r = (struct room){available, limit, what};
    }
}

/* ---- what there is ---- */

/* "name 123 kB" and "name: 123 kB" of a file of such lines; 0 = not there. */
static uint64_t line_value(mr_str text, mr_str name)
{
    mr_str line;
    mr_str word;
    uint64_t value = 0;

    while (mr_str_split(&text, '\n', &line)) {
        if (!mr_str_starts(line, name)) {
            continue;
        }
        mr_str rest = mr_str_trim(mr_str_sub(line, name.len, line.len));
        bool is_number = mr_str_split(&rest, ' ', &word) && mr_str_to_u64(word, &value);
        return is_number ? value : 0;
    }
    return 0;
}

static void machine_room(struct room *r)
{
    char text[FILE_BYTES];
    mr_str info = mr_machine_read("/proc/meminfo", text, sizeof text);
    uint64_t total = line_value(info, MR_STR("MemTotal:")) << 10;

    if (total > 0) {
        room_less(r, line_value(info, MR_STR("MemAvailable:")) << 10, total, "the machine");
    }
}

/* One cgroup: its limit less what it uses, less what the kernel would give up for it: cached files. */
static void cgroup_room(void *ctx, const char *dir)
{
    char path[PATH_BYTES];
    char text[FILE_BYTES];
    uint64_t limit;
    uint64_t used;

    if (!mr_cgroup_number(dir, "memory.max", &limit) ||
        !mr_cgroup_number(dir, "memory.current", &used)) {
        return;
    }
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    uint64_t cached =
        line_value(mr_machine_read(path, text, sizeof text), MR_STR("inactive_file "));
    used -= MR_MIN(cached, used);
    room_less(ctx, limit > used ? limit - used : 0, limit, "the memory limit of the cgroup");
}

/* ---- what is needed (lock held) ---- */

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t with_margin(uint64_t file_bytes)
{
    return sum_of(file_bytes, file_bytes / 4 + MARGIN_BYTES);
}

/* Made, and perhaps not published yet: what is still being loaded is set aside. */
static bool is_there(const struct mr_load_entry *l)
{
    return l->state == MR_VERSION_WARMING || l->state == MR_VERSION_READY ||
           l->state == MR_VERSION_DRAINING;
}

/* The memory that a version needs, by the memory per byte of files of the last load that the backend reported. */
static uint64_t need_of(const struct mr_model *model, uint64_t file_bytes)
{
    for (size_t i = model->load_history.len; i-- > 0;) {
        const struct mr_load_entry *l = model->load_history.at[i];
        if (l->model_bytes > 0 && l->file_bytes > 0) {
            double factor = (double)l->model_bytes / (double)l->file_bytes;
            uint64_t grown = (uint64_t)MR_MIN((double)file_bytes * factor, 1e18);
            return l->file_bytes >= MARGIN_BYTES
                       ? grown
                       : MR_MIN(grown, sum_of(with_margin(file_bytes), l->model_bytes));
        }
    }
    return with_margin(file_bytes);
}

/* All versions that are in memory now. */
static uint64_t held_bytes(const struct mr_models *m)
{
    struct mr_map_slot *slot;
    uint64_t sum = 0;

    for (size_t i = 0; (slot = mr_map_next(&m->models, &i));) {
        const struct mr_model *model = slot->value;
        for (size_t k = 0; k < model->load_history.len; k++) {
            const struct mr_load_entry *l = model->load_history.at[k];
            uint64_t bytes = l->model_bytes > 0 ? l->model_bytes : with_margin(l->file_bytes);
            sum += is_there(l) ? bytes : 0;
        }
    }
    return sum;
}

/* ---- the decision ---- */

static int refuse(const struct room *r, uint64_t file_bytes, uint64_t need, struct mr_err *err)
{
    const double mib = 1048576.0;

    return MR_FAIL(
        err, MR_E_EXHAUSTED,
        "not enough memory: it needs about %.1f MiB (files of %.1f MiB), %.1f MiB of %.1f MiB "
        "are available by %s",
        (double)need / mib, (double)file_bytes / mib, (double)r->available / mib,
        (double)r->limit / mib, r->what);
}

int mr_admit(struct mr_models *m, const struct mr_model *model, uint64_t file_bytes,
             uint64_t *out_reserved, struct mr_err *err)
{
    struct room r = {0};
    int rc = MR_OK;

    if (m->o.memory_check) {
        machine_room(&r);
        mr_machine_cgroups(cgroup_room, &r);
    }
    pthread_mutex_lock(&m->lock);
    uint64_t need = need_of(model, file_bytes);
    if (m->o.memory_budget > 0) {
        uint64_t held = held_bytes(m);
        room_less(&r, m->o.memory_budget > held ? m->o.memory_budget - held : 0, m->o.memory_budget,
                  "--model-memory-budget");
    }
    r.available -= MR_MIN(r.available, m->reserved_bytes);
    if (r.what && need > r.available) {
        rc = refuse(&r, file_bytes, need, err);
    } else {
        m->reserved_bytes += need;
        *out_reserved = need;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mr_admit_end(struct mr_models *m, uint64_t reserved)
{
    pthread_mutex_lock(&m->lock);
    m->reserved_bytes -= reserved;
    pthread_mutex_unlock(&m->lock);
}
