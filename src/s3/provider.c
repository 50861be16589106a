/* Temporary credentials: assumed roles, containers, instances.
 *
 * The provider follows from the environment and from AWS's own files, as in other programs: a profile with a role, a
 * web identity, the container's service, the instance's. Everything is read again each time, so that a replaced token
 * or profile takes effect. Errors contain only code and status of a refusal, as its text may repeat secrets.
 *
 * Source: AWS STS API Reference (AssumeRole, AssumeRoleWithWebIdentity); AWS SDKs and Tools Reference Guide, "Container
 * credential provider", "IMDS credential provider", "Assume role credential provider". */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "codec/json.h"
#include "s3_priv.h"

#define CONTAINER_HOST  "http://169.254.170.2"
#define INSTANCE_HOST   "http://169.254.169.254"
#define INSTANCE_HOST_6 "http://[fd00:ec2::254]"
#define INSTANCE_PATH   "/latest/meta-data/iam/security-credentials/"
#define TIMEOUT_NS      (5 * MR_NS_PER_S)
#define CONTAINER_NS    (2 * MR_NS_PER_S)
#define INSTANCE_NS     (1 * MR_NS_PER_S)
#define ANSWER_MOST     ((size_t)1 << 20)
#define TOKEN_MOST      ((size_t)64 << 10)
#define CHAIN_MOST      5 /* length of a chain of roles */

/* ---- a request ---- */

static void secret_fini(struct mr_buf *b)
{
    if (b->ptr) {
        explicit_bzero(b->ptr, b->cap);
    }
    mr_buf_fini(b);
}

/* Answers are kept in memory that is wiped. */
static int ask(struct s3_ask *a, struct mr_buf *out, int *out_status, struct mr_err *err)
{
    mr_buf_init(out, ANSWER_MOST);
    int rc = s3_http(a, out, out_status, err);
    if (rc < 0) {
        secret_fini(out);
    }
    return rc;
}

static int refused(const char *who, int status, mr_bytes body, struct mr_err *err)
{
    struct s3_refusal why;

    s3_refusal_read(&why, body);
    return MR_FAIL(err, status == 429 || status >= 500 ? MR_E_UNAVAILABLE : MR_E_FORBIDDEN,
                   "no credentials for S3: %s answered %s%sHTTP status %d", who, why.code,
                   why.code[0] ? ", " : "", status);
}

/* "2026-11-23T04:05:06Z"; 0: not such a time. */
static int64_t time_read(const char *text)
{
    struct tm t = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &t);

    return end ? (int64_t)timegm(&t) * MR_NS_PER_S : 0;
}

static int complete(struct s3_credentials *c, const char *who, struct mr_err *err)
{
    if (c->id && c->secret && c->id[0] && c->secret[0]) {
        return MR_OK;
    }
    s3_credentials_fini(c);
    return MR_FAIL(err, MR_E_INVALID, "no credentials for S3: the answer of %s has none", who);
}

/* ---- STS ---- */

static char *xml_take(mr_bytes body, const char *name)
{
    struct mr_buf text;
    char *found = NULL;

    mr_buf_init(&text, TOKEN_MOST);
    if (s3_xml_find(body, name, &text)) {
        found = mr_strndup(text.ptr, text.len);
    }
    secret_fini(&text);
    return found;
}

static int sts_read(struct s3_credentials *out, mr_bytes body, const char *who, struct mr_err *err)
{
    char *until = xml_take(body, "Expiration");

    *out = (struct s3_credentials){.id = xml_take(body, "AccessKeyId"),
                                   .secret = xml_take(body, "SecretAccessKey"),
                                   .token = xml_take(body, "SessionToken"),
                                   .until_ns = until ? time_read(until) : 0};
    mr_free(until);
    return complete(out, who, err);
}

static void param(struct mr_buf *b, const char *name, const char *value)
{
    if (value && value[0]) {
        mr_buf_printf(b, "&%s=", name);
        s3_encode(b, mr_str_c(value), false);
    }
}

/* from NULL: the request is not signed. */
static int sts_ask(struct s3_provider *p, const char *body, const struct s3_credentials *from,
                   struct s3_credentials *out, struct mr_err *err)
{
    struct s3_ask a = {.who = "STS",
                       .url = p->sts,
                       .path = "/",
                       .method = "POST",
                       .body = body,
                       .signer = from,
                       .region = p->region,
                       .ca_file = p->ca_file,
                       .timeout_ns = TIMEOUT_NS,
                       .is_stopped = p->is_stopped};
    struct mr_buf answer;
    char who[300];
    int status;
    int rc = ask(&a, &answer, &status, err);

    if (rc < 0) {
        return rc;
    }
    snprintf(who, sizeof who, "STS (%.200s)", p->sts);
    const mr_bytes text = {(const uint8_t *)answer.ptr, answer.len};
    rc = status == 200 ? sts_read(out, text, who, err) : refused(who, status, text, err);
    secret_fini(&answer);
    return rc;
}

static void session_put(struct mr_buf *b, const char *name)
{
    char made[64];

    snprintf(made, sizeof made, "millrace-%ld", (long)getpid());
    param(b, "RoleSessionName", name ? name : made);
}

static int web_provide(struct s3_provider *p, const char *role, const char *path,
                       const char *session, struct s3_credentials *out, struct mr_err *err)
{
    struct mr_buf token;
    struct mr_buf body;
    int rc;

    mr_buf_init(&token, TOKEN_MOST);
    mr_buf_init(&body, 0);
    s3_file_read(path, &token);
    const mr_str text = mr_str_trim(mr_buf_view(&token));
    if (text.len == 0) {
        rc = MR_FAIL(err, MR_E_FORBIDDEN,
                     "no credentials for S3: the web identity's token cannot be read from '%.200s'",
                     path);
    } else {
        MR_BUF_LIT(&body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
        param(&body, "RoleArn", role);
        session_put(&body, session);
        MR_BUF_LIT(&body, "&WebIdentityToken=");
        s3_encode(&body, text, false);
        rc = sts_ask(p, mr_buf_cstr(&body), NULL, out, err);
    }
    secret_fini(&token);
    secret_fini(&body);
    return rc;
}

/* ---- services of the machine ---- */

static int json_read(struct s3_credentials *out, mr_str body, const char *who, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    mr_str key;
    mr_str value;

    *out = (struct s3_credentials){0};
    mr_arena_init(&arena, 0, ANSWER_MOST);
    mr_json_init(&j, body, &arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &key)) {
        if (mr_json_peek(&j) != MR_JSON_STRING) {
            mr_json_skip(&j, NULL);
            continue;
        }
        if (mr_json_string(&j, &value) < 0) {
            break;
        }
        char **to = mr_str_eq_c(key, "AccessKeyId")       ? &out->id
                    : mr_str_eq_c(key, "SecretAccessKey") ? &out->secret
                    : mr_str_eq_c(key, "Token")           ? &out->token
                                                          : NULL;
        if (to && !*to) {
            *to = mr_strndup(value.ptr, value.len);
        } else if (mr_str_eq_c(key, "Expiration")) {
            char text[40];
            snprintf(text, sizeof text, "%.*s", (int)MR_MIN(value.len, sizeof text - 1), value.ptr);
            out->until_ns = time_read(text);
        }
    }
    mr_arena_fini(&arena);
    return complete(out, who, err);
}

/* Without TLS the token is sent only to this machine and to the addresses that clouds reserve for it. */
static bool is_near(const char *url)
{
    static const char *const hosts[] = {"localhost", "169.254.170.2", "169.254.170.23",
                                        "[fd00:ec2::23]", "[::1]"};
    const mr_str rest = mr_str_sub(mr_str_c(url), strlen("http://"), strlen(url));
    const mr_str all = mr_str_sub(rest, 0, strcspn(rest.ptr, "/?#"));
    const mr_str host = mr_str_sub(
        all, 0, all.ptr[0] == '[' ? strcspn(all.ptr, "]") + 1 : strcspn(all.ptr, ":/?#"));
    char text[64];
    struct in_addr v4;

    if (mr_str_find(all, '@') >= 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        if (mr_str_eq_c(host, hosts[i])) {
            return true;
        }
    }
    snprintf(text, sizeof text, "%.*s", (int)MR_MIN(host.len, sizeof text - 1), host.ptr);
    return inet_pton(AF_INET, text, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static int container_token(struct mr_buf *out, struct mr_err *err)
{
    const char *path = s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = s3_env("AWS_CONTAINER_AUTHORIZATION_TOKEN");

    if (path) {
        s3_file_read(path, out);
    } else if (given) {
        mr_buf_c(out, given);
    }
    while (out->len > 0 && (out->ptr[out->len - 1] == '\n' || out->ptr[out->len - 1] == '\r')) {
        out->len--;
    }
    if ((path && out->len == 0) || mr_str_find(mr_buf_view(out), '\n') >= 0 ||
        mr_str_find(mr_buf_view(out), '\r') >= 0) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "no credentials for S3: the container's token (%s) cannot be read, or has "
                       "several lines",
                       path ? path : "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    }
    return MR_OK;
}

static int container_provide(struct s3_provider *p, struct s3_credentials *out, struct mr_err *err)
{
    const char *relative = s3_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = s3_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *url = relative ? CONTAINER_HOST : full;
    struct mr_buf token;
    struct mr_buf answer;
    int status;
    int rc;

    if (strncmp(url, "https://", 8) != 0 && (strncmp(url, "http://", 7) != 0 || !is_near(url))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "no credentials for S3: AWS_CONTAINER_CREDENTIALS_FULL_URI is to be "
                       "https://..., or http:// with an address of this machine");
    }
    mr_buf_init(&token, TOKEN_MOST);
    MR_TRY(container_token(&token, err));
    struct s3_ask a = {.who = "the container's service",
                       .url = url,
                       .path = relative,
                       .method = "GET",
                       .header = {MR_STR("authorization"), mr_buf_view(&token)},
                       .ca_file = p->ca_file,
                       .timeout_ns = CONTAINER_NS,
                       .is_stopped = p->is_stopped};
    MR_TRY(ask(&a, &answer, &status, err));
    const mr_bytes text = {(const uint8_t *)answer.ptr, answer.len};
    rc = status == 200 ? json_read(out, mr_buf_view(&answer), "the container's service", err)
                       : refused("the container's service", status, text, err);
    secret_fini(&answer);
out:
    secret_fini(&token);
    return rc;
}

static int64_t instance_timeout_ns(void)
{
    const char *given = s3_env("AWS_METADATA_SERVICE_TIMEOUT");
    const double seconds = given ? strtod(given, NULL) : 0;

    return seconds >= 0.1 && seconds <= 60 ? (int64_t)(seconds * 1e9) : INSTANCE_NS;
}

/* GET with the session's token. */
static int instance_get(struct s3_ask *a, const char *path, struct mr_buf *out, struct mr_err *err)
{
    int status;

    a->method = "GET";
    a->path = path;
    int rc = ask(a, out, &status, err);
    if (rc == MR_OK && status != 200) {
        const char *what = status == 404 ? "the instance's service, which knows of no role for it,"
                                         : "the instance's service";
        rc = refused(what, status, (mr_bytes){0}, err);
        secret_fini(out);
    }
    return rc;
}

static int instance_provide(struct s3_provider *p, struct s3_credentials *out, struct mr_err *err)
{
    const char *given = s3_env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = s3_env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    const bool is_6 = mode && mr_str_ieq(mr_str_c(mode), MR_STR("ipv6"));
    struct s3_ask a = {.who = "the instance's service",
                       .url = given  ? given
                              : is_6 ? INSTANCE_HOST_6
                                     : INSTANCE_HOST,
                       .path = "/latest/api/token",
                       .method = "PUT",
                       .header = {MR_STR("x-aws-ec2-metadata-token-ttl-seconds"), MR_STR("21600")},
                       .ca_file = p->ca_file,
                       .timeout_ns = instance_timeout_ns(),
                       .is_stopped = p->is_stopped};
    struct mr_buf token = {0};
    struct mr_buf role = {0};
    struct mr_buf answer = {0};
    struct mr_buf path;
    int status;
    int rc;

    mr_buf_init(&path, 0);
    MR_BUF_LIT(&path, INSTANCE_PATH);
    MR_TRY(ask(&a, &token, &status, err));
    const mr_str session = mr_str_trim(mr_buf_view(&token));
    if (status != 200 || session.len == 0 || mr_str_find(session, '\n') >= 0) {
        rc = refused("the instance's service (IMDSv2)", status, (mr_bytes){0}, err);
        goto out;
    }
    a.header = (struct mr_header){MR_STR("x-aws-ec2-metadata-token"), session};
    MR_TRY(instance_get(&a, INSTANCE_PATH, &role, err));
    mr_str rest = mr_buf_view(&role);
    mr_str name = {0};
    mr_str_split(&rest, '\n', &name); /* an instance has only one role */
    s3_encode(&path, mr_str_trim(name), false);
    MR_TRY(instance_get(&a, mr_buf_cstr(&path), &answer, err));
    rc = json_read(out, mr_buf_view(&answer), "the instance's service", err);
out:
    secret_fini(&token);
    secret_fini(&role);
    secret_fini(&answer);
    mr_buf_fini(&path);
    return rc;
}

/* ---- profiles ---- */

static int role_provide(struct s3_provider *p, const char *profile, int depth,
                        struct s3_credentials *out, struct mr_err *err);

static int source_provide(struct s3_provider *p, const char *profile, const char *source, int depth,
                          struct s3_credentials *out, struct mr_err *err)
{
    if (source && mr_str_ieq(mr_str_c(source), MR_STR("EcsContainer"))) {
        return s3_has_container() ? container_provide(p, out, err)
                                  : MR_FAIL(err, MR_E_FORBIDDEN,
                                            "no credentials for S3: the profile '%.100s' takes "
                                            "those of the container, and there are none",
                                            profile);
    }
    if (source && mr_str_ieq(mr_str_c(source), MR_STR("Ec2InstanceMetadata"))) {
        return instance_provide(p, out, err);
    }
    if (source && mr_str_ieq(mr_str_c(source), MR_STR("Environment"))) {
        s3_credentials_of_environment(out);
    } else if (!source) {
        char *from = s3_files_find(p->files, profile, "source_profile");
        const bool is_self = !from || strcmp(from, profile) == 0;
        char *role = is_self ? NULL : s3_files_find(p->files, from, "role_arn");
        int rc = MR_OK;
        if (role) {
            rc = role_provide(p, from, depth + 1, out, err);
        } else {
            s3_credentials_of_profile(out, p->files, is_self ? profile : from);
        }
        mr_free(role);
        mr_free(from);
        if (rc < 0) {
            return rc;
        }
    }
    if (out->id && out->secret) {
        return MR_OK;
    }
    s3_credentials_fini(out);
    return MR_FAIL(err, MR_E_FORBIDDEN,
                   "no credentials for S3: the profile '%.100s' assumes a role, and its "
                   "source_profile or credential_source (EcsContainer, Ec2InstanceMetadata, "
                   "Environment) has no credentials for that",
                   profile);
}

static int role_assume(struct s3_provider *p, const char *profile, const char *role, int depth,
                       struct s3_credentials *out, struct mr_err *err)
{
    char *source = s3_files_find(p->files, profile, "credential_source");
    char *session = s3_files_find(p->files, profile, "role_session_name");
    char *external = s3_files_find(p->files, profile, "external_id");
    char *seconds = s3_files_find(p->files, profile, "duration_seconds");
    struct s3_credentials from = {0};
    struct mr_buf body;
    int rc;

    mr_buf_init(&body, 0);
    MR_TRY(source_provide(p, profile, source, depth, &from, err));
    MR_BUF_LIT(&body, "Action=AssumeRole&Version=2011-06-15");
    param(&body, "RoleArn", role);
    session_put(&body, session);
    param(&body, "ExternalId", external);
    param(&body, "DurationSeconds", seconds);
    rc = sts_ask(p, mr_buf_cstr(&body), &from, out, err);
out:
    s3_credentials_fini(&from);
    mr_free(source);
    mr_free(session);
    mr_free(external);
    mr_free(seconds);
    secret_fini(&body);
    return rc;
}

static int role_provide(struct s3_provider *p, const char *profile, int depth,
                        struct s3_credentials *out, struct mr_err *err)
{
    char *role = s3_files_find(p->files, profile, "role_arn");
    char *token = s3_files_find(p->files, profile, "web_identity_token_file");
    char *device = s3_files_find(p->files, profile, "mfa_serial");
    int rc;

    if (depth >= CHAIN_MOST) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "no credentials for S3: more than %d profiles assume roles one from another",
                     CHAIN_MOST);
    } else if (device) {
        rc = MR_FAIL(err, MR_E_UNSUPPORTED,
                     "no credentials for S3: the profile '%.100s' needs a code of a device "
                     "(mfa_serial), which a job cannot ask for",
                     profile);
    } else if (token) {
        char *session = s3_files_find(p->files, profile, "role_session_name");
        rc = web_provide(p, role, token, session, out, err);
        mr_free(session);
    } else {
        rc = role_assume(p, profile, role, depth, out, err);
    }
    mr_free(role);
    mr_free(token);
    mr_free(device);
    return rc;
}

/* ---- all providers ---- */

int s3_provide(struct s3_provider *p, struct s3_credentials *out, struct mr_err *err)
{
    const char *role = s3_env("AWS_ROLE_ARN");
    const char *token = s3_env("AWS_WEB_IDENTITY_TOKEN_FILE");
    char *of_profile = s3_files_find(p->files, s3_profile(), "role_arn");
    int rc;

    *out = (struct s3_credentials){0};
    if (of_profile) {
        rc = role_provide(p, s3_profile(), 0, out, err);
    } else if (role && token) {
        rc = web_provide(p, role, token, s3_env("AWS_ROLE_SESSION_NAME"), out, err);
    } else if (s3_has_container()) {
        rc = container_provide(p, out, err);
    } else {
        rc = instance_provide(p, out, err);
        if (rc == MR_E_UNAVAILABLE || rc == MR_E_DEADLINE) {
            rc =
                mr_err_set(err, MR_E_FORBIDDEN, MR_HERE,
                           "no credentials for S3: AWS_ACCESS_KEY_ID is not set, the profile "
                           "'%.60s' has none, and the instance's service does not answer (%.160s; "
                           "in a container its hop limit has to be 2); --s3-anonymous asks without",
                           s3_profile(), err->msg);
        }
    }
    mr_free(of_profile);
    return rc;
}
