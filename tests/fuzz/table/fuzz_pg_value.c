/* Values of PostgreSQL in its binary format: whatever a server sends makes a row or a fault of one, and what is read can be
 * written and read back. Input: a type, what its column is to be, the value. */
#include "fuzz.h"

#include "table/database/pg_value.h"

static const unsigned types[] = {
    PG_BOOL,   PG_BYTEA,  PG_INT8, PG_INT2,      PG_INT4, PG_TEXT,    PG_OID,        PG_JSON,
    PG_FLOAT4, PG_FLOAT8, PG_DATE, PG_TIMESTAMP, 1000,    1001,       1005,          1007,
    1009,      1016,      1021,    1022,         1182,    PG_NUMERIC, PG_TIMESTAMPTZ};

/* Types that a model may require instead of the one found. */
static void want(struct mr_field *f, uint8_t how)
{
    struct mr_field *leaf = f->item ? f->item : f;

    if (leaf->type <= MR_COLUMN_F64 && how % 16 > 0 && how % 16 <= MR_COLUMN_F64) {
        leaf->type = (enum mr_column_type)(how % 16);
    }
    if (f->item && how >= 128) {
        f->type = MR_COLUMN_FIXED_LIST;
        f->width = how % 8;
    }
}

static void read_back(unsigned type, const struct mr_field *f, const struct mr_rows *rows)
{
    struct mr_column_builder again;
    struct mr_arena scratch;
    struct mr_buf out;

    if (!mr_pg_takes(type, -1, f)) {
        return;
    }
    mr_buf_init(&out, 0);
    mr_arena_init(&scratch, 4096, 1 << 20);
    mr_column_builder_init(&again, f);
    REQUIRE(mr_pg_put(&out, type, f, &rows->columns[0], 0, NULL) == MR_OK);
    REQUIRE(out.len >= 4);
    REQUIRE(!mr_pg_add(&again, type, mr_str_n(out.ptr + 4, out.len - 4), &scratch, NULL));
    REQUIRE(again.count == 1);
    if (again.value_bytes > 0 && mr_column_type_bytes(f->type) > 0) {
        REQUIRE(memcmp(again.values, rows->columns[0].values, again.value_bytes) == 0);
    }
    mr_column_builder_fini(&again);
    mr_arena_fini(&scratch);
    mr_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const unsigned type = types[data[0] % (sizeof types / sizeof *types)];
    const int mod = type == PG_NUMERIC ? ((1 + data[1] % 38) << 16) + data[1] % 38 / 2 + 4 : -1;
    struct mr_column_builder b;
    struct mr_arena scratch;
    struct mr_schema schema = {0};
    struct mr_field f = {0};
    struct mr_err why;

    REQUIRE(mr_pg_field_of("column", type, mod, &f));
    want(&f, data[1]);
    mr_schema_add(&schema, &f);
    mr_err_clear(&why);
    mr_arena_init(&scratch, 4096, 1 << 20);
    mr_column_builder_init(&b, &schema.fields[0]);
    const char *wrong =
        mr_pg_add(&b, type, mr_str_n((const char *)data + 2, size - 2), &scratch, &why);
    struct mr_rows *rows = mr_rows_new(&schema);
    if (wrong) {
        mr_column_cut(&b, 0);
        mr_column_add_null(&b);
    }
    rows->count = 1;
    REQUIRE(mr_column_builder_finish(&b, rows, 0, NULL) == MR_OK);
    REQUIRE(mr_rows_check(rows, NULL) == MR_OK);
    if (!wrong) {
        read_back(type, &schema.fields[0], rows);
    }
    mr_rows_unref(&rows);
    mr_column_builder_fini(&b);
    mr_arena_fini(&scratch);
    mr_schema_fini(&schema);
    mr_field_fini(&f);
    return 0;
}
