/* Only where KV_STORE is set, which every container of ModelMesh has: some of the names are common words. A variable may mean several
 * options, and an option may come from several variables; the first that is set counts. */
#include "modelmesh_env.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum form {
    AS_IS,
    COMMAS,       /* members are separated by commas */
    MILLISECONDS, /* a number of them */
    SAYS_TRUE,    /* if it is set at all, the option is true */
    IF_REQUIRED,  /* true if it is `required` */
    IF_TRUSTED,   /* as it is, if MM_TLS_TRUST_CERT_PATH is set as well */
    SOCKET,       /* the path of one */
    LOCAL_PORT,   /* the number of one on loopback */
    METRICS_PORT, /* prometheus:port=2112;… */
    SERVICE       /* after MM_KVSTORE_PREFIX and a slash */
};

/* docs/from-modelmesh.md has the same table. */
static const struct {
    const char *variable, *option;
    enum form form;
} table[] = {
    {"KV_STORE", "mesh", AS_IS},
    {"KV_STORE", "allow-remote-management", SAYS_TRUE}, /* its controllers have no TLS by default */
    {"MM_SERVICE_NAME", "mesh-prefix", SERVICE},
    {"MM_KVSTORE_PREFIX", "mesh-prefix", AS_IS},
    {"MM_ZONE", "mesh-zone", AS_IS},
    {"MM_LABELS", "mesh-label", COMMAS},
    {"MM_TYPE_CONSTRAINTS", "mesh-constraints", AS_IS},
    {"MM_TYPE_CONSTRAINTS_PATH", "mesh-constraints", AS_IS},
    {"INTERNAL_GRPC_SOCKET_PATH", "mesh-runtime", SOCKET},
    {"INTERNAL_GRPC_PORT", "mesh-runtime", LOCAL_PORT},
    {"INTERNAL_SERVING_GRPC_SOCKET_PATH", "mesh-runtime-inference", SOCKET},
    {"INTERNAL_SERVING_GRPC_PORT", "mesh-runtime-inference", LOCAL_PORT},
    {"MM_DATAPLANE_CONFIG", "mesh-dataplane-config", AS_IS},
    {"MM_DATAPLANE_CONFIG_PATH", "mesh-dataplane-config", AS_IS},
    {"MM_SCALEUP_RPM_THRESHOLD", "mesh-scale-up-rate", AS_IS},
    {"MM_DEFAULT_VMODEL_OWNER", "mesh-vmodel-owner", AS_IS},
    {"MM_SVC_GRPC_PORT", "grpc-port", AS_IS},
    {"MM_SVC_GRPC_MAX_MSG_SIZE", "grpc-max-message-size", AS_IS},
    {"MM_SVC_GRPC_MAX_HEADERS_SIZE", "max-header-bytes", AS_IS},
    {"MM_TLS_KEY_CERT_PATH", "grpc-use-ssl", SAYS_TRUE},
    {"MM_TLS_KEY_CERT_PATH", "grpc-server-cert", AS_IS},
    {"MM_TLS_KEY_CERT_PATH", "mesh-tls-cert", IF_TRUSTED},
    {"MM_TLS_PRIVATE_KEY_PATH", "grpc-server-key", AS_IS},
    {"MM_TLS_PRIVATE_KEY_PATH", "mesh-tls-key", IF_TRUSTED},
    {"MM_TLS_TRUST_CERT_PATH", "grpc-root-cert", AS_IS},
    {"MM_TLS_TRUST_CERT_PATH", "mesh-tls-ca", AS_IS},
    {"MM_TLS_CLIENT_AUTH", "grpc-use-ssl-mutual", IF_REQUIRED},
    {"MM_METRICS", "metrics-port", METRICS_PORT},
    {"SHUTDOWN_TIMEOUT_MS", "exit-timeout-secs", MILLISECONDS},
};
#define ROWS (sizeof table / sizeof *table)

/* Of ModelMesh, too, though not by their names. */
static const char *const further[] = {"KV_READ_ONLY", "BOOTSTRAP_CLEARANCE_PERIOD_MS",
                                      "HEAP_SIZE_MB", NULL};

static const char *value_of(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++) {
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=') {
            return (*env)[len + 1] ? *env + len + 1 : NULL;
        }
    }
    return NULL;
}

static void say_service(struct mr_buf *out, const char *name, char *const *env)
{
    const char *prefix = value_of(env, "MM_KVSTORE_PREFIX");
    mr_str before = mr_str_c(prefix ? prefix : "tas-runtime");

    while (mr_str_ends(before, MR_STR("/"))) {
        before = mr_str_sub(before, 0, before.len - 1);
    }
    mr_buf_printf(out, "%.*s/%s", MR_STR_ARG(before), name);
}

/* The text for the option. False: the variable does not say it. */
static bool say(struct mr_buf *out, enum form form, const char *value, char *const *env)
{
    const char *port = strstr(value, "port=");

    switch (form) {
    case AS_IS: mr_buf_c(out, value); return true;
    case COMMAS:
        for (const char *p = value; *p; p++) {
            mr_buf_char(out, *p == ',' ? ';' : *p);
        }
        return true;
    case MILLISECONDS: mr_buf_printf(out, "%sms", value); return true;
    case SAYS_TRUE: mr_buf_c(out, "true"); return true;
    case IF_REQUIRED: mr_buf_c(out, "true"); return strcmp(value, "required") == 0;
    case IF_TRUSTED: mr_buf_c(out, value); return value_of(env, "MM_TLS_TRUST_CERT_PATH") != NULL;
    case SOCKET: mr_buf_printf(out, "unix:%s", value); return true;
    case LOCAL_PORT: mr_buf_printf(out, "127.0.0.1:%s", value); return true;
    case SERVICE: say_service(out, value, env); return true;
    case METRICS_PORT:
        mr_buf_append(out, port ? port + 5 : "", port ? strcspn(port + 5, ";") : 0);
        return strncmp(value, "prometheus:", 11) == 0 && port;
    }
    return false;
}

static bool is_given(const struct mr_options *o, const char *option)
{
    for (size_t i = 0; i < o->foreign.len; i++) {
        if (strcmp(o->foreign.at[i].row->name, option) == 0) {
            return true;
        }
    }
    return false;
}

void mr_modelmesh_env(struct mr_options *o, char *const *env)
{
    struct mr_buf text;

    mr_buf_init(&text, (size_t)1 << 24);
    for (size_t i = 0; i < ROWS && value_of(env, "KV_STORE"); i++) {
        const char *value = value_of(env, table[i].variable);
        mr_buf_reset(&text);
        if (value && !is_given(o, table[i].option) && say(&text, table[i].form, value, env)) {
            mr_options_give(o, table[i].option, table[i].variable, mr_buf_cstr(&text));
        }
    }
    mr_buf_fini(&text);
}

static bool has_effect(mr_str name)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (mr_str_eq_c(name, table[i].variable)) {
            return true;
        }
    }
    return false;
}

static bool is_theirs(mr_str name)
{
    for (size_t i = 0; further[i]; i++) {
        if (mr_str_eq_c(name, further[i])) {
            return true;
        }
    }
    return mr_str_starts(name, MR_STR("MM_"));
}

void mr_modelmesh_env_log(char *const *env)
{
    struct mr_buf names;

    mr_buf_init(&names, 4096);
    for (char *const *e = env; value_of(env, "KV_STORE") && *e; e++) {
        mr_str name = mr_str_n(*e, strcspn(*e, "="));
        if (is_theirs(name) && !has_effect(name)) {
            mr_buf_printf(&names, " %.*s", MR_STR_ARG(name));
        }
    }
    if (names.len) {
        mr_log(MR_LOG_WARN, "serve.environment", "variables of ModelMesh without effect:%s",
               mr_buf_cstr(&names));
    }
    mr_buf_fini(&names);
}
