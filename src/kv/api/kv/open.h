/* Opens registries by what a configuration calls them:
 *
 *   local                                     file:PATH in a folder of this user on this machine, which is made: see
 *                                             kv/file/local.h
 *   memory:                                   of this process alone, and gone with it
 *   file:PATH                                 a file, shared by the processes of this machine: the process that has the
 *                                             lock PATH.lock serves it to the others on PATH.sock
 *   etcd://HOST:PORT[,HOST:PORT...][/PREFIX]  an etcd cluster, version 3.4 or later; keys are below PREFIX/
 *   etcd:HOST:PORT, etcd:FILE                 the same, as ModelMesh's KV_STORE has it; FILE is JSON with endpoints,
 *                                             userid, password, root_prefix, certificate, certificate_file, client_key,
 *                                             client_key_file, client_certificate, client_certificate_file,
 *                                             override_authority */
#ifndef MR_KV_OPEN_H
#define MR_KV_OPEN_H

#include "kv/kv.h"

struct mr_loop;

/** Opens it on the loop; the connection is made later, so that a registry that cannot be reached is no error here.
 *  Errors: MR_E_INVALID (the text, a member of the file, a certificate), MR_E_NOT_FOUND (a file), MR_E_IO;
 *  MR_E_FORBIDDEN (the folder of local is not this user's alone). */
int mr_kv_open(struct mr_kv **out, struct mr_loop *loop, mr_str text,
               const struct mr_kv_options *options, struct mr_err *err);
/** Whether mr_kv_open takes the text; reads its files, and opens nothing. Errors: as mr_kv_open. Thread: any. */
int mr_kv_check(mr_str text, struct mr_err *err);

#endif
