/* A string put into any bytes by a path of any depth. What was put is found; putting it twice is putting it once; and a message of a known
 * type has nothing changed but that string. */
#include "fuzz.h"

#include "base/buf.h"
#include "base/mem.h"
#include "codec/splice.h"
#include "inference.pb-c.h"

static void join(const struct mr_splice *s, struct mr_buf *out)
{
    mr_buf_init(out, 0);
    for (size_t i = 0; i < s->count; i++) {
        mr_buf_append(out, s->pieces[i].ptr, s->pieces[i].len);
    }
    REQUIRE(out->len == s->len && s->count <= MR_SPLICE_PIECES_MAX);
}

static void put(mr_bytes in, const struct mr_splice_path *path, mr_str string, struct mr_buf *out)
{
    struct mr_splice s;

    REQUIRE(mr_splice_put(in, path, string, &s, NULL) == MR_OK);
    join(&s, out);
}

static mr_bytes bytes_of(const struct mr_buf *b)
{
    return (mr_bytes){(const uint8_t *)b->ptr, b->len};
}

static void check(mr_bytes in, const struct mr_splice_path *path, mr_str string)
{
    struct mr_buf once, twice;
    struct mr_splice s;
    mr_str found;

    int rc = mr_splice_find(in, path, &found, NULL);
    REQUIRE(mr_splice_put(in, path, string, &s, NULL) == MR_MIN(rc, 0));
    if (rc < 0) {
        return;
    }
    join(&s, &once);
    REQUIRE(mr_splice_find(bytes_of(&once), path, &found, NULL) == 1 && mr_str_eq(found, string));
    put(bytes_of(&once), path, string, &twice);
    REQUIRE(mr_str_eq(mr_buf_view(&once), mr_buf_view(&twice)));
    mr_buf_fini(&once);
    mr_buf_fini(&twice);
}

/* Against protobuf-c, where it takes the message. */
static void check_known(mr_bytes in, mr_str string)
{
    const struct mr_splice_path path = {2, {1, 1}}; /* config.name */
    Inference__ModelConfigResponse *m =
        inference__model_config_response__unpack(NULL, in.len, in.ptr);
    struct mr_splice s;

    if (m && mr_splice_put(in, &path, string, &s, NULL) == MR_OK) {
        struct mr_buf after;
        join(&s, &after);
        Inference__ModelConfigResponse *changed =
            inference__model_config_response__unpack(NULL, after.len, (const uint8_t *)after.ptr);
        REQUIRE(changed && changed->config);
        REQUIRE(mr_str_eq_c(string, changed->config->name));
        if (m->config) { /* the same but for the name */
            char *name = m->config->name;
            m->config->name = changed->config->name;
            size_t len = inference__model_config_response__get_packed_size(m);
            REQUIRE(len == inference__model_config_response__get_packed_size(changed));
            uint8_t *a = mr_alloc(2 * len + 1);
            inference__model_config_response__pack(m, a);
            inference__model_config_response__pack(changed, a + len);
            REQUIRE(memcmp(a, a + len, len) == 0);
            mr_free(a);
            m->config->name = name;
        }
        inference__model_config_response__free_unpacked(changed, NULL);
        mr_buf_fini(&after);
    }
    inference__model_config_response__free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_splice_path path = {.depth = size ? data[0] % MR_SPLICE_DEPTH_MAX + 1u : 1};

    for (unsigned i = 0; i < path.depth; i++) {
        path.field[i] = i + 1 < size ? data[i + 1] % 20 + 1u : 1;
    }
    size_t head = MR_MIN(size, (size_t)path.depth + 1);
    mr_bytes in = {data + head, size - head};
    check(in, &path, MR_STR("id"));
    check_known(in, MR_STR("another-id"));
    return 0;
}
