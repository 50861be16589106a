/* Texts of cgroup v2. Pure. */
#ifndef PROCESS_CGROUP_TEXT_H
#define PROCESS_CGROUP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "process/cgroup.h"

/* The path in /proc/PID/cgroup of the unified hierarchy. False: there is none, or it does not fit. */
bool cgroup_path(const char *text, char *out, size_t size);
/* Whether a list of words contains the word. */
bool cgroup_has_word(const char *text, const char *word);
/* memory.events: processes were killed because the limit of this folder was reached, and not one above it. */
bool cgroup_is_oom(const char *events);
/* "millrace-PID-NUMBER". False: another name. */
bool cgroup_name_parse(const char *name, pid_t *out_pid);

/* A file with a limit. */
struct cgroup_setting {
    const char *controller, *file;
    char text[32]; /* "" = it is left as it is */
};
#define CGROUP_SETTINGS 4u
void cgroup_settings(const struct mr_cgroup_limits *l, struct cgroup_setting out[CGROUP_SETTINGS]);

#endif
