/* Folders into archives, and back. */
#include "folder.h"

static void tree_make(void)
{
    folder_make("m");
    folder_make("m/1");
    file_write("m/1/model.py", "code");
    file_write("m/config.pbtxt", "name");
    file_write("m/.hidden", "1");
    folder_make("m/__pycache__");
    file_write("m/__pycache__/x.pyc", "1");
    assert_int_equal(symlink("1/model.py", in_folder("m/again")), 0);
}

static void sum_of(const char *path, char out[MR_SHA256_TEXT])
{
    const int fd = open(path, O_RDONLY);
    struct mr_err err;

    assert_int_equal(mr_sha256_fd(fd, path, out, &err), MR_OK);
    close(fd);
}

static void packs_what_it_unpacks(void **state)
{
    static const char *const names[] = {"a.tar", "a.tar.gz", "a.tar.zst", "a.zip"};
    const struct mr_archive_rules rules = {.limits = MR_ARCHIVE_LIMITS};
    char first[MR_SHA256_TEXT], second[MR_SHA256_TEXT];
    uint64_t files = 0;
    struct mr_err err;

    (void)state;
    tree_make();
    for (size_t i = 0; i < 4; i++) {
        const char *path = in_folder(names[i]);
        if (mr_archive_pack(in_folder("m"), "top", path, &files, &err) < 0) {
            fail_msg("%s", err.msg);
        }
        assert_int_equal(files, 3);
        folder_make("out");
        const int fd = open(path, O_RDONLY);
        assert_int_equal(mr_archive_unpack(fd, path, in_folder("out"), &rules, &err), MR_OK);
        close(fd);
        assert_file(in_folder("out/top/again"), "code");
        assert_file(in_folder("out/top/config.pbtxt"), "name");
        assert_false(is_there(in_folder("out/top/.hidden")));
        assert_false(is_there(in_folder("out/top/__pycache__")));
        assert_int_equal(mr_tree_remove(in_folder("out"), &err), MR_OK);
        /* other times, the same bytes */
        const struct timespec past[2] = {{1, 0}, {1, 0}};
        sum_of(path, first);
        assert_int_equal(utimensat(AT_FDCWD, in_folder("m/config.pbtxt"), past, 0), 0);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mr_archive_pack(in_folder("m"), "top", path, NULL, &err), MR_OK);
        sum_of(path, second);
        assert_string_equal(first, second);
        file_write("m/config.pbtxt", "name"); /* the present time again */
    }
}

/* As every other system of today reads them: what is unpacked has the same bytes, and a zip says that they are UTF-8. */
static void names_are_utf8(void **state)
{
    static const char *const names[] = {"u.tar", "u.tar.gz", "u.zip"};
    const struct mr_archive_rules rules = {.limits = MR_ARCHIVE_LIMITS};
    struct mr_err err;

    (void)state;
    folder_make("u");
    file_write("u/na\xc3\xafve.txt", "text");
    assert_int_equal(symlink("na\xc3\xafve.txt", in_folder("u/\xc3\xa9")), 0);
    for (size_t i = 0; i < 3; i++) {
        const char *path = in_folder(names[i]);
        if (mr_archive_pack(in_folder("u"), "", path, NULL, &err) < 0) {
            fail_msg("%s: %s", names[i], err.msg);
        }
        folder_make("out");
        const int fd = open(path, O_RDONLY);
        if (mr_archive_unpack(fd, path, in_folder("out"), &rules, &err) < 0) {
            fail_msg("%s: %s", names[i], err.msg);
        }
        if (i == 2) {
            uint8_t flags[2];
            assert_int_equal(pread(fd, flags, 2, 6), 2);
            assert_int_equal(flags[1] & 8, 8);
        }
        close(fd);
        assert_file(in_folder("out/na\xc3\xafve.txt"), "text");
        assert_file(in_folder("out/\xc3\xa9"), "text");
        assert_int_equal(mr_tree_remove(in_folder("out"), &err), MR_OK);
    }
}

static void refuses(void **state)
{
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("a.rar"), NULL, &err),
                     MR_E_INVALID);
    assert_int_equal(mr_archive_pack(in_folder("none"), "", in_folder("b.tar"), NULL, &err),
                     MR_E_NOT_FOUND);
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("a.tar"), NULL, &err),
                     MR_E_EXISTS);
    assert_int_equal(symlink("/etc/passwd", in_folder("m/out")), 0);
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("b.tar"), NULL, &err),
                     MR_E_INVALID);
    assert_non_null(strstr(err.msg, "not in the folder"));
    assert_false(is_there(in_folder("b.tar")));
    assert_int_equal(unlink(in_folder("m/out")), 0);
    file_write("m/a\nb", "1"); /* which would be refused when it is unpacked */
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("b.tar"), NULL, &err),
                     MR_E_INVALID);
    assert_non_null(strstr(err.msg, "control characters"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_what_it_unpacks),
        cmocka_unit_test(names_are_utf8),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, folder_new, folder_end);
}
