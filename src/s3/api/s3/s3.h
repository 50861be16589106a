/* Objects in S3-compatible storage: Amazon S3, MinIO, Ceph, R2 and others.
 *
 * One `struct mr_s3` has a thread of its own, which signs and sends requests, keeps connections, and retries
 * temporary failures: 429, 5xx, SlowDown, lost connections, timeouts, with growing pauses, for options.patience_ns
 * from the first failure of a request on. So during an outage of the storage all functions here only take longer.
 * They block; any number of threads may call them.
 *
 * Errors of all of them: MR_E_NOT_FOUND (no such bucket or object), MR_E_FORBIDDEN (credentials or rights; clocks
 * that differ), MR_E_EXISTS (a new object was to be created, and the name exists), MR_E_UNAVAILABLE (the failure
 * lasted), MR_E_CANCELLED, MR_E_INVALID (any other refusal, or an invalid answer). Texts contain bucket, key and the
 * storage's message, and never a secret.
 *
 * Source: Amazon S3 API Reference; "AWS Signature Version 4 for API requests". */
#ifndef MR_S3_S3_H
#define MR_S3_S3_H

#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"

struct mr_s3;

enum mr_s3_addressing {
    MR_S3_AUTO,   /* virtual for Amazon if the bucket's name allows it, otherwise path */
    MR_S3_PATH,   /* https://endpoint/bucket/key */
    MR_S3_VIRTUAL /* https://bucket.endpoint/key */
};

#define MR_S3_ETAG_ROOM 136
#define MR_S3_KEY_MOST  1024

/** All-zero: from the environment. Strings are borrowed for mr_s3_new. */
struct mr_s3_options {
    /** "https://host[:port]" or http://. NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's, or Amazon's. */
    const char *endpoint;
    /** NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1. */
    const char *region;
    enum mr_s3_addressing addressing;
    bool is_anonymous;   /* requests are not signed */
    int64_t patience_ns; /* 0: 5 minutes */
    /** (optional) A request has failed at least twice and will be retried. Called at most once in ten seconds, on the
     *  storage's thread. */
    void (*on_trouble)(void *ctx, const char *text);
    /** (optional) Called five times a second while there are requests: true acts as mr_s3_cancel. On the storage's
     *  thread; within mr_s3_new on the caller's. */
    bool (*is_stopped)(void *ctx);
    void *ctx;
};

/** Finds endpoint, region and credentials: the options, the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
 *  AWS_SESSION_TOKEN), the profile AWS_PROFILE or "default" in AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE (in ~/.aws),
 *  which may have a role, a web identity (AWS_WEB_IDENTITY_TOKEN_FILE), the container's service, the instance's. The
 *  last three are queried, for about 2 s, or the 5 s of one request to STS, unless is_stopped is true, and again
 *  before their credentials expire, by a thread of its own. AWS_CA_BUNDLE names authorities. Sends no request to the
 *  storage. Errors: MR_E_INVALID, MR_E_FORBIDDEN (no credentials, and not anonymous; refused), MR_E_UNAVAILABLE,
 *  MR_E_DEADLINE (a service does not answer), MR_E_UNSUPPORTED (a profile that needs interactive input),
 *  MR_E_EXHAUSTED. */
int mr_s3_new(struct mr_s3 **out, const struct mr_s3_options *options, struct mr_err *err);
/** Ends waiting requests, and all later ones, with MR_E_CANCELLED. Any thread. */
void mr_s3_cancel(struct mr_s3 *s);
/** Later failures are retried for at most this time. With options.is_stopped this also applies to running
 *  pauses, and no request gets more than its usual time. Any thread, also from is_stopped. */
void mr_s3_set_patience(struct mr_s3 *s, int64_t ns);
/** All objects made with it must have been freed. */
void mr_s3_free(struct mr_s3 **s);

/** True if the text begins with s3://. */
bool mr_s3_is_uri(const char *text);
/** Parses "s3://bucket/key" into slices of it. The key may be empty. Errors: MR_E_INVALID (a bucket's name has 3 to
 *  63 lower-case letters, digits, dots and hyphens; a key up to 1024 bytes). */
int mr_s3_uri_parse(const char *uri, mr_str *out_bucket, mr_str *out_key, struct mr_err *err);

struct mr_s3_place {
    mr_str bucket;
    mr_str key;
};

/** An object's attributes. Its ETag changes with its content. */
struct mr_s3_object {
    mr_str key;                 /* valid during a callback; empty from mr_s3_head */
    uint64_t bytes;             /* of the whole object */
    char etag[MR_S3_ETAG_ROOM]; /* with its quotes */
};

/** Calls each() for all objects whose keys begin with the prefix, in byte order. A negative result ends the listing
 *  and is returned. */
int mr_s3_list(struct mr_s3 *s, mr_str bucket, mr_str prefix,
               int (*each)(void *ctx, const struct mr_s3_object *o, struct mr_err *err), void *ctx,
               struct mr_err *err);
int mr_s3_head(struct mr_s3 *s, struct mr_s3_place at, struct mr_s3_object *out,
               struct mr_err *err);
/** Deletes an object. A missing object is not an error. */
int mr_s3_delete(struct mr_s3 *s, struct mr_s3_place at, struct mr_err *err);
/** Writes an object. is_new: fails with MR_E_EXISTS if the name exists. */
int mr_s3_put(struct mr_s3 *s, struct mr_s3_place at, mr_bytes content, bool is_new,
              struct mr_err *err);

/** A pending read of a range. */
struct mr_s3_fetch;
/** Starts to read bytes [first, first + count), 1 byte to 64 MiB, of the object with that ETag. */
struct mr_s3_fetch *mr_s3_fetch_begin(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t first, size_t count);
/** Waits for it and ends it, also on failure. *out_block holds all the bytes; the caller drops it. Errors: also
 *  MR_E_INVALID if the object now has another ETag. */
int mr_s3_fetch_end(struct mr_s3_fetch **f, struct mr_block **out_block, mr_bytes *out,
                    struct mr_err *err);
/** Ends a read that is no longer wanted. Accepts NULL. */
void mr_s3_fetch_drop(struct mr_s3_fetch **f);

/** A sequential reader of an object, which reads up to 16 MiB ahead. One thread at a time. */
struct mr_s3_reader;
struct mr_s3_reader *mr_s3_reader_new(struct mr_s3 *s, struct mr_s3_place at, const char *etag,
                                      uint64_t bytes);
/** The next bytes; *out_n 0: the end. Errors: as mr_s3_fetch_end. */
int mr_s3_reader_read(struct mr_s3_reader *r, void *out, size_t room, size_t *out_n,
                      struct mr_err *err);
void mr_s3_reader_free(struct mr_s3_reader **r);

/** A new object from a file that grows at its end, uploaded while it is being written. Small ones are sent in one
 *  request, larger ones in parts. One thread at a time. */
struct mr_s3_upload;
/** expected_bytes: the approximate final size, which determines the size of parts. */
struct mr_s3_upload *mr_s3_upload_new(struct mr_s3 *s, struct mr_s3_place at, int fd,
                                      uint64_t expected_bytes);
/** The first `bytes` of the file will no longer change. Waits while three parts are being sent. */
int mr_s3_upload_more(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err);
/** The file is complete; on MR_OK the object is too. Errors: MR_E_EXISTS. */
int mr_s3_upload_finish(struct mr_s3_upload *u, uint64_t bytes, struct mr_err *err);
/** Frees it and aborts an unfinished upload in the storage, unless the storage was unavailable before, or after
 *  mr_s3_cancel. Accepts NULL. */
void mr_s3_upload_free(struct mr_s3_upload **u);
/** Aborts all unfinished uploads of keys that begin with the prefix and for which is_ours returns true. */
int mr_s3_uploads_abort(struct mr_s3 *s, mr_str bucket, mr_str prefix,
                        bool (*is_ours)(const void *ctx, mr_str key), const void *ctx,
                        struct mr_err *err);

#endif
