/* The ONNX Runtime backend with parameters in memory of their own: the same answers as on the heap, and a cache that
 * is checked, bounded and not needed. */
#include "harness.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char cache[64];

static int path_remove(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int cache_begin(void **state)
{
    (void)state;
    snprintf(cache, sizeof cache, "/tmp/millrace-conformance-XXXXXX");
    return mkdtemp(cache) ? 0 : -1;
}

static int cache_end(void **state)
{
    (void)state;
    return nftw(cache, path_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* A backend that takes even the smallest tensors apart; the cases load with it until it is closed. */
static struct mr_plugin *apart_open(const char *folder, const char *limit)
{
    const struct mr_setting settings[] = {{"parameter_pool_min_bytes", "1"},
                                          {"parameter_cache", folder},
                                          {"parameter_cache_bytes", limit}};
    struct mr_plugin *before = plugin;
    struct mr_err err = {0};

    if (plugin_open("onnxruntime", settings, limit ? 3 : 2, &plugin, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    return before;
}

static void apart_close(struct mr_plugin *before)
{
    mr_plugin_close(&plugin);
    plugin = before;
}

/* The only file of that name in the cache. */
static const char *cached(const char *name)
{
    static char path[PATH_MAX];
    DIR *d = opendir(cache);
    int found = 0;

    assert_non_null(d);
    for (struct dirent *it; (it = readdir(d));) {
        if (it->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s", cache, it->d_name, name);
            found++;
        }
    }
    closedir(d);
    return found == 1 ? path : NULL;
}

/* ---- what a model answers ---- */

#define INPUTS_MAX  8
#define OUTPUTS_MAX 4

struct answer {
    int rc;
    struct call call;
    uint8_t *data[INPUTS_MAX];
};

/* One execution on samples, 3 wherever a size is free. */
static void ask(const struct loaded *l, struct answer *a)
{
    const struct mr_signature *s = l->signature;

    memset(a, 0, sizeof *a);
    assert_true(s->input_count <= INPUTS_MAX && s->output_count <= OUTPUTS_MAX);
    call_init(&a->call, l);
    for (uint32_t i = 0; i < s->input_count; i++) {
        int64_t shape[MR_MAX_RANK];
        uint64_t elements = 1;
        uint64_t bytes = 0;
        for (int32_t d = 0; d < s->inputs[i].rank; d++) {
            shape[d] = s->inputs[i].dims[d] < 0 ? 3 : s->inputs[i].dims[d];
            elements *= (uint64_t)shape[d];
        }
        a->data[i] = sample(s->inputs[i].dtype, elements, &bytes);
        call_input(&a->call, i, s->inputs[i].dtype, a->data[i], bytes,
                   s->inputs[i].rank < 0 ? 0 : s->inputs[i].rank, shape);
    }
    a->rc = call_run(&a->call, l);
}

static void answer_free(struct answer *a)
{
    for (int i = 0; i < INPUTS_MAX; i++) {
        mr_free(a->data[i]);
    }
    call_fini(&a->call);
}

static void assert_same(const struct loaded *l, const struct loaded *other)
{
    struct answer a;
    struct answer b;

    assert_int_equal(l->signature->output_count, other->signature->output_count);
    ask(l, &a);
    ask(other, &b);
    assert_int_equal(a.rc, b.rc);
    for (uint32_t i = 0; i < l->signature->output_count && a.rc == MR_OK; i++) {
        const struct mr_tensor *x = &a.call.out[i].tensor;
        const struct mr_tensor *y = &b.call.out[i].tensor;
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape);
        assert_int_equal(x->bytes, y->bytes);
        if (x->bytes > 0) {
            assert_memory_equal(x->data, y->data, x->bytes);
        }
    }
    answer_free(&a);
    answer_free(&b);
}

/* ---- the cases ---- */

static int compare(const char *model)
{
    struct loaded plain;
    struct loaded apart;
    struct mr_err why;
    struct mr_err other;
    int rc = model_try(model, NULL, 0, NULL, &plain, &why);
    struct mr_plugin *before = apart_open(cache, NULL);
    int is_apart = 0;

    assert_int_equal(model_try(model, NULL, 0, NULL, &apart, &other), rc);
    if (rc < 0) {
        assert_string_equal(why.msg, other.msg);
    } else {
        is_apart = (int)apart.model->ops->memory(apart.model).is_apart;
        assert_int_equal(plain.model->ops->memory(plain.model).is_apart, 0);
        if (plain.signature->input_count > 0) {
            for (int i = 0; i < 3; i++) { /* comparing, bound and staged */
                assert_same(&plain, &apart);
            }
        }
        model_drop(&apart);
    }
    apart_close(before);
    if (rc == MR_OK) {
        model_drop(&plain);
    }
    return is_apart;
}

static void same_answers(void **state)
{
    DIR *d = opendir(repo_path("", ""));
    int apart = 0;

    (void)state;
    assert_non_null(d);
    for (struct dirent *it; (it = readdir(d));) {
        struct stat st;
        if (it->d_name[0] != '.' && stat(repo_path(it->d_name, "/1"), &st) == 0 &&
            strcmp(it->d_name, "slow") != 0) {
            apart += compare(it->d_name);
        }
    }
    closedir(d);
    assert_true(apart >= 3); /* mlp, external and others that have parameters */
}

static void reported(void **state)
{
    struct mr_plugin *before = apart_open(cache, NULL);
    struct loaded l = model_load("mlp", NULL);
    struct mr_model_memory m = l.model->ops->memory(l.model);
    const struct mr_setting plain = {"parameter_memory", "plain"};
    const struct mr_setting wrong = {"parameter_memory", "elsewhere"};
    struct mr_err err;

    (void)state;
    assert_int_equal(m.is_apart, 1);
    assert_true(m.mapped_bytes > 0 && m.kept_bytes <= m.mapped_bytes && m.packed_bytes > 0);
    assert_int_equal(m.heap_bytes, 0);
    assert_string_equal(m.reason, "");
    model_drop(&l);
    assert_int_equal(model_try("mlp", &plain, 1, NULL, &l, &err), MR_OK);
    assert_int_equal(l.model->ops->memory(l.model).is_apart, 0);
    model_drop(&l);
    assert_int_equal(model_try("mlp", &wrong, 1, NULL, &l, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "parameter_memory"));
    l = model_load("zipmap", NULL); /* its parameters are attributes of an operator */
    m = l.model->ops->memory(l.model);
    assert_int_equal(m.is_apart, 0);
    assert_non_null(strstr(m.reason, "bytes are in large tensors"));
    model_drop(&l);
    apart_close(before);
}

static void damage(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    int c;

    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    c = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_true(fputc(c ^ 0x55, f) != EOF);
    assert_int_equal(fclose(f), 0);
}

static void assert_apart(const struct loaded *plain, int is_apart)
{
    struct loaded l = model_load("mlp", NULL);

    assert_int_equal(l.model->ops->memory(l.model).is_apart, is_apart);
    assert_same(plain, &l);
    model_drop(&l);
}

static void cache_is_checked(void **state)
{
    struct loaded plain = model_load("mlp", NULL);
    struct mr_plugin *before = apart_open(cache, NULL);
    struct stat first;
    struct stat again;

    (void)state;
    assert_apart(&plain, 1);
    assert_int_equal(stat(cached("weights.bin"), &first), 0);
    assert_int_equal(first.st_size % 4096, 0);
    assert_apart(&plain, 1);
    assert_int_equal(stat(cached("weights.bin"), &again), 0);
    assert_int_equal(first.st_ino, again.st_ino); /* used again */
    damage(cached("weights.bin"), 40);
    assert_apart(&plain, 1);
    damage(cached("model.onnx"), 5);
    assert_apart(&plain, 1);
    assert_int_equal(truncate(cached("weights.bin"), 100), 0);
    assert_apart(&plain, 1);
    assert_int_equal(unlink(cached("model.onnx")), 0);
    assert_apart(&plain, 1);
    assert_int_equal(unlink(cached("weights.bin")), 0);
    assert_apart(&plain, 1);
    apart_close(before);
    model_drop(&plain);
}

static void cache_is_not_needed(void **state)
{
    struct loaded plain = model_load("mlp", NULL);
    struct mr_plugin *before;
    char path[128];
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/file", cache);
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    before = apart_open(path, NULL); /* no folder */
    assert_apart(&plain, 0);
    apart_close(before);
    assert_int_equal(unlink(path), 0);
    before = apart_open(cache, "4095"); /* no room: weights take a page */
    assert_apart(&plain, 0);
    apart_close(before);
    assert_int_equal(chmod(cache, 0777), 0); /* others could put models there */
    before = apart_open(cache, NULL);
    assert_apart(&plain, 0);
    apart_close(before);
    assert_int_equal(chmod(cache, 0700), 0);
    snprintf(path, sizeof path, "%s/a/b", cache); /* is made */
    before = apart_open(path, NULL);
    assert_apart(&plain, 1);
    apart_close(before);
    model_drop(&plain);
}

static void cache_is_bounded(void **state)
{
    struct mr_plugin *before = apart_open(cache, NULL);
    struct loaded mlp = model_load("mlp", NULL);
    struct stat st;
    char limit[24];

    (void)state;
    assert_int_equal(stat(cached("weights.bin"), &st), 0);
    model_drop(&mlp);
    apart_close(before);
    /* Room for the one or the other. */
    snprintf(limit, sizeof limit, "%lld", (long long)st.st_size + 3000);
    before = apart_open(cache, limit);
    mlp = model_load("mlp", NULL);
    assert_int_equal(mlp.model->ops->memory(mlp.model).is_apart, 1);
    struct loaded other = model_load("versions", NULL);
    assert_int_equal(other.model->ops->memory(other.model).is_apart, 0);
    assert_non_null(cached("weights.bin")); /* what is in use stays, and nothing was added */
    model_drop(&other);
    model_drop(&mlp);
    other = model_load("versions", NULL);
    assert_int_equal(other.model->ops->memory(other.model).is_apart, 1);
    assert_int_equal(stat(cached("weights.bin"), &st), 0);
    assert_int_equal(st.st_size, 4096);
    model_drop(&other);
    apart_close(before);
}

/* ---- cancelled loads ---- */

static struct {
    struct mr_loading loading; /* first */
    _Atomic int asked;
    int enough; /* the load is cancelled at this check */
} given_up;

static bool is_enough(const struct mr_loading *l)
{
    (void)l;
    return atomic_fetch_add(&given_up.asked, 1) >= given_up.enough;
}

/* One load that is given up at the question of that number, or ends before. */
static int try_until(const char *model, int enough, struct loaded *out)
{
    struct mr_err err;

    memset(&given_up, 0, sizeof given_up);
    given_up.loading.is_unwanted = is_enough;
    given_up.enough = enough;
    loading = &given_up.loading;
    int rc = model_try(model, NULL, 0, NULL, out, &err);
    loading = NULL;
    if (rc < 0 && rc != MR_E_CANCELLED) {
        fail_msg("%s", err.msg);
    }
    return rc;
}

static void assert_nothing_begun(void)
{
    DIR *d = opendir(cache);

    assert_non_null(d);
    for (struct dirent *it; (it = readdir(d));) {
        assert_true(strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0 ||
                    it->d_name[0] != '.');
    }
    closedir(d);
}

/* Ranges of the pool: areas without reserve that asked for large pages. */
static int ranges(void)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[1024];
    int count = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        count += strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " nr ") && strstr(line, " hg ");
    }
    fclose(f);
    return count;
}

/* A load that is cancelled at each of its checks in turn leaks nothing, and the next load succeeds. Returns the number of
 * cancelled loads. */
static int give_up_everywhere(const char *model)
{
    struct loaded plain = model_load(model, NULL);
    struct loaded l;
    int enough = 0;
    int rc;

    struct mr_plugin *before = apart_open(cache, NULL);
    while ((rc = try_until(model, enough, &l)) == MR_E_CANCELLED) {
        assert_nothing_begun();
        assert_true(ranges() <= 1);
        enough++;
        assert_true(enough < 1000);
    }
    assert_int_equal(rc, MR_OK);
    assert_int_equal(l.model->ops->memory(l.model).is_apart, 1);
    assert_true(atomic_load(&given_up.loading.total) > 0);
    assert_int_equal(atomic_load(&given_up.loading.done), atomic_load(&given_up.loading.total));
    assert_same(&plain, &l);
    model_drop(&l);
    apart_close(before);
    model_drop(&plain);
    return enough;
}

static void given_up_while_loading(void **state)
{
    (void)state;
    assert_true(give_up_everywhere("mlp") >= 3); /* read, copied, packed */
    assert_non_null(cached("weights.bin"));
    assert_true(give_up_everywhere("mlp") >= 3); /* read, compared, packed */
    assert_non_null(cached("weights.bin"));
    assert_true(give_up_everywhere("external") >= 2);
}

const struct CMUnitTest parameters_cases[] = {
    cmocka_unit_test_setup_teardown(same_answers, cache_begin, cache_end),
    cmocka_unit_test_setup_teardown(reported, cache_begin, cache_end),
    cmocka_unit_test_setup_teardown(cache_is_checked, cache_begin, cache_end),
    cmocka_unit_test_setup_teardown(cache_is_not_needed, cache_begin, cache_end),
    cmocka_unit_test_setup_teardown(cache_is_bounded, cache_begin, cache_end),
    cmocka_unit_test_setup_teardown(given_up_while_loading, cache_begin, cache_end),
};
const size_t parameters_case_count = sizeof parameters_cases / sizeof *parameters_cases;
