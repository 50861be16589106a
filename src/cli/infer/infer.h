/* Shared by the files of `millrace infer`. */
#ifndef MR_CLI_INFER_H
#define MR_CLI_INFER_H

#include "base/arena.h"
#include "base/options.h"
#include "cli/common/array.h"
#include "cli/common/remote.h"
#include "oip/oip.h"

enum infer_protocol { INFER_REST, INFER_BINARY, INFER_GRPC };
enum infer_form { INFER_AUTO, INFER_TABLE, INFER_PLAIN, INFER_JSON, INFER_NPY };

struct infer_options {
    const char *model;
    const char *version;
    const char *url;
    struct mr_remote_access access;
    int protocol; /* enum infer_protocol */
    struct mr_option_list inputs;
    struct mr_option_list outputs;
    struct mr_option_list parameters;
    int32_t classification;
    const char *id;
    int64_t timeout_ns;
    int form; /* enum infer_form */
    bool json;
    const char *to;
    uint32_t repeat;
};

/** One run of the command. */
struct infer {
    struct infer_options opt;
    struct mr_remote remote;
    struct mr_arena arena;
    struct mr_oip_metadata meta;
    struct mr_oip_request request;
    MR_VEC(struct mr_array *) arrays; /* the memory of the request's tensors */
    struct mr_buf stdin_text;         /* a whole request from standard input */
};

/* infer.c */
void infer_setup(struct infer *x);
/** Frees arrays, arena and connection. */
void infer_fini(struct infer *x);
/** Sends x->request and waits for the answer. */
int infer_send(struct infer *x, struct mr_remote_reply *reply, struct mr_err *err);
int infer_decode(struct infer *x, const struct mr_remote_reply *reply, struct mr_oip_response *out,
                 struct mr_err *err);

/* infer_meta.c */
/** What the request goes to, without the client. */
struct mr_endpoint infer_endpoint(const struct infer *x);
int infer_meta_get(struct infer *x, struct mr_err *err);

/* infer_input.c: x->request from the options and the metadata */
int infer_build(struct infer *x, bool from_stdin, struct mr_err *err);
/** An empty array, owned by x. */
struct mr_array *infer_new_array(struct infer *x);
/** Reads the text for an input or output: JSON, or @FILE. */
int infer_read_value(const struct mr_oip_io *io, const char *value, struct mr_array *a,
                     struct mr_err *err);
/** Adds the input `io` to the request, from an array of its type. There is room for each input of the model once. */
int infer_add_input(struct infer *x, const struct mr_oip_io *io, struct mr_array *a,
                    struct mr_err *err);

/* infer_param.c: adds one "KEY=VALUE" to the request */
int infer_add_parameter(struct infer *x, const char *text, struct mr_err *err);

/* infer_print.c */
int infer_print(const struct infer *x, const struct mr_oip_response *r, int64_t took_ns,
                struct mr_err *err);

/** The whole file, or standard input for "-". Errors: MR_E_IO, MR_E_TOO_LARGE. */
int mr_read_whole(const char *path, struct mr_buf *out, struct mr_err *err);

#endif
