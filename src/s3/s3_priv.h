/* Shared by the files of the S3 client. Private.
 *
 *   uri.c      s3:// and percent-encoding
 *   config.c   endpoint, region, credentials: options, environment, files
 *   provider.c credentials from STS, containers and instances
 *   renew.c    the thread that gets and renews those
 *   sign.c     Signature Version 4
 *   xml.c      answers, tag by tag
 *   refused.c  the meaning of error answers
 *   client.c   the thread: connections, requests, retries
 *   object.c   requests for one object
 *   list.c     listings
 *   reader.c   sequential read-ahead of an object
 *   upload.c   an upload in parts */
#ifndef MR_S3_S3_PRIV_H
#define MR_S3_S3_PRIV_H

#include "base/buf.h"
#include "base/mailbox.h"
#include "base/vec.h"
#include "net/client.h"
#include "s3/s3.h"

/* ---- uri.c ---- */

/** Appends the text with all but unreserved characters as %XX; a slash stays when keeps_slash. */
void s3_encode(struct mr_buf *b, mr_str text, bool keeps_slash);
/** Decodes it in place, with '+' as a space; returns the new length. Invalid %XX is kept. */
size_t s3_decode(char *text, size_t len);

/* ---- config.c ---- */

struct s3_credentials {
    char *id; /* NULL: requests are not signed */
    char *secret;
    char *token;      /* NULL: none */
    bool is_of_files; /* may be read from the files again */
    int64_t until_ns; /* expiry by the wall clock; 0: unknown */
};

struct s3_config {
    bool is_tls;
    bool is_amazon; /* the endpoint is the default one */
    char *host;     /* with the port, if given */
    char *region;
    char *ca_file; /* NULL: the system's */
    enum mr_s3_addressing addressing;
    struct s3_credentials credentials;
    bool is_provided; /* from a renewer */
    char *sts;        /* "https://sts.eu-west-1.amazonaws.com", without a path */
};
/** Errors: as mr_s3_new. */
int s3_config_load(struct s3_config *out, const struct mr_s3_options *o, struct mr_err *err);
void s3_config_fini(struct s3_config *c);
/** Reads the credentials of files again. Errors: MR_E_FORBIDDEN (none; *c is then unchanged). */
int s3_credentials_renew(struct s3_credentials *c, struct mr_err *err);

void s3_credentials_fini(struct s3_credentials *c);
void s3_credentials_of_environment(struct s3_credentials *out);
/** The value of a variable; NULL: not set, or empty. */
const char *s3_env(const char *name);
const char *s3_profile(void);
/** True if the environment names a container's credential service. */
bool s3_has_container(void);
/** The content of a file, up to the maximum of `out`; empty if it cannot be read. */
void s3_file_read(const char *path, struct mr_buf *out);
/** AWS's own two files. */
struct s3_files;
struct s3_files *s3_files_read(void);
void s3_files_free(struct s3_files **f);
/** A setting of a profile, freed by the caller; NULL: none. */
char *s3_files_find(const struct s3_files *f, const char *profile, const char *key);
void s3_credentials_of_profile(struct s3_credentials *out, const struct s3_files *f,
                               const char *profile);

/** The value of `key` in section [section] of an ini file in AWS's format, into `out`. False: none. */
bool s3_ini_find(mr_str text, const char *section, const char *key, struct mr_buf *out);

/* ---- sign.c ---- */

#define S3_HASH_TEXT 65

/** SHA-256 in lower-case hexadecimal. */
void s3_hash(const void *data, size_t len, char out[S3_HASH_TEXT]);

struct s3_signed {
    const char *method;
    mr_str path;                     /* encoded */
    mr_str query;                    /* encoded, sorted by names, "name=" for one without a value */
    const struct mr_header *headers; /* all to be signed, in lower case, sorted by name */
    size_t header_count;
    const char *payload_hash;
    const char *region;
    const char *service;
    char time[17]; /* "20130524T000000Z" */
};
/** Appends the value of the header Authorization. */
void s3_sign(const struct s3_credentials *c, const struct s3_signed *r, struct mr_buf *out);
/** A time of the wall clock in the format of signatures. */
void s3_time_text(int64_t wall_ns, char out[17]);

/* ---- provider.c ---- */

struct s3_provider {
    const struct s3_files *files;
    const char *sts;
    const char *region;
    const char *ca_file; /* NULL: the system's */
    const _Atomic bool *is_stopped;
};
/** Gets credentials from the provider named by the environment and the files. Blocks; not on the thread of a loop.
 *  Errors: MR_E_FORBIDDEN (refused), MR_E_INVALID, MR_E_UNSUPPORTED, MR_E_UNAVAILABLE, MR_E_DEADLINE, MR_E_CANCELLED.
 *  No text contains a secret. */
int s3_provide(struct s3_provider *p, struct s3_credentials *out, struct mr_err *err);

/* ---- renew.c ---- */

struct s3_ask {
    const char *who;  /* name of the service, for texts */
    const char *url;  /* http:// or https://, host, port, perhaps a path */
    const char *path; /* replaces the URL's path; NULL: none */
    const char *method;
    struct mr_header header;             /* value empty: none */
    const char *body;                    /* a form; NULL: none */
    const struct s3_credentials *signer; /* for STS; NULL: not signed */
    const char *region;
    const char *ca_file;
    int64_t timeout_ns;
    const _Atomic bool *is_stopped; /* true: ends the request */
};
/** Appends the answer to `out`. Blocks. Errors: those of a client, MR_E_CANCELLED. */
int s3_http(struct s3_ask *a, struct mr_buf *out, int *out_status, struct mr_err *err);

#define S3_TROUBLE_ROOM sizeof(((struct mr_err *)0)->msg)

struct s3_renewer;
/** Waits for the first credentials, until o->is_stopped is true. on_news is called on its thread, and must not call
 *  the renewer.
 *  Errors: those of s3_provide. */
int s3_renewer_new(struct s3_renewer **out, const struct s3_config *c,
                   const struct mr_s3_options *o, void (*on_news)(void *ctx), void *ctx,
                   struct mr_err *err);
/** Replaces *io by new credentials, if any; returns the text of a failure, or "". Any thread. */
void s3_renewer_take(struct s3_renewer *r, struct s3_credentials *io, char *trouble, size_t room);
/** Reports that the credentials taken are no longer valid. Any thread. */
void s3_renewer_want(struct s3_renewer *r);
/** Accepts NULL. */
void s3_renewer_free(struct s3_renewer **r);

/* ---- xml.c ---- */

/** Reads a document tag by tag. Allocates nothing; nesting is limited to S3_XML_DEPTH. */
#define S3_XML_DEPTH 32
struct s3_xml {
    const char *at;
    const char *end;
    mr_str open[S3_XML_DEPTH]; /* names */
    unsigned depth;
    bool has_begun;        /* there was a tag */
    bool is_pending_close; /* of <a/> */
    /* the event */
    bool is_close;
    mr_str name;
    mr_str text; /* for a close: the raw text between it and the previous tag */
};
void s3_xml_init(struct s3_xml *x, mr_bytes document);
/** False: the end of the document, or an error; see s3_xml_is_whole. */
bool s3_xml_next(struct s3_xml *x);
bool s3_xml_is_whole(const struct s3_xml *x);
/** Appends a text with its entities replaced. False: an unknown entity. */
bool s3_xml_text(mr_str text, struct mr_buf *out);
/** The first element of that name, with its entities replaced, into `out`. False: none. */
bool s3_xml_find(mr_bytes document, const char *name, struct mr_buf *out);

/* ---- client.c ---- */

#define S3_HEADERS_MOST 6

/** A request. Everything it points to is copied, except the body, which is shared and must not change. */
struct s3_request {
    const char *method;
    struct mr_s3_place at;                     /* key empty: the bucket */
    mr_str query;                              /* as in struct s3_signed */
    struct mr_header headers[S3_HEADERS_MOST]; /* names in lower case */
    size_t header_count;
    struct mr_block *body; /* the first bytes of the block; NULL: none */
    size_t body_bytes;
    size_t answer_bytes; /* expected, for the timeout */
    int64_t work_ns;     /* added to the timeout: the storage works long before it answers */
};

/** An answer. Fields are valid until s3_call_free. */
struct s3_answer {
    int status;
    mr_bytes body;
    struct mr_block *block;
    char etag[MR_S3_ETAG_ROOM];
    char nonce[40];      /* x-amz-meta-millrace-upload */
    uint64_t bytes;      /* content-length */
    uint64_t all_bytes;  /* from content-range; otherwise `bytes` */
    bool was_tried_more; /* an earlier attempt failed, and may have had its effect */
};

struct s3_call;
struct s3_call *s3_call_begin(struct mr_s3 *s, const struct s3_request *r);
/** Waits for the end. A status of 400 and more is an error, except those in `allowed` (terminated by 0). */
int s3_call_wait(struct s3_call *c, const int *allowed, struct s3_answer *out, struct mr_err *err);
/** Cancels it if it has not ended. Accepts NULL. */
void s3_call_free(struct s3_call **c);

/* ---- refused.c ---- */

/** The content of an error answer. */
struct s3_refusal {
    char code[64]; /* S3's own, "" = the answer has none */
    char message[300];
    char region[64]; /* of the bucket, "" = unknown */
};
void s3_refusal_read(struct s3_refusal *r, mr_bytes body);
/** True if the same request may succeed later. */
bool s3_refusal_passes(const struct s3_refusal *r, int status);
/** Sets the error, with advice. server_ns: the time in the answer's head, 0 = none. */
int s3_refusal_tell(const struct s3_refusal *r, int status, struct mr_s3_place at,
                    const struct s3_config *c, int64_t server_ns, struct mr_err *err);

/* ---- object.c ---- */

#define S3_NONCE_HEADER "x-amz-meta-millrace-upload"
/** A random text in the metadata of an object, which identifies its writer. */
void s3_nonce(char out[40]);
/** After "the object exists": true if an earlier attempt of this upload has made it. */
int s3_is_ours(struct mr_s3 *s, struct mr_s3_place at, const char *nonce, bool *out,
               struct mr_err *err);
/** The error for an existing object of another writer. */
int s3_exists(struct mr_s3_place at, struct mr_err *err);
/** As mr_s3_put, of the first bytes of a block. */
int s3_put_block(struct mr_s3 *s, struct mr_s3_place at, struct mr_block *body, size_t bytes,
                 bool is_new, struct mr_err *err);

/* ---- list.c ---- */

/** Reads a page of ListObjectsV2. *out_next: the token of the next page, empty = there is none. Errors: MR_E_INVALID, and
 *  what each() returns. */
int s3_objects_read(mr_bytes body, mr_str bucket, struct mr_buf *out_next,
                    int (*each)(void *ctx, const struct mr_s3_object *o, struct mr_err *err),
                    void *ctx, struct mr_err *err);
/** The same of ListMultipartUploads; key and id of the next page's begin. */
int s3_uploads_read(mr_bytes body, mr_str bucket, struct mr_buf *out_next, struct mr_buf *out_id,
                    int (*each)(void *ctx, mr_str key, mr_str id, struct mr_err *err), void *ctx,
                    struct mr_err *err);

/* ---- upload.c ---- */

/** Aborts an unfinished upload; a missing one is not an error. */
int s3_upload_abort(struct mr_s3 *s, struct mr_s3_place at, mr_str id, struct mr_err *err);

#endif
