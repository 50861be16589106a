#include "cgroup_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PERIOD_US 100000u /* the kernel's default */

bool cgroup_path(const char *text, char *out, size_t size)
{
    while (text && strncmp(text, "0::", 3) != 0) {
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    const size_t len = text ? strcspn(text + 3, "\n") : 0;
    if (len == 0 || len >= size) {
        return false;
    }
    memcpy(out, text + 3, len);
    out[len] = '\0';
    return true;
}

bool cgroup_has_word(const char *text, const char *word)
{
    const size_t len = strlen(word);

    for (const char *at = text; *at; at += strspn(at, " \n")) {
        const size_t n = strcspn(at, " \n");
        if (n == len && memcmp(at, word, len) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

static uint64_t event_count(const char *text, const char *name)
{
    const size_t len = strlen(name);

    for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
        if (strncmp(at, name, len) == 0 && at[len] == ' ') {
            return strtoull(at + len + 1, NULL, 10);
        }
    }
    return 0;
}

bool cgroup_is_oom(const char *events)
{
    return event_count(events, "oom") > 0 && event_count(events, "oom_kill") > 0;
}

bool cgroup_name_parse(const char *name, pid_t *out_pid)
{
    uint64_t number;
    int pid, end = 0;

    if (sscanf(name, "millrace-%9d-%19" SCNu64 "%n", &pid, &number, &end) != 2 || name[end] ||
        pid <= 0) {
        return false;
    }
    *out_pid = pid;
    return true;
}

void cgroup_settings(const struct mr_cgroup_limits *l, struct cgroup_setting out[CGROUP_SETTINGS])
{
    out[0] = (struct cgroup_setting){.controller = "memory", .file = "memory.max"};
    out[1] = (struct cgroup_setting){"memory", "memory.oom.group", "1"};
    out[2] = (struct cgroup_setting){.controller = "pids", .file = "pids.max"};
    out[3] = (struct cgroup_setting){.controller = "cpu", .file = "cpu.max"};
    if (l->memory_bytes > 0) {
        snprintf(out[0].text, sizeof out[0].text, "%" PRIu64, l->memory_bytes);
    }
    if (l->tasks > 0) {
        snprintf(out[2].text, sizeof out[2].text, "%" PRIu32, l->tasks);
    }
    if (l->cpu_hundredths > 0) {
        snprintf(out[3].text, sizeof out[3].text, "%" PRIu64 " %u",
                 (uint64_t)l->cpu_hundredths * (PERIOD_US / 100), PERIOD_US);
    }
}

int mr_cgroup_parse_cpus(const char *text, uint32_t *out_hundredths, struct mr_err *err)
{
    char *end;
    const double cpus = strtod(text, &end);

    if (end == text || *end || !(cpus >= 0.01 && cpus <= 4096)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.64s': a number from 0.01 to 4096 is needed", text);
    }
    *out_hundredths = (uint32_t)(cpus * 100 + 0.5);
    return MR_OK;
}
