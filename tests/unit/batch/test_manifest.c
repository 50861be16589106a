/* The state of a job's folder after commits, merges, restarts and damage. Crashes are in test_crash.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "batch/manifest/manifest_priv.h"
#include "batch/manifest/provenance.h"

static char folder[64];

/* Calls of the C library, which fail with these if they are not 0; fsync for folders alone. */
static int flock_error;
static int fsync_error;

int flock(int fd, int how)
{
    errno = flock_error;
    return flock_error ? -1 : (int)syscall(SYS_flock, fd, how);
}

int fsync(int fd)
{
    struct stat st;
    const bool fails = fsync_error && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);

    errno = fsync_error;
    return fails ? -1 : (int)syscall(SYS_fsync, fd);
}

static void (*before_rename)(void); /* the next one */

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    void (*fn)(void) = before_rename;

    before_rename = NULL;
    if (fn) {
        fn();
    }
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

static const struct mr_identity_field identity[] = {
    {.key = "model", .json = "{\"name\":\"dense\",\"version\":1}"},
    {.key = "input /data/a.parquet", .json = "{\"size\":100}", .is_input = true},
};

static int make_folder(void **state)
{
    (void)state;
    /* In memory where there is such a place: nothing here depends on a disk. */
    snprintf(folder, sizeof folder, "%s/mr-manifest-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static void run(const char *command, const char *rest)
{
    char line[256];

    snprintf(line, sizeof line, "%s %s%s", command, folder, rest);
    assert_int_equal(system(line), 0);
}

static int remove_folder(void **state)
{
    (void)state;
    run("rm -rf", "");
    return 0;
}

static void save(void)
{
    char line[256];

    snprintf(line, sizeof line, "cp -r %s %s.copy", folder, folder);
    assert_int_equal(system(line), 0);
}

static void restore(void)
{
    char line[256];

    snprintf(line, sizeof line, "rm -r %s && mv %s.copy %s", folder, folder, folder);
    assert_int_equal(system(line), 0);
}

static struct mr_manifest *must_open_with(struct mr_manifest_options options)
{
    struct mr_manifest *m = NULL;
    struct mr_err err = {0};

    if (mr_manifest_open(&m, folder, identity, 2, &options, &err) < 0) {
        fail_msg("%s (%s)", err.msg, err.where);
    }
    return m;
}

static struct mr_manifest *must_open(void)
{
    return must_open_with((struct mr_manifest_options){0});
}

static void expect_refused(struct mr_manifest_options options, int status, const char *text)
{
    struct mr_manifest *m = NULL;
    struct mr_err err = {0};

    assert_int_equal(mr_manifest_open(&m, folder, identity, 2, &options, &err), status);
    assert_null(m);
    if (!strstr(err.msg, text)) {
        fail_msg("\"%s\" does not say \"%s\"", err.msg, text);
    }
}

static void begin(struct mr_manifest *m, enum mr_manifest_kind kind, const char *content,
                  struct mr_manifest_part *out)
{
    const char *suffix = kind == MR_MANIFEST_RESULTS ? ".csv" : ".jsonl";

    assert_int_equal(mr_manifest_part_begin(m, kind, suffix, out, NULL), MR_OK);
    assert_int_equal(write(out->fd, content, strlen(content)), strlen(content));
}

/* One file of results for the rows of one extent. */
static void commit_rows(struct mr_manifest *m, uint32_t file, uint64_t first, uint64_t count)
{
    const struct mr_manifest_extent extent = {file, first, count};
    struct mr_manifest_part part;
    struct mr_err err = {0};

    begin(m, MR_MANIFEST_RESULTS, "some rows\n", &part);
    const struct mr_manifest_add add = {
        .part = &part, .rows = count, .extents = &extent, .extent_count = 1};
    if (mr_manifest_commit(m, &add, 1, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(part.fd, -1);
}

static void commit_placed(struct mr_manifest *m, uint32_t file, uint64_t first, uint64_t count)
{
    const struct mr_manifest_extent extent = {file, first, count};
    struct mr_manifest_part part;

    assert_int_equal(mr_manifest_part_begin_at(m, file, first, ".csv", &part, NULL), MR_OK);
    const struct mr_manifest_add add = {
        .part = &part, .rows = count, .extents = &extent, .extent_count = 1};
    assert_int_equal(mr_manifest_commit(m, &add, 1, NULL), MR_OK);
}

static bool is_there(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static size_t read_file(const char *name, char *out, size_t size)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t n = fread(out, 1, size - 1, f);
    fclose(f);
    out[n] = '\0';
    return n;
}

static void write_file(const char *name, const char *content, size_t bytes)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(content, 1, bytes, f), bytes);
    fclose(f);
}

static void a_job_from_begin_to_end(void **state)
{
    const struct mr_manifest_extent extents[] = {{1, 20, 10}, {0, 0, 4}, {1, 30, 6}};
    struct mr_manifest_part parts[2];
    struct mr_manifest *m = must_open();
    char text[4096];

    (void)state;
    assert_int_equal(mr_manifest_epoch(m), 1);
    assert_false(mr_manifest_is_finished(m));
    begin(m, MR_MANIFEST_RESULTS, "results", &parts[0]);
    begin(m, MR_MANIFEST_DEAD_LETTERS, "{}\n", &parts[1]);
    assert_string_equal(parts[0].name, "p-000001-000001.csv");
    const struct mr_manifest_add add = {.part = &parts[0],
                                        .dlq = &parts[1],
                                        .rows = 17,
                                        .dead = 3,
                                        .extents = extents,
                                        .extent_count = 3,
                                        .hosts = "{\"a:8000\":\n20}"};
    assert_int_equal(mr_manifest_commit(m, &add, 1, NULL), MR_OK);
    assert_int_equal(mr_manifest_note(m, MR_STR("{\"batch\":64}"), NULL), MR_OK);
    mr_manifest_close(&m);
    assert_null(m);

    m = must_open_with((struct mr_manifest_options){.verify_content = true});
    assert_int_equal(mr_manifest_epoch(m), 2);
    assert_false(is_there("epoch-000001"));
    assert_true(is_there("epoch-000002"));
    const struct mr_manifest_totals totals = mr_manifest_totals(m);
    assert_int_equal(totals.rows, 17);
    assert_int_equal(totals.dead, 3);
    assert_int_equal(totals.parts, 1);
    assert_int_equal(totals.bytes, 7);
    assert_int_equal(mr_manifest_item_count(m), 1);
    const struct mr_manifest_item *item = mr_manifest_item(m, 0);
    assert_string_equal(item->part, "p-000001-000001.csv");
    assert_string_equal(item->dlq, "d-000001-000002.jsonl");
    assert_string_equal(item->hosts, "{\"a:8000\": 20}");
    assert_int_equal(item->part_crc, mr_crc32c(0, "results", 7));
    assert_int_equal(item->extent_count, 2);
    assert_true(mr_ranges_contains(mr_manifest_done(m, 1), 20, 36));
    assert_int_equal(mr_manifest_done(m, 1)->rows, 16);
    assert_int_equal(mr_manifest_done(m, 0)->rows, 4);
    assert_int_equal(mr_manifest_done(m, 7)->rows, 0);
    commit_rows(m, 0, 4, 1);
    assert_int_equal(mr_manifest_finish(m, MR_STR("{\"ok\":true}"), NULL), MR_OK);
    assert_true(mr_manifest_is_finished(m));
    mr_manifest_close(&m);
    read_file("report.json", text, sizeof text);
    assert_string_equal(text, "{\"ok\":true}");
    read_file("manifest.json", text, sizeof text);
    assert_non_null(strstr(text, "{\"format\":1,\"rows\":18,\"dead\":3,\"bytes\":17,"));
    assert_true(strstr(text, "p-000001-000001.csv") < strstr(text, "p-000002-000001.csv"));

    m = must_open();
    assert_true(mr_manifest_is_finished(m));
    assert_int_equal(mr_manifest_note(m, MR_STR("1"), NULL), MR_OK);
    assert_true(is_there("_SUCCESS"));
    commit_rows(m, 2, 0, 5); /* a change makes it unfinished */
    assert_false(mr_manifest_is_finished(m));
    assert_false(is_there("_SUCCESS"));
    mr_manifest_close(&m);
}

static void rows_are_never_done_twice(void **state)
{
    const struct mr_manifest_extent twice[] = {{0, 0, 10}, {0, 9, 5}};
    const struct mr_manifest_extent done = {3, 104, 10};
    struct mr_manifest_part part;
    struct mr_manifest *m = must_open();
    struct mr_err err;

    (void)state;
    commit_rows(m, 3, 100, 5);
    begin(m, MR_MANIFEST_RESULTS, "x", &part);
    struct mr_manifest_add add = {.part = &part, .rows = 15, .extents = twice, .extent_count = 2};
    assert_int_equal(mr_manifest_commit(m, &add, 1, &err), MR_E_EXISTS);
    assert_string_equal(err.msg, "input 0: rows 9 to 9 are done already");
    add = (struct mr_manifest_add){.part = &part, .rows = 10, .extents = &done, .extent_count = 1};
    assert_int_equal(mr_manifest_commit(m, &add, 1, &err), MR_E_EXISTS);
    assert_string_equal(err.msg, "input 3: rows 104 to 104 are done already");
    assert_false(part.is_renamed);
    assert_int_equal(mr_manifest_done(m, 0)->rows, 0);
    assert_int_equal(mr_manifest_done(m, 3)->rows, 5);
    add.rows = 9;
    assert_int_equal(mr_manifest_commit(m, &add, 1, &err), MR_E_INVALID);
    add.dead = 1;
    assert_int_equal(mr_manifest_commit(m, &add, 1, &err), MR_E_INVALID);
    mr_manifest_part_drop(m, &part);
    assert_false(is_there(".tmp-p-000001-000002.csv"));
    mr_manifest_close(&m);
}

static void a_merge_replaces(void **state)
{
    const struct mr_manifest_extent all[] = {{0, 0, 20}};
    const struct mr_manifest_extent too_much[] = {{0, 0, 20}, {0, 30, 1}};
    struct mr_manifest_part part;
    struct mr_manifest *m = must_open();

    (void)state;
    commit_rows(m, 0, 0, 10);
    commit_rows(m, 0, 40, 10);
    commit_rows(m, 0, 10, 10);
    const struct mr_manifest_item *old[] = {mr_manifest_item(m, 0), mr_manifest_item(m, 2)};
    begin(m, MR_MANIFEST_RESULTS, "merged", &part);
    struct mr_manifest_add add = {
        .part = &part, .rows = 21, .extents = too_much, .extent_count = 2};
    assert_int_equal(mr_manifest_replace(m, &add, 1, old, 2, NULL), MR_E_INVALID);
    add = (struct mr_manifest_add){.part = &part, .rows = 20, .extents = all, .extent_count = 1};
    assert_int_equal(mr_manifest_replace(m, &add, 1, old, 1, NULL), MR_E_EXISTS);
    assert_int_equal(mr_manifest_done(m, 0)->rows, 30);
    assert_int_equal(mr_manifest_replace(m, &add, 1, old, 2, NULL), MR_OK);
    assert_false(is_there("parts/p-000001-000001.csv"));
    assert_true(is_there("parts/p-000001-000002.csv"));
    assert_false(is_there("parts/p-000001-000003.csv"));
    assert_true(is_there("parts/p-000001-000004.csv"));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(mr_manifest_item_count(m), 2);
        assert_int_equal(mr_manifest_done(m, 0)->rows, 30);
        assert_int_equal(mr_manifest_totals(m).parts, 2);
        assert_int_equal(mr_manifest_totals(m).bytes, 16);
        mr_manifest_close(&m);
        m = must_open();
    }
    /* Rows to be done again: nothing in their place. */
    old[0] = mr_manifest_item(m, 0);
    assert_int_equal(mr_manifest_replace(m, NULL, 0, old, 1, NULL), MR_OK);
    assert_int_equal(mr_manifest_done(m, 0)->rows, 20);
    assert_int_equal(mr_manifest_item_count(m), 1);
    mr_manifest_close(&m);
}

/* Dead letters tried again: the results stay, some of the dead rows get a file of their own. */
static void dead_letters_come_back(void **state)
{
    const struct mr_manifest_extent all[] = {{0, 0, 10}};
    const struct mr_manifest_extent lived[] = {{0, 0, 3}, {0, 5, 5}};
    const struct mr_manifest_extent again[] = {{0, 3, 2}};
    struct mr_manifest_part results;
    struct mr_manifest_part letters;
    struct mr_manifest_part more;
    struct mr_manifest_part fewer;
    struct mr_manifest *m = must_open();

    (void)state;
    begin(m, MR_MANIFEST_RESULTS, "8 rows", &results);
    begin(m, MR_MANIFEST_DEAD_LETTERS, "2 rows", &letters);
    const struct mr_manifest_add first = {
        .part = &results, .dlq = &letters, .rows = 8, .dead = 2, .extents = all, .extent_count = 1};
    assert_int_equal(mr_manifest_commit(m, &first, 1, NULL), MR_OK);
    begin(m, MR_MANIFEST_RESULTS, "1 row", &more);
    begin(m, MR_MANIFEST_DEAD_LETTERS, "1", &fewer);
    const struct mr_manifest_item *old[] = {mr_manifest_item(m, 0)};
    const struct mr_manifest_add second[] = {
        {.keep_part = old[0]->part, .rows = 8, .extents = lived, .extent_count = 2},
        {.part = &more, .dlq = &fewer, .rows = 1, .dead = 1, .extents = again, .extent_count = 1},
    };
    assert_int_equal(mr_manifest_replace(m, second, 2, old, 1, NULL), MR_OK);
    for (int round = 0; round < 2; round++) {
        assert_true(is_there("parts/p-000001-000001.csv"));
        assert_false(is_there("dlq/d-000001-000002.jsonl"));
        assert_int_equal(mr_manifest_totals(m).rows, 9);
        assert_int_equal(mr_manifest_totals(m).dead, 1);
        assert_int_equal(mr_manifest_totals(m).parts, 2);
        assert_int_equal(mr_manifest_totals(m).bytes, 11);
        mr_manifest_close(&m);
        m = must_open();
    }
    mr_manifest_close(&m);
}

static void another_identity_is_refused(void **state)
{
    struct mr_identity_field other[] = {
        identity[0], identity[1], {.key = "more", .json = "1", .is_model = true}};
    const struct mr_manifest_options input = {.accept_changed_input = true};
    const struct mr_manifest_options accept = {.accept_changed_input = true,
                                               .accept_changed_model = true};
    struct mr_manifest *m = must_open();
    struct mr_err err;

    (void)state;
    mr_manifest_close(&m);
    other[0].json = "{\"name\":\"dense\",\"version\":2}";
    assert_int_equal(mr_manifest_open(&m, folder, other, 2, &accept, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "another model: {\"name\":\"dense\",\"version\":1}, now "
                                    "{\"name\":\"dense\",\"version\":2}"));
    assert_null(strstr(err.msg, "--accept"));
    other[0] = identity[0];
    other[1].json = "{\"size\":101}";
    assert_int_equal(mr_manifest_open(&m, folder, other, 2, &(struct mr_manifest_options){0}, &err),
                     MR_E_INVALID);
    assert_non_null(strstr(err.msg, "input /data/a.parquet: {\"size\":100}, now {\"size\":101} "
                                    "(--accept-changed-input"));
    assert_int_equal(mr_manifest_open(&m, folder, other, 1, &accept, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "{\"size\":100}, now none"));
    assert_int_equal(mr_manifest_open(&m, folder, other, 3, &input, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "more: none, now 1 (--accept-changed-model"));
    assert_int_equal(mr_manifest_open(&m, folder, other, 3, &accept, &err), MR_OK);
    assert_int_equal(m->notes.len, 1);
    mr_manifest_close(&m);
    expect_refused((struct mr_manifest_options){0}, MR_E_INVALID,
                   "{\"size\":101}, now {\"size\":100}");
    other[0].json = "{";
    assert_int_equal(mr_manifest_open(&m, folder, other, 3, &accept, &err), MR_E_INVALID);
}

static void a_folder_of_its_own(void **state)
{
    (void)state;
    write_file("photo.jpg", "x", 1);
    expect_refused((struct mr_manifest_options){0}, MR_E_EXISTS, "holds other things (photo.jpg)");
    assert_false(is_there("LOCK"));
    assert_false(is_there("parts"));
}

static void placed_names_sort_as_rows_do(void **state)
{
    struct mr_manifest *m = must_open();
    const struct mr_manifest_item *items[4];
    char text[4096];

    (void)state;
    commit_placed(m, 1, 0, 10);
    mr_manifest_close(&m);
    m = must_open();
    commit_placed(m, 0, 1000, 24);
    commit_placed(m, 0, 100, 900);
    assert_true(is_there("parts/p-0000001-000000000000-000001-000001.csv"));
    assert_true(is_there("parts/p-0000000-000000001000-000002-000001.csv"));
    for (size_t i = 0; i < 3; i++) {
        items[i] = mr_manifest_item(m, 2 - i);
        assert_true(mr_manifest_name_is_placed(items[i]->part));
        assert_true(i == 0 || strcmp(items[i - 1]->part, items[i]->part) < 0);
    }
    assert_true(mr_manifest_is_in_order(items, 3));
    items[3] = items[1];
    assert_false(mr_manifest_is_in_order(items + 1, 3));
    assert_int_equal(mr_manifest_finish(m, MR_STR("{}"), NULL), MR_OK);
    read_file("manifest.json", text, sizeof text);
    assert_non_null(strstr(text, "\"in_order\":true"));
    /* A file without a place may hold anything. */
    commit_rows(m, 2, 0, 5);
    assert_int_equal(mr_manifest_finish(m, MR_STR("{}"), NULL), MR_OK);
    read_file("manifest.json", text, sizeof text);
    assert_non_null(strstr(text, "\"in_order\":false"));
    mr_manifest_close(&m);

    /* What no record names goes, by the epoch in its name. */
    write_file("parts/p-0000003-000000000000-000002-000009.csv", "x", 1);
    write_file("parts/p-0000003-000000000000-000009-000009.csv", "x", 1);
    m = must_open();
    assert_true(is_there("parts/p-0000000-000000000100-000002-000002.csv"));
    assert_false(is_there("parts/p-0000003-000000000000-000002-000009.csv"));
    assert_true(is_there("parts/p-0000003-000000000000-000009-000009.csv"));
    mr_manifest_close(&m);
}

static void what_no_record_names_is_removed(void **state)
{
    struct mr_manifest_part part;
    struct mr_manifest *m = must_open();

    (void)state;
    commit_rows(m, 0, 0, 3);
    begin(m, MR_MANIFEST_RESULTS, "never committed", &part);
    write_file("parts/p-000001-000009.csv", "x", 1);
    write_file("dlq/d-000001-000009.jsonl", "x", 1);
    write_file("parts/notes.txt", "not ours", 8);
    mr_manifest_close(&m);
    close(part.fd);
    m = must_open();
    assert_false(is_there(".tmp-p-000001-000002.csv"));
    assert_false(is_there("parts/p-000001-000009.csv"));
    assert_false(is_there("dlq/d-000001-000009.jsonl"));
    assert_true(is_there("parts/notes.txt"));
    assert_true(is_there("parts/p-000001-000001.csv"));
    mr_manifest_close(&m);
}

/* The log cut and spoilt at each of its bytes. */
static void a_torn_end_is_cut_and_damage_is_not(void **state)
{
    struct mr_manifest *m = must_open();
    char log[4096];
    char copy[4096];
    size_t last = 0;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        commit_rows(m, 0, i * 10, 10);
    }
    mr_manifest_close(&m);
    const size_t n = read_file("manifest.log", log, sizeof log);
    for (size_t i = 0; i + 1 < n; i++) {
        last = log[i] == '\n' ? i + 1 : last;
    }
    for (size_t i = last; i < n; i++) {
        save();
        write_file("manifest.log", log, i);
        m = must_open();
        assert_int_equal(mr_manifest_done(m, 0)->rows, 20);
        assert_false(is_there("parts/p-000001-000003.csv"));
        commit_rows(m, 0, 20, 10);
        mr_manifest_close(&m);
        m = must_open();
        assert_int_equal(mr_manifest_done(m, 0)->rows, 30);
        mr_manifest_close(&m);
        restore();
    }
    for (size_t i = 0; i < n; i++) {
        if (i == last - 1) {
            continue; /* a lost line end looks like one torn line: its rows are done again */
        }
        memcpy(copy, log, n);
        copy[i] ^= 1;
        write_file("manifest.log", copy, n);
        if (i < last) {
            expect_refused((struct mr_manifest_options){0}, MR_E_IO,
                           "manifest.log is damaged: line ");
        } else if (i % 16 == 0) {
            save();
            m = must_open();
            assert_int_equal(mr_manifest_done(m, 0)->rows, 20);
            mr_manifest_close(&m);
            restore();
        }
    }
    write_file("manifest.log", log, n);
    m = must_open();
    assert_int_equal(mr_manifest_done(m, 0)->rows, 30);
    mr_manifest_close(&m);
}

static void committed_files_are_checked(void **state)
{
    const struct mr_manifest_options verify = {.verify_content = true};
    struct mr_manifest *m = must_open();

    (void)state;
    commit_rows(m, 0, 0, 3);
    mr_manifest_close(&m);
    write_file("parts/p-000001-000001.csv", "same rows\n", 10);
    expect_refused(verify, MR_E_IO, "p-000001-000001.csv is damaged: CRC-32C ");
    m = must_open();
    mr_manifest_close(&m);
    write_file("parts/p-000001-000001.csv", "short", 5);
    expect_refused((struct mr_manifest_options){0}, MR_E_IO,
                   "p-000001-000001.csv has 5 bytes, 10 were written");
    run("rm", "/parts/p-000001-000001.csv");
    expect_refused((struct mr_manifest_options){0}, MR_E_NOT_FOUND, "p-000001-000001.csv");
    run("rm", "/manifest.log");
    expect_refused((struct mr_manifest_options){0}, MR_E_IO, "manifest.log is missing");
}

/* Good checksums, but records that cannot be. */
static void records_that_make_no_sense(void **state)
{
    static const struct {
        const char *json;
        int status;
        const char *text;
    } rows[] = {
        {"{\"op\":\"begin\",\"format\":2,\"epoch\":1}", MR_E_UNSUPPORTED, "line 2: format 2"},
        {"{\"op\":\"dance\"}", MR_E_UNSUPPORTED, "unknown operation 'dance'"},
        {"{\"op\":\"add\",\"also\":1}", MR_E_UNSUPPORTED, "unknown member 'also'"},
        {"{\"op\":\"add\",\"add\":[{\"part\":\"p-000001-000001.csv\",\"rows\":1,\"extents\":[[0,9,"
         "1]]}]}",
         MR_E_INVALID, "was there already"},
        {"{\"op\":\"add\",\"add\":[{\"part\":\"p-000001-000002.csv\",\"rows\":1,\"extents\":[[0,2,"
         "1]]}]}",
         MR_E_EXISTS, "input 0: rows 2 to 2 are done already"},
        {"{\"op\":\"add\",\"add\":[{\"part\":\"../x\",\"rows\":1,\"extents\":[[0,9,1]]}]}",
         MR_E_INVALID, "no name of ours"},
        {"{\"op\":\"add\",\"add\":[{\"part\":\"p-000001-000002.csv\",\"rows\":2,\"extents\":[[0,9,"
         "1]]}]}",
         MR_E_INVALID, "not those of its files"},
        {"{\"op\":\"add\",\"add\":[{\"part\":\"p-000001-000002.csv\",\"rows\":1,\"extents\":[["
         "4294967296,9,1]]}]}",
         MR_E_INVALID, "an extent is"},
        {"{\"op\":\"replace\",\"add\":[],\"remove\":[\"p-000001-000002.csv\"]}", MR_E_INVALID,
         "there is no "},
        {"{\"op\":\"add\"} x", MR_E_INVALID, "line 2"},
    };
    struct mr_manifest *m = must_open();
    char log[2048];

    (void)state;
    commit_rows(m, 0, 0, 3);
    mr_manifest_close(&m);
    m = must_open(); /* now two lines: begin, add */
    mr_manifest_close(&m);
    const size_t n = read_file("manifest.log", log, sizeof log);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t len = strlen(rows[i].json);
        const int more = snprintf(log + n, sizeof log - n, "%s %08x\n", rows[i].json,
                                  mr_crc32c(0, rows[i].json, len));
        char text[128];
        snprintf(text, sizeof text, "%s", rows[i].text);
        char *line = strstr(text, "line 2");
        if (line) {
            line[5] = '3';
        }
        write_file("manifest.log", log, n + (size_t)more);
        expect_refused((struct mr_manifest_options){0}, rows[i].status, text);
    }
}

/* The new log has its name, and a crash may take that away: to be opened again, and no other process's doing. */
static void new_log_not_on_disk(void **state)
{
    struct mr_manifest *m = must_open();
    struct mr_err err;
    bool may_reopen = false;

    (void)state;
    m->history_most = 0;
    commit_rows(m, 0, 0, 1);
    fsync_error = EIO;
    const struct mr_manifest_item *old[] = {mr_manifest_item(m, 0)};
    assert_int_equal(mr_manifest_replace(m, NULL, 0, old, 1, NULL), MR_OK);
    fsync_error = 0;
    assert_int_equal(mr_manifest_note(m, MR_STR("1"), &err), MR_E_CLOSED);
    assert_non_null(strstr(err.msg, "must be opened again"));
    assert_false(mr_manifest_is_sound(m, &may_reopen));
    assert_true(may_reopen);
    mr_manifest_close(&m);
    m = must_open();
    assert_int_equal(mr_manifest_done(m, 0)->rows, 0);
    mr_manifest_close(&m);
}

/* A file system that has none. The later start goes on, and the other one notices. */
static void no_lock(void **state)
{
    static const int errors[] = {ENOSYS, EOPNOTSUPP, ENOLCK};

    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        flock_error = errors[i];
        struct mr_manifest *first = must_open();
        struct mr_manifest *second = must_open();
        assert_int_equal(mr_manifest_note(first, MR_STR("1"), NULL), MR_E_CLOSED);
        assert_int_equal(mr_manifest_note(second, MR_STR("1"), NULL), MR_OK);
        mr_manifest_close(&first);
        mr_manifest_close(&second);
    }
    flock_error = EIO;
    expect_refused((struct mr_manifest_options){0}, MR_E_IO, "cannot lock LOCK");
    flock_error = 0;
}

static struct mr_manifest *other;

static void take_over(void)
{
    other = must_open();
}

/* While the log is rewritten. That is no fault of the disk, after which the job would be opened again. */
static void taken_over_in_a_rewrite(void **state)
{
    bool may_reopen = true;

    (void)state;
    flock_error = ENOSYS;
    struct mr_manifest *m = must_open();
    m->history_most = 0;
    commit_rows(m, 0, 0, 1);
    const struct mr_manifest_item *old[] = {mr_manifest_item(m, 0)};
    before_rename = take_over;
    assert_int_equal(mr_manifest_replace(m, NULL, 0, old, 1, NULL), MR_OK);
    assert_int_equal(mr_manifest_note(m, MR_STR("1"), NULL), MR_E_CLOSED);
    assert_false(mr_manifest_is_sound(m, &may_reopen));
    assert_false(may_reopen);
    assert_int_equal(mr_manifest_note(other, MR_STR("1"), NULL), MR_OK);
    mr_manifest_close(&m);
    mr_manifest_close(&other);
    flock_error = 0;
}

/* A log of which most is history gets short by being opened, and while it grows. */
static void history_is_dropped(void **state)
{
    struct mr_manifest *m = must_open();
    char log[1 << 16];

    (void)state;
    commit_rows(m, 0, 0, 1);
    for (int i = 0; i < 20; i++) {
        const struct mr_manifest_item *old[] = {mr_manifest_item(m, 0)};
        assert_int_equal(mr_manifest_replace(m, NULL, 0, old, 1, NULL), MR_OK);
        commit_rows(m, 0, 0, 1);
    }
    assert_int_equal(m->log_lines, 42);
    m->history_most = 38;
    assert_int_equal(mr_manifest_note(m, MR_STR("1"), NULL), MR_OK);
    assert_int_equal(m->log_lines, 3);
    read_file("manifest.log", log, sizeof log);
    assert_null(strstr(log, "replace"));
    commit_rows(m, 0, 1, 1);
    mr_manifest_close(&m);
    m = must_open();
    assert_int_equal(mr_manifest_done(m, 0)->rows, 2);
    for (int i = 0; i < MR_MANIFEST_NOTES + 5; i++) {
        mr_manifest_keep_note(m, MR_STR("2"));
    }
    assert_int_equal(m->notes.len, MR_MANIFEST_NOTES);
    assert_string_equal(m->notes.at[0], "2");
    mr_manifest_close(&m);
}

static void one_process_at_a_time(void **state)
{
    struct mr_manifest *m = must_open();
    char text[64];
    int status;

    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        struct mr_manifest *second = NULL;
        struct mr_err err = {0};
        const int rc =
            mr_manifest_open(&second, folder, identity, 2, &(struct mr_manifest_options){0}, &err);
        snprintf(text, sizeof text, "process %ld works on the job", (long)getppid());
        _exit(rc == MR_E_UNAVAILABLE && strstr(err.msg, text) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    commit_rows(m, 0, 0, 1);
    mr_manifest_close(&m);
}

/* A process that has lost its lock: whatever it does afterwards, it changes nothing and gets an error. */
static void a_zombie_changes_nothing(void **state)
{
    const struct mr_manifest_extent extent = {0, 10, 10};
    struct mr_manifest_part part;
    struct mr_manifest *zombie = must_open();
    struct mr_err err = {0};
    char before[4096];
    char after[4096];

    (void)state;
    commit_rows(zombie, 0, 0, 10);
    run("rm", "/LOCK");
    /* It was also about to rewrite its log. */
    char path[128];
    snprintf(path, sizeof path, "%s/.tmp-manifest.log", folder);
    const int half_written = open(path, O_WRONLY | O_CREAT, 0666);
    struct mr_manifest *m = must_open();
    assert_int_equal(pwrite(half_written, "spoilt", 6, 0), 6);
    close(half_written);
    assert_int_equal(mr_manifest_done(m, 0)->rows, 10);
    read_file("manifest.log", before, sizeof before);

    begin(zombie, MR_MANIFEST_RESULTS, "late", &part);
    const struct mr_manifest_add add = {
        .part = &part, .rows = 10, .extents = &extent, .extent_count = 1};
    const struct mr_manifest_item *old[] = {mr_manifest_item(zombie, 0)};
    assert_int_equal(mr_manifest_commit(zombie, &add, 1, &err), MR_E_CLOSED);
    assert_non_null(strstr(err.msg, "another process has taken over"));
    assert_false(is_there("parts/p-000001-000002.csv"));
    assert_int_equal(mr_manifest_replace(zombie, NULL, 0, old, 1, NULL), MR_E_CLOSED);
    assert_int_equal(mr_manifest_note(zombie, MR_STR("1"), NULL), MR_E_CLOSED);
    assert_int_equal(mr_manifest_finish(zombie, MR_STR("1"), NULL), MR_E_CLOSED);
    mr_manifest_part_drop(zombie, &part);
    read_file("manifest.log", after, sizeof after);
    assert_string_equal(before, after);
    assert_true(is_there("parts/p-000001-000001.csv"));
    commit_rows(m, 0, 10, 10);
    mr_manifest_close(&zombie);
    mr_manifest_close(&m);
    m = must_open();
    assert_int_equal(mr_manifest_done(m, 0)->rows, 20);
    mr_manifest_close(&m);
}

/* Results in a database, for instance: known by a name, over starts and replacements, and looked for nowhere. */
static void results_that_lie_elsewhere(void **state)
{
    const struct mr_manifest_extent extents[] = {{0, 0, 10}, {0, 10, 2}, {0, 12, 5}};
    struct mr_manifest *m = must_open();
    struct mr_manifest_part part;
    struct mr_manifest_part dlq;
    char id[MR_MANIFEST_ID_BYTES];

    (void)state;
    snprintf(id, sizeof id, "%s", mr_manifest_id(m));
    assert_int_equal(strspn(id, "0123456789abcdef"), 32);
    assert_int_equal(mr_manifest_part_begin_elsewhere(m, ".table", &part, NULL), MR_OK);
    assert_string_equal(part.name, "p-000001-000001.table");
    begin(m, MR_MANIFEST_DEAD_LETTERS, "{}\n{}\n", &dlq);
    struct mr_manifest_add add = {
        .part = &part, .dlq = &dlq, .rows = 10, .dead = 2, .extents = extents, .extent_count = 2};
    assert_int_equal(mr_manifest_commit(m, &add, 1, NULL), MR_OK);
    assert_false(is_there("parts/p-000001-000001.table"));
    mr_manifest_close(&m);

    m = must_open_with((struct mr_manifest_options){.verify_content = true});
    assert_string_equal(mr_manifest_id(m), id);
    assert_true(mr_manifest_item(m, 0)->is_elsewhere);
    assert_int_equal(
        mr_manifest_part_find_elsewhere(m, MR_STR("p-000002-000001.table"), &part, NULL),
        MR_E_INVALID);
    assert_int_equal(mr_manifest_part_find_elsewhere(m, MR_STR("d-000001-000009"), &part, NULL),
                     MR_E_INVALID);
    assert_int_equal(
        mr_manifest_part_find_elsewhere(m, MR_STR("p-000001-000007.table"), &part, NULL), MR_OK);
    add = (struct mr_manifest_add){
        .part = &part, .rows = 5, .extents = &extents[2], .extent_count = 1};
    assert_int_equal(mr_manifest_commit(m, &add, 1, NULL), MR_OK);

    const struct mr_manifest_item *old = mr_manifest_item(m, 0);
    const struct mr_manifest_add kept[] = {
        {.keep_part = old->part, .rows = 10, .extents = extents, .extent_count = 1},
        {.keep_dlq = old->dlq, .dead = 2, .extents = &extents[1], .extent_count = 1}};
    assert_int_equal(mr_manifest_replace(m, kept, 2, &old, 1, NULL), MR_OK);
    mr_manifest_close(&m);
    m = must_open();
    assert_int_equal(mr_manifest_totals(m).rows, 15);
    assert_true(mr_manifest_item(m, 0)->is_elsewhere);
    assert_true(mr_manifest_item(m, 1)->is_elsewhere);
    assert_false(mr_manifest_item(m, 2)->is_elsewhere);
    mr_manifest_close(&m);
}

/* "*" are hosts that had no room in the record. */
static void rows_of_a_host(void **state)
{
    static const char *const all = "{\"versions\":[],\"rows\":{\"*\":9}}";
    static const char *const some = "{\"versions\":[],\"rows\":{\"a:1\":3}}";

    (void)state;
    assert_int_equal(provenance_rows(some, MR_STR("a:1")), 3);
    assert_int_equal(provenance_rows(some, MR_STR("b:1")), 0);
    assert_int_equal(provenance_rows(all, MR_STR("a:1")), 9);
    assert_int_equal(provenance_rows(NULL, MR_STR("a:1")), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_from_begin_to_end),
        TEST(rows_are_never_done_twice),
        TEST(a_merge_replaces),
        TEST(dead_letters_come_back),
        TEST(another_identity_is_refused),
        TEST(a_folder_of_its_own),
        TEST(placed_names_sort_as_rows_do),
        TEST(what_no_record_names_is_removed),
        TEST(a_torn_end_is_cut_and_damage_is_not),
        TEST(committed_files_are_checked),
        TEST(records_that_make_no_sense),
        TEST(history_is_dropped),
        TEST(new_log_not_on_disk),
        TEST(no_lock),
        TEST(taken_over_in_a_rewrite),
        TEST(one_process_at_a_time),
        TEST(a_zombie_changes_nothing),
        TEST(results_that_lie_elsewhere),
        TEST(rows_of_a_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
