/* The objects of the handles in millrace/client.h. Private. */
#ifndef MR_SDK_ABI_H
#define MR_SDK_ABI_H

#include <semaphore.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/map.h"
#include "driver.h"
#include "millrace/client.h"
#include "sdk/calls/call.h"

/** A struct of the caller's, to be read or filled. Errors: MR_E_INVALID (it, named as `what`, is NULL or has no size). */
int abi_struct_check(const void *s, const char *what, struct mr_err *err);
/** The caller's struct as far as it goes, the rest zero. Members are appended only. `in` and `out` have their size first. Errors:
 *  as abi_struct_check. */
#define ABI_TAKE(out, in, what, err) abi_take((out), sizeof *(out), (in), (what), (err))
int abi_take(void *out, uint32_t out_size, const void *in, const char *what, struct mr_err *err);
/** Errors: MR_E_INVALID (NULL, which is what mr_sdk_free leaves). */
int abi_client_check(const struct mr_sdk *client, struct mr_err *err);
/** A list of texts has no NULL, and is there if it has a length. Errors: MR_E_INVALID. */
int abi_texts_check(const char *const *texts, uint32_t count, const char *what, struct mr_err *err);

struct sdk_variant {
    const struct config_variant *config;
    struct cluster *cluster; /* of the client; several variants may have the same */
};

/** What an endpoint has for its shadow. Thread: the loop's, but for the counters. */
struct sdk_shadow {
    struct cluster *cluster; /* NULL: there is no shadow */
    double due;              /* percent of requests since the last copy */
    uint32_t running;
    _Atomic uint64_t requests, dropped, failed, compared, different;
};

struct sdk_endpoint {
    const struct config_endpoint *config;
    struct sdk_shadow shadow;
    struct sdk_variant *variants;
    struct mr_variant_table weights;
    _Atomic uint64_t spread;
};

struct mr_sdk {
    /* Of the handle and of each call: they hold the memory alone, mr_sdk_free ends the rest. */
    _Atomic uint32_t refs;
    struct driver driver;
    struct config *config;
    struct cluster_options cluster_options;
    char **texts; /* copies that cluster_options points to */
    size_t text_count;
    struct mr_header *headers; /* those of cluster_options */
    MR_VEC(struct cluster *) clusters;
    struct cluster *plain; /* for models that are no endpoint; NULL: none */
    struct sdk_endpoint *endpoints;
    struct mr_map by_name;
    uint32_t delivery;
    struct mr_mailbox over; /* MR_SDK_PROCESS */
    int over_fd;
    /* thread: the loop's */
    LIST_HEAD(, mr_sdk_call) calls;
    LIST_HEAD(, mr_sdk_stream) streams;
    bool is_closing;
};

struct mr_sdk_result {
    struct mr_arena arena;
    struct mr_oip_response response;
    struct mr_block *body;
    const char *variant;
    const char *host;
    uint32_t attempts;
    const char *text; /* of a question; NULL: none */
    bool is_yes;
    /* of a stream */
    STAILQ_ENTRY(mr_sdk_result) link;
    size_t cost; /* bytes that count as unread */
    const char *message;
    int status;
    bool is_final;
};

struct mr_sdk_call {
    LIST_ENTRY(mr_sdk_call) link;
    struct call call;
    struct mr_sdk *client;
    struct mr_sdk_result *result; /* its arena is that of the call */
    struct mr_sdk_result *taken;  /* the same with the answer, on its way to the caller */
    _Atomic uint32_t refs;        /* of the loop, of the caller's handle, of the delivery */
    mr_sdk_done_fn *done;         /* NULL: a thread waits for the call */
    void *ctx;
    _Atomic bool is_over; /* without done; then `over` is posted */
    sem_t over;
    struct mr_mail start, cancel, deliver;
    _Atomic bool is_cancelled;
    /* what the variant is chosen by */
    struct sdk_endpoint *endpoint; /* NULL: client->plain */
    int variant;                   /* -1: by key or weights */
    mr_str key;
    char key_text[MR_OIP_PARAM_TEXT]; /* of one that is no text */
    bool has_key;
    bool has_version; /* the request says it */
};

/* request.c */
/** A call from a request, with a result to be; one reference. Errors: as of mr_sdk_infer. Thread: any. */
int request_take(struct mr_sdk *client, const struct mr_sdk_request *in, struct mr_sdk_call **out,
                 struct mr_err *err);
/** The same for a question. Errors: as of mr_sdk_ask. Thread: any. */
int request_ask_take(struct mr_sdk *client, const struct mr_sdk_question *in,
                     struct mr_sdk_call **out, struct mr_err *err);
/** Chooses the variant. Thread: any. */
void request_route(struct mr_sdk_call *c);

/** An empty call with a result to be; one reference. Thread: any. */
struct mr_sdk_call *request_call_new(struct mr_sdk *client);

/* shadow.c */
/** Sends a copy of an inference that has been answered well to the shadow of its endpoint, if it is its turn. Its answer is still
 *  the call's. Thread: the loop's. */
void shadow_copy(struct mr_sdk_call *c);

/* result.c */
/** The names of the answer become C strings of the result's own. */
void result_names_end(struct mr_sdk_result *r);

/* client.c */
void client_unref(struct mr_sdk *client);

/* infer.c */
void infer_unref(struct mr_sdk_call *c);
/** Starts a call whose cluster, deadline and `done` are set; the reference is the loop's. Thread: the loop's. */
void infer_begin(struct mr_sdk_call *c);
/** Gives all calls up. Thread: the loop's. */
void infer_close(struct mr_sdk *client);

/* stream.c */
/** Ends all streams. Thread: the loop's. */
void stream_close(struct mr_sdk *client);

#endif
