/* The load request of a worker, and its replies. */
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
    MR_WORKER_FD_HOME_FIRST /* the eventfds of the homes, the kept files of the model, memory for metrics */
};

/** Exit codes of a worker. */
enum mr_worker_exit {
    MR_WORKER_EXIT_OK = 0,      /* it was asked to stop, or the server has ended */
    MR_WORKER_EXIT_MODEL = 64,  /* the model cannot be loaded */
    MR_WORKER_EXIT_DEVICE = 70, /* a device has failed permanently */
    MR_WORKER_EXIT_MEMORY = 71  /* out of memory */
};

/** Body of MR_FRAME_OPEN. All members are borrowed. */
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
    const char *user;              /* that the process switches to, NULL: none */
    const char *temp_dir;          /* its own, which it empties first; NULL: none */
    const char *const *write_dirs; /* writable folders besides the model's, terminated by NULL */
    bool has_control; /* the worker may send CONTROL and METRIC, and has memory for metrics */
};
void mr_ipc_open_pack(struct mr_buf *b, const struct mr_ipc_open *o);
/** Copies into the arena. Errors: MR_E_INVALID. */
int mr_ipc_open_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_open *out,
                       struct mr_err *err);

/** Body of MR_FRAME_OPENED and MR_FRAME_READY. */
struct mr_ipc_opened {
    struct mr_signature signature;
    const char *backend_version;
    uint64_t bytes;
    bool has_cancel; /* its backend takes cancels: MR_FRAME_CANCEL */
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
/** `out` is always an error; a malformed one becomes MR_E_INTERNAL. */
void mr_ipc_err_unpack(mr_bytes data, struct mr_err *out);

#endif
