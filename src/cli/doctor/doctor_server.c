/* The needs of the server: loadable backends, and free ports. Backends are opened through the plugin host, as in the
 * server, so that the results agree. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/serve/opt_serve.h"
#include "doctor.h"
#include "plugin/plugin.h"

struct search {
    struct doctor *d;
    const char **dirs;
    size_t dir_count;
    MR_VEC(char *) names;
    size_t loaded;
};

static void add_name(struct search *s, mr_str name)
{
    for (size_t i = 0; i < s->names.len; i++) {
        if (mr_str_eq_c(name, s->names.at[i])) {
            return; /* found in an earlier folder, which has precedence */
        }
    }
    char *copy = mr_strndup(name.ptr, name.len);
    MR_VEC_PUSH(&s->names, copy);
}

/* libmillrace_NAME.so, or a folder NAME that may hold it. */
static void scan_dir(struct search *s, const char *dir)
{
    static const mr_str prefix = MR_STR_INIT("libmillrace_");
    static const mr_str suffix = MR_STR_INIT(".so");
    DIR *handle = opendir(dir);
    struct dirent *entry;
    char path[4600];

    while (handle && (entry = readdir(handle))) {
        mr_str name = mr_str_c(entry->d_name);
        if (mr_str_starts(name, prefix) && mr_str_ends(name, suffix)) {
            add_name(s, mr_str_sub(name, prefix.len, name.len - suffix.len));
            continue;
        }
        snprintf(path, sizeof path, "%.4000s/%.200s/libmillrace_%.200s.so", dir, entry->d_name,
                 entry->d_name);
        if (entry->d_name[0] != '.' && access(path, R_OK) == 0) {
            add_name(s, name);
        }
    }
    if (handle) {
        closedir(handle);
    }
}

static void try_backend(struct search *s, const char *name)
{
    struct mr_plugin *plugin = NULL;
    struct mr_err err;

    if (strcmp(name, "python") == 0) { /* opened by interpreters only */
        doctor_say(s->d, FINDING_OK, "backend", NULL, "python, for interpreters");
        doctor_python(s->d);
        return;
    }
    const int rc = mr_plugin_open(&plugin, mr_str_c(name), s->dirs, s->dir_count, NULL, 0, &err);
    if (rc < 0) { /* not found: a library that it needs is not installed */
        doctor_say(s->d, rc == MR_E_NOT_FOUND ? FINDING_INFO : FINDING_BAD, "backend", NULL,
                   "%s does not load: %s", name, err.msg);
        return;
    }
    doctor_say(s->d, FINDING_OK, "backend", NULL, "%s, %s", mr_plugin_name(plugin),
               mr_plugin_version(plugin));
    mr_plugin_close(&plugin);
    s->loaded++;
}

static bool has_name(const struct search *s, const char *name)
{
    for (size_t i = 0; i < s->names.len; i++) {
        if (strcmp(s->names.at[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void say_places(struct search *s)
{
    struct mr_buf places;

    mr_buf_init(&places, 16384);
    for (size_t i = 0; i < s->dir_count; i++) {
        mr_buf_printf(&places, "%s%s", i ? ", " : "", s->dirs[i]);
    }
    doctor_say(s->d, FINDING_BAD, "backend",
               "build it ('make'), or name its folder with --backend-directory",
               "no onnxruntime in %s", mr_buf_cstr(&places));
    mr_buf_fini(&places);
}

void doctor_backends(struct doctor *d, const struct mr_option_list *given)
{
    struct search s = {.d = d};
    const char **usual = mr_default_backend_dirs();

    s.dirs = MR_NEW_ARRAY(const char *, given->len + 4);
    for (size_t i = 0; i < given->len; i++) {
        s.dirs[s.dir_count++] = given->at[i];
    }
    for (size_t i = 0; usual[i]; i++) {
        s.dirs[s.dir_count++] = usual[i];
    }
    for (size_t i = 0; i < s.dir_count; i++) {
        scan_dir(&s, s.dirs[i]);
    }
    for (size_t i = 0; i < s.names.len; i++) {
        try_backend(&s, s.names.at[i]);
    }
    if (!has_name(&s, "onnxruntime")) {
        say_places(&s);
    }
    for (size_t i = 0; i < s.names.len; i++) {
        mr_free(s.names.at[i]);
    }
    MR_VEC_FINI(&s.names);
    mr_free(s.dirs);
    mr_free(usual);
}

/* ---- ports ---- */

static int try_port(int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    int failed = 0;

    if (fd < 0) {
        return errno;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&in, sizeof in) != 0 || listen(fd, 1) != 0) {
        failed = errno;
    }
    close(fd);
    return failed;
}

void doctor_ports(struct doctor *d, const int *ports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int failed = ports[i] ? try_port(ports[i]) : 0;
        if (failed) {
            doctor_say(d, FINDING_WARN, "port",
                       "a server that is running already? --http-port, "
                       "--grpc-port and --metrics-port choose others",
                       "%d cannot be listened on: %s", ports[i], strerror(failed));
        } else if (ports[i]) {
            doctor_say(d, FINDING_OK, "port", NULL, "%d is free", ports[i]);
        }
    }
}
