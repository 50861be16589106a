/* Backends that break one rule of loading each, chosen by a definition at compile time. */
#include "millrace/backend_util.h"

#ifdef ODD_FUTURE
#    define ENTRY mr_backend_entry_v3
MR_BACKEND_EXPORT int mr_backend_entry_v3(const struct mr_host *h, const struct mr_backend **out,
                                          struct mr_err *err);
#elif defined(ODD_NOENTRY)
#    define ENTRY odd_entry
int odd_entry(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err);
#else
#    define ENTRY mr_backend_entry_v2
#endif

#ifndef ODD_NOSETTINGS
static int init(const struct mr_setting *settings, uint32_t count, void **out, struct mr_err *err)
{
    (void)settings;
    (void)count;
    (void)err;
#    if defined(ODD_INITFAILS)
    return mr_backend_fail(err, MR_E_EXHAUSTED, "init says no");
#    elif defined(ODD_INITODD)
    return 7;
#    endif
    *out = NULL;
    return MR_OK;
}
#endif

static int model_open(void *backend, const struct mr_model_desc *desc, void **out,
                      struct mr_err *err)
{
    (void)backend;
    (void)desc;
    (void)out;
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "no models here");
}

static void close_nothing(void *object)
{
    (void)object;
}

static int signature(void *model, const struct mr_signature **out, struct mr_err *err)
{
    (void)model;
    (void)out;
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "no models here");
}

static int execute(void *instance, struct mr_exec *exec, struct mr_err *err)
{
    (void)instance;
    (void)exec;
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "no models here");
}

#ifdef ODD_NOCLOSE
static int instance_open(void *model, const struct mr_instance_desc *desc, void **out,
                         struct mr_err *err)
{
    (void)desc;
    (void)err;
    *out = model;
    return MR_OK;
}
#endif

/* As a later header might have it. */
struct longer_backend {
    struct mr_backend known;
    void (*unknown)(void);
};

static struct longer_backend table = {
    .known =
        {
#if defined(ODD_NEWER)
            .size = sizeof(struct longer_backend),
            .abi_minor = MR_BACKEND_ABI_MINOR + 1,
#elif defined(ODD_OLDER)
            .size = offsetof(struct mr_backend, model_bytes),
            .model_bytes =
                (uint64_t(*)(void *))(uintptr_t)1, /* beyond its size: must not be seen */
#elif defined(ODD_SHORT)
            .size = offsetof(struct mr_backend, execute),
#else
            .size = sizeof(struct mr_backend),
#endif
            .flags = MR_BACKEND_DETERMINISTIC,
            .name = "odd",
            .version = "1",
#ifndef ODD_NOSETTINGS
            .init = init,
#endif
            .model_open = model_open,
            .model_close = close_nothing,
            .model_signature = signature,
#ifdef ODD_NOCLOSE
            .instance_open = instance_open,
#endif
#ifndef ODD_NOEXECUTE
            .execute = execute,
#endif
        },
};

int ENTRY(const struct mr_host *h, const struct mr_backend **out, struct mr_err *err)
{
    (void)execute;
    (void)err;
    h->log(h, 3, "odd backend entered");
#if defined(ODD_ENTRYFAILS)
    return mr_backend_fail(err, MR_E_UNSUPPORTED, "needs a host of 2031");
#elif defined(ODD_ENTRYMUTE)
    return MR_E_IO;
#elif defined(ODD_NOTABLE)
    *out = NULL;
    return MR_OK;
#endif
    *out = &table.known;
    return MR_OK;
}
