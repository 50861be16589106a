/* Messages of etcd's API, both ways. The first byte says which; what could be read and is written again is read the
 * same. */
#include "fuzz.h"

#include "kv/wire/reply_read.h"
#include "kv/wire/reply_write.h"
#include "kv/wire/request_read.h"
#include "kv/wire/request_write.h"

#define ASKS (KV_ASK_REVOKE + 1)

static const struct mr_kv_op ops[] = {
    {.kind = MR_KV_GET, .is_prefix = true}, {.kind = MR_KV_PUT}, {.kind = MR_KV_DELETE}};

static const struct kv_request *asked(enum kv_ask ask)
{
    static struct kv_request r;
    r = (struct kv_request){
        .ask = ask,
        .range.limit = 5,
        .lease = 7,
        .txn = {.then = ops, .then_count = 3, .otherwise = ops, .otherwise_count = 1}};
    return &r;
}

static void write_reply(struct mr_buf *b, mr_bytes m, enum kv_ask ask, bool must_work)
{
    struct kv_wire_header header;
    struct mr_kv_reply reply;
    struct mr_arena arena;
    struct mr_err err = {0};

    mr_arena_init(&arena, 0, 1 << 26);
    int rc = kv_wire_reply(m, MR_STR(""), asked(ask), &arena, &header, &reply, &err);
    REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0] && !must_work));
    if (rc == MR_OK) {
        kv_wire_put_reply(b, &header, asked(ask), &reply);
    }
    mr_arena_fini(&arena);
}

static void write_request(struct mr_buf *b, mr_bytes m, enum kv_ask ask, bool must_work)
{
    struct kv_request request;
    struct mr_arena arena;
    struct mr_err err = {0};

    mr_arena_init(&arena, 0, 1 << 26);
    int rc = kv_wire_read_request(m, ask, &arena, &request, &err);
    REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0] && !must_work));
    if (rc == MR_OK) {
        kv_wire_request(b, MR_STR(""), &request);
    }
    mr_arena_fini(&arena);
}

static void write_watched(struct mr_buf *b, mr_bytes m, enum kv_ask ask, bool must_work)
{
    struct kv_wire_watched watched;
    struct mr_arena arena;

    (void)ask;
    mr_arena_init(&arena, 0, 1 << 26);
    int rc = kv_wire_watched(m, MR_STR(""), &arena, &watched, NULL);
    REQUIRE(rc == MR_OK || !must_work);
    if (rc == MR_OK) {
        kv_wire_put_watched(b, &watched);
    }
    mr_arena_fini(&arena);
}

static void write_watch(struct mr_buf *b, mr_bytes m, enum kv_ask ask, bool must_work)
{
    struct kv_wire_watch_request request;

    (void)ask;
    int rc = kv_wire_read_watch(m, &request, NULL);
    REQUIRE(rc == MR_OK || !must_work);
    if (rc == MR_OK && request.kind == KV_WATCH_CREATE) {
        kv_wire_watch(b, MR_STR(""), request.prefix, request.from);
    }
}

typedef void(rewrite_fn)(struct mr_buf *b, mr_bytes m, enum kv_ask ask, bool must_work);

/* Written, read and written again: the same bytes. */
static void rewrite(rewrite_fn *fn, mr_bytes m, enum kv_ask ask)
{
    struct mr_buf first, second;

    mr_buf_init(&first, 0);
    mr_buf_init(&second, 0);
    fn(&first, m, ask, false);
    if (first.len) {
        fn(&second, (mr_bytes){(uint8_t *)first.ptr, first.len}, ask, true);
        REQUIRE(mr_str_eq(mr_buf_view(&first), mr_buf_view(&second)));
    }
    mr_buf_fini(&first);
    mr_buf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_wire_status status;
    mr_bytes m = {data + 1, size - 1};
    int64_t revision;
    mr_str token;

    if (size < 1) {
        return 0;
    }
    unsigned what = data[0] % (2 * ASKS + 5);
    if (what < ASKS) {
        rewrite(write_reply, m, what);
    } else if (what < 2 * ASKS) {
        rewrite(write_request, m, what - ASKS);
    } else if (what == 2 * ASKS) {
        rewrite(write_watched, m, 0);
    } else if (what == 2 * ASKS + 1) {
        rewrite(write_watch, m, 0);
    } else if (what == 2 * ASKS + 2) {
        kv_wire_status(m, &status, NULL);
    } else if (what == 2 * ASKS + 3) {
        REQUIRE(kv_wire_token(m, &token, NULL) < 0 || (token.len > 0 && token.len <= 8192));
    } else {
        kv_wire_read_compact(m, &revision, NULL);
    }
    return 0;
}
