/* What the files of the server share. */
#ifndef MR_SERVE_PRIV_H
#define MR_SERVE_PRIV_H

#include <pthread.h>
#include <regex.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/wire.h"
#include "inference.pb-c.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/tls.h"
#include "oip/oip.h"
#include "sched/sched.h"
#include "serve/server.h"

/* mr_http_listen tags */
enum listener_tag { LISTEN_HTTP = 0, LISTEN_GRPC = 1, LISTEN_METRICS = 2 };

/* enum mr_status, without the sign; those of backends that are no known one count as the first */
#define SERVE_STATUSES (-MR_E_CLOSED + 1)

/* Most bytes of a request that carries neither tensors nor files: those are read in one piece. */
#define SERVE_SMALL_BODY ((uint64_t)1 << 20)

enum server_state { SERVER_STARTING = 0, SERVER_READY, SERVER_EXITING };

struct stream_item;
struct serve_pending;

/* One network thread. Fields belong to it, except what says otherwise. */
struct serve_loop {
    struct mr_server *server;
    struct mr_loop *loop;
    pthread_t thread;
    _Atomic bool is_started; /* loader threads ask */
    unsigned epoch_slot;
    struct mr_reply_loop reply_loop;
    LIST_HEAD(, serve_pending) open; /* calls that last until they are ended */
    struct stream_item *free_items;  /* recycled requests of streams */
    unsigned free_item_count;
    /** Inferences that came to no version. */
    _Atomic uint64_t refused[MR_INFER_PROTOCOLS][SERVE_STATUSES];
    struct mr_timer exit_timer; /* long requests are ended then */
    struct mr_timer look_timer; /* see take_done */
    struct mr_mail changed;     /* posted when readiness may have changed */
    _Atomic bool is_change_posted;
};

/* Work for the administration thread: reports over all models, which may take long with thousands. */
struct admin_job {
    struct admin_job *next;
    void (*run)(struct admin_job *job);  /* on the administration thread */
    void (*done)(struct admin_job *job); /* on `loop` */
    struct serve_loop *loop;
    struct mr_mail mail;
};

struct admin {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards first, last, is_stopping; held for list work only */
    pthread_cond_t work;
    struct admin_job *first;
    struct admin_job *last;
    int64_t age_ns; /* the thread's own: when to age the cache of bulk memory */
    bool is_started;
    bool is_stopping;
};

enum serve_tls_kind { SERVE_TLS_HTTP, SERVE_TLS_GRPC, SERVE_TLS_KINDS };

/* TLS of one listener; the thread that watches files owns it, but for the counters. */
struct serve_tls {
    const char *name; /* "http" */
    const struct mr_serve_tls *options;
    struct mr_tls *tls; /* NULL: off */
    int64_t remind_ns;  /* when the log says again that the certificate ends */
    _Atomic uint64_t reloads;
    _Atomic uint64_t reload_failures;
};

struct serve_tls_watch {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards is_asked and is_stopping */
    pthread_cond_t wake;
    bool is_asked;
    bool is_stopping;
    bool is_started;
};

struct mr_server {
    struct mr_server_options options;
    struct mr_http_server *http;
    struct mr_engine *engine;
    struct mr_models *models; /* the engine's */
    struct serve_loop *loops;
    int *doors; /* [loop_count] of the loops, for worker processes; NULL = there are none */
    unsigned loop_count;
    struct admin admin;
    struct serve_tls tls[SERVE_TLS_KINDS];
    struct serve_tls_watch tls_watch;
    uint16_t http_port;
    uint16_t grpc_port;
    uint16_t metrics_port;
    _Atomic int state; /* enum server_state */
    int64_t start_wall_ns;
    bool has_forward;
    regex_t forward;
    struct mr_oip_limits http_limits;
    struct mr_oip_limits grpc_limits;
};

/* What call->user points to while a call waits for something. */
struct serve_pending {
    void (*cancel)(struct serve_pending *p);
    void (*room)(struct serve_pending *p); /* after mr_call_when_room */
    void (*data)(struct serve_pending *p, mr_bytes data, bool last);
    /* Open calls: readiness may have changed; when the server exits they end soon. May end its own call only. */
    void (*changed)(struct serve_pending *p);
    LIST_ENTRY(serve_pending) link; /* of the loop's open calls */
};

/* One inference of a client, on either protocol. Lives in its call's arena, or in a stream item. */
struct serve_infer {
    struct serve_pending pending;
    struct mr_infer infer;
    struct mr_oip_request request;
    struct serve_loop *loop;
    struct mr_call *call;
    struct mr_grpc_call *grpc; /* NULL: REST */
    struct mr_timer timer;
    struct mr_call_wait wait; /* until the client has read, to be submitted again */
    struct mr_turn turn;      /* decoding, later encoding, where that takes long */
    struct mr_buf text;       /* of an answer that is encoded in turns */
    const char *no_decoupled; /* why models of several answers are refused; NULL: they are not */
    /* For a model that takes messages (message.c): the message, and what is asked of the model; NULL = a request that
     * was decoded */
    mr_bytes message;
    const char *message_kind;
    bool is_pinned;
    int bound; /* status of infer_bind */
    int64_t encode_start_ns;
    void (*reply)(struct serve_infer *si); /* infer.status is set; exactly once */
};

/* loops.c: the loop that this thread runs */
struct serve_loop *serve_here(void);
int loops_open(struct mr_server *s, struct mr_err *err);
/* Descriptors by which worker processes wake the loops: a new array. NULL: there are too few. */
int *loops_doors(struct mr_server *s);
int loops_start(struct mr_server *s, struct mr_err *err);
void loops_stop(struct mr_server *s);
void serve_notify(struct mr_server *s);
/* Streams and watches: between these two, `changed` is called. */
void serve_open(struct serve_pending *p);
void serve_closed(struct serve_pending *p);

/* admin.c */
int admin_start(struct admin *a, struct mr_err *err);
void admin_stop(struct admin *a);
void admin_submit(struct mr_server *s, struct admin_job *job);

/* tls.c */
int serve_tls_open(struct mr_server *s, struct mr_err *err);
int serve_tls_start(struct mr_server *s, struct mr_err *err);
void serve_tls_stop(struct mr_server *s);
void serve_tls_free(struct mr_server *s);
/* NULL: that listener is a plain one */
struct mr_tls *serve_tls_for(const struct mr_server *s, enum listener_tag tag);
void serve_tls_bad_start(void *ctx, int tag, const char *peer, const char *why);

/* state.c */
bool serve_is_exiting(const struct mr_server *s);
bool serve_is_ready(struct mr_server *s);

/* http.c: dispatch */
extern const struct mr_http_handler serve_handler;

/* restrict.c */
bool serve_has_restrictions(const struct mr_server *s);
/* Judge a call by its head; rest_api is the class of a REST path. True: it was refused and is gone. */
bool serve_refuse_restricted(struct mr_server *s, struct mr_call *call, enum mr_api rest_api);
/* Such a header is for the server alone, models do not get it. */
bool serve_is_secret_header(const struct mr_server *s, mr_str lower_name);

/* reply.c */
void reply_json(struct mr_call *call, int http_status, mr_str body);
void reply_buf(struct mr_call *call, int http_status, const struct mr_buf *b);
void reply_empty(struct mr_call *call, int http_status);
/* {"error": ...} with the status that Triton gives it; 503 carries Retry-After. */
void reply_error(struct mr_call *call, const struct mr_err *err);
void reply_error_text(struct mr_call *call, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void reply_status_text(struct mr_call *call, int http_status, const char *text);

/* memory.c */
/* Dies with the arena; NULL: the arena or the memory budget is full. */
void *memory_try(struct mr_arena *a, size_t bytes);

/* infer.c: the part that REST and gRPC share */
void infer_init(struct serve_infer *si, struct mr_call *call, struct mr_arena *arena,
                enum mr_infer_protocol protocol);
/* The decoded request against its model: what is left of decoding, and the work of the same turn. Negative: it cannot be
 * read (infer_refuse). Whatever else is wrong with it is answered by infer_run. */
int infer_bind(struct serve_infer *si, mr_str model, mr_str version);
void infer_run(struct serve_infer *si);
void infer_end(struct serve_infer *si);
void infer_cancel(struct serve_infer *si);
/* Outputs of this many bytes take long to encode as text. */
#define SERVE_LONG_ANSWER 32768u
/* True if a body of this many bytes takes longer to decode, or the outputs to encode, than a loop should spend at
 * once. */
bool infer_is_long_body(size_t bytes);
bool infer_is_long_answer(const struct serve_infer *si);
/* Let `work` be done in turns of the loop, then `done` be called; a cancelled request, and with is_input a server
 * that exits, ends it. */
void infer_turn(struct serve_infer *si, void (*work)(struct mr_turn *t),
                void (*done)(struct mr_turn *t), bool is_input);
/* Why a turn was ended, for the client. Returns err's status. */
int serve_turn_error(const struct mr_turn *t, struct mr_err *err);
/* First in `done`: what the work made of infer.status stands, unless the turn was ended. */
void infer_turned(struct serve_infer *si);
/* The answer begins to be made. Where the execution ended just before on this thread, that is the time. */
void infer_encode_begins(struct serve_infer *si);
/* gRPC: build the answer (with `final`: an element of a stream with that parameter) and compress it. On failure
 * nothing has to be dropped. */
int infer_encode_grpc(struct serve_infer *si, const struct mr_oip_param *final,
                      struct mr_grpc_message *out);
/* Let infer.outputs be those of an answer, in its arena, which becomes infer.arena: the caller takes both back. */
void infer_use_response(struct serve_infer *si, struct mr_response *response);
/* The same for one of several answers, which may be the mere end of them. */
int infer_encode_response(struct serve_infer *si, struct mr_response *response,
                          struct mr_grpc_message *out);
void infer_drop_answer(struct mr_grpc_message *m);
/* Where to encode to: the loop's scratch buffer, or si->text in a turn. */
struct mr_buf *infer_buf(struct serve_infer *si);
void infer_log_failure(const struct serve_infer *si);
/* Instead of infer_run: the request cannot be read, infer.err says why. */
void infer_refuse(struct serve_infer *si, int status);
const char *infer_protocol_name(enum mr_infer_protocol protocol);

/* message.c: models that take messages as they come (mr_version.has_messages) */
/* Arguments of a request whose version is known: si->message and its headers. May be the work of a turn. */
int message_args(struct serve_infer *si, mr_str version, struct mr_infer_args *out);
/* An answer: what goes out as it is, and what the model says beside it. */
struct message_answer {
    struct mr_oip_encoded body;
    struct mr_header *headers; /* arena; content-type is among them */
    size_t header_count;
    int http_status;
};
#define MESSAGE_HEADERS_MAX 64
/* Errors: MR_E_INTERNAL (no such answer), MR_E_EXHAUSTED. */
int message_answer(struct serve_infer *si, struct message_answer *out, struct mr_err *err);

/* rest_*.c: the handlers of REST routes (http/routes.c) */
void rest_generate(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_generate_stream(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
void rest_infer(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Passes the call to the model, which takes messages, and whose answer it is. kind: what is asked, static. */
void rest_ask(struct mr_call *call, const struct mr_oip_path *path, const char *kind);
/* Inference-Header-Content-Length, at most body_len; -1 without the header. Errors: MR_E_INVALID (no such number; two of
 * them). */
int rest_header_length(const struct mr_call *call, size_t body_len, int64_t *out,
                       struct mr_err *err);
void rest_live(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_server_metadata(struct mr_server *s, struct mr_call *call,
                          const struct mr_oip_path *path);
void rest_model_metadata(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_model_ready(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_model_config(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Of all models where the path has none. */
void rest_stats(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_index(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_load(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_unload(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_label(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_rollback(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void record_rest(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_workers(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_versions(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
/* Begins to read the members of a request's body; false when it has none. An error shows at mr_json_finish. */
struct mr_json;
bool rest_begin_body(struct mr_call *call, struct mr_json *out, struct mr_err *err);
/* A version in JSON, as text or as a number. */
int rest_parse_version(struct mr_json *j, mr_str *out);
void rest_logging(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_docs(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void rest_openapi(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path);
void metrics_rest(struct mr_server *s, struct mr_call *call);

/* meta.c: facts that both protocols report */
extern const char *const serve_extensions[];
extern const size_t serve_extension_count;
/* Shape as metadata shows it: -1 first when the model batches. out has room for MR_MAX_RANK + 1. */
size_t meta_shape(const struct mr_version *v, const struct mr_model_io *io, int64_t *out);
const char *meta_platform(const struct mr_version *v);
/* Versions for the metadata of a model: the one asked for, or all ready ones. */
size_t meta_versions(struct mr_server *s, const struct mr_version *v, mr_str asked,
                     const struct mr_version **out, size_t max);
/* Apply log settings; every value optional. Errors: MR_E_INVALID, MR_E_UNSUPPORTED (log_file). */
struct log_change {
    int8_t info, warning, error; /* -1 = leave */
    bool has_verbose;
    uint32_t verbose;
    mr_str format; /* ptr NULL = leave */
    bool has_file;
};
void meta_log_change_init(struct log_change *c);
int meta_log_change_apply(const struct log_change *c, struct mr_err *err);

/* stats.c: statistics as the protobuf message that both protocols print */
struct stats_set {
    Inference__ModelStatisticsResponse response;
    struct mr_arena arena;
    size_t capacity;
    bool failed;
};
void stats_set_init(struct stats_set *set);
void stats_set_fini(struct stats_set *set);
void stats_set_add(struct stats_set *set, const struct mr_version *v);
/* All models (administration thread). */
void stats_set_add_all(struct stats_set *set, struct mr_models *models);
/* One model, all ready versions or one (network thread). */
int stats_set_add_model(struct stats_set *set, struct mr_models *models, mr_str model,
                        mr_str version, struct mr_err *err);

/* grpc*.c */
void grpc_fail_err(struct mr_grpc_call *g, const struct mr_err *err);
void grpc_reply_message(struct mr_grpc_call *g, const ProtobufCMessage *m);
/* Unpack the request into the call's arena; on failure the call is answered and NULL returned. */
void *grpc_request(struct mr_grpc_call *g, const ProtobufCMessageDescriptor *desc);
enum mr_grpc_compression grpc_compression(const struct mr_server *s);
void record_grpc(struct mr_server *s, struct mr_grpc_call *g);
void stream_items_free(struct serve_loop *here);

#endif
