/* Options of `batch run` for objects of S3. */
#ifndef MR_CLI_BATCH_S3_H
#define MR_CLI_BATCH_S3_H

#include "base/options.h"

extern const char *const mr_cli_s3_addressings[];

/** Rows for a struct with a struct mr_batch_options `job` and an int `s3_addressing`. */
#define MR_BATCH_S3_ROWS(type)                                                                     \
    {.name = "Objects of S3 (s3://BUCKET/KEY)", .kind = MR_OPTION_GROUP},                          \
        {.name = "s3-endpoint",                                                                    \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.s3.endpoint),                                                      \
         .value = "URL",                                                                           \
         .help = "https://HOST[:PORT] of another storage than Amazon's; AWS_ENDPOINT_URL if not "  \
                 "given"},                                                                         \
        {.name = "s3-region",                                                                      \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.s3.region),                                                        \
         .value = "REGION",                                                                        \
         .help = "AWS_REGION if not given"},                                                       \
        {.name = "s3-addressing",                                                                  \
         .kind = MR_OPTION_CHOICE,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, s3_addressing),                                                        \
         .fallback = "auto",                                                                       \
         .choices = mr_cli_s3_addressings,                                                         \
         .value = "FORM",                                                                          \
         .help = "path is https://HOST/BUCKET/KEY, virtual https://BUCKET.HOST/KEY; auto is "      \
                 "virtual with Amazon only"},                                                      \
        {.name = "s3-anonymous",                                                                   \
         .kind = MR_OPTION_BOOL,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.s3.is_anonymous),                                                  \
         .help = "ask without credentials, for what is open to everybody"},                        \
    {                                                                                              \
        .name = "spool", .kind = MR_OPTION_STRING, .flags = MR_OPTION_CLI_ONLY,                    \
        MR_OPTION_AT(type, job.source.spool), .value = "FOLDER",                                   \
        .help = "for the columns of the Parquet object that is being read; TMPDIR or /var/tmp if " \
                "not given"                                                                        \
    }

#endif
