/* What the files of the S3 client share.
 *
 *   uri.c      s3:// and percent-encoding
 *   config.c   endpoint, region, credentials: options, environment, files
 *   provider.c credentials from STS, containers and instances
 *   renew.c    the thread that gets those, and new ones in time
 *   sign.c     Signature Version 4
 *   xml.c      answers, tag by tag
 *   refused.c  what an answer with an error says
 *   client.c   the thread: connections, requests, trying again
 *   object.c   requests for one object
 *   list.c     listings
 *   reader.c   an object in order, in advance
 *   upload.c   an object in pieces */
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
/** Undoes it, and takes '+' for a space; in place, returns the new length. What is no %XX stays. */
size_t s3_decode(char *text, size_t len);

/* ---- config.c ---- */

struct s3_credentials {
    char *id; /* NULL: requests are not signed */
    char *secret;
    char *token;      /* NULL: none */
    bool is_of_files; /* they may be renewed there */
    int64_t until_ns; /* of the wall clock: they run out then; 0: not told */
};

struct s3_config {
    bool is_tls;
    bool is_amazon; /* the endpoint is the default one */
    char *host;     /* with port, if it was named */
    char *region;
    char *ca_file; /* NULL: the system's */
    enum mr_s3_addressing addressing;
    struct s3_credentials credentials;
    bool is_provided; /* they are a renewer's to get */
    char *sts;        /* "https://sts.eu-west-1.amazonaws.com", without a path */
};
/** Errors: as mr_s3_new. */
int s3_config_load(struct s3_config *out, const struct mr_s3_options *o, struct mr_err *err);
void s3_config_fini(struct s3_config *c);
/** Reads the credentials of files again. Errors: MR_E_FORBIDDEN (there are none); *c is as it was then. */
int s3_credentials_renew(struct s3_credentials *c, struct mr_err *err);

void s3_credentials_fini(struct s3_credentials *c);
void s3_credentials_of_environment(struct s3_credentials *out);
/** The value of a variable; NULL: it is not set, or empty. */
const char *s3_env(const char *name);
const char *s3_profile(void);
/** A container's service is named in the environment. */
bool s3_has_container(void);
/** What a file holds, of at most as many bytes as `out` may have; empty if it cannot be read. */
void s3_file_read(const char *path, struct mr_buf *out);
/** AWS's own two files. */
struct s3_files;
struct s3_files *s3_files_read(void);
void s3_files_free(struct s3_files **f);
/** A setting of a profile, the caller's; NULL: it is not there. */
char *s3_files_find(const struct s3_files *f, const char *profile, const char *key);
void s3_credentials_of_profile(struct s3_credentials *out, const struct s3_files *f,
                               const char *profile);

/** The value of `key` in section [section] of an ini file, as those of AWS are; into `out`. False: it has none. */
bool s3_ini_find(mr_str text, const char *section, const char *key, struct mr_buf *out);

/* ---- sign.c ---- */

#define S3_HASH_TEXT 65

/** SHA-256 as small hexadecimal digits. */
void s3_hash(const void *data, size_t len, char out[S3_HASH_TEXT]);

struct s3_signed {
    const char *method;
    mr_str path;                     /* encoded */
    mr_str query;                    /* encoded, sorted by names, "name=" for one without a value */
    const struct mr_header *headers; /* all to be signed, small letters, sorted by name */
    size_t header_count;
    const char *payload_hash;
    const char *region;
    const char *service;
    char time[17]; /* "20130524T000000Z" */
};
/** Appends the value of the header Authorization. */
void s3_sign(const struct s3_credentials *c, const struct s3_signed *r, struct mr_buf *out);
/** A time of the wall clock as signatures have it. */
void s3_time_text(int64_t wall_ns, char out[17]);

/* ---- provider.c ---- */

struct s3_provider {
    const struct s3_files *files;
    const char *sts;
    const char *region;
    const char *ca_file; /* NULL: the system's */
    const _Atomic bool *is_stopped;
};
/** Credentials of whoever the environment and the files say gives some. Blocks; not on the thread of a loop.
 *  Errors: MR_E_FORBIDDEN (refused), MR_E_INVALID, MR_E_UNSUPPORTED, MR_E_UNAVAILABLE, MR_E_DEADLINE, MR_E_CANCELLED. No
 *  text of theirs has a secret. */
int s3_provide(struct s3_provider *p, struct s3_credentials *out, struct mr_err *err);

/* ---- renew.c ---- */

struct s3_ask {
    const char *who;  /* is asked, for texts */
    const char *url;  /* http:// or https://, host, port, perhaps a path */
    const char *path; /* instead of that; NULL: none */
    const char *method;
    struct mr_header header;             /* value empty: none */
    const char *body;                    /* of a form; NULL: none */
    const struct s3_credentials *signer; /* for STS; NULL: not signed */
    const char *region;
    const char *ca_file;
    int64_t timeout_ns;
    const _Atomic bool *is_stopped; /* ends it */
};
/** Appends what is answered to `out`. Blocks. Errors: those of a client, MR_E_CANCELLED. */
int s3_http(struct s3_ask *a, struct mr_buf *out, int *out_status, struct mr_err *err);

#define S3_TROUBLE_ROOM sizeof(((struct mr_err *)0)->msg)

struct s3_renewer;
/** Waits for the first credentials, until o->is_stopped is true. on_news is called on its thread, and may not call back.
 *  Errors: those of s3_provide. */
int s3_renewer_new(struct s3_renewer **out, const struct s3_config *c,
                   const struct mr_s3_options *o, void (*on_news)(void *ctx), void *ctx,
                   struct mr_err *err);
/** New credentials in the place of *io, if there are any; why none could be got, or "". Any thread. */
void s3_renewer_take(struct s3_renewer *r, struct s3_credentials *io, char *trouble, size_t room);
/** Those that were taken are not valid any more. Any thread. */
void s3_renewer_want(struct s3_renewer *r);
/** NULL is fine. */
void s3_renewer_free(struct s3_renewer **r);

/* ---- xml.c ---- */

/** A document, tag by tag. Nothing is allocated, and nothing nests deeper than S3_XML_DEPTH. */
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
    mr_str text; /* of a close: what lies between it and the tag before, as it is */
};
void s3_xml_init(struct s3_xml *x, mr_bytes document);
/** False: the document has ended, or is none; s3_xml_is_whole tells. */
bool s3_xml_next(struct s3_xml *x);
bool s3_xml_is_whole(const struct s3_xml *x);
/** Appends a text with its entities replaced. False: it has one that is unknown. */
bool s3_xml_text(mr_str text, struct mr_buf *out);
/** The first element of that name, with its entities replaced, into `out`. False: there is none. */
bool s3_xml_find(mr_bytes document, const char *name, struct mr_buf *out);

/* ---- client.c ---- */

#define S3_HEADERS_MOST 6

/** A request. What it points to is copied, but for the body, which is shared and is not changed any more. */
struct s3_request {
    const char *method;
    struct mr_s3_place at;                     /* key empty: the bucket */
    mr_str query;                              /* as in struct s3_signed */
    struct mr_header headers[S3_HEADERS_MOST]; /* small letters */
    size_t header_count;
    struct mr_block *body; /* its begin; NULL: none */
    size_t body_bytes;
    size_t answer_bytes; /* expected, for the timeout */
    int64_t work_ns;     /* added to it: the storage has much to do before it answers */
};

/** What came. Fields are valid until s3_call_free. */
struct s3_answer {
    int status;
    mr_bytes body;
    struct mr_block *block;
    char etag[MR_S3_ETAG_ROOM];
    char nonce[40];      /* x-amz-meta-millrace-upload */
    uint64_t bytes;      /* content-length */
    uint64_t all_bytes;  /* of content-range; otherwise `bytes` */
    bool was_tried_more; /* an earlier attempt has failed, and may have done what it was to do */
};

struct s3_call;
struct s3_call *s3_call_begin(struct mr_s3 *s, const struct s3_request *r);
/** Waits. A status of 400 and more is an error, but for those in `allowed` (0: the end). */
int s3_call_wait(struct s3_call *c, const int *allowed, struct s3_answer *out, struct mr_err *err);
/** Gives it up if it has not ended. NULL is fine. */
void s3_call_free(struct s3_call **c);

/* ---- refused.c ---- */

/** What an answer that is an error means. */
struct s3_refusal {
    char code[64]; /* S3's own, "" = the answer has none */
    char message[300];
    char region[64]; /* that the bucket is in, "" = not told */
};
void s3_refusal_read(struct s3_refusal *r, mr_bytes body);
/** May the same request succeed later? */
bool s3_refusal_passes(const struct s3_refusal *r, int status);
/** The error as a person needs it. server_ns: the time in the answer's head, 0 = none. */
int s3_refusal_tell(const struct s3_refusal *r, int status, struct mr_s3_place at,
                    const struct s3_config *c, int64_t server_ns, struct mr_err *err);

/* ---- object.c ---- */

#define S3_NONCE_HEADER "x-amz-meta-millrace-upload"
/** A text that only the object that we have made has among its notes. */
void s3_nonce(char out[40]);
/** After "there is one already": is it the one that an earlier attempt of ours has made? */
int s3_is_ours(struct mr_s3 *s, struct mr_s3_place at, const char *nonce, bool *out,
               struct mr_err *err);
/** The error of an object that is there and is not ours. */
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

/** Ends an unfinished upload; one that is not there counts as ended. */
int s3_upload_abort(struct mr_s3 *s, struct mr_s3_place at, mr_str id, struct mr_err *err);

#endif
