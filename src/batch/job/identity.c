/* The identity of a job: fields that are the same at each of its starts, each a name and JSON. */
#include "identity.h"

#include <stdio.h>

#include "base/vec.h"
#include "batch/files/file.h"
#include "batch/protocols/oip/answer.h"
#include "batch/results/results.h"
#include "codec/json.h"
#include "table/store.h"
#include "tensor/tensor.h"

struct field {
    const char *key; /* NULL: `own` */
    char own[64];
    struct mr_buf text; /* JSON */
    bool is_place;
    bool is_model;
    bool is_input;
};

struct fields {
    MR_VEC(struct field) of;
};

/* A new one; its text is to be written. Valid until the next one. */
static struct field *field_add(struct fields *f, const char *key)
{
    MR_VEC_PUSH(&f->of, (struct field){.key = key});
    struct field *last = &f->of.at[f->of.len - 1];
    mr_buf_init(&last->text, 0);
    return last;
}

static void string_add(struct fields *f, const char *key, mr_str text)
{
    mr_json_put_string(&field_add(f, key)->text, text);
}

/* The files as they were named, and where they are, however that was. */
static void places_add(struct fields *f, const struct results *rs)
{
    struct field *names = field_add(f, "inputs");

    names->is_place = true;
    mr_buf_char(&names->text, '[');
    for (size_t i = 0; i < mr_source_file_count(rs->input->source); i++) {
        mr_buf_c(&names->text, i ? "," : "");
        mr_json_put_string(&names->text, mr_str_c(mr_source_file(rs->input->source, i).path));
    }
    mr_buf_char(&names->text, ']');
    struct field *places = field_add(f, MR_MANIFEST_PLACES);
    places->is_place = true;
    mr_buf_char(&places->text, '[');
    for (size_t i = 0; i < mr_source_file_count(rs->input->source); i++) {
        char *place = batch_file_real(mr_source_path(rs->input->source, i));
        mr_buf_c(&places->text, i ? "," : "");
        mr_json_put_string(&places->text, mr_str_c(place));
        mr_free(place);
    }
    mr_buf_char(&places->text, ']');
}

static void dialect_add(struct fields *f, const struct results *rs)
{
    const char *keys[DIALECT_FIELDS];
    struct mr_buf texts[DIALECT_FIELDS];

    for (size_t i = 0; i < DIALECT_FIELDS; i++) {
        mr_buf_init(&texts[i], 0);
    }
    const size_t count =
        rs->model->dialect->identity ? rs->model->dialect->identity(rs->model, keys, texts) : 0;
    for (size_t i = 0; i < count; i++) {
        field_add(f, keys[i])->text = texts[i];
    }
}

static void query_add(struct fields *f, const struct results *rs)
{
    if (rs->o->source.query) {
        string_add(f, "query", mr_str_c(rs->o->source.query));
    }
}

/* What of the results is not files in the job's folder, in no order. */
static void results_add(struct fields *f, const struct results *rs)
{
    const struct mr_batch_options *o = rs->o;

    if (o->results.database) {
        struct mr_buf name;
        mr_buf_init(&name, 0);
        mr_store_name(o->results.database, o->results.table, &name, NULL);
        string_add(f, "table of results", mr_buf_view(&name));
        mr_buf_fini(&name);
    }
    if (o->results.order != MR_BATCH_UNORDERED) {
        string_add(f, "order", MR_STR("of the input"));
    }
    if (o->shard_count) {
        mr_buf_printf(&field_add(f, MR_SHARD_FIELD)->text,
                      "{\"shard\":" MR_SHARD_NAME_FORMAT ",\"of_counted_rows\":%llu}",
                      (size_t)o->shard, (size_t)o->shard_count,
                      (unsigned long long)rs->input->shard.counted_rows);
    }
    if (o->results.objects) {
        string_add(f, "place of results", mr_str_c(o->results.objects));
    }
}

static void columns_add(struct fields *f, const struct results *rs)
{
    const struct mr_schema *schema = batch_outputs_schema(rs->model->outputs);
    struct mr_buf *b = &field_add(f, "results")->text;
    char type[256];

    mr_buf_char(b, '{');
    for (size_t i = 0; i < schema->count; i++) {
        mr_buf_c(b, i ? "," : "");
        mr_json_put_string(b, mr_str_c(schema->fields[i].name));
        mr_buf_printf(b, ":\"%s\"", mr_field_text(&schema->fields[i], type, sizeof type));
    }
    mr_buf_char(b, '}');
}

static void model_add(struct fields *f, const struct results *rs)
{
    struct field *version = field_add(f, "model version");
    char shape[256];

    version->is_model = true;
    mr_json_put_string(&version->text, rs->model->metadata.version);
    struct field *inputs = field_add(f, "model inputs");
    inputs->is_model = true;
    mr_buf_char(&inputs->text, '{');
    for (size_t i = 0; i < rs->model->metadata.input_count; i++) {
        const struct mr_oip_io *io = &rs->model->metadata.inputs[i];
        mr_buf_c(&inputs->text, i ? "," : "");
        mr_json_put_string(&inputs->text, io->name);
        mr_buf_printf(&inputs->text, ":\"%s%s\"", mr_dtype_name(io->dtype),
                      mr_shape_text(io->shape, io->rank, shape, sizeof shape));
    }
    mr_buf_char(&inputs->text, '}');
}

static void files_add(struct fields *f, const struct results *rs)
{
    for (size_t i = 0; i < mr_source_file_count(rs->input->source); i++) {
        const struct mr_source_file file = mr_source_file(rs->input->source, i);
        struct field *input = field_add(f, NULL);
        snprintf(input->own, sizeof input->own, "input %zu", i);
        input->is_input = true;
        if (file.state) {
            mr_buf_c(&input->text, file.state);
        } else {
            mr_buf_printf(&input->text, "{\"bytes\":%llu,\"mtime_ns\":%lld}",
                          (unsigned long long)file.bytes, (long long)file.mtime_ns);
        }
    }
}

int identity_open(struct results *rs, struct mr_err *err)
{
    const struct mr_manifest_options options = {
        .accept_changed_input = rs->o->start.accepts_changed_input,
        .accept_changed_model = rs->o->start.accepts_changed_model,
        .verify_content = rs->o->start.verifies};
    struct fields f = {0};

    string_add(&f, "model", mr_str_c(rs->o->model.name));
    places_add(&f, rs);
    dialect_add(&f, rs);
    query_add(&f, rs);
    results_add(&f, rs);
    columns_add(&f, rs);
    model_add(&f, rs);
    files_add(&f, rs);
    struct mr_identity_field *identity = MR_NEW_ARRAY(struct mr_identity_field, f.of.len);
    for (size_t i = 0; i < f.of.len; i++) {
        struct field *field = &f.of.at[i];
        identity[i] = (struct mr_identity_field){.key = field->key ? field->key : field->own,
                                                 .json = mr_buf_cstr(&field->text),
                                                 .is_input = field->is_input,
                                                 .is_model = field->is_model,
                                                 .is_place = field->is_place};
    }
    const int rc = mr_manifest_open(&rs->manifest, rs->folder, identity, f.of.len, &options, err);
    for (size_t i = 0; i < f.of.len; i++) {
        mr_buf_fini(&f.of.at[i].text);
    }
    MR_VEC_FINI(&f.of);
    mr_free(identity);
    return rc;
}
