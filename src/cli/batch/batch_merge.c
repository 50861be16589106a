/* `millrace batch merge FOLDER`: the results of a finished job in fewer files. */
#include "batch_merge.h"

#include <stdio.h>

#include "batch/batch.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"

static const char usage[] =
    "usage: millrace batch merge FOLDER --output FILE\n"
    "       millrace batch merge FOLDER --max-bytes SIZE\n\n"
    "Joins the results of a finished job, in the order of its input as far as whole files go: into "
    "FILE, which is\n"
    "made or replaced at once, or in FOLDER/parts itself into files of at most SIZE. Rows are not "
    "unpacked.\n";

static const char notes[] =
    "Exit status: 0 done, 1 it could not be done, 2 the command line is wrong.\n";

#define AT(member) MR_OPTION_AT(struct mr_batch_merge_options, member)

static const struct mr_option table[] = {
    {.name = "output",
     .letter = 'o',
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(output),
     .value = "FILE",
     .help = "all results in one file; the job stays as it is"},
    {.name = "max-bytes",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(max_bytes),
     .min = 1,
     .max = INT64_C(1) << 46,
     .value = "SIZE",
     .help = "join files of the job as long as they are not larger together"},
};

static int merge_run(const struct mr_batch_merge_options *o, struct mr_err *err)
{
    struct mr_batch_merged merged;
    char bytes[32];
    int rc = mr_batch_merge(o, &merged, err);

    if (rc == MR_OK) {
        mr_text_bytes(bytes, merged.bytes);
        fprintf(stderr, "%llu rows (%s)%s: %llu files before, %llu now\n",
                (unsigned long long)merged.rows, bytes,
                merged.is_in_order ? " in the order of the input" : "",
                (unsigned long long)merged.files_before, (unsigned long long)merged.files);
    }
    return rc;
}

int mr_cli_batch_merge(int argc, char **argv, char **env)
{
    static const char program[] = "millrace batch merge";
    struct mr_batch_merge_options c = {0};
    struct mr_options o;
    struct mr_err err;

    mr_options_init(&o, program, table, sizeof table / sizeof *table, &c);
    o.max_args = 1;
    int code = mr_cli_parse(&o, argc - 1, argv + 1, env, usage, notes);
    if (code >= 0) {
        /* reported already */
    } else if (o.args.len != 1) {
        code = mr_cli_fail(program, MR_EXIT_USAGE, "expected the folder of a job");
    } else if (!c.output == !c.max_bytes) {
        code = mr_cli_fail(program, MR_EXIT_USAGE, "expected --output FILE or --max-bytes SIZE");
    } else {
        c.folder = o.args.at[0];
        code = merge_run(&c, &err) < 0 ? mr_cli_fail(program, MR_EXIT_FAILED, err.msg) : MR_EXIT_OK;
    }
    mr_options_fini(&o);
    return code;
}
