/* A small job over the manifest, on a disk that stops: at every call that touches a file, by kill and by loss
 * of power; with every call failing; with another process taking over at every call. Whatever happens, in the
 * end each row is there exactly once, and rows reported as committed are never lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "batch/manifest/manifest_priv.h"
#include "disk.h"

enum {
    FILES = 3,
    ROWS_MOST = 16,
    EXTENT_ROWS = 3,
    LINE_MOST = 256,
    DEAD_KIND = MR_MANIFEST_DEAD_LETTERS
};
static const uint64_t rows_of_file[FILES] = {13, 5, 16};

/* Calls from one that is disturbed to the next: all of them in the release build with MR_TEST_MORE, as `make test-more` sets
 * it; processes with a sanitizer are slow to fork. */
static uint64_t stride = 1;

/* How a job ends. */
enum { DONE = 0, BAD = 1, AGAIN = 3 };

/* What the job was promised, and what it found; common to all processes. */
struct claims {
    bool rows[FILES][ROWS_MOST];
    bool is_finished;
    uint32_t epoch;
};
static struct shared {
    struct claims claims;
    uint64_t calls;
    char trace[DISK_TRACE_MOST];
    uint64_t errors;
    char why[512];
} * shared;

static char top[32];  /* of this test */
static char base[48]; /* below it; holds the job */
static char folder[96];

static int bad(const char *why, const struct mr_err *err)
{
    snprintf(shared->why, sizeof shared->why, "%s: %s", why, err ? err->msg : "");
    return BAD;
}

static bool dies(uint32_t file, uint64_t row)
{
    return (file * 31 + row) % 5 == 3;
}

/* Long enough for some of them to lie across sectors. */
static int row_text(char out[LINE_MOST], uint32_t file, uint64_t row)
{
    return snprintf(out, LINE_MOST, "%u %" PRIu64 " %0*u\n", file, row, (int)(60 + row * 10), file);
}

/* ---- the job ---- */

struct work {
    struct mr_manifest_extent extents[2];
    struct mr_manifest_part parts[2];
    struct mr_manifest_add add;
};

static int put_text(struct mr_manifest_part *part, uint64_t *at, const char *text, size_t n)
{
    const ssize_t done = pwrite(part->fd, text, n, (off_t)*at);

    *at += n;
    return done == (ssize_t)n ? 0 : -1;
}

static int begin_part(struct mr_manifest *m, struct work *w, int kind, struct mr_err *err)
{
    struct mr_manifest_part **to = kind == DEAD_KIND ? &w->add.dlq : &w->add.part;
    int rc = MR_OK;

    if (!*to) {
        rc = mr_manifest_part_begin(m, (enum mr_manifest_kind)kind, kind ? ".jsonl" : ".txt",
                                    &w->parts[kind], err);
        *to = rc == MR_OK ? &w->parts[kind] : NULL;
    }
    return rc;
}

/* Writes the rows of the extents to their files. */
static int fill(struct mr_manifest *m, struct work *w, struct mr_err *err)
{
    uint64_t at[2] = {0, 0};
    char text[LINE_MOST];

    for (size_t i = 0; i < w->add.extent_count; i++) {
        const struct mr_manifest_extent *e = &w->extents[i];
        for (uint64_t row = e->first; row < e->first + e->count; row++) {
            const int kind = dies(e->file, row);
            const int rc = begin_part(m, w, kind, err);
            if (rc < 0) {
                return rc;
            }
            if (put_text(&w->parts[kind], &at[kind], text, (size_t)row_text(text, e->file, row)) <
                0) {
                return MR_FAIL(err, MR_E_IO, "cannot write a row");
            }
            *(kind ? &w->add.dead : &w->add.rows) += 1;
        }
    }
    return MR_OK;
}

/* The next rows to be done, from all files in turn; false when there are none. */
static bool find_work(const struct mr_manifest *m, struct work *w, uint64_t from[FILES])
{
    struct mr_range gap;

    *w = (struct work){.parts = {{.fd = -1}, {.fd = -1}}};
    for (uint32_t i = 0; i < 2 * FILES && w->add.extent_count < 2; i++) {
        const uint32_t file = i % FILES;
        if (mr_ranges_gap(mr_manifest_done(m, file), from[file], rows_of_file[file], &gap)) {
            const uint64_t n = MR_MIN(gap.end - gap.first, (uint64_t)EXTENT_ROWS);
            from[file] = gap.first + n;
            w->extents[w->add.extent_count++] = (struct mr_manifest_extent){file, gap.first, n};
        }
    }
    w->add.extents = w->extents;
    return w->add.extent_count > 0;
}

static void drop(struct mr_manifest *m, struct work *w)
{
    mr_manifest_part_drop(m, &w->parts[0]);
    mr_manifest_part_drop(m, &w->parts[1]);
}

static void claim(const struct work *w)
{
    for (size_t i = 0; i < w->add.extent_count; i++) {
        const struct mr_manifest_extent *e = &w->extents[i];
        memset(&shared->claims.rows[e->file][e->first], true, e->count);
    }
}

/* One commit of up to two items. A failed commit is tried once more with the same files. */
static int commit_some(struct mr_manifest *m, bool *out_any, struct mr_err *err)
{
    struct work work[2];
    struct mr_manifest_add adds[2];
    uint64_t from[FILES] = {0};
    size_t n = 0;
    int rc = MR_OK;

    while (rc == MR_OK && n < 2 && find_work(m, &work[n], from)) {
        rc = fill(m, &work[n], err);
        adds[n] = work[n].add;
        n++;
    }
    *out_any = n > 0;
    if (rc == MR_OK) {
        rc = mr_manifest_commit(m, adds, n, err);
        shared->errors += rc < 0;
        rc = rc < 0 && rc != MR_E_CLOSED ? mr_manifest_commit(m, adds, n, err) : rc;
    }
    for (size_t i = 0; i < n; i++) {
        if (rc == MR_OK) {
            claim(&work[i]);
        }
        drop(m, &work[i]);
    }
    return rc;
}

static int copy_file(struct mr_manifest *m, struct work *w, int kind, const char *name,
                     uint64_t *at, struct mr_err *err)
{
    char text[8192];
    int rc = name ? begin_part(m, w, kind, err) : MR_OK;

    if (!name || rc < 0) {
        return rc;
    }
    const int fd = mr_manifest_file_open(m, (enum mr_manifest_kind)kind, name, err);
    const ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text, 0);
    if (n < 0 || put_text(&w->parts[kind], at, text, (size_t)n) < 0) {
        rc = MR_FAIL(err, MR_E_IO, "cannot copy %s", name);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* The two oldest items become one. */
static int merge(struct mr_manifest *m, struct mr_err *err)
{
    const struct mr_manifest_item *old[2] = {mr_manifest_item(m, 0), mr_manifest_item(m, 1)};
    struct mr_manifest_extent extents[FILES * ROWS_MOST];
    struct work w = {.parts = {{.fd = -1}, {.fd = -1}}, .add.extents = extents};
    uint64_t at[2] = {0, 0};
    int rc = MR_OK;

    for (int i = 0; i < 2 && rc == MR_OK; i++) {
        memcpy(&extents[w.add.extent_count], old[i]->extents,
               old[i]->extent_count * sizeof extents[0]);
        w.add.extent_count += old[i]->extent_count;
        w.add.rows += old[i]->rows;
        w.add.dead += old[i]->dead;
        rc = copy_file(m, &w, 0, old[i]->part, &at[0], err);
        rc = rc < 0 ? rc : copy_file(m, &w, DEAD_KIND, old[i]->dlq, &at[1], err);
    }
    if (rc == MR_OK) {
        rc = mr_manifest_replace(m, &w.add, 1, old, 2, err);
    }
    drop(m, &w);
    return rc;
}

/* Another process has taken the job over, and its state is newer. */
static bool was_visited;

static int check_claims(const struct mr_manifest *m)
{
    if (was_visited) {
        return DONE;
    }
    for (uint32_t file = 0; file < FILES; file++) {
        for (uint64_t row = 0; row < rows_of_file[file]; row++) {
            if (shared->claims.rows[file][row] &&
                !mr_ranges_contains(mr_manifest_done(m, file), row, row + 1)) {
                return bad("a committed row is gone", NULL);
            }
        }
    }
    if (mr_manifest_epoch(m) <= shared->claims.epoch) {
        return bad("an epoch was used twice", NULL);
    }
    if (shared->claims.is_finished && !mr_manifest_is_finished(m)) {
        return bad("a finished job is not finished", NULL);
    }
    return DONE;
}

static uint64_t commits_left = UINT64_MAX; /* then the process ends where it is */

static int go_on(struct mr_manifest *m, struct mr_err *err)
{
    bool any = true;
    int rc = mr_manifest_note(m, MR_STR("{\"event\":\"start\"}"), err);

    while (rc == MR_OK && any) {
        if (commits_left-- == 0) {
            _exit(DONE);
        }
        rc = commit_some(m, &any, err);
        if (rc == MR_OK && mr_manifest_item_count(m) > 3) {
            rc = merge(m, err);
        }
    }
    return rc < 0 ? rc : mr_manifest_finish(m, MR_STR("{}"), err);
}

/* From wherever it is to the end, or to the third error. */
static int run_job(void)
{
    static const struct mr_identity_field identity[] = {
        {.key = "model", .json = "\"m\""}, {.key = "input a", .json = "[1]", .is_input = true}};
    const struct mr_manifest_options options = {.verify_content = true};
    struct mr_manifest *m;
    struct mr_err err = {0};
    int tries = 0;

    if (mr_manifest_open(&m, folder, identity, 2, &options, &err) < 0) {
        shared->errors++;
        return !was_visited && strstr(err.msg, "damaged") ? bad("open", &err) : AGAIN;
    }
    m->history_most = 0; /* merges rewrite the log */
    int result = check_claims(m);
    shared->claims.epoch = mr_manifest_epoch(m);
    while (result == DONE && !mr_manifest_is_finished(m)) {
        const int rc = go_on(m, &err);
        if (rc == MR_OK) {
            shared->claims.is_finished = true;
        } else if (rc == MR_E_EXISTS || rc == MR_E_INVALID) {
            result = bad("go on", &err);
        } else {
            bool may_reopen;
            shared->errors++;
            result = rc == MR_E_CLOSED || ++tries == 3 ? AGAIN : DONE;
            if (!mr_manifest_is_sound(m, &may_reopen) && !may_reopen && !was_visited) {
                result = bad("no other process has taken the job over", &err);
            }
        }
    }
    shared->errors += m->history_most > 0; /* only the rewrite of the log failed, which may wait */
    mr_manifest_close(&m);
    return result;
}

/* ---- processes ---- */

static int run_child(const struct disk_orders *orders, int (*what)(void))
{
    int status;

    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        disk_begin(orders);
        const int result = what();
        shared->calls = disk_calls();
        _exit(result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) == BAD) {
        fail_msg("status %x: %s (crash %" PRIu64 " tears %d, fail %" PRIu64 "+%" PRIu64
                 " errno %d, visit %" PRIu64 ", seed %" PRIu64 ")",
                 (unsigned)status, shared->why, orders->crash_at, orders->crash_tears,
                 orders->fail_from, orders->fail_count, orders->fail_errno, orders->visit_at,
                 orders->seed);
    }
    return WEXITSTATUS(status);
}

static struct disk_orders orders_for(uint64_t seed)
{
    struct disk_orders orders = {.seed = seed, .variants = 4};

    snprintf(orders.base, sizeof orders.base, "%s", base);
    return orders;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void fresh(void)
{
    remove_tree(base);
    assert_int_equal(mkdir(base, 0777), 0);
    memset(shared, 0, sizeof *shared);
}

/* ---- the final state ---- */

static void count_rows(const char *text, int kind, unsigned seen[FILES][ROWS_MOST])
{
    char want[LINE_MOST];
    unsigned file;
    uint64_t row;

    while (*text) {
        assert_int_equal(sscanf(text, "%u %" SCNu64, &file, &row), 2);
        assert_true(file < FILES && row < rows_of_file[file]);
        const size_t n = (size_t)row_text(want, file, row);
        assert_memory_equal(text, want, n);
        assert_int_equal(dies(file, row), kind);
        seen[file][row]++;
        text += n;
    }
}

static char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = mr_alloc(1 << 16);

    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) < (1 << 16) - 1);
    fclose(f);
    return text;
}

static unsigned count_of(const char *text, const char *word)
{
    unsigned n = 0;

    while ((text = strstr(text, word))) {
        n++;
        text++;
    }
    return n;
}

/* All files of a folder, counted; each is named by manifest.json. */
static unsigned count_folder(const char *name, int kind, const char *manifest,
                             unsigned seen[FILES][ROWS_MOST])
{
    char path[512];
    struct dirent *entry;
    unsigned files = 0;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    DIR *list = opendir(path);
    assert_non_null(list);
    while ((entry = readdir(list))) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s", folder, name, entry->d_name);
            char *text = read_all(path);
            assert_int_equal(count_of(manifest, entry->d_name), 1);
            count_rows(text, kind, seen);
            mr_free(text);
            files++;
        }
    }
    closedir(list);
    return files;
}

/* One more start, which removes what is left over; then every row once and nothing else. */
static void verify(void)
{
    const struct disk_orders calm = orders_for(0);
    unsigned seen[FILES][ROWS_MOST] = {0};
    struct dirent *entry;
    unsigned names = 0;
    char path[512];

    assert_int_equal(run_child(&calm, run_job), DONE);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    char *manifest = read_all(path);
    assert_int_equal(count_folder("parts", 0, manifest, seen), count_of(manifest, "\"part\""));
    assert_int_equal(count_folder("dlq", DEAD_KIND, manifest, seen), count_of(manifest, "\"dlq\""));
    mr_free(manifest);
    for (uint32_t file = 0; file < FILES; file++) {
        for (uint64_t row = 0; row < rows_of_file[file]; row++) {
            assert_int_equal(seen[file][row], 1);
        }
    }
    DIR *list = opendir(folder);
    while ((entry = readdir(list))) {
        names += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    }
    closedir(list);
    assert_int_equal(
        names, 9); /* LOCK epoch job.json parts dlq manifest.{log,json} report.json _SUCCESS */
}

static void run_to_end(void)
{
    const struct disk_orders calm = orders_for(0);

    assert_int_equal(run_child(&calm, run_job), DONE);
    verify();
}

/* Calls of an undisturbed job. */
static uint64_t calls_of_all(char trace[DISK_TRACE_MOST])
{
    struct disk_orders calm = orders_for(0);

    fresh();
    calm.trace = shared->trace;
    assert_int_equal(run_child(&calm, run_job), DONE);
    const uint64_t calls = shared->calls;
    if (trace) {
        memcpy(trace, shared->trace, DISK_TRACE_MOST);
    }
    verify();
    assert_true(calls > 200 &&
                calls <
                    DISK_TRACE_MOST); /* else nothing is counted, and no test here tests anything */
    return calls;
}

/* ---- tests ---- */

static void killed_at_every_call(void **state)
{
    const uint64_t calls = calls_of_all(NULL);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        for (int tears = 0; tears < 2; tears++) {
            struct disk_orders orders = orders_for(n);
            orders.crash_at = n;
            orders.crash_tears = tears;
            fresh();
            assert_int_equal(run_child(&orders, run_job), DISK_CRASHED);
            run_to_end();
        }
    }
}

static void killed_again_and_again(void **state)
{
    struct mr_rng rng;
    uint64_t kills = 0;

    (void)state;
    mr_rng_seed(&rng, 11);
    for (int round = 0; round < 40; round++) {
        int result = DISK_CRASHED;
        fresh();
        while (result == DISK_CRASHED) {
            struct disk_orders orders = orders_for(kills);
            orders.crash_at = 1 + mr_rng_u64(&rng) % 160;
            orders.crash_tears = mr_rng_u64(&rng) % 2;
            result = run_child(&orders, run_job);
            kills += result == DISK_CRASHED;
        }
        assert_int_equal(result, DONE);
        verify();
    }
    assert_true(kills > 40);
}

/* Takes what a power failure left as the disk of the next start. */
static void take_variant(unsigned variant)
{
    char from[80];

    snprintf(from, sizeof from, "%s.%u", base, variant);
    remove_tree(base);
    assert_int_equal(rename(from, base), 0);
}

static void drop_variants(void)
{
    char path[80];

    for (unsigned i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s.%u", base, i);
        remove_tree(path);
    }
}

/* A start on what was left, and the power fails again. */
static void fail_once_more(uint64_t n)
{
    const unsigned keep = n / 4 % 2;
    struct disk_orders again = orders_for(n);

    snprintf(again.base, sizeof again.base, "%s/again", top);
    assert_int_equal(rename(base, again.base), 0);
    again.crash_at = 1 + n * 7919 % 60;
    again.power_fails = true;
    again.variants = 2;
    snprintf(folder, sizeof folder, "%s/job", again.base);
    const bool has_crashed = run_child(&again, run_job) == DISK_CRASHED;
    snprintf(folder, sizeof folder, "%s/job", base);
    for (unsigned i = 0; i < 2 && has_crashed; i++) {
        char left[80];
        snprintf(left, sizeof left, "%s.%u", again.base, i);
        if (i == keep) {
            assert_int_equal(rename(left, base), 0);
        } else {
            remove_tree(left);
        }
    }
    if (has_crashed) {
        remove_tree(again.base);
    } else {
        assert_int_equal(rename(again.base, base), 0);
    }
}

/* All variants of a failure at call n are taken to the end, one of them through a second failure. */
static void after_power_failure(uint64_t n)
{
    const struct claims claims = shared->claims;

    for (unsigned variant = 0; variant < 4; variant++) {
        take_variant(variant);
        shared->claims = claims;
        if (variant == n % 4) {
            fail_once_more(n);
        }
        run_to_end();
    }
}

static void power_lost_at_every_call(void **state)
{
    const uint64_t calls = calls_of_all(NULL);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        struct disk_orders orders = orders_for(n);
        orders.crash_at = n;
        orders.crash_tears = n % 2;
        orders.power_fails = true;
        fresh();
        assert_int_equal(run_child(&orders, run_job), DISK_CRASHED);
        after_power_failure(n);
    }
}

/* Runs again in the same process, so that what a failed call left in memory stays there. */
static int run_through_failures(void)
{
    int result = run_job();
    int runs = 1;

    while (result == AGAIN && runs++ < 5) {
        if (runs == 3) {
            disk_calm();
        }
        result = run_job();
    }
    if (disk_failed() > 0 && shared->errors == 0) {
        return bad("a failure was not reported", NULL);
    }
    return result;
}

static int descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    int n = 0;

    while (list && readdir(list)) {
        n++;
    }
    if (list) {
        closedir(list);
    }
    return n;
}

static int run_without_leaks(void)
{
    const int before = descriptors();
    const int result = run_through_failures();

    return result == DONE && descriptors() != before ? bad("descriptors leak", NULL) : result;
}

static void every_call_fails(void **state)
{
    static const struct {
        uint64_t count;
        bool tears;
    } rows[] = {{1, false}, {1, true}, {2, false}, {3, true}, {1000000, false}};
    const uint64_t calls = calls_of_all(NULL);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            struct disk_orders orders = orders_for(n);
            orders.fail_from = n;
            orders.fail_count = rows[i].count;
            orders.fail_tears = rows[i].tears;
            orders.fail_errno = (n + i) % 2 ? ENOSPC : EIO;
            fresh();
            assert_int_equal(run_child(&orders, run_without_leaks), DONE);
            verify();
        }
    }
}

/* A write or a sync fails, and soon after the process is killed. */
static void killed_after_a_failure(void **state)
{
    char trace[DISK_TRACE_MOST];
    const uint64_t calls = calls_of_all(trace);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        for (uint64_t later = 1; later < 12 && trace[n]; later++) {
            struct disk_orders orders = orders_for(n);
            orders.fail_from = n;
            orders.fail_count = 1 + later % 2;
            orders.fail_tears = later % 3 == 0;
            orders.fail_errno = ENOSPC;
            orders.crash_at = n + later;
            fresh();
            if (run_child(&orders, run_through_failures) == DISK_CRASHED) {
                run_to_end();
            }
        }
    }
}

/* Some call fails, the job continues, and then the power is lost: nothing may have been reported that no later sync has
 * really brought to disk. */
static void power_lost_after_a_failure(void **state)
{
    char trace[DISK_TRACE_MOST];
    const uint64_t calls = calls_of_all(trace);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        for (uint64_t i = 0; i < 3 && (trace[n] || i < 1); i++) {
            struct disk_orders orders = orders_for(n * 3 + i);
            orders.fail_from = n;
            orders.fail_count = 1 + n % 2;
            orders.fail_errno = EIO;
            orders.fail_tears = i == 1;
            orders.crash_at = n + 1 + (n + i) * 7919 % (i ? 12 : 70);
            orders.power_fails = true;
            fresh();
            if (run_child(&orders, run_through_failures) == DISK_CRASHED) {
                after_power_failure(n);
            } else {
                verify();
            }
        }
    }
}

/* Another process that does not see the lock, and does the whole job, or makes a start only. */
static bool visit_is_short;

static void visit(void)
{
    char lock[128];
    int status;

    snprintf(lock, sizeof lock, "%s/LOCK", folder);
    unlink(lock);
    const pid_t child = fork();
    if (child == 0) {
        commits_left = visit_is_short ? 0 : UINT64_MAX;
        const int result = run_job();
        _exit(result == DONE ? run_job() : result);
    }
    was_visited = true;
    if (waitpid(child, &status, 0) != child || status != 0) {
        bad("the visitor", NULL);
        _exit(BAD);
    }
}

/* The one that was overtaken ends, with an error or because it finds the job finished, and spoils nothing. */
static int run_overtaken(void)
{
    const int result = run_job();

    return result == AGAIN || result == DONE ? DONE : result;
}

static void overtaken_at_every_call(void **state)
{
    const uint64_t calls = calls_of_all(NULL);

    (void)state;
    for (uint64_t n = 1; n <= calls; n += stride) {
        for (int is_short = 0; is_short < 2; is_short++) {
            struct disk_orders orders = orders_for(n);
            orders.visit_at = n;
            orders.visit = visit;
            visit_is_short = is_short;
            fresh();
            assert_int_equal(run_child(&orders, run_overtaken), DONE);
            run_to_end();
        }
    }
}

static int begin(void **state)
{
    (void)state;
    /* In memory where there is such a place: the disk is our own. */
    snprintf(top, sizeof top, "%s/mr-crash-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(top)) {
        return -1;
    }
    snprintf(base, sizeof base, "%s/run", top);
    snprintf(folder, sizeof folder, "%s/job", base);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int end(void **state)
{
    (void)state;
    drop_variants();
    remove_tree(top);
    munmap(shared, sizeof *shared);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(killed_at_every_call),     TEST(killed_again_and_again),
        TEST(power_lost_at_every_call), TEST(every_call_fails),
        TEST(killed_after_a_failure),   TEST(power_lost_after_a_failure),
        TEST(overtaken_at_every_call),
    };

#if defined(__SANITIZE_ADDRESS__)
    stride = 397;
#else
    stride = getenv("MR_TEST_MORE") != NULL ? 1 : 7;
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
