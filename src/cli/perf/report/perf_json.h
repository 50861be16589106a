/* Members of the reports of `millrace perf`. */
#ifndef MR_CLI_PERF_JSON_H
#define MR_CLI_PERF_JSON_H

#include "cli/perf/setup/perf.h"

/* Each puts a comma before its member, except the first of an object. */
void perf_put_key(struct mr_buf *b, const char *key);
void perf_put_number(struct mr_buf *b, const char *key, double v);
void perf_put_count(struct mr_buf *b, const char *key, uint64_t v);
void perf_put_string(struct mr_buf *b, const char *key, const char *v);
void perf_put_bool(struct mr_buf *b, const char *key, bool v);
void perf_put_errors(struct mr_buf *b, const struct mr_perf_errors *e);
/** latency_ns and histogram. */
void perf_put_latency(struct mr_buf *b, const struct mr_hdr_histogram *h);
/** intervals_ns. */
void perf_put_intervals(struct mr_buf *b, const struct mr_perf_result *r);
/** The name used by --protocol. */
const char *perf_protocol_name(const struct perf *p);

#endif
