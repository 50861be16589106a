/* See provenance.h. Items have few hosts as a rule, and rows of one host come one after the other: lists will do. */
#include "provenance.h"

#include <inttypes.h>
#include <string.h>

#include "codec/json.h"
#include "manifest.h"

#define ALL         "*"
#define READ_MEMORY (1u << 20)

void provenance_fini(struct provenance *o)
{
    for (size_t i = 0; i < o->hosts.len; i++) {
        mr_free(o->hosts.at[i].address);
    }
    for (size_t i = 0; i < o->versions.len; i++) {
        mr_free(o->versions.at[i]);
    }
    MR_VEC_FINI(&o->hosts);
    MR_VEC_FINI(&o->versions);
    o->last = 0;
}

static void rows_add(struct provenance *o, mr_str address, uint64_t rows)
{
    for (size_t i = 0; i < o->hosts.len; i++) {
        const size_t at = (o->last + i) % o->hosts.len;
        if (mr_str_eq_c(address, o->hosts.at[at].address)) {
            o->hosts.at[at].rows += rows;
            o->last = at;
            return;
        }
    }
    MR_VEC_PUSH(&o->hosts, ((struct provenance_host){mr_strndup(address.ptr, address.len), rows}));
    o->last = o->hosts.len - 1;
}

void provenance_add(struct provenance *o, const char *address, uint64_t rows)
{
    rows_add(o, mr_str_c(address), rows);
}

void provenance_version(struct provenance *o, mr_str version)
{
    bool is_new = version.len > 0;

    for (size_t i = 0; i < o->versions.len; i++) {
        is_new = is_new && !mr_str_eq_c(version, o->versions.at[i]);
    }
    if (is_new) {
        MR_VEC_PUSH(&o->versions, mr_strndup(version.ptr, version.len));
    }
}

static void rows_read(struct provenance *o, struct mr_json *j)
{
    bool is_first = true;
    uint64_t rows;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &is_first, &key)) {
        if (mr_json_u64(j, &rows) == MR_OK) {
            rows_add(o, key, rows);
        }
    }
}

void provenance_read(struct provenance *o, const char *json)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    mr_str key;

    if (!json) {
        return;
    }
    mr_arena_init(&arena, 0, READ_MEMORY);
    mr_json_init(&j, mr_str_c(json), &arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        bool is_first_version = true;
        mr_str version;
        if (mr_str_eq_c(key, "rows")) {
            rows_read(o, &j);
        } else if (mr_str_eq_c(key, "versions")) {
            mr_json_enter_array(&j);
            while (mr_json_next_item(&j, &is_first_version)) {
                if (mr_json_string(&j, &version) == MR_OK) {
                    provenance_version(o, version);
                }
            }
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    mr_arena_fini(&arena);
}

static void json_put(const struct provenance *o, bool is_all, struct mr_buf *b)
{
    uint64_t sum = 0;

    MR_BUF_LIT(b, "{\"versions\":[");
    for (size_t i = 0; i < o->versions.len; i++) {
        mr_buf_c(b, i ? "," : "");
        mr_json_put_string(b, mr_str_c(o->versions.at[i]));
    }
    MR_BUF_LIT(b, "],\"rows\":{");
    for (size_t i = 0; i < o->hosts.len; i++) {
        sum += o->hosts.at[i].rows;
        if (!is_all) {
            mr_buf_c(b, i ? "," : "");
            mr_json_put_string(b, mr_str_c(o->hosts.at[i].address));
            mr_buf_printf(b, ":%" PRIu64, o->hosts.at[i].rows);
        }
    }
    if (is_all) {
        mr_buf_printf(b, "\"" ALL "\":%" PRIu64, sum);
    }
    MR_BUF_LIT(b, "}}");
}

const char *provenance_json(const struct provenance *o, struct mr_buf *b)
{
    if (o->hosts.len == 0) {
        return NULL;
    }
    mr_buf_reset(b);
    json_put(o, false, b);
    if (b->len > MR_MANIFEST_NOTE_BYTES_MOST) {
        mr_buf_reset(b);
        json_put(o, true, b);
    }
    return mr_buf_cstr(b);
}

static uint64_t rows_of(const struct provenance *o, mr_str address)
{
    for (size_t i = 0; i < o->hosts.len; i++) {
        if (mr_str_eq_c(address, o->hosts.at[i].address)) {
            return o->hosts.at[i].rows;
        }
    }
    return 0;
}

bool provenance_may_be(const char *json, mr_str address)
{
    struct provenance o = {0};

    provenance_read(&o, json);
    const bool may_be =
        o.hosts.len == 0 || rows_of(&o, address) > 0 || rows_of(&o, MR_STR(ALL)) > 0;
    provenance_fini(&o);
    return may_be;
}

uint64_t provenance_rows(const char *json, mr_str address)
{
    struct provenance o = {0};

    provenance_read(&o, json);
    const uint64_t rows = rows_of(&o, address) + rows_of(&o, MR_STR(ALL));
    provenance_fini(&o);
    return rows;
}
