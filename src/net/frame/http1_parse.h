/* The syntax of HTTP/1 messages, for the server (requests) and the client (responses): pure functions over bytes, no
 * I/O, no memory of their own.
 * Source: RFC 9112. Strict for both: ambiguous messages are refused. A line ends in CR LF; a bare LF, which a
 * recipient may accept (2.2), is refused in responses too. */
#ifndef MR_NET_HTTP1_PARSE_H
#define MR_NET_HTTP1_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "net/http.h"

/** Search for the end of a head. All-zero to begin. */
struct mr_http1_scan {
    size_t at;         /* bytes scanned */
    size_t line_start; /* of the line that is not complete yet */
    size_t lines;      /* complete lines, the first one included, the empty one not */
};

enum mr_http1_found { MR_HTTP1_MORE = 0, MR_HTTP1_FOUND = 1, MR_HTTP1_BAD = -1 };

/** Continues the search in p[0..n), which begins with the first byte of the head; each byte is scanned once over all
 *  calls. FOUND: scan->at is the length of the head, empty line included. BAD: a line that does not end in CR LF. */
enum mr_http1_found mr_http1_scan(struct mr_http1_scan *scan, const char *p, size_t n);

/** True if a request (its first line) can begin like this. False early for TLS hellos and other garbage. n > 0. */
bool mr_http1_is_plausible(const char *p, size_t n);

/** A parsed head. Slices point into its bytes. */
struct mr_http1_head {
    int status;       /* of a response: 100 to 999 */
    mr_str method;    /* of a request, as are the next four */
    mr_str target;    /* as sent */
    mr_str authority; /* of a target in absolute form, used instead of Host; else empty */
    mr_str path;
    mr_str query;
    int minor; /* HTTP/1.minor */
    struct mr_header *headers;
    size_t header_count;
    int64_t content_length; /* -1 = none given */
    bool is_chunked;
    bool keep_alive;
    bool expects_continue;
    bool has_body;  /* chunked, content_length > 0 or is_to_end, of a response that may have one */
    bool is_to_end; /* of a response: its body ends with the connection */
    const char *error; /* text for a result other than 0 */
};

/** Parse a complete request head of n bytes (as found by mr_http1_scan). Names are lower-cased in
 *  place; all slices point into p. table: room for the headers. Returns 0 or the HTTP status to
 *  refuse it with: 400, 417 (expectation), 431 (more headers than table_size), 501 (transfer
 *  coding), 505 (version). */
int mr_http1_parse_request(char *p, size_t n, struct mr_header *table, size_t table_size,
                           struct mr_http1_head *out);

/** Parse a complete response head, with the same rules for lines, header fields and framing (RFC 9112 6.3).
 *  is_head: the response to HEAD, which has no body, as 1xx, 204 and 304 have none. Returns 0, 431 (more headers than
 *  table_size) or another status for what is malformed. */
int mr_http1_parse_response(char *p, size_t n, bool is_head, struct mr_header *table,
                            size_t table_size, struct mr_http1_head *out);

/** Parse complete trailers, the empty line included. Returns as mr_http1_parse_response; sets headers, header_count and
 *  error alone. */
int mr_http1_parse_trailers(char *p, size_t n, struct mr_header *table, size_t table_size,
                            struct mr_http1_head *out);

/** Chunked coding. All-zero to begin, with the limits set. */
struct mr_http1_chunked {
    int state;
    uint64_t left;         /* of the current chunk */
    uint32_t digits;       /* of its size */
    uint32_t overhead;     /* bytes of extensions and trailers so far */
    uint32_t line;         /* bytes of the current trailer line */
    uint32_t chunks;       /* non-empty chunks so far */
    uint32_t max_overhead; /* limit of `overhead` */
    uint32_t max_chunks;   /* limit of `chunks` */
    /** Receives the bytes of the trailers, the empty line included; NULL: they are skipped. */
    struct mr_buf *trailers;
};

enum mr_http1_chunk { MR_CHUNK_MORE = 0, MR_CHUNK_DATA = 1, MR_CHUNK_END = 2, MR_CHUNK_BAD = -1 };

/** Decodes p[0..n) up to the end of the next run of data. *out_used: bytes used, data included. DATA: *out_data is
 *  the run. END: the body and its trailers are complete. MORE: all n bytes were used and more are needed. */
enum mr_http1_chunk mr_http1_chunk_next(struct mr_http1_chunked *c, const char *p, size_t n,
                                        size_t *out_used, mr_bytes *out_data);

/** Bytes of the current chunk that are still to come; 0 outside of chunk data. */
uint64_t mr_http1_chunk_left(const struct mr_http1_chunked *c);
/** Skips n bytes (at most mr_http1_chunk_left) that were read by other means. */
void mr_http1_chunk_skip(struct mr_http1_chunked *c, size_t n);

/** True for a token (RFC 9110 5.6.2). */
bool mr_http1_is_token(mr_str s);
/** True for a field value: no control characters except HTAB. */
bool mr_http1_is_value(mr_str s);

#endif
