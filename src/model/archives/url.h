/* Addresses of archives: https://host/name.tar.gz#sha256=…, s3://bucket/name.zip, file:/path/name.tar. Pure. */
#ifndef MR_MODEL_ARCHIVES_URL_H
#define MR_MODEL_ARCHIVES_URL_H

#include "base/err.h"
#include "base/str.h"

#define ARCHIVE_URL_MAX 4096

enum archive_url_kind { ARCHIVE_FILE, ARCHIVE_HTTP, ARCHIVE_S3 };

struct archive_url {
    enum archive_url_kind kind;
    bool is_tls;
    char text
        [ARCHIVE_URL_MAX]; /* without checksum and query, as logs show it; of a file: its path */
    char address[256];     /* of HTTP: "host:port" */
    char target[ARCHIVE_URL_MAX]; /* of HTTP: path with query */
    char stem[256];               /* the archive's name without its end */
    char sha256[65];              /* in lower case; "" = none is given */
};

/** True if the text begins with file:, http:, https: or s3:. */
bool archive_url_is(const char *text);
/** Errors: MR_E_INVALID: the address, the archive's name, the checksum; HTTP without one. */
int archive_url_parse(const char *text, struct archive_url *out, struct mr_err *err);
/** Where a redirection of `from` leads. Name and checksum stay. Errors: MR_E_INVALID: no such address; from TLS to none. */
int archive_url_redirect(const struct archive_url *from, mr_str location, struct archive_url *out,
                         struct mr_err *err);

#endif
