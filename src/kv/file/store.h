/* A registry in a file, for the processes of one machine. Each of them is a client of whoever serves the file
 * (host.h); one whose connection does not work tries to become that itself. */
#ifndef MR_KV_FILE_STORE_H
#define MR_KV_FILE_STORE_H

#include "kv/kv.h"

struct mr_loop;

/** path: of the file; beside it are PATH.lock, PATH.sock and, for a while, PATH.new. Errors: MR_E_INVALID (the
 *  path). */
int kv_file_open(struct mr_kv **out, struct mr_loop *loop, mr_str path,
                 const struct mr_kv_options *options, struct mr_err *err);
int kv_file_check(mr_str path, struct mr_err *err);

#endif
