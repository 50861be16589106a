/* What a worker is told to load, and what it says of it. */
#ifndef MR_IPC_SETUP_H
#define MR_IPC_SETUP_H

#include "ipc/pack.h"
#include "millrace/backend.h"

/* Descriptors of a worker when it starts. */
enum {
    MR_WORKER_FD_SOCKET = 3,
    MR_WORKER_FD_CONTROL,
    MR_WORKER_FD_INPUT,
    MR_WORKER_FD_OUTPUT,
    MR_WORKER_FD_HOMES,
    MR_WORKER_FD_HOME_FIRST /* the eventfds of the homes, then what is kept of the model */
};

/** How a worker ends, for the server's judgement. */
enum mr_worker_exit {
    MR_WORKER_EXIT_OK = 0, /* was told to stop, or the server is gone */
    MR_WORKER_EXIT_MODEL =
        64, /* the model or its configuration is bad: another worker would fail as well */
    MR_WORKER_EXIT_DEVICE = 70, /* a device has failed for good */
    MR_WORKER_EXIT_MEMORY = 71  /* out of memory */
};

/** MR_FRAME_OPEN. Everything borrowed. */
struct mr_ipc_open {
    const char *backend;
    const char *const *backend_dirs; /* terminated by NULL */
    const struct mr_setting *settings;
    uint32_t setting_count;
    struct mr_model_desc model; /* without `loading` and `kept` */
    uint32_t worker;            /* its number in the shared memory */
    uint32_t home_count;
    uint32_t kept_count;           /* of mr_model_kept */
    uint32_t confine_steps;        /* MR_CONFINE_* of process/confine.h */
    uint64_t memory_bytes;         /* limit of the process, 0 = none */
    const char *user;              /* that it becomes, NULL: none */
    const char *const *write_dirs; /* that it may use besides the model's, terminated by NULL */
};
void mr_ipc_open_pack(struct mr_buf *b, const struct mr_ipc_open *o);
/** Into the arena. Errors: MR_E_INVALID. */
int mr_ipc_open_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_open *out,
                       struct mr_err *err);

/** MR_FRAME_OPENED and MR_FRAME_READY. */
struct mr_ipc_opened {
    struct mr_signature signature;
    const char *backend_version;
    uint64_t bytes;
    bool has_cancel; /* it wants to hear of executions for which nobody waits: MR_FRAME_CANCEL */
    struct mr_model_memory memory;
};
void mr_ipc_opened_pack(struct mr_buf *b, const struct mr_ipc_opened *o);
int mr_ipc_opened_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_opened *out,
                         struct mr_err *err);

void mr_ipc_signature_pack(struct mr_buf *b, const struct mr_signature *s);
/** Not checked by the rules of exec/exec.h: mr_signature_copy does that. */
int mr_ipc_signature_unpack(mr_bytes data, struct mr_arena *arena, struct mr_signature *out,
                            struct mr_err *err);
void mr_ipc_instance_pack(struct mr_buf *b, const struct mr_instance_desc *d);
int mr_ipc_instance_unpack(mr_bytes data, struct mr_arena *arena, struct mr_instance_desc *out,
                           struct mr_err *err);
void mr_ipc_err_pack(struct mr_buf *b, const struct mr_err *e);
/** `out` is a failure in any case; one that makes no sense becomes MR_E_INTERNAL. */
void mr_ipc_err_unpack(mr_bytes data, struct mr_err *out);

#endif
