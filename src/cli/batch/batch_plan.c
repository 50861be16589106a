/* `millrace batch run --plan`: the estimated costs of a job, as text or as JSON. Unknown values are null. */
#include "batch_plan.h"

#include <stdio.h>

#include "cli/common/term.h"
#include "codec/json.h"

static void number_put(struct mr_buf *b, const char *name, int64_t n)
{
    if (n < 0) {
        mr_buf_printf(b, ",\"%s\":null", name);
    } else {
        mr_buf_printf(b, ",\"%s\":%lld", name, (long long)n);
    }
}

static void seconds_put(struct mr_buf *b, const char *name, int64_t ns)
{
    if (ns < 0) {
        mr_buf_printf(b, ",\"%s\":null", name);
    } else {
        mr_buf_printf(b, ",\"%s\":%.3f", name, (double)ns / 1e9);
    }
}

static void json_print(const struct mr_batch_plan *p, const struct mr_batch_options *o)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_c(&b, "{\"model\":");
    mr_json_put_string(&b, mr_str_c(o->model.name));
    mr_buf_printf(&b, ",\"files\":%zu,\"bytes\":%llu", p->files, (unsigned long long)p->bytes);
    number_put(&b, "rows", p->rows);
    number_put(&b, "done_rows", (int64_t)p->done_rows);
    mr_buf_printf(&b, ",\"rows_are\":\"%s\",\"hosts\":%zu,\"working_hosts\":%zu",
                  p->rows < 0           ? "unknown"
                  : p->rows_are_counted ? "counted"
                                        : "estimated",
                  p->hosts, p->working_hosts);
    mr_buf_printf(&b, ",\"probe\":{\"rows\":%llu,\"dead_letters\":%llu,\"seconds\":%.3f}",
                  (unsigned long long)p->probed_rows, (unsigned long long)p->probed_dead,
                  (double)p->probed_ns / 1e9);
    number_put(&b, "rows_per_s", p->rows_per_s > 0 ? (int64_t)p->rows_per_s : -1);
    number_put(&b, "call_rows", (int64_t)p->call_rows);
    number_put(&b, "calls", p->calls);
    number_put(&b, "result_bytes", p->result_bytes);
    number_put(&b, "row_bytes", p->row_bytes > 0 ? (int64_t)p->row_bytes : -1);
    number_put(&b, "memory_bytes", (int64_t)p->memory_bytes);
    seconds_put(&b, "seconds", p->run_ns);
    printf("%s}\n", mr_buf_cstr(&b));
    mr_buf_fini(&b);
}

static void text_print(const struct mr_batch_plan *p, bool is_table)
{
    char one[32];
    char two[32];
    const char *about = p->rows_are_counted ? "" : "about ";

    mr_text_bytes(one, p->bytes);
    if (is_table) {
        printf("input    1 table, ");
    } else {
        printf("input    %zu %s, %s, ", p->files, p->files == 1 ? "file" : "files", one);
    }
    if (p->rows < 0) {
        printf("rows not known, and not to be estimated without reading them all\n");
    } else {
        printf("%s%lld rows%s\n", about, (long long)p->rows,
               p->rows_are_counted ? "" : ", by samples of the text");
    }
    if (p->done_rows > 0) {
        printf("done     %llu rows, by earlier starts of the job\n",
               (unsigned long long)p->done_rows);
    }
    mr_text_duration(one, (double)p->probed_ns);
    printf("probe    %llu rows in %s, %llu of them dead letters; %zu of %zu hosts took part\n",
           (unsigned long long)p->probed_rows, one, (unsigned long long)p->probed_dead,
           p->working_hosts, p->hosts);
    if (p->calls < 0) {
        printf("calls    of up to %llu rows\n", (unsigned long long)p->call_rows);
    } else {
        printf("calls    about %lld, of up to %llu rows\n", (long long)p->calls,
               (unsigned long long)p->call_rows);
    }
    mr_text_bytes(one, (uint64_t)MR_MAX(p->result_bytes, INT64_C(0)));
    printf("results  %s%s\n", p->result_bytes < 0 ? "not known" : "about ",
           p->result_bytes < 0 ? "" : one);
    mr_text_bytes(one, p->memory_bytes);
    mr_text_bytes(two, p->row_bytes);
    printf("memory   up to %s of rows and answers", one);
    printf(p->row_bytes > 0 ? ", %s a row\n" : "\n", two);
    mr_text_duration(one, (double)MR_MAX(p->run_ns, INT64_C(0)));
    if (p->rows_per_s == 0 && p->run_ns < 0) {
        printf("time     not known: no row of the probe had an outcome in ten seconds\n");
    } else if (p->run_ns < 0) {
        printf("time     not known, at %.0f rows/s\n", p->rows_per_s);
    } else {
        printf("time     about %s, at %.0f rows/s\n", one, p->rows_per_s);
    }
}

int mr_cli_batch_plan(struct mr_batch *job, const struct mr_batch_options *options, bool as_json,
                      struct mr_err *err)
{
    struct mr_batch_plan plan;
    int rc = mr_batch_plan(job, &plan, err);

    if (rc == MR_OK && as_json) {
        json_print(&plan, options);
    } else if (rc == MR_OK) {
        const struct mr_source_options *source = &options->source;
        text_print(&plan, source->path_count > 0 &&
                              mr_database_kind_of(source->paths[0]) != MR_DATABASE_IS_NONE);
    }
    return rc;
}
