/* Reads /proc on the client's side, without help from the server. */
#include "perf_counters.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/machine.h"

/* The next word of a line of numbers. */
static bool next_number(mr_str *rest, uint64_t *out)
{
    mr_str word;

    do {
        if (!mr_str_split(rest, ' ', &word)) {
            return false;
        }
    } while (word.len == 0);
    return mr_str_to_u64(mr_str_trim(word), out);
}

/* The name is in parentheses and may contain any character; fields are counted from the one after it, number 3. */
bool perf_stat_parse(mr_str text, struct perf_thread *out)
{
    ptrdiff_t open = mr_str_find(text, '(');
    ptrdiff_t close = -1;
    mr_str word;

    for (size_t i = text.len; i-- > 0 && close < 0;) {
        close = text.ptr[i] == ')' ? (ptrdiff_t)i : -1;
    }
    if (open < 0 || close < open) {
        return false;
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)(close - open - 1), text.ptr + open + 1);
    mr_str rest = mr_str_trim(mr_str_sub(text, (size_t)close + 1, text.len));
    bool is_whole = false;
    for (int field = 3; field <= 22 && mr_str_split(&rest, ' ', &word); field++) {
        uint64_t *to = field == 10   ? &out->minor_faults
                       : field == 12 ? &out->major_faults
                       : field == 22 ? &out->born
                                     : NULL;
        if (to && !mr_str_to_u64(mr_str_trim(word), to)) {
            return false;
        }
        is_whole = field == 22;
    }
    return is_whole;
}

void perf_status_parse(mr_str text, struct perf_thread *out)
{
    mr_str line;

    while (mr_str_split(&text, '\n', &line)) {
        ptrdiff_t colon = mr_str_find(line, ':');
        mr_str key = mr_str_sub(line, 0, colon < 0 ? 0 : (size_t)colon);
        uint64_t *to = mr_str_eq_c(key, "voluntary_ctxt_switches")      ? &out->voluntary
                       : mr_str_eq_c(key, "nonvoluntary_ctxt_switches") ? &out->involuntary
                                                                        : NULL;
        if (to && !mr_str_to_u64(mr_str_trim(mr_str_sub(line, (size_t)colon + 1, line.len)), to)) {
            *to = 0;
        }
    }
}

bool perf_steal_parse(mr_str text, uint64_t *out_steal, uint64_t *out_ticks)
{
    mr_str line;
    uint64_t n;

    *out_steal = *out_ticks = 0;
    if (!mr_str_split(&text, '\n', &line) || !mr_str_starts(line, MR_STR("cpu "))) {
        return false;
    }
    line = mr_str_sub(line, 4, line.len);
    /* user nice system idle iowait irq softirq steal; guest time is in user's. */
    for (int i = 0; i < 8 && next_number(&line, &n); i++) {
        *out_ticks += n;
        *out_steal = i == 7 ? n : 0;
    }
    return *out_ticks > 0;
}

static bool read_thread(int pid, int64_t id, struct perf_thread *out)
{
    char path[64];
    char text[4096];

    *out = (struct perf_thread){.id = id, .threads = 1};
    snprintf(path, sizeof path, "/proc/%d/task/%lld/stat", pid, (long long)id);
    if (!perf_stat_parse(mr_machine_read(path, text, sizeof text), out)) {
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/task/%lld/status", pid, (long long)id);
    perf_status_parse(mr_machine_read(path, text, sizeof text), out);
    snprintf(path, sizeof path, "/proc/%d/task/%lld/schedstat", pid, (long long)id);
    mr_str rest = mr_machine_read(path, text, sizeof text);
    uint64_t ran;
    if (!next_number(&rest, &ran) || !next_number(&rest, &out->delay_ns)) {
        out->delay_ns = 0;
    }
    return true;
}

static int read_threads(int pid, struct perf_counters *out, struct mr_err *err)
{
    char path[64];
    struct perf_thread row;
    const struct dirent *e;
    int64_t id;

    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *d = opendir(path);
    while (d && (e = readdir(d))) {
        if (mr_str_to_i64(mr_str_c(e->d_name), &id) && read_thread(pid, id, &row)) {
            MR_VEC_PUSH(&out->threads, row);
        }
    }
    if (d) {
        closedir(d);
    }
    return out->threads.len ? MR_OK : MR_FAIL(err, MR_E_NOT_FOUND, "there is no process %d", pid);
}

static uint64_t count_lines(const char *path)
{
    FILE *f = fopen(path, "re");
    char text[16384];
    uint64_t lines = 0;
    size_t n;

    while (f && (n = fread(text, 1, sizeof text, f)) > 0) {
        for (size_t i = 0; i < n; i++) {
            lines += text[i] == '\n';
        }
    }
    if (f) {
        fclose(f);
    }
    return lines;
}

int perf_counters_read(int pid, struct perf_counters *out, struct mr_err *err)
{
    char path[64];
    char text[4096];
    uint64_t pages;

    *out = (struct perf_counters){0};
    perf_steal_parse(mr_machine_read("/proc/stat", text, sizeof text), &out->steal, &out->ticks);
    if (pid == 0) {
        return MR_OK;
    }
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    mr_str rest = mr_machine_read(path, text, sizeof text);
    if (next_number(&rest, &pages) && next_number(&rest, &pages)) {
        out->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    out->maps = count_lines(path);
    int rc = read_threads(pid, out, err);
    if (rc < 0) {
        perf_counters_fini(out);
    }
    return rc;
}

void perf_counters_fini(struct perf_counters *f)
{
    MR_VEC_FINI(&f->threads);
}

double perf_counters_steal(const struct perf_counters *before, const struct perf_counters *after)
{
    return after->ticks > before->ticks && after->steal > before->steal
               ? (double)(after->steal - before->steal) / (double)(after->ticks - before->ticks)
               : 0;
}

static const struct perf_thread *find_thread(const struct perf_counters *f,
                                             const struct perf_thread *like)
{
    for (size_t i = 0; i < f->threads.len; i++) {
        const struct perf_thread *t = &f->threads.at[i];
        if (t->id == like->id && t->born == like->born) {
            return t;
        }
    }
    return NULL;
}

static struct perf_thread *name_row(struct perf_thread_list *names, const char *name)
{
    for (size_t i = 0; i < names->len; i++) {
        if (strcmp(names->at[i].name, name) == 0) {
            return &names->at[i];
        }
    }
    struct perf_thread row = {.id = 0};
    memcpy(row.name, name, sizeof row.name);
    MR_VEC_PUSH(names, row);
    return &names->at[names->len - 1];
}

static void add_counts(struct perf_thread *row, const struct perf_thread *n)
{
    row->minor_faults += n->minor_faults;
    row->major_faults += n->major_faults;
    row->voluntary += n->voluntary;
    row->involuntary += n->involuntary;
    row->delay_ns += n->delay_ns;
}

void perf_counters_since(const struct perf_counters *before, const struct perf_counters *after,
                         struct perf_thread_list *out)
{
    static const struct perf_thread none;

    for (size_t i = 0; i < after->threads.len; i++) {
        struct perf_thread now = after->threads.at[i];
        const struct perf_thread *then = find_thread(before, &now);
        struct perf_thread *row = name_row(out, now.name);
        then = then ? then : &none;
        now.minor_faults -= then->minor_faults;
        now.major_faults -= then->major_faults;
        now.voluntary -= then->voluntary;
        now.involuntary -= then->involuntary;
        now.delay_ns -= then->delay_ns;
        add_counts(row, &now);
        row->threads++;
    }
}

void perf_threads_add(struct perf_thread_list *into, const struct perf_thread_list *from)
{
    for (size_t i = 0; i < from->len; i++) {
        struct perf_thread *row = name_row(into, from->at[i].name);
        add_counts(row, &from->at[i]);
        row->threads = MR_MAX(row->threads, from->at[i].threads);
    }
}

const struct perf_thread *perf_threads_find(const struct perf_thread_list *names, const char *name)
{
    static const struct perf_thread none;

    for (size_t i = 0; i < names->len; i++) {
        if (strcmp(names->at[i].name, name) == 0) {
            return &names->at[i];
        }
    }
    return &none;
}
