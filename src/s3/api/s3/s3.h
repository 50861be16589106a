/* Objects in storage that speaks S3: Amazon's own, MinIO, Ceph, R2 and the like.
 *
 * One `struct mr_s3` has a thread of its own, which signs and sends requests, keeps connections, and tries again what may
 * pass: 429, 5xx, SlowDown, lost connections, timeouts, with growing pauses, for options.patience_ns from the first failure
 * of a request on. So all functions here just take longer while the storage is away. They block; any thread may call
 * them, several at once.
 *
 * Errors of all of them: MR_E_NOT_FOUND (no such bucket or object), MR_E_FORBIDDEN (credentials or rights; clocks that
 * differ), MR_E_EXISTS (there is an object of that name, and it was to be a new one), MR_E_UNAVAILABLE (it did not pass),
 * MR_E_CANCELLED, MR_E_INVALID (anything else that was refused, or an answer that makes no sense). They name bucket and
 * key, and what the storage says. Secrets are in no text.
 *
 * Source: Amazon S3 API Reference; "AWS Signature Version 4 for API requests". */
#ifndef MR_S3_S3_H
#define MR_S3_S3_H

#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"

struct mr_s3;

enum mr_s3_addressing {
    MR_S3_AUTO,   /* virtual with Amazon where the bucket's name allows it, otherwise path */
    MR_S3_PATH,   /* https://endpoint/bucket/key */
    MR_S3_VIRTUAL /* https://bucket.endpoint/key */
};

#define MR_S3_ETAG_ROOM 136
#define MR_S3_KEY_MOST  1024

/** All-zero: as the environment says. Strings are borrowed for mr_s3_new. */
struct mr_s3_options {
    /** "https://host[:port]" or http://. NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, or Amazon's. */
    const char *endpoint;
    /** NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1. */
    const char *region;
    enum mr_s3_addressing addressing;
    bool is_anonymous;   /* requests are not signed */
    int64_t patience_ns; /* 0: 5 minutes */
    /** A request has failed twice or more and will be tried again; at most once in ten seconds, on the storage's thread.
     *  May be NULL. */
    void (*on_trouble)(void *ctx, const char *text);
    /** Asked five times a second while there are requests: true is mr_s3_cancel. On the storage's thread, and in mr_s3_new on
     *  its caller's. May be NULL. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
};

/** Finds endpoint, region and credentials: the options, the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
 *  AWS_SESSION_TOKEN), the profile AWS_PROFILE or "default" in AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE (in ~/.aws),
 *  which may have a role, a web identity (AWS_WEB_IDENTITY_TOKEN_FILE), the container's service, the instance's. Those
 *  three are asked, for about 2 s, or the 5 s of one request to STS, unless is_stopped is true, and again before what they gave runs out, by a thread of its own. AWS_CA_BUNDLE names
 *  authorities. The storage is not asked yet. Errors: MR_E_INVALID, MR_E_FORBIDDEN (no credentials, and not
 *  anonymous; refused), MR_E_UNAVAILABLE, MR_E_DEADLINE (a service does not answer), MR_E_UNSUPPORTED (a profile that needs
 *  somebody to type), MR_E_EXHAUSTED. */
int mr_s3_new(struct mr_s3 **out, const struct mr_s3_options *options, struct mr_err *err);
/** Requests that wait, and all later ones, end with MR_E_CANCELLED. Any thread. */
void mr_s3_cancel(struct mr_s3 *s);
/** From now on failures are tried again for so long only. With options.is_stopped that goes for pauses which have begun, and
 *  no request has more than its usual time. Any thread, is_stopped as well. */
void mr_s3_set_patience(struct mr_s3 *s, int64_t ns);
/** What was made with it must be gone. */
void mr_s3_free(struct mr_s3 **s);

/** Whether it begins with s3://. */
bool mr_s3_is_uri(const char *text);
/** Takes "s3://bucket/key" apart; slices of it. The key may be empty. Errors: MR_E_INVALID (the name of a bucket has 3 to 63
 *  small letters, digits, dots and hyphens; a key up to 1024 bytes). */
int mr_s3_uri_parse(const char *uri, mr_str *out_bucket, mr_str *out_key, struct mr_err *err);

struct mr_s3_place {
    mr_str bucket;
    mr_str key;
};

/** What is known of an object. Its ETag changes whenever its content does. */
struct mr_s3_object {
    mr_str key;                 /* valid during a callback; empty from mr_s3_head */
    uint64_t bytes;             /* of all of it */
    char etag[MR_S3_ETAG_ROOM]; /* with its quotes */
};

/** Calls each() for all objects whose keys begin with the prefix, in the order of their bytes. What it returns below zero
 *  ends the listing and is returned. */
int mr_s3_list(struct mr_s3 *s, mr_str bucket, mr_str prefix,
               int (*each)(void *ctx, const struct mr_s3_object *o, struct mr_err *err), void *ctx,
               struct mr_err *err);
int mr_s3_head(struct mr_s3 *s, struct mr_s3_place at, struct mr_s3_object *out,
               struct mr_err *err);
/** An object that is not there counts as deleted. */
int mr_s3_delete(struct mr_s3 *s, struct mr_s3_place at, struct mr_err *err);
/** Writes an object. is_new: only if there is none; otherwise MR_E_EXISTS. */
int mr_s3_put(struct mr_s3 *s, struct mr_s3_place at, mr_bytes content, bool is_new,
              struct mr_err *err);

/** A range of an object that is on its way. */
struct mr_s3_fetch;
/** Begins to get bytes [first, first + count), at least one, at most 64 MiB, of the object that has the ETag. */
struct mr_s3_fetch *mr_s3_fetch_begin(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t first, size_t count);
/** Waits for it and ends it, also when it failed. *out_block holds the bytes, all of them; the caller's.
 *  Errors: MR_E_INVALID as well when the object has another ETag by now. */
int mr_s3_fetch_end(struct mr_s3_fetch **f, struct mr_block **out_block, mr_bytes *out,
                    struct mr_err *err);
/** Ends one that nobody wants any more. NULL is fine. */
void mr_s3_fetch_drop(struct mr_s3_fetch **f);

/** An object from its begin to its end, some of it in advance: at most 16 MiB. One thread at a time. */
struct mr_s3_reader;
struct mr_s3_reader *mr_s3_reader_new(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t bytes);
/** The next bytes; *out_n 0: there are no more. Errors: as mr_s3_fetch_end. */
int mr_s3_reader_read(struct mr_s3_reader *r, void *out, size_t room, size_t *out_n,
                      struct mr_err *err);
void mr_s3_reader_free(struct mr_s3_reader **r);

/** A new object from a file that grows at its end: what is there goes out while the rest is being written. Small ones go in
 *  one request, larger ones in pieces. One thread at a time. */
struct mr_s3_upload;
/** expected_bytes: about how large it may become, for the size of pieces. */
struct mr_s3_upload *mr_s3_upload_new(struct mr_s3 *s, struct mr_s3_place at, int fd,
                                      uint64_t expected_bytes);
/** So many bytes of the file will not change any more. Waits while three pieces are on their way. */
int mr_s3_upload_more(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err);
/** The file is complete; so is the object when this returns MR_OK. Errors: MR_E_EXISTS. */
int mr_s3_upload_finish(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err);
/** One that was not finished leaves nothing behind, if the storage can be told; it is not asked when it was away before, or
 *  after mr_s3_cancel. NULL is fine. */
void mr_s3_upload_free(struct mr_s3_upload **u);
/** Ends all unfinished uploads of keys that begin with the prefix. */
int mr_s3_uploads_abort(struct mr_s3 *s, mr_str bucket, mr_str prefix, struct mr_err *err);

#endif
