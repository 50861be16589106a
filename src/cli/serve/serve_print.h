/* The output of `millrace serve` when it is ready. */
#ifndef MR_CLI_SERVE_PRINT_H
#define MR_CLI_SERVE_PRINT_H

#include "opt_serve.h"

/** Prints the addresses and who can reach them, and the models with their states, on standard output. */
void mr_serve_print(const struct mr_serve_options *s, struct mr_server *server);
/** The events serve.listen (one per listener) and serve.ready in the log. */
void mr_serve_log_ready(const struct mr_serve_options *s, struct mr_server *server,
                        int64_t start_ns);
/** {"event":"ready","http":{...}} on standard output, flushed. */
void mr_serve_print_ports(const struct mr_serve_options *s, struct mr_server *server);

/** A text that says who can reach an address. */
const char *mr_serve_audience(const char *address, const struct mr_serve_tls *tls);

#endif
