/* A registry with any records, put and deleted in any order, read a second time, and messages of peers with any bytes. The input
 * is a list of steps: one byte says what, one chooses among a few keys, one is a length, the value follows. */
#include "fuzz.h"

#include "mesh/records/intent.h"
#include "mesh/records/message.h"
#include "mesh/view/view.h"

static const char *const keys[] = {"mesh/m/a",   "mesh/m/b",   "mesh/s/a", "mesh/c/a/p",
                                   "mesh/c/a/q", "mesh/c/b/p", "mesh/i/p", "mesh/i/q",
                                   "mesh/v/a",   "mesh/v/b",   "mesh/l/a", "mesh/x/a"};

static void check_sums(const struct mesh_view *v)
{
    uint32_t all[VIEW_PEERS_MAX] = {0};

    for (size_t i = 0; i < v->cap; i++) {
        for (size_t c = 0; v->models[i] && c < v->models[i]->copy_count; c++) {
            all[v->models[i]->copies[c].peer]++;
        }
    }
    for (size_t i = 0; i < v->peer_count; i++) {
        REQUIRE(v->peers[i]->sums.all == all[i]);
        REQUIRE(all[i] > 0 || (v->peers[i]->sums.used == 0 && v->peers[i]->sums.device == 0));
    }
}

static void read_again(struct mesh_view *v)
{
    struct view_change ch;
    struct mr_buf key;

    mr_buf_init(&key, 0);
    view_read_begin(v);
    while (view_sweep(v, &key, &ch)) {
    }
    mr_buf_fini(&key);
    REQUIRE(v->count == 0 && v->vmodels.len == 0);
}

static void intent_is_read_as_it_is_written(const uint8_t *data, size_t size)
{
    struct mesh_intent i;
    struct mr_buf b;

    if (mesh_intent_get(&i, (mr_bytes){data, size}, NULL) == MR_OK) {
        mr_buf_init(&b, 0);
        mesh_intent_put(&b, &i);
        REQUIRE(mesh_intent_get(&i, (mr_bytes){(const uint8_t *)b.ptr, b.len}, NULL) == MR_OK ||
                i.def.type.len == 0);
        mr_buf_fini(&b);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mesh_view v;
    struct view_change ch;
    struct mesh_message message;
    int64_t revision = 0;

    if (mesh_message_get(&message, (mr_bytes){data, size}, NULL) == MR_OK) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        mesh_message_put(&b, &message);
        REQUIRE(mesh_message_get(&message, (mr_bytes){(const uint8_t *)b.ptr, b.len}, NULL) ==
                MR_OK);
        mr_buf_fini(&b);
    }
    intent_is_read_as_it_is_written(data, size);
    view_init(&v);
    while (size >= 3) {
        mr_str key = mr_str_c(keys[data[1] % (sizeof keys / sizeof *keys)]);
        size_t len = MR_MIN(data[2], size - 3);
        revision += data[0] & 1;
        if (data[0] & 2) {
            view_apply(&v, key, (mr_bytes){0}, revision, &ch);
        } else {
            view_apply(&v, key, (mr_bytes){data + 3, len}, revision + 1, &ch);
        }
        data += 3 + len;
        size -= 3 + len;
    }
    check_sums(&v);
    read_again(&v);
    view_fini(&v);
    return 0;
}
