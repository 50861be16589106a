/* Configurations of other servers that are served as they are: each becomes a model repository in the cache of folders. */
#ifndef CLI_SERVE_IMPORTED_H
#define CLI_SERVE_IMPORTED_H

#include "archive/cache.h"
#include "opt_serve.h"

/** The repositories, which stay until imported_fini. Zeroed at first. */
struct imported {
    struct mr_cache *cache;
    MR_VEC(struct mr_cache_ref *) refs;
    MR_VEC(const char *) repositories; /* of the server, those of the imports after the others */
    MR_VEC(const char *) link_dirs;    /* likewise */
    MR_VEC(char *) owned;              /* of the link_dirs */
};

/** Reads the files of --paddle-service, and adds repositories and folders for links to the server's options. Logs what a
 *  reader should know. imported_fini in any case, when the server has ended. Errors: those of mr_import_read and
 *  mr_import_write, with the option before them. */
int imported_open(struct mr_serve_options *s, struct imported *out, struct mr_err *err);
void imported_fini(struct imported *i);

#endif
