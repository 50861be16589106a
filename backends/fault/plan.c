/* Reads a plan from settings; the table is in plan.h. */
#include "plan.h"

void plan_init(struct plan *p)
{
    memset(p, 0, sizeof *p);
    p->fail_instance = -1;
    p->fail_request = -1;
    p->exit = -1;
    snprintf(p->fail_message, sizeof p->fail_message, "failed as configured");
}

static int status_read(const char *text, int *out, struct mr_err *err)
{
    static const struct {
        const char *name;
        int status;
    } known[] = {{"OK", MR_OK},
#define FAULT_STATUS(name, value, text, http, grpc) {#name, (value)},
                 MR_STATUS_LIST(FAULT_STATUS)
#undef FAULT_STATUS
    };
    char number[16];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        snprintf(number, sizeof number, "%d", known[i].status);
        if (strcmp(text, known[i].name) == 0 || strcmp(text, number) == 0) {
            *out = known[i].status;
            return MR_OK;
        }
    }
    return mr_backend_fail(err, MR_E_INVALID, "parameter 'fail_status' is '%s', which is no status",
                           text);
}

static int path_read(char out[FAULT_PATH_SIZE], const struct mr_setting *settings, uint32_t count,
                     const char *name, struct mr_err *err)
{
    const char *file = mr_setting_find(settings, count, name);
    if (file && strlen(file) >= FAULT_PATH_SIZE) {
        return mr_backend_fail(err, MR_E_INVALID, "parameter '%s' is too long", name);
    }
    if (file) {
        snprintf(out, FAULT_PATH_SIZE, "%s", file);
    }
    return MR_OK;
}

int plan_read(struct plan *p, const struct mr_setting *settings, uint32_t count, struct mr_err *err)
{
    int rc;
#define FAULT_READ_NUMBER(field, least, most, text)                                                \
    if ((rc = mr_setting_i64(settings, count, #field, (least), (most), &p->field, err)) < 0) {     \
        return rc;                                                                                 \
    }
#define FAULT_READ_SWITCH(field, text)                                                             \
    if ((rc = mr_setting_bool(settings, count, #field, &p->field, err)) < 0) {                     \
        return rc;                                                                                 \
    }
    FAULT_NUMBERS(FAULT_READ_NUMBER)
    FAULT_SWITCHES(FAULT_READ_SWITCH)
#undef FAULT_READ_NUMBER
#undef FAULT_READ_SWITCH
    const char *status = mr_setting_find(settings, count, "fail_status");
    const char *message = mr_setting_find(settings, count, "fail_message");
    if ((rc = path_read(p->hold_file, settings, count, "hold_file", err)) < 0 ||
        (rc = path_read(p->attempt, settings, count, "attempt", err)) < 0 ||
        (rc = path_read(p->open_hold_file, settings, count, "open_hold_file", err)) < 0) {
        return rc;
    }
    if (message) {
        snprintf(p->fail_message, sizeof p->fail_message, "%s", message);
    }
    return status ? status_read(status, &p->fail_status, err) : MR_OK;
}
