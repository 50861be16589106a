/* The process that serves a file is killed before or after each thing that it does to the disk. What was answered to it and to
 * another process is there afterwards, and a watch that goes on has seen it.
 *
 * The functions that change the disk are this program's own: they count, and kill the process that is to die. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop_fixture.h"
#include "process/folder.h"

#define ROUNDS 60  /* one more step in each */
#define PUTS   100 /* of each process in a round, at most */
#define FILL_BYTES                                                                                 \
    (400 * 1024) /* of every other one: the file is written as a whole again and again */

static int steps_left;   /* until this process dies; 0: it does not */
static bool is_cut;      /* the last change of a file */
static ino_t synced[16]; /* what fsync was called for */
static size_t synced_count;
static char path[200];
static char text[220];
static char fill[FILL_BYTES + 1];

static void step(void)
{
    if (steps_left > 0 && --steps_left == 0) {
        kill(getpid(), SIGKILL);
    }
}

int ftruncate(int fd, off_t bytes)
{
    step();
    int rc = (int)syscall(SYS_ftruncate, fd, bytes);
    is_cut = true;
    step();
    return rc;
}

int fdatasync(int fd)
{
    struct stat st;

    if (steps_left == 1 && !is_cut && fstat(fd, &st) == 0) { /* the last write was not whole */
        syscall(SYS_ftruncate, fd, st.st_size - 3);
    }
    is_cut = false;
    step();
    int rc = (int)syscall(SYS_fdatasync, fd);
    step();
    return rc;
}

int fsync(int fd)
{
    struct stat st;

    if (synced_count < COUNT(synced) && fstat(fd, &st) == 0) {
        synced[synced_count++] = st.st_ino;
    }
    is_cut = false;
    step();
    int rc = (int)syscall(SYS_fsync, fd);
    step();
    return rc;
}

int rename(const char *from, const char *to)
{
    step();
    int rc = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
    step();
    return rc;
}

/* ---- two processes ---- */

static const char *key_of(char out[32], int round, bool is_child, int i)
{
    snprintf(out, 32, "r%02d-%c%03d", round, is_child ? 'c' : 'p', i);
    return out;
}

/* Serves the file and puts keys until it dies. Says how many were answered, from the time on that it serves. */
static void serve_and_put(int round, int out)
{
    char key[32];

    steps_left = round + 1;
    struct kv_fixture *f = kvt_loop_new();
    kvt_open(f, 0, text);
    while (f->state[0] != MR_KV_READY) {
        f->pump(f);
    }
    for (int i = 0; i < PUTS && write(out, &i, sizeof i) == sizeof i; i++) {
        kvt_put(f, key_of(key, round, true, i), "v");
        if (i % 2) {
            kvt_put(f, "fill", fill);
        }
    }
    steps_left = 1;
    step();
}

/* Returns how many were answered, until one was not. */
static int put_keys(struct kv_fixture *f, int round)
{
    char key[32];

    for (int i = 0; i < PUTS; i++) {
        struct got g = {0};
        mr_kv_put(f->kv[0], mr_str_c(key_of(key, round, false, i)), kvt_bytes("v"), 0, kvt_done,
                  &g);
        kvt_wait(f, &g.done);
        bool is_answered = g.rc == MR_OK;
        kvt_fini(&g);
        if (!is_answered) {
            return i;
        }
    }
    return PUTS;
}

/* ---- what is there ---- */

static int answered[ROUNDS][2]; /* by this process, by the child */

static int order(const void *key, const void *item)
{
    return mr_str_cmp(*(const mr_str *)key, ((const struct mr_kv_item *)item)->key);
}

static void check_all(struct kv_fixture *f, int rounds, const struct seen *s, int64_t from)
{
    struct mr_kv_range range = {.key = MR_STR("r"), .is_prefix = true};
    struct got g = {0};
    char key[32];
    size_t later = 0;

    mr_kv_range(f->kv[1], &range, kvt_done, &g);
    kvt_ok(f, &g);
    for (int n = 0; n < 2 * rounds; n++) {
        for (int i = 0; i < answered[n / 2][n % 2]; i++) {
            mr_str k = mr_str_c(key_of(key, n / 2, n % 2, i));
            if (!bsearch(&k, g.result->items, g.result->count, sizeof *g.result->items, order)) {
                fail_msg("%s was answered, and is not there after round %d", key, rounds);
            }
        }
    }
    for (size_t i = 0; i < g.result->count; i++) {
        later += g.result->items[i].mod_revision >= from;
    }
    while (!s->resync && s->changes.len < later) {
        f->pump(f);
    }
    assert_true(s->resync || s->changes.len == later);
    kvt_fini(&g);
}

static void what_was_answered_is_there_at_each_step(void **state)
{
    char *folder;
    (void)state;

    assert_int_equal(mr_folder_new(&folder, NULL), MR_OK);
    snprintf(path, sizeof path, "%s/registry", folder);
    snprintf(text, sizeof text, "file:%s", path);
    memset(fill, 'f', FILL_BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        int fd, n;
        pid_t pid = kvt_child(serve_and_put, round, &fd);
        bool serves = read(fd, &n, sizeof n) == sizeof n;
        struct kv_fixture *f = kvt_loop_new();
        struct seen s;
        struct got g;
        kvt_open(f, 0, text);
        kvt_open(f, 1, text);
        kvt_get(f, 1, "fill", &g);
        int64_t from = g.reply.revision + 1;
        kvt_fini(&g);
        kvt_watch(f, 1, "r", from, &s);
        answered[round][0] = put_keys(f, round);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (serves && read(fd, &n, sizeof n) == sizeof n) {
            answered[round][1] = n;
        }
        close(fd);
        check_all(f, round + 1, &s, from);
        kvt_seen_fini(&s);
        kvt_loop_free(f);
    }
    mr_folder_remove(folder);
    free(folder);
}

static bool was_synced(const char *name)
{
    struct stat st;

    assert_int_equal(stat(name, &st), 0);
    for (size_t i = 0; i < synced_count; i++) {
        if (synced[i] == st.st_ino) {
            return true;
        }
    }
    return false;
}

/* Whoever wrote it may have died before that. */
static void what_is_loaded_is_on_the_disk(void **state)
{
    char *folder;
    (void)state;

    assert_int_equal(mr_folder_new(&folder, NULL), MR_OK);
    snprintf(path, sizeof path, "%s/registry", folder);
    snprintf(text, sizeof text, "file:%s", path);
    for (int i = 0; i < 2; i++) {
        struct kv_fixture *f = kvt_loop_new();
        synced_count = 0;
        kvt_open(f, 0, text);
        while (f->state[0] != MR_KV_READY) {
            f->pump(f);
        }
        assert_true(was_synced(path) && was_synced(folder));
        kvt_loop_free(f);
    }
    mr_folder_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_loaded_is_on_the_disk),
        cmocka_unit_test(what_was_answered_is_there_at_each_step),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
