/* The view of the registry: records in any order, what a second reading takes away, memory. */
#include "mesh/view/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"

static void put_def(struct mesh_view *v, const char *id, const char *path, int64_t revision,
                    struct view_change *ch)
{
    struct mr_buf key;
    struct mr_buf value;
    mr_buf_init(&key, 0);
    mr_buf_init(&value, 0);
    mesh_key_put(&key, MESH_KEY_MODEL, mr_str_c(id), (mr_str){0});
    mesh_def_put(&value, &(struct mesh_def){.type = MR_STR("onnx"), .path = mr_str_c(path)});
    view_apply(v, mr_buf_view(&key), (mr_bytes){(const uint8_t *)value.ptr, value.len}, revision,
               ch);
    ch->id = (mr_str){0}; /* it pointed into the key */
    mr_buf_fini(&key);
    mr_buf_fini(&value);
}

static void put_copy(struct mesh_view *v, const char *id, const char *at,
                     enum mesh_copy_state state, uint64_t units, int64_t revision,
                     struct view_change *ch)
{
    struct mr_buf key;
    struct mr_buf value;
    mr_buf_init(&key, 0);
    mr_buf_init(&value, 0);
    mesh_key_put(&key, MESH_KEY_COPY, mr_str_c(id), mr_str_c(at));
    mesh_copy_put(&value, &(struct mesh_copy){.state = state, .size_bytes = units * MESH_UNIT});
    view_apply(v, mr_buf_view(&key), (mr_bytes){(const uint8_t *)value.ptr, value.len}, revision,
               ch);
    ch->id = (mr_str){0};
    mr_buf_fini(&key);
    mr_buf_fini(&value);
}

static void copies_are_summed_by_instance(void **state)
{
    struct mesh_view v;
    struct view_change ch;
    (void)state;

    view_init(&v);
    put_copy(&v, "a", "p1", MESH_LOADING, 10, 5, &ch); /* before its definition */
    assert_int_equal(ch.kind, VIEW_COPY);
    assert_int_equal(ch.before, MESH_NO_COPY);
    struct view_peer *p = view_peer_find(&v, MR_STR("p1"));
    assert_int_equal(p->sums.loading, 1);
    put_def(&v, "a", "/x", 6, &ch);
    put_copy(&v, "a", "p1", MESH_LOADED, 12, 7, &ch);
    assert_int_equal(p->sums.used, 12);
    assert_int_equal(p->sums.loading, 0);
    put_copy(&v, "a", "p1", MESH_LOADING, 10, 6, &ch); /* older than what is known */
    assert_int_equal(ch.kind, VIEW_NOTHING);
    assert_int_equal(v.loaded, 1);
    put_copy(&v, "a", "p1", MESH_FAILED, 12, 8, &ch);
    assert_int_equal(p->sums.used, 0);
    assert_int_equal(v.loaded, 0);
    assert_int_equal(v.failed, 1);
    view_apply(&v, MR_STR("mesh/c/a/p1"), (mr_bytes){0}, 9, &ch);
    assert_int_equal(ch.after, MESH_NO_COPY);
    assert_int_equal(p->sums.all, 0);
    assert_int_equal(v.failed, 0);
    assert_non_null(view_find(&v, MR_STR("a")));
    view_apply(&v, MR_STR("mesh/m/a"), (mr_bytes){0}, 10, &ch);
    assert_int_equal(ch.kind, VIEW_NO_MODEL);
    assert_null(view_find(&v, MR_STR("a")));
    view_fini(&v);
}

static void unreadable_records_are_counted(void **state)
{
    struct mesh_view v;
    struct view_change ch;
    (void)state;

    view_init(&v);
    mr_bytes bad = {(const uint8_t *)"\x0a\xff", 2};
    static const char *const keys[] = {"mesh/m/a", "mesh/s/a", "mesh/c/a/p",
                                       "mesh/i/p", "mesh/v/a", "mesh/q/a"};
    for (size_t i = 0; i < 6; i++) {
        view_apply(&v, mr_str_c(keys[i]), bad, 3, &ch);
        assert_int_equal(ch.kind, VIEW_NOTHING);
    }
    assert_int_equal(v.ignored, 6);
    assert_string_equal(v.ignored_key, "mesh/q/a");
    assert_null(view_find(&v, MR_STR("a")));
    assert_int_equal(v.peer_count, 0); /* no place is kept for whoever such a record names */
    view_fini(&v);
}

static void second_reading_takes_away_what_is_gone(void **state)
{
    struct mesh_view v;
    struct view_change ch;
    struct mr_buf key;
    (void)state;

    view_init(&v);
    mr_buf_init(&key, 0);
    put_def(&v, "a", "/x", 50, &ch);
    put_def(&v, "b", "/x", 51, &ch);
    put_copy(&v, "b", "p1", MESH_LOADED, 3, 52, &ch);
    view_read_begin(&v);
    put_def(&v, "a", "/y", 2, &ch); /* a store that began again */
    assert_int_equal(ch.kind, VIEW_MODEL);
    unsigned gone = 0;
    while (view_sweep(&v, &key, &ch)) {
        gone++;
    }
    assert_int_equal(gone, 2);
    assert_null(view_find(&v, MR_STR("b")));
    assert_true(mr_str_eq_c(view_path(view_find(&v, MR_STR("a"))), "/y"));
    mr_buf_fini(&key);
    view_fini(&v);
}

static void models_are_found_after_any_removals(void **state)
{
    struct mesh_view v;
    struct view_change ch;
    struct mr_rng rng;
    bool is_there[3000] = {0};
    char id[32];
    (void)state;

    view_init(&v);
    mr_rng_seed(&rng, 3);
    for (unsigned step = 1; step < 20000; step++) {
        unsigned n = (unsigned)(mr_rng_u64(&rng) % 3000);
        snprintf(id, sizeof id, "model-%u", n);
        if (is_there[n]) {
            char key[48];
            snprintf(key, sizeof key, "mesh/m/%s", id);
            view_apply(&v, mr_str_c(key), (mr_bytes){0}, step, &ch);
        } else {
            put_def(&v, id, "/p", step, &ch);
        }
        is_there[n] = !is_there[n];
    }
    for (unsigned n = 0; n < 3000; n++) {
        snprintf(id, sizeof id, "model-%u", n);
        assert_int_equal(view_find(&v, mr_str_c(id)) != NULL, is_there[n]);
    }
    view_fini(&v);
}

static void model_takes_less_than_200_bytes(void **state)
{
    struct mesh_view v;
    struct view_change ch;
    char id[64];
    char path[64];
    (void)state;

    view_init(&v);
    for (unsigned i = 0; i < 50000; i++) {
        snprintf(id, sizeof id, "tenant-%03u/classifier-%08u", i % 100, i);
        snprintf(path, sizeof path, "s3://models/tenant-%03u/%08u", i % 100, i);
        put_def(&v, id, path, i + 1, &ch);
        put_copy(&v, id, "pod-1", MESH_LOADED, 128, i + 1, &ch);
    }
    print_message("%.0f bytes a model\n", (double)v.bytes / 50000);
    assert_true(v.bytes / 50000 <= 200);
    view_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_summed_by_instance),
        cmocka_unit_test(unreadable_records_are_counted),
        cmocka_unit_test(second_reading_takes_away_what_is_gone),
        cmocka_unit_test(models_are_found_after_any_removals),
        cmocka_unit_test(model_takes_less_than_200_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
