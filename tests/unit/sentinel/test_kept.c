/* Files that a worker leaves to later ones: taken once, and only if they cannot change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kept.h"

#define ALL (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int memory(int seals, int bytes)
{
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_taken_once(void **state)
{
    struct mr_frame_fds fds = {{memory(ALL, 1000), memory(ALL, 24)}, 2};
    struct kept k = {0};
    struct mr_err err;

    (void)state;
    assert_int_equal(kept_take(&k, &fds, &err), MR_OK);
    assert_int_equal(k.files.count, 2);
    assert_int_equal(k.bytes, 1024);
    assert_int_equal(fds.count, 0);
    fds = (struct mr_frame_fds){{memory(ALL, 8)}, 1};
    const int second = fds.at[0];
    assert_int_equal(kept_take(&k, &fds, &err), MR_E_INVALID);
    assert_false(is_open(second));
    assert_int_equal(k.bytes, 1024);
    const int first = k.files.fds[0];
    kept_close(&k);
    assert_false(is_open(first));
    assert_int_equal(k.files.count, 0);
}

static void test_what_could_change_is_refused(void **state)
{
    const int files[] = {memory(ALL & ~F_SEAL_WRITE, 8), memory(ALL & ~F_SEAL_SHRINK, 8),
                         memory(ALL & ~F_SEAL_GROW, 8), memory(ALL & ~F_SEAL_SEAL, 8),
                         open("/dev/null", O_RDONLY | O_CLOEXEC)};
    struct kept k = {0};
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const int good = memory(ALL, 8);
        struct mr_frame_fds fds = {{good, files[i]}, 2};
        assert_int_equal(kept_take(&k, &fds, &err), MR_E_INVALID);
        assert_int_equal(k.files.count, 0);
        assert_false(is_open(good) || is_open(files[i]));
    }
    struct mr_frame_fds none = {0};
    assert_int_equal(kept_take(&k, &none, &err), MR_E_INVALID);
}

/* Through the socket: with their frame, the surplus closed, and none when none is wanted. */
static void test_frames_carry_descriptors(void **state)
{
    const int files[] = {memory(ALL, 1), memory(ALL, 2), memory(ALL, 3)};
    struct mr_frame_fds got = {.count = MR_FRAME_FDS_MAX - 2};
    struct mr_frame f;
    struct mr_buf in;
    struct mr_err err;
    int sockets[2];

    (void)state;
    mr_buf_init(&in, 1 << 20);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(mr_frame_send_fds(sockets[0], MR_FRAME_KEPT, files, 3, &err), MR_OK);
    assert_int_equal(mr_frame_read(sockets[1], &in, &got, &err), 1);
    assert_int_equal(mr_frame_next(&in, &f, &err), 1);
    assert_int_equal(f.type, MR_FRAME_KEPT);
    mr_frame_drop(&in, &f);
    assert_int_equal(got.count, MR_FRAME_FDS_MAX);
    assert_int_equal(lseek(got.at[MR_FRAME_FDS_MAX - 1], 0, SEEK_END), 2);
    const int next = dup(files[0]); /* the lowest free number: the third is closed */
    assert_int_equal(next, got.at[MR_FRAME_FDS_MAX - 1] + 1);
    close(next);
    assert_int_equal(mr_frame_send_fds(sockets[0], MR_FRAME_KEPT, files, 1, &err), MR_OK);
    assert_int_equal(mr_frame_read(sockets[1], &in, NULL, &err), 1);
    const int other = dup(files[0]);
    assert_int_equal(other, next);
    close(other);
    for (uint32_t i = MR_FRAME_FDS_MAX - 2; i < got.count; i++) {
        close(got.at[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        close(files[i]);
    }
    close(sockets[0]);
    close(sockets[1]);
    mr_buf_fini(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken_once),
        cmocka_unit_test(test_what_could_change_is_refused),
        cmocka_unit_test(test_frames_carry_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
