/* The cache: what is made once, by whom, and what goes. */
#include <pthread.h>
#include <stdatomic.h>

#include "archive/cache.h"
#include "folder.h"

static _Atomic int made;

static int make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    char file[512];

    (void)path;
    atomic_fetch_add(&made, 1);
    snprintf(file, sizeof file, "%s/file", dir);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("content", f);
    fclose(f);
    return ctx ? MR_FAIL(err, MR_E_INVALID, "%s", (const char *)ctx) : MR_OK;
}

static const struct mr_cache_maker maker = {.make = make};

static struct mr_cache *cache_new(uint64_t max)
{
    struct mr_err err;

    made = 0;
    assert_int_equal(mr_tree_remove(in_folder("cache"), &err), MR_OK);
    return mr_cache_new(in_folder("cache"), max);
}

static struct mr_cache_ref *get(struct mr_cache *c, const char *key)
{
    struct mr_cache_ref *r = NULL;
    struct mr_err err;

    assert_int_equal(mr_cache_get(c, "env", key, &maker, &r, &err), MR_OK);
    return r;
}

static void makes_once(void **state)
{
    struct mr_cache *c = cache_new(0);
    struct mr_cache_ref *a = get(c, "k");
    struct mr_cache_ref *b = get(c, "k");

    (void)state;
    assert_string_equal(mr_cache_path(a), in_folder("cache/env-k"));
    assert_file(in_folder("cache/env-k/file"), "content");
    assert_int_equal(made, 1);
    mr_cache_unref(&a);
    mr_cache_unref(&b);
    mr_cache_free(&c);
    c = mr_cache_new(in_folder("cache"), 0); /* a later process */
    a = get(c, "k");
    assert_int_equal(made, 1);
    mr_cache_unref(&a);
    mr_cache_free(&c);
}

static void failures_leave_nothing(void **state)
{
    static char why[] = "no";
    const struct mr_cache_maker bad = {.make = make, .ctx = why};
    struct mr_cache *c = cache_new(0);
    struct mr_cache_ref *r = NULL;
    struct mr_err err;

    (void)state;
    assert_int_equal(mr_cache_get(c, "env", "k", &bad, &r, &err), MR_E_INVALID);
    assert_string_equal(err.msg, "no");
    assert_null(r);
    assert_false(is_there(in_folder("cache/env-k")));
    assert_false(is_there(in_folder("cache/env-k.part")));
    assert_false(is_there(in_folder("cache/env-k.lock")));
    r = get(c, "k");
    mr_cache_unref(&r);
    mr_cache_free(&c);
}

static void halves_never_count(void **state)
{
    struct mr_cache *c = cache_new(0);
    struct mr_cache_ref *r;

    (void)state;
    folder_make("cache");
    folder_make("cache/env-k.part");
    file_write("cache/env-k.part/other", "of a maker that was killed");
    r = get(c, "k");
    assert_int_equal(made, 1);
    assert_false(is_there(in_folder("cache/env-k/other")));
    mr_cache_unref(&r);
    mr_cache_free(&c);
}

static void oldest_unused_goes(void **state)
{
    struct mr_cache *c = cache_new(1); /* so that anything is too much */
    struct mr_cache_ref *a = get(c, "a");
    struct mr_cache_ref *b = get(c, "b");

    (void)state;
    assert_true(is_there(in_folder("cache/env-a")) && is_there(in_folder("cache/env-b")));
    mr_cache_unref(&a);
    a = get(c, "c");
    assert_false(is_there(in_folder("cache/env-a")));
    assert_false(is_there(in_folder("cache/env-a.lock")));
    assert_true(is_there(in_folder("cache/env-b")) && is_there(in_folder("cache/env-c")));
    mr_cache_unref(&a);
    mr_cache_unref(&b);
    a = get(c, "a");
    assert_int_equal(made, 4);
    mr_cache_unref(&a);
    mr_cache_free(&c);
}

/* The least recently used one, not the one made first. */
static void use_counts(void **state)
{
    struct mr_cache *c = cache_new(0);
    struct mr_cache_ref *r;
    const struct timespec first[2] = {{1000, 0}, {1000, 0}}, second[2] = {{2000, 0}, {2000, 0}};

    (void)state;
    r = get(c, "a");
    mr_cache_unref(&r);
    r = get(c, "b");
    mr_cache_unref(&r);
    const uint64_t one = mr_tree_bytes(in_folder("cache/env-a"));
    mr_cache_free(&c);
    assert_int_equal(utimensat(AT_FDCWD, in_folder("cache/env-a.lock"), second, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, in_folder("cache/env-b.lock"), first, 0), 0);
    c = mr_cache_new(in_folder("cache"), 2 * one);
    r = get(c, "c");
    assert_true(is_there(in_folder("cache/env-a")));
    assert_false(is_there(in_folder("cache/env-b")));
    mr_cache_unref(&r);
    mr_cache_free(&c);
}

static void *get_main(void *arg)
{
    return get(arg, "k");
}

static void many_threads_make_once(void **state)
{
    struct mr_cache *c = cache_new(0);
    pthread_t threads[8];

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, get_main, c), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        void *got;
        assert_int_equal(pthread_join(threads[i], &got), 0);
        struct mr_cache_ref *r = got;
        mr_cache_unref(&r);
    }
    assert_int_equal(made, 1);
    mr_cache_free(&c);
}

static void foreign_folders_are_refused(void **state)
{
    struct mr_cache *c = cache_new(0);
    struct mr_cache_ref *r = NULL;
    struct mr_err err;

    (void)state;
    folder_make("cache");
    assert_int_equal(chmod(in_folder("cache"), 0777), 0);
    assert_int_equal(mr_cache_get(c, "env", "k", &maker, &r, &err), MR_E_FORBIDDEN);
    mr_cache_free(&c);
}

static void archives_by_content(void **state)
{
    struct mr_cache *c = cache_new(0);
    struct mr_cache_archive_args args = {.path = in_folder("a.tar")};
    struct mr_cache_ref *a = NULL, *b = NULL;
    struct mr_err err;

    (void)state;
    folder_make("m");
    file_write("m/file", "one");
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("a.tar"), NULL, &err), MR_OK);
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("b.tar"), NULL, &err), MR_OK);
    assert_int_equal(mr_cache_archive(c, &args, &a, &err), MR_OK);
    args.path = in_folder("b.tar");
    assert_int_equal(mr_cache_archive(c, &args, &b, &err), MR_OK);
    assert_string_equal(mr_cache_path(a), mr_cache_path(b));
    mr_cache_unref(&b);
    args.into = "model";
    assert_int_equal(mr_cache_archive(c, &args, &b, &err), MR_OK);
    assert_string_not_equal(mr_cache_path(a), mr_cache_path(b));
    char file[512];
    snprintf(file, sizeof file, "%s/model/file", mr_cache_path(b));
    assert_file(file, "one");
    mr_cache_unref(&a);
    mr_cache_unref(&b);
    /* another content by the same name */
    file_write("m/file", "two");
    args = (struct mr_cache_archive_args){.path = in_folder("c.tar")};
    assert_int_equal(mr_archive_pack(in_folder("m"), "", in_folder("c.tar"), NULL, &err), MR_OK);
    assert_int_equal(rename(in_folder("c.tar"), in_folder("b.tar")), 0);
    args.path = in_folder("b.tar");
    assert_int_equal(mr_cache_archive(c, &args, &a, &err), MR_OK);
    snprintf(file, sizeof file, "%s/file", mr_cache_path(a));
    assert_file(file, "two");
    mr_cache_unref(&a);
    args.path = in_folder("none.tar");
    assert_int_equal(mr_cache_archive(c, &args, &a, &err), MR_E_NOT_FOUND);
    args.path = folder;
    assert_int_equal(mr_cache_archive(c, &args, &a, &err), MR_E_INVALID);
    mr_cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makes_once),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(halves_never_count),
        cmocka_unit_test(oldest_unused_goes),
        cmocka_unit_test(use_counts),
        cmocka_unit_test(many_threads_make_once),
        cmocka_unit_test(foreign_folders_are_refused),
        cmocka_unit_test(archives_by_content),
    };
    return cmocka_run_group_tests(tests, folder_new, folder_end);
}
