/* Blocking calls to a running server, one at a time. */
#ifndef MR_CLI_REMOTE_H
#define MR_CLI_REMOTE_H

#include "base/options.h"
#include "client/endpoint.h"
#include "client/url.h"
#include "net/client.h"
#include "net/tls.h"

struct mr_remote {
    struct mr_loop *loop;
    struct mr_client *client;
    struct mr_tls_client *tls; /* NULL: none */
    char address[256];         /* for texts */
    int64_t timeout_ns;
};

/** Access to a server: TLS, and headers of each request ("Name: value"). */
struct mr_remote_access {
    struct mr_tls_client_options tls;
    struct mr_option_list headers;
};

/** An answer; the body is valid until mr_remote_reply_fini. */
struct mr_remote_reply {
    int status; /* HTTP */
    mr_bytes body;
    struct mr_block *block;
    int64_t header_length; /* Inference-Header-Content-Length, -1 = none */
    int64_t took_ns;
};

/** Reads host, host:port, http://host:port, grpc://host:port, unix:/path; https:// and grpcs:// use TLS. Errors: MR_E_INVALID. */
int mr_remote_url(const char *url, int default_port, struct mr_url *out, struct mr_err *err);
/** url: as mr_remote_url reads it, TLS with the settings of `access` (NULL: no headers, TLS defaults). Does not connect. Errors: MR_E_INVALID, and those of
 *  mr_tls_client_new. */
int mr_remote_open(struct mr_remote *r, const char *url, int default_port, bool http2,
                   int64_t timeout_ns, const struct mr_remote_access *access, struct mr_err *err);
void mr_remote_close(struct mr_remote *r);

/** One HTTP request. An HTTP status other than 2xx is an error: the server's text, or the status. Takes the pieces' references. */
int mr_remote_http(struct mr_remote *r, const struct mr_client_request *request,
                   struct mr_remote_reply *out, struct mr_err *err);
/** GET, or POST of a text when body is not NULL. */
int mr_remote_text(struct mr_remote *r, const char *path, const struct mr_buf *body,
                   struct mr_remote_reply *out, struct mr_err *err);
/** One unary gRPC call. Takes the pieces' references. */
int mr_remote_grpc(struct mr_remote *r, const char *path, const struct mr_piece *pieces,
                   size_t piece_count, struct mr_remote_reply *out, struct mr_err *err);
/** One inference; the endpoint's client is ignored. buf and arena are not needed any more when this returns. *out is set in any case: with an
 *  error, the body is that of the answer, or, over gRPC, the trace of a workflow that failed, or empty. */
int mr_remote_infer(struct mr_remote *r, const struct mr_endpoint *e,
                    struct mr_oip_request *request, struct mr_buf *buf, struct mr_arena *arena,
                    struct mr_remote_reply *out, struct mr_err *err);
/** The model's metadata; *out must be zero, its texts are in the arena. */
int mr_remote_metadata(struct mr_remote *r, const struct mr_endpoint *e, struct mr_arena *arena,
                       struct mr_oip_metadata *out, struct mr_err *err);
void mr_remote_reply_fini(struct mr_remote_reply *reply);
/** The error of an HTTP status: the text of {"error": "…"} with 400 and more, otherwise the status with the body as it is. */
int mr_remote_error(const struct mr_remote *r, int http_status, mr_bytes body, struct mr_err *err);

/** Reads the answer to GET /v2/models/M/versions: `row` parses each of its loads in turn. out_error, unless NULL: the
 *  member of that name. Texts are in the arena or the body. Errors: MR_E_INVALID, and those of `row`. */
struct mr_json;
int mr_remote_versions(mr_bytes body, struct mr_arena *arena, mr_str *out_error,
                       int (*row)(struct mr_json *j, void *ctx), void *ctx, struct mr_err *err);

/** Does a URL ask for gRPC? */
bool mr_remote_is_grpc(const char *url);

/** Sets *io, the choice of a MR_REMOTE_PROTOCOL_ROW with the default rest (0), to gRPC (2) for a URL that begins with
 *  grpc. Errors: MR_E_INVALID for binary (1), which is not gRPC. */
int mr_remote_protocol(const char *url, int *io, struct mr_err *err);

/** The row of --timeout, whose member is timeout_ns. */
#define MR_REMOTE_TIMEOUT_ROW(type, default_text, help_text)                                       \
    {                                                                                              \
        .name = "timeout", .letter = 't', .kind = MR_OPTION_DURATION,                              \
        MR_OPTION_AT(type, timeout_ns), .fallback = default_text, .max = 86400,                    \
        .scale = MR_NS_PER_S, .value = "TIME", .help = help_text                                   \
    }
/** Rows of an option table for a struct with `url`, `protocol` and a struct mr_remote_access `access`. `ports` names
 *  the default ports, `names` the protocols. */
#define MR_REMOTE_URL_ROW(type, ports)                                                             \
    {                                                                                              \
        .name = "url", .letter = 'u', .kind = MR_OPTION_STRING, MR_OPTION_AT(type, url),           \
        .fallback = "127.0.0.1", .value = "ADDRESS",                                               \
        .help =                                                                                    \
            "host:port, https://, grpc:// or grpcs://host:port, or unix:/path; the port is " ports \
            " if not given"                                                                        \
    }
#define MR_REMOTE_PROTOCOL_ROW(type, names, more)                                                  \
    {                                                                                              \
        .name = "protocol", .kind = MR_OPTION_CHOICE, MR_OPTION_AT(type, protocol),                \
        .fallback = "rest", .choices = (names), .value = "PROTOCOL",                               \
        .help = "rest sends JSON, binary REST with binary tensors" more                            \
    }
#define MR_REMOTE_TLS_FILE(option, type, member, text)                                             \
    {                                                                                              \
        .name = option, .kind = MR_OPTION_STRING, MR_OPTION_AT(type, access.tls.member),           \
        .value = "FILE", .help = text                                                              \
    }
#define MR_REMOTE_ACCESS_ROWS(type)                                                                \
    {.name = "header",                                                                             \
     .letter = 'H',                                                                                \
     .kind = MR_OPTION_LIST,                                                                       \
     .flags = MR_OPTION_SECRET,                                                                    \
     MR_OPTION_AT(type, access.headers),                                                           \
     .check = mr_client_header_check,                                                              \
     .value = "'NAME: VALUE'",                                                                     \
     .help = "sent with each request, over gRPC as metadata; may be given several times; in "      \
             "MILLRACE_HEADER it stays out of the list of processes"},                             \
        MR_REMOTE_TLS_FILE("tls-ca", type, ca_file,                                                \
                           "authorities to trust with https:// and grpcs://; the system's if not " \
                           "given"),                                                               \
        MR_REMOTE_TLS_FILE("tls-cert", type, cert_file,                                            \
                           "certificate to show to a server that asks for one"),                   \
        MR_REMOTE_TLS_FILE("tls-key", type, key_file, "its key; in --tls-cert if not given"),      \
        {.name = "tls-server-name",                                                                \
         .kind = MR_OPTION_STRING,                                                                 \
         MR_OPTION_AT(type, access.tls.server_name),                                               \
         .value = "NAME",                                                                          \
         .help = "the name that the server's certificate must have; the host if not given"},       \
    {                                                                                              \
        .name = "tls-insecure", .kind = MR_OPTION_BOOL,                                            \
        MR_OPTION_AT(type, access.tls.is_insecure),                                                \
        .help = "accept any certificate: the server is not verified"                               \
    }

/** The end of the help of commands that print what a server answers. json: what else --json does. */
#define MR_REMOTE_NOTES(json)                                                                      \
    "On a terminal the answers are tables, otherwise lines of tab-separated fields without a\n"    \
    "header line; --json prints what the server sent" json ".\n"                                   \
    "Exit status: 0 done, 1 the server refused or cannot be reached, 2 the command line is "       \
    "wrong.\n"

#endif
