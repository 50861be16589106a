/* Records of manifest.log as JSON:
 *
 *     {"op":"begin","format":1,"epoch":7}                       the first one of a log
 *     {"op":"add","add":[item…]}
 *     {"op":"replace","add":[item…],"remove":["p-…"…]}          items by the name of their first file
 *     {"op":"note","note":…}
 *     item: {"part":"p-…","rows":9,"bytes":123,"crc":1,"dlq":"d-…","dead":1,"dlq_bytes":12,"dlq_crc":2,
 *            "elsewhere":true,                  the part is no file
 *            "extents":[[file,first,count]…],"hosts":…}
 *
 * A record with a good checksum may still be one that we do not understand, from a later version or a
 * mistake: then nothing is guessed, and the job does not open. */
#include <inttypes.h>
#include <string.h>

#include "manifest_priv.h"

/* Memory for the strings of one line that hold escapes; ours hold none outside notes. */
#define LINE_BYTES (1u << 20)

void mr_record_begin(struct mr_buf *b, uint32_t epoch)
{
    mr_buf_printf(b, "{\"op\":\"begin\",\"format\":%d,\"epoch\":%u}", MR_MANIFEST_FORMAT, epoch);
}

void mr_record_item(struct mr_buf *b, const struct mr_manifest_item *item)
{
    mr_buf_char(b, '{');
    if (item->part) {
        mr_buf_printf(b, "\"part\":\"%s\",\"rows\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"crc\":%u,",
                      item->part, item->rows, item->part_bytes, item->part_crc);
    }
    if (item->is_elsewhere) {
        MR_BUF_LIT(b, "\"elsewhere\":true,");
    }
    if (item->dlq) {
        mr_buf_printf(
            b, "\"dlq\":\"%s\",\"dead\":%" PRIu64 ",\"dlq_bytes\":%" PRIu64 ",\"dlq_crc\":%u,",
            item->dlq, item->dead, item->dlq_bytes, item->dlq_crc);
    }
    MR_BUF_LIT(b, "\"extents\":[");
    for (size_t i = 0; i < item->extent_count; i++) {
        const struct mr_manifest_extent *e = &item->extents[i];
        mr_buf_printf(b, "%s[%u,%" PRIu64 ",%" PRIu64 "]", i ? "," : "", e->file, e->first,
                      e->count);
    }
    mr_buf_char(b, ']');
    if (item->hosts) {
        mr_buf_printf(b, ",\"hosts\":%s", item->hosts);
    }
    mr_buf_char(b, '}');
}

/* Which of its files an item is known by. */
static const char *name_of(const struct mr_manifest_item *item)
{
    return item->part ? item->part : item->dlq;
}

void mr_record_change(struct mr_buf *b, struct mr_manifest_item *const *add, size_t add_count,
                      const struct mr_manifest_item *const *remove, size_t remove_count)
{
    mr_buf_printf(b, "{\"op\":\"%s\",\"add\":[", remove_count ? "replace" : "add");
    for (size_t i = 0; i < add_count; i++) {
        mr_buf_c(b, i ? "," : "");
        mr_record_item(b, add[i]);
    }
    mr_buf_char(b, ']');
    for (size_t i = 0; i < remove_count; i++) {
        mr_buf_printf(b, "%s\"%s\"", i ? "," : ",\"remove\":[", name_of(remove[i]));
    }
    mr_buf_c(b, remove_count ? "]}" : "}");
}

void mr_record_note(struct mr_buf *b, mr_str json)
{
    MR_BUF_LIT(b, "{\"op\":\"note\",\"note\":");
    mr_buf_str(b, json);
    mr_buf_char(b, '}');
}

/* ---- reading ---- */

typedef MR_VEC(struct mr_manifest_item *) item_vec;
typedef MR_VEC(struct mr_manifest_extent) extent_vec;

static int read_extent(struct mr_json *j, extent_vec *out)
{
    uint64_t numbers[3] = {0};
    bool first = true;
    size_t n = 0;
    uint64_t end;

    mr_json_enter_array(j);
    while (mr_json_next_item(j, &first) && n < 3) {
        mr_json_u64(j, &numbers[n++]);
    }
    if (j->status == MR_OK && (n != 3 || numbers[0] >= MR_MANIFEST_FILES_MOST || numbers[2] == 0 ||
                               __builtin_add_overflow(numbers[1], numbers[2], &end))) {
        return mr_json_fail(j, MR_E_INVALID, "an extent is [file, first, count]");
    }
    if (j->status == MR_OK) {
        MR_VEC_PUSH(out,
                    ((struct mr_manifest_extent){(uint32_t)numbers[0], numbers[1], numbers[2]}));
    }
    return j->status;
}

static int read_name(struct mr_json *j, enum mr_manifest_kind kind, char **out)
{
    mr_str name;

    if (mr_json_string(j, &name) < 0) {
        return j->status;
    }
    if (*out || !mr_manifest_name_is_ours(kind, name)) {
        return mr_json_fail(j, MR_E_INVALID, "'%.*s' is no name of ours", MR_STR_ARG(name));
    }
    *out = mr_strndup(name.ptr, name.len);
    return MR_OK;
}

static void read_member(struct mr_json *j, mr_str key, struct mr_manifest_item *item,
                        extent_vec *extents)
{
    uint64_t crc = 0;
    mr_str text;
    bool first = true;

    if (mr_str_eq_c(key, "part")) {
        read_name(j, MR_MANIFEST_RESULTS, &item->part);
    } else if (mr_str_eq_c(key, "dlq")) {
        read_name(j, MR_MANIFEST_DEAD_LETTERS, &item->dlq);
    } else if (mr_str_eq_c(key, "rows")) {
        mr_json_u64(j, &item->rows);
    } else if (mr_str_eq_c(key, "dead")) {
        mr_json_u64(j, &item->dead);
    } else if (mr_str_eq_c(key, "bytes")) {
        mr_json_u64(j, &item->part_bytes);
    } else if (mr_str_eq_c(key, "elsewhere")) {
        mr_json_bool(j, &item->is_elsewhere);
    } else if (mr_str_eq_c(key, "dlq_bytes")) {
        mr_json_u64(j, &item->dlq_bytes);
    } else if (mr_str_eq_c(key, "crc")) {
        mr_json_u64(j, &crc);
        item->part_crc = (uint32_t)crc;
    } else if (mr_str_eq_c(key, "dlq_crc")) {
        mr_json_u64(j, &crc);
        item->dlq_crc = (uint32_t)crc;
    } else if (mr_str_eq_c(key, "extents")) {
        mr_json_enter_array(j);
        while (mr_json_next_item(j, &first)) {
            read_extent(j, extents);
        }
    } else if (mr_str_eq_c(key, "hosts") && !item->hosts) {
        if (mr_json_skip(j, &text) == MR_OK) {
            item->hosts = mr_strndup(text.ptr, text.len);
        }
    } else {
        mr_json_fail(j, MR_E_UNSUPPORTED, "unknown member '%.*s' of an item", MR_STR_ARG(key));
    }
}

static void read_item(struct mr_json *j, item_vec *out)
{
    struct mr_manifest_item *item = MR_NEW(struct mr_manifest_item);
    extent_vec extents = {0};
    uint64_t rows = 0;
    bool first = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        read_member(j, key, item, &extents);
    }
    for (size_t i = 0; i < extents.len; i++) {
        rows += extents.at[i].count; /* one that wraps around fails at the ranges */
    }
    item->extent_count = extents.len;
    MR_VEC_PUSH(&extents, ((struct mr_manifest_extent){0})); /* see take_extents */
    item->extents = extents.at;
    const bool is_empty = item->part && rows == 0 && !item->dlq;
    if (j->status == MR_OK && (!name_of(item) || (!is_empty && !item->part != !item->rows) ||
                               !item->dlq != !item->dead || rows != item->rows + item->dead)) {
        mr_json_fail(j, MR_E_INVALID, "the rows of an item are not those of its files");
    }
    MR_VEC_PUSH(out, item);
}

struct record {
    mr_str op;
    item_vec add;
    MR_VEC(const struct mr_manifest_item *) remove;
    mr_str note;
    uint64_t format;
    uint64_t epoch;
};

static void read_removed(struct mr_manifest *m, struct mr_json *j, struct record *r)
{
    mr_str name;

    if (mr_json_string(j, &name) < 0) {
        return;
    }
    const struct mr_manifest_item *item = mr_map_find(&m->by_name, name);
    for (size_t i = 0; i < r->remove.len; i++) {
        item = r->remove.at[i] == item ? NULL : item;
    }
    if (!item) {
        mr_json_fail(j, MR_E_INVALID, "there is no '%.*s' to be removed", MR_STR_ARG(name));
        return;
    }
    MR_VEC_PUSH(&r->remove, item);
}

static void read_record(struct mr_manifest *m, struct mr_json *j, struct record *r)
{
    bool first = true;
    bool first_item = true;
    mr_str key;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "op")) {
            mr_json_string(j, &r->op);
        } else if (mr_str_eq_c(key, "format")) {
            mr_json_u64(j, &r->format);
        } else if (mr_str_eq_c(key, "epoch")) {
            mr_json_u64(j, &r->epoch);
        } else if (mr_str_eq_c(key, "note")) {
            mr_json_skip(j, &r->note);
        } else if (mr_str_eq_c(key, "add") || mr_str_eq_c(key, "remove")) {
            first_item = true;
            mr_json_enter_array(j);
            while (mr_json_next_item(j, &first_item)) {
                if (mr_str_eq_c(key, "add")) {
                    read_item(j, &r->add);
                } else {
                    read_removed(m, j, r);
                }
            }
        } else {
            mr_json_fail(j, MR_E_UNSUPPORTED, "unknown member '%.*s'", MR_STR_ARG(key));
        }
    }
    mr_json_finish(j);
}

/* Two live items never share a file, but where one takes the place of another. */
static int check_names(struct mr_manifest *m, const struct record *r, struct mr_err *err)
{
    for (size_t i = 0; i < r->add.len; i++) {
        const char *names[2] = {r->add.at[i]->part, r->add.at[i]->dlq};
        for (int k = 0; k < 2; k++) {
            const struct mr_manifest_item *other =
                names[k] ? mr_map_find(&m->by_name, mr_str_c(names[k])) : NULL;
            bool is_free = !other;
            for (size_t n = 0; n < i && names[k]; n++) {
                const char *before = k ? r->add.at[n]->dlq : r->add.at[n]->part;
                if (before && strcmp(before, names[k]) == 0) {
                    return MR_FAIL(err, MR_E_INVALID, "'%s' is there twice", names[k]);
                }
            }
            for (size_t n = 0; n < r->remove.len; n++) {
                is_free = is_free || r->remove.at[n] == other;
            }
            if (!is_free) {
                return MR_FAIL(err, MR_E_INVALID, "'%s' was there already", names[k]);
            }
        }
    }
    return MR_OK;
}

static int replay(struct mr_manifest *m, struct record *r, struct mr_err *err)
{
    int rc;

    if (mr_str_eq_c(r->op, "begin")) {
        if (r->format != MR_MANIFEST_FORMAT) {
            return MR_FAIL(err, MR_E_UNSUPPORTED, "format %" PRIu64 ", this program knows %d",
                           r->format, MR_MANIFEST_FORMAT);
        }
        if (r->epoch == 0 || r->epoch > UINT32_MAX) {
            return MR_FAIL(err, MR_E_INVALID, "epoch %" PRIu64, r->epoch);
        }
        m->epoch = (uint32_t)r->epoch;
        return MR_OK;
    }
    if (m->epoch == 0) {
        return MR_FAIL(err, MR_E_INVALID, "does not begin with its epoch");
    }
    if (mr_str_eq_c(r->op, "note")) {
        mr_manifest_keep_note(m, r->note);
        return MR_OK;
    }
    if (!mr_str_eq_c(r->op, "add") && !mr_str_eq_c(r->op, "replace")) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "unknown operation '%.*s'", MR_STR_ARG(r->op));
    }
    MR_TRY(check_names(m, r, err));
    MR_TRY(mr_manifest_reserve(m, r->add.at, r->add.len, r->remove.at, r->remove.len, err));
    mr_manifest_apply(m, r->add.at, r->add.len, r->remove.at, r->remove.len);
    r->add.len = 0; /* taken */
out:
    return rc;
}

int mr_record_replay(struct mr_manifest *m, mr_str json, struct mr_err *err)
{
    struct record r = {0};
    struct mr_arena arena;
    struct mr_json j;

    mr_arena_init(&arena, 0, LINE_BYTES);
    mr_json_init(&j, json, &arena, 0, err);
    read_record(m, &j, &r);
    const int rc = j.status < 0 ? j.status : replay(m, &r, err);
    for (size_t i = 0; i < r.add.len; i++) {
        mr_manifest_item_free(&r.add.at[i]);
    }
    MR_VEC_FINI(&r.add);
    MR_VEC_FINI(&r.remove);
    mr_arena_fini(&arena);
    return rc;
}
