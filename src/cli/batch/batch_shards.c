/* `millrace batch status FOLDER` for a job that is divided into shards: the state in each folder, and the sums. The
 * processes are not queried, as they may be on other machines. */
#include "batch_shards.h"

#include <stdio.h>

#include "batch/batch.h"
#include "cli/common/term.h"

struct sums {
    size_t finished;
    struct mr_batch_summary all;
};

static struct sums sums_of(const struct mr_batch_shard *shards, size_t count)
{
    struct sums s = {0};

    for (size_t i = 0; i < count; i++) {
        const struct mr_batch_summary *l = &shards[i].summary;
        s.finished += l->is_finished;
        s.all.rows += l->rows;
        s.all.dead += l->dead;
        s.all.files += l->files;
        s.all.bytes += l->bytes;
        s.all.starts += l->starts;
    }
    return s;
}

static const char *state_of(const struct mr_batch_shard *s)
{
    return !s->is_begun             ? "not begun"
           : s->summary.is_finished ? "finished"
           : s->summary.pid         ? "running"
                                    : "not finished";
}

static void json_summary(const struct mr_batch_summary *l)
{
    printf("\"rows\":%llu,\"dead\":%llu,\"files\":%llu,\"bytes\":%llu,\"starts\":%u",
           (unsigned long long)l->rows, (unsigned long long)l->dead, (unsigned long long)l->files,
           (unsigned long long)l->bytes, l->starts);
}

static void json_print(const struct mr_batch_shard *shards, size_t count)
{
    const struct sums s = sums_of(shards, count);

    printf("{\"state\":\"%s\",\"finished_shards\":%zu,",
           s.finished == count ? "finished" : "not finished", s.finished);
    json_summary(&s.all);
    printf(",\"shards\":[");
    for (size_t i = 0; i < count; i++) {
        printf("%s{\"shard\":\"%zu/%zu\",\"state\":\"%s\",", i ? "," : "", i, count,
               state_of(&shards[i]));
        json_summary(&shards[i].summary);
        printf("}");
    }
    printf("]}\n");
}

static void text_print(const struct mr_batch_shard *shards, size_t count)
{
    static const char *const head[] = {"SHARD", "STATE", "ROWS", "DEAD", "FILES", "STARTS", NULL};
    const struct sums s = sums_of(shards, count);
    struct mr_grid grid;
    char bytes[32];

    printf("%zu of %zu shards are finished\n", s.finished, count);
    mr_text_bytes(bytes, s.all.bytes);
    printf("%llu rows done, %llu of them dead, in %llu files of %s\n",
           (unsigned long long)(s.all.rows + s.all.dead), (unsigned long long)s.all.dead,
           (unsigned long long)s.all.files, bytes);
    mr_grid_init(&grid, head);
    for (size_t i = 0; i < count; i++) {
        const struct mr_batch_summary *l = &shards[i].summary;
        const uint64_t numbers[] = {l->rows, l->dead, l->files, l->starts};
        char text[48];
        snprintf(text, sizeof text, "%zu/%zu", i, count);
        mr_grid_add_str(&grid, MR_STYLE_PLAIN, mr_str_c(text));
        mr_grid_add_str(&grid, MR_STYLE_PLAIN, mr_str_c(state_of(&shards[i])));
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            snprintf(text, sizeof text, "%llu", (unsigned long long)numbers[k]);
            mr_grid_add_str(&grid, MR_STYLE_PLAIN, mr_str_c(text));
        }
    }
    mr_grid_print(&grid, stdout, true, 2);
    mr_grid_fini(&grid);
}

int mr_cli_batch_shards(const char *folder, bool as_json, bool *out_is_one, struct mr_err *err)
{
    struct mr_batch_shard *shards;
    size_t count;
    int rc = mr_batch_shard_summaries(folder, &shards, &count, err);

    if (rc < 0) {
        return rc;
    }
    *out_is_one = count > 0;
    if (count > 0 && as_json) {
        json_print(shards, count);
    } else if (count > 0) {
        text_print(shards, count);
    }
    mr_batch_shards_free(&shards, count);
    return MR_OK;
}
