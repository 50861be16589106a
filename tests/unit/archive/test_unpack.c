/* Archives, made here entry by entry, into folders: what is unpacked, and what is refused. */
#include <archive.h>
#include <archive_entry.h>

#include "folder.h"

struct entry {
    const char *name;
    mode_t type;
    const char *to; /* content, or where a link leads */
};

enum kind { TAR, TAR_GZ, TAR_ZST, ZIP };

static void archive_make(const char *path, enum kind kind, const struct entry *list, size_t count)
{
    struct archive *a = archive_write_new();

    assert_int_equal(kind == ZIP ? archive_write_set_format_zip(a)
                                 : archive_write_set_format_pax_restricted(a),
                     ARCHIVE_OK);
    if (kind == TAR_GZ) {
        archive_write_add_filter_gzip(a);
    } else if (kind == TAR_ZST) {
        archive_write_add_filter_zstd(a);
    }
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *e = archive_entry_new();
        archive_entry_set_pathname(e, list[i].name);
        archive_entry_set_mtime(e, 1000, 0);
        archive_entry_set_perm(e, 0755);
        archive_entry_set_filetype(e, list[i].type ? list[i].type : AE_IFREG);
        if (list[i].type == AE_IFLNK) {
            archive_entry_set_symlink(e, list[i].to);
        } else if (list[i].type == AE_IFREG && list[i].to) {
            archive_entry_set_size(e, (la_int64_t)strlen(list[i].to));
        } else if (!list[i].type) { /* a second name */
            archive_entry_set_hardlink(e, list[i].to);
        }
        assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
        if (list[i].type == AE_IFREG && list[i].to) {
            archive_write_data(a, list[i].to, strlen(list[i].to));
        }
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
}

static int unpack(const char *path, const struct mr_archive_rules *rules, struct mr_err *err)
{
    const int fd = open(path, O_RDONLY);
    struct mr_err ignored;

    assert_true(fd >= 0);
    assert_int_equal(mr_tree_remove(in_folder("out"), &ignored), MR_OK);
    folder_make("out");
    const int rc = mr_archive_unpack(fd, "a.tar", in_folder("out"), rules, err);
    close(fd);
    return rc;
}

static const struct mr_archive_rules usual = {.limits = MR_ARCHIVE_LIMITS};

static void all_kinds_unpack(void **state)
{
    static const struct entry list[] = {{"./", AE_IFDIR, NULL},
                                        {"m/1/model.py", AE_IFREG, "code"},
                                        {"./m//config.pbtxt", AE_IFREG, "name"},
                                        {"m/2", AE_IFDIR, NULL},
                                        {"m/2/model.py", AE_IFLNK, "../1/model.py"},
                                        {"m/empty", AE_IFREG, ""}};
    static const char *const names[] = {"a.tar", "a.tar.gz", "a.tar.zst", "a.zip"};
    struct stat st;
    struct mr_err err;

    (void)state;
    for (int kind = TAR; kind <= ZIP; kind++) {
        const char *path = in_folder(names[kind]);
        archive_make(path, (enum kind)kind, list, 6);
        assert_int_equal(unpack(path, &usual, &err), MR_OK);
        assert_file(in_folder("out/m/1/model.py"), "code");
        assert_file(in_folder("out/m/2/model.py"), "code");
        assert_file(in_folder("out/m/config.pbtxt"), "name");
        assert_int_equal(stat(in_folder("out/m/1/model.py"), &st), 0);
        assert_int_equal(st.st_mtime, 1000);
        assert_int_equal(st.st_mode & 07777 & ~0755u, 0);
    }
}

/* A file of 64 KiB in a tar, of which the archive has the first four bytes only. */
static void sparse_make(const char *path)
{
    static char data[64 << 10] = "head";
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();

    assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    archive_entry_set_pathname(e, "weights");
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    archive_entry_set_size(e, sizeof data);
    archive_entry_sparse_add_entry(e, 0, 4);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, data, sizeof data), sizeof data);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_entry_free(e);
    archive_write_free(a);
}

static void sparse_files_have_their_size(void **state)
{
    struct mr_archive_rules rules = usual;
    struct stat st;
    struct mr_err err;

    (void)state;
    sparse_make(in_folder("a.tar"));
    assert_int_equal(unpack(in_folder("a.tar"), &usual, &err), MR_OK);
    assert_file(in_folder("out/weights"), "head");
    assert_int_equal(stat(in_folder("out/weights"), &st), 0);
    assert_int_equal(st.st_size, 64 << 10);
    rules.limits.bytes = (64 << 10) - 1;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_TOO_LARGE);
}

/* A byte of the content, and one of the checksum, in a file that is stored as it is; a file that is cut before the latter. */
static void damage_is_noticed(void **state)
{
    static char content[70000];
    const struct entry list[] = {{"weights", AE_IFREG, content}};
    struct stat st;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof content - 1; i++) {
        content[i] = (char)(33 + i * i % 89);
    }
    archive_make(in_folder("a.tar.gz"), TAR_GZ, list, 1);
    assert_int_equal(unpack(in_folder("a.tar.gz"), &usual, &err), MR_OK);
    assert_int_equal(stat(in_folder("a.tar.gz"), &st), 0);
    const off_t places[] = {st.st_size / 2, st.st_size - 6};
    for (size_t i = 0; i < 2; i++) {
        const int fd = open(in_folder("a.tar.gz"), O_RDWR);
        uint8_t byte, other;
        assert_int_equal(pread(fd, &byte, 1, places[i]), 1);
        other = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &other, 1, places[i]), 1);
        assert_int_equal(unpack(in_folder("a.tar.gz"), &usual, &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "no whole archive"));
        assert_int_equal(pwrite(fd, &byte, 1, places[i]), 1);
        close(fd);
    }
    assert_int_equal(truncate(in_folder("a.tar.gz"), st.st_size - 4), 0);
    assert_int_equal(unpack(in_folder("a.tar.gz"), &usual, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, ".zip): unexpected end of file"));
}

static void second_names_are_files(void **state)
{
    static const struct entry list[] = {{"a", AE_IFREG, "one"}, {"b/c", 0, "a"}};
    struct mr_err err;

    (void)state;
    archive_make(in_folder("a.tar"), TAR, list, 2);
    assert_int_equal(unpack(in_folder("a.tar"), &usual, &err), MR_OK);
    assert_file(in_folder("out/b/c"), "one");
}

/* Each of these archives is refused, with a text that has `why`. */
static void hostile_entries_are_refused(void **state)
{
    static const struct {
        struct entry list[3];
        const char *why;
    } cases[] = {
        {{{"../x", AE_IFREG, "1"}}, "leads out of the archive by '..'"},
        {{{"a/../../x", AE_IFREG, "1"}}, "leads out of the archive by '..'"},
        {{{"/tmp/x", AE_IFREG, "1"}}, "absolute name"},
        {{{"l", AE_IFLNK, "/etc/passwd"}}, "link that leads out"},
        {{{"l", AE_IFLNK, "../../../../../../etc/passwd"}}, "link that leads out"},
        {{{"d/l", AE_IFLNK, "../../x"}, {"x", AE_IFREG, "1"}}, "link that leads out"},
        /* what lexically stays inside, and does not */
        {{{"d/e/f/up", AE_IFLNK, "../../.."}, {"l", AE_IFLNK, "d/e/f/up/../../../tmp"}},
         "link that leads out"},
        {{{"l", AE_IFLNK, "."}, {"l/x", AE_IFREG, "1"}}, "no folder"},
        {{{"f", AE_IFREG, "1"}, {"f/x", AE_IFREG, "1"}}, "no folder"},
        {{{"f", AE_IFREG, "1"}, {"f", AE_IFREG, "2"}}, "twice"},
        {{{"f", AE_IFREG, "1"}, {"f", AE_IFLNK, "f"}}, "twice"},
        {{{"f", AE_IFREG, "1"}, {"f", AE_IFDIR, NULL}}, "something else before"},
        {{{"p", AE_IFIFO, NULL}}, "neither file, folder nor link"},
        {{{"p", AE_IFCHR, NULL}}, "neither file, folder nor link"},
        {{{"l", AE_IFLNK, "."}, {"d/h", 0, "l"}}, "does not exist"},
        {{{"h", 0, "/etc/passwd"}}, "absolute name"},
        {{{"h", 0, "../x"}}, "leads out of the archive"},
        {{{"a\nb", AE_IFREG, "1"}}, "control characters"},
    };
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count = 0;
        while (count < 3 && cases[i].list[count].name) {
            count++;
        }
        archive_make(in_folder("a.tar"), TAR, cases[i].list, count);
        const int rc = unpack(in_folder("a.tar"), &usual, &err);
        if (rc != MR_E_INVALID || !strstr(err.msg, cases[i].why)) {
            fail_msg("case %zu: %d %s", i, rc, rc < 0 ? err.msg : "");
        }
        assert_false(is_there("/tmp/x") || is_there(in_folder("x")));
    }
}

static void links_to_nothing_are_removed(void **state)
{
    static const struct entry list[] = {{"a", AE_IFREG, "1"}, {"l", AE_IFLNK, "nothing"}};
    struct mr_err err;

    (void)state;
    archive_make(in_folder("a.tar"), TAR, list, 2);
    assert_int_equal(unpack(in_folder("a.tar"), &usual, &err), MR_OK);
    assert_false(is_there(in_folder("out/l")));
}

static void environments_have_their_interpreter_elsewhere(void **state)
{
    static const struct entry list[] = {{"bin/python3", AE_IFLNK, "/usr/bin/python3"},
                                        {"bin/python", AE_IFLNK, "python3"}};
    static const struct entry other[] = {{"lib/python3", AE_IFLNK, "/usr/lib"}};
    struct mr_archive_rules rules = usual;
    char to[64] = "";
    struct mr_err err;

    (void)state;
    rules.flags = MR_ARCHIVE_ENVIRONMENT;
    archive_make(in_folder("a.tar"), TAR, list, 2);
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_OK);
    assert_true(readlink(in_folder("out/bin/python3"), to, sizeof to - 1) > 0);
    assert_string_equal(to, "/usr/bin/python3");
    assert_int_equal(unpack(in_folder("a.tar"), &usual, &err), MR_E_INVALID);
    archive_make(in_folder("a.tar"), TAR, other, 1);
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_INVALID);
}

/* As venv-pack makes them. */
static void environments_have_a_file_twice(void **state)
{
    static const struct entry list[] = {{"bin/python", AE_IFLNK, "/usr/bin/python3"},
                                        {"pyvenv.cfg", AE_IFREG, "one, which is longer"},
                                        {"pyvenv.cfg", AE_IFREG, "two"}};
    static const struct entry links[] = {{"a", AE_IFREG, "1"}, {"a", AE_IFLNK, "b"}};
    static const struct entry link[] = {
        {"b", AE_IFREG, "1"}, {"a", AE_IFLNK, "b"}, {"a", AE_IFREG, "2"}};
    struct mr_archive_rules rules = usual;
    struct mr_err err;

    (void)state;
    rules.flags = MR_ARCHIVE_ENVIRONMENT;
    archive_make(in_folder("a.tar"), TAR, list, 3);
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_OK);
    assert_file(in_folder("out/pyvenv.cfg"), "two");
    archive_make(in_folder("a.tar"), TAR, links, 2);
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_INVALID);
    archive_make(in_folder("a.tar"), TAR, link, 3);
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "twice"));
}

static bool on_progress_stop(void *ctx, uint64_t done)
{
    (void)done;
    return ++*(int *)ctx < 2;
}

static void limits_hold(void **state)
{
    static const struct entry list[] = {{"a", AE_IFREG, "12345"}, {"b/c/d", AE_IFREG, "12345"}};
    struct mr_archive_rules rules = usual;
    int calls = 0;
    struct mr_err err;

    (void)state;
    archive_make(in_folder("a.tar"), TAR, list, 2);
    rules.limits.bytes = 10;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_OK);
    rules.limits.bytes = 9;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_TOO_LARGE);
    assert_non_null(strstr(err.msg, "more than 9 bytes"));
    rules = usual;
    rules.limits.files = 1;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_TOO_LARGE);
    rules = usual;
    rules.limits.depth = 2;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "too deep"));
    rules = usual;
    rules.on_progress = on_progress_stop;
    rules.ctx = &calls;
    assert_int_equal(unpack(in_folder("a.tar"), &rules, &err), MR_E_CANCELLED);
}

static void bombs_are_refused(void **state)
{
    const size_t size = (size_t)80 << 20;
    char *zeros = mr_alloc(size + 1);
    const struct entry list[] = {{"a", AE_IFREG, zeros}};
    struct mr_archive_rules rules = usual;
    struct mr_err err;

    (void)state;
    memset(zeros, '0', size);
    archive_make(in_folder("a.tar.zst"), TAR_ZST, list, 1);
    assert_int_equal(unpack(in_folder("a.tar.zst"), &rules, &err), MR_E_TOO_LARGE);
    assert_non_null(strstr(err.msg, "500 times its size"));
    rules.limits.ratio = 1000000;
    assert_int_equal(unpack(in_folder("a.tar.zst"), &rules, &err), MR_OK);
    mr_free(zeros);
}

static void damaged_ones_are_refused(void **state)
{
    static const struct entry list[] = {{"a", AE_IFREG, "0123456789abcdefghijklmnopqrstuvwxyz"}};
    struct stat st;
    struct mr_err err;

    (void)state;
    file_write("a.tar", "this is no archive");
    assert_int_equal(unpack(in_folder("a.tar"), &usual, &err), MR_E_INVALID);
    archive_make(in_folder("a.tar.gz"), TAR_GZ, list, 1);
    assert_int_equal(stat(in_folder("a.tar.gz"), &st), 0);
    assert_int_equal(truncate(in_folder("a.tar.gz"), st.st_size / 2), 0);
    assert_int_equal(unpack(in_folder("a.tar.gz"), &usual, &err), MR_E_INVALID);
}

static void names_of_archives(void **state)
{
    mr_str stem = {0};

    (void)state;
    assert_true(mr_archive_is_name(MR_STR("m.v2.tar.gz"), &stem));
    assert_true(mr_str_eq(stem, MR_STR("m.v2")));
    assert_true(mr_archive_is_name(MR_STR("m.tgz"), NULL));
    assert_true(mr_archive_is_name(MR_STR("m.zip"), NULL));
    assert_true(mr_archive_is_name(MR_STR("m.tar.zst"), NULL));
    assert_false(mr_archive_is_name(MR_STR(".tar"), NULL));
    assert_false(mr_archive_is_name(MR_STR("m.tar.xz"), NULL));
    assert_false(mr_archive_is_name(MR_STR("m.gz"), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_unpack),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(sparse_files_have_their_size),
        cmocka_unit_test(second_names_are_files),
        cmocka_unit_test(hostile_entries_are_refused),
        cmocka_unit_test(links_to_nothing_are_removed),
        cmocka_unit_test(environments_have_their_interpreter_elsewhere),
        cmocka_unit_test(environments_have_a_file_twice),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(damaged_ones_are_refused),
        cmocka_unit_test(names_of_archives),
    };
    return cmocka_run_group_tests(tests, folder_new, folder_end);
}
