/* Endpoint and credentials: options first, then the environment, then the files of AWS's tools.
 *
 * Keys in the environment or in a file are found here; provider.c gets them from services. Sign-in by a browser and
 * programs that print credentials are not supported. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3_priv.h"

#define FILE_MOST ((size_t)1 << 20)

const char *s3_env(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static char *copy(const char *text)
{
    return text ? mr_strndup(text, strlen(text)) : NULL;
}

/* ---- files ---- */

/* "[name]", "[profile name]" */
static bool is_section(mr_str line, const char *section)
{
    mr_str name = mr_str_trim(mr_str_sub(line, 1, line.len - 1));

    if (mr_str_starts(name, MR_STR("profile "))) {
        name = mr_str_trim(mr_str_sub(name, 8, name.len));
    }
    return mr_str_eq_c(name, section);
}

bool s3_ini_find(mr_str text, const char *section, const char *key, struct mr_buf *out)
{
    bool is_inside = false;
    mr_str raw;

    while (mr_str_split(&text, '\n', &raw)) {
        const mr_str line = mr_str_trim(raw);
        const ptrdiff_t equals = mr_str_find(line, '=');
        if (line.len > 1 && line.ptr[0] == '[' && line.ptr[line.len - 1] == ']') {
            is_inside = is_section(line, section);
        } else if (is_inside && equals > 0 && raw.ptr == line.ptr && line.ptr[0] != '#' &&
                   line.ptr[0] != ';' && /* an indented line continues the previous one */
                   mr_str_eq_c(mr_str_trim(mr_str_sub(line, 0, (size_t)equals)), key)) {
            mr_buf_reset(out);
            mr_buf_str(out, mr_str_trim(mr_str_sub(line, (size_t)equals + 1, line.len)));
            return out->len > 0;
        }
    }
    return false;
}

void s3_file_read(const char *path, struct mr_buf *out)
{
    FILE *f = fopen(path, "re");

    if (!f) {
        return;
    }
    size_t n = 1;
    while (n > 0 && mr_buf_reserve(out, 4096)) {
        n = fread(out->ptr + out->len, 1, 4096, f);
        out->len += n;
    }
    fclose(f);
}

/* `variable` names the file, otherwise it is ~/.aws/<name>. */
static void aws_file_read(const char *variable, const char *name, struct mr_buf *out)
{
    const char *home = s3_env("HOME");
    const char *path = s3_env(variable);
    struct mr_buf made;

    mr_buf_init(&made, 0);
    mr_buf_init(out, FILE_MOST);
    if (!path && home) {
        mr_buf_printf(&made, "%s/.aws/%s", home, name);
        path = mr_buf_cstr(&made);
    }
    if (path) {
        s3_file_read(path, out);
    }
    mr_buf_fini(&made);
}

const char *s3_profile(void)
{
    return s3_env("AWS_PROFILE") ? s3_env("AWS_PROFILE") : "default";
}

struct s3_files {
    struct mr_buf credentials;
    struct mr_buf config;
};

struct s3_files *s3_files_read(void)
{
    struct s3_files *f = MR_NEW(struct s3_files);

    aws_file_read("AWS_SHARED_CREDENTIALS_FILE", "credentials", &f->credentials);
    aws_file_read("AWS_CONFIG_FILE", "config", &f->config);
    return f;
}

static void secret_wipe(struct mr_buf *b)
{
    if (b->ptr) {
        explicit_bzero(b->ptr, b->cap);
    }
    mr_buf_fini(b);
}

void s3_files_free(struct s3_files **files)
{
    if (*files) {
        secret_wipe(&(*files)->credentials);
        secret_wipe(&(*files)->config);
    }
    mr_freep(files);
}

char *s3_files_find(const struct s3_files *f, const char *profile, const char *key)
{
    struct mr_buf value;
    char *found = NULL;

    mr_buf_init(&value, 0);
    if (s3_ini_find(mr_buf_view(&f->credentials), profile, key, &value) ||
        s3_ini_find(mr_buf_view(&f->config), profile, key, &value)) {
        found = mr_strndup(value.ptr, value.len);
    }
    secret_wipe(&value);
    return found;
}

static char *files_find(const struct s3_files *f, const char *key)
{
    return s3_files_find(f, s3_profile(), key);
}

/* ---- credentials ---- */

static void secret_free(char **secret)
{
    if (*secret) {
        explicit_bzero(*secret, strlen(*secret));
    }
    mr_freep(secret);
}

void s3_credentials_fini(struct s3_credentials *c)
{
    mr_freep(&c->id);
    secret_free(&c->secret);
    secret_free(&c->token);
    *c = (struct s3_credentials){0};
}

void s3_credentials_of_profile(struct s3_credentials *out, const struct s3_files *f,
                               const char *profile)
{
    *out = (struct s3_credentials){.id = s3_files_find(f, profile, "aws_access_key_id"),
                                   .secret = s3_files_find(f, profile, "aws_secret_access_key"),
                                   .token = s3_files_find(f, profile, "aws_session_token"),
                                   .is_of_files = true};
}

void s3_credentials_of_environment(struct s3_credentials *out)
{
    *out = (struct s3_credentials){.id = copy(s3_env("AWS_ACCESS_KEY_ID")),
                                   .secret = copy(s3_env("AWS_SECRET_ACCESS_KEY")),
                                   .token = copy(s3_env("AWS_SESSION_TOKEN"))};
}

bool s3_has_container(void)
{
    return s3_env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
           s3_env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static bool has_role(const struct s3_files *f)
{
    char *role = files_find(f, "role_arn");
    const bool has = role || (s3_env("AWS_ROLE_ARN") && s3_env("AWS_WEB_IDENTITY_TOKEN_FILE"));

    mr_free(role);
    return has;
}

static bool may_ask_instance(void)
{
    const char *is_disabled = s3_env("AWS_EC2_METADATA_DISABLED");
    return !is_disabled || !mr_str_ieq(mr_str_c(is_disabled), MR_STR("true"));
}

static int credentials_find(struct s3_config *c, const struct s3_files *f, struct mr_err *err)
{
    struct s3_credentials *found = &c->credentials;

    if (s3_env("AWS_ACCESS_KEY_ID") || s3_env("AWS_SECRET_ACCESS_KEY")) {
        s3_credentials_of_environment(found);
    } else if (has_role(f)) {
        c->is_provided = true;
        return MR_OK;
    } else {
        s3_credentials_of_profile(found, f, s3_profile());
        c->is_provided = !found->id && !found->secret && (s3_has_container() || may_ask_instance());
    }
    if (c->is_provided || (found->id && found->secret)) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_FORBIDDEN,
                   "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put "
                   "both into the profile '%s' of ~/.aws/credentials, or ask without any "
                   "(--s3-anonymous)",
                   s3_profile());
}

int s3_credentials_renew(struct s3_credentials *c, struct mr_err *err)
{
    struct s3_credentials found = {0};
    struct s3_files *f = s3_files_read();
    int rc = MR_OK;

    s3_credentials_of_profile(&found, f, s3_profile());
    s3_files_free(&f);
    if (found.id && found.secret) {
        s3_credentials_fini(c);
        *c = found;
    } else {
        s3_credentials_fini(&found);
        rc = MR_FAIL(err, MR_E_FORBIDDEN, "the credentials for S3 are gone from their file");
    }
    return rc;
}

/* ---- the endpoint ---- */

/* A text with a user may contain a secret, and is not repeated. */
static int endpoint_refuse(const char *text, const char *expected, struct mr_err *err)
{
    if (strchr(text, '@')) {
        return MR_FAIL(err, MR_E_INVALID,
                       "an endpoint of S3 names no user: expected https://HOST[:PORT] or http://…");
    }
    return MR_FAIL(err, MR_E_INVALID, "'%.200s' is not an endpoint of S3: expected %s", text,
                   expected);
}

static int endpoint_take(struct s3_config *c, const char *text, struct mr_err *err)
{
    mr_str rest = mr_str_c(text);

    c->is_tls = mr_str_starts(rest, MR_STR("https://"));
    if (!c->is_tls && !mr_str_starts(rest, MR_STR("http://"))) {
        return endpoint_refuse(text, "https://HOST[:PORT] or http://…", err);
    }
    rest = mr_str_sub(rest, c->is_tls ? 8 : 7, rest.len);
    if (mr_str_ends(rest, MR_STR("/"))) {
        rest.len--;
    }
    const mr_str usual =
        c->is_tls ? MR_STR(":443") : MR_STR(":80"); /* the default port is omitted */
    rest.len -= mr_str_ends(rest, usual) ? usual.len : 0;
    if (rest.len == 0 || mr_str_find(rest, '/') >= 0 || mr_str_find(rest, '@') >= 0) {
        return endpoint_refuse(text, "a host and perhaps a port, no path and no user", err);
    }
    c->host = mr_strndup(rest.ptr, rest.len);
    return MR_OK;
}

static int endpoint_find(struct s3_config *c, const struct mr_s3_options *o,
                         const struct s3_files *f, struct mr_err *err)
{
    char *of_profile = files_find(f, "endpoint_url");
    const char *text = o->endpoint                     ? o->endpoint
                       : s3_env("AWS_ENDPOINT_URL_S3") ? s3_env("AWS_ENDPOINT_URL_S3")
                       : s3_env("AWS_ENDPOINT_URL")    ? s3_env("AWS_ENDPOINT_URL")
                                                       : of_profile;
    int rc = MR_OK;

    if (text) {
        rc = endpoint_take(c, text, err);
    } else {
        struct mr_buf host;
        mr_buf_init(&host, 0);
        mr_buf_printf(&host, "s3.%s.amazonaws.com%s", c->region,
                      strncmp(c->region, "cn-", 3) == 0 ? ".cn" : "");
        c->host = mr_strndup(host.ptr, host.len);
        mr_buf_fini(&host);
        c->is_tls = c->is_amazon = true;
    }
    mr_free(of_profile);
    return rc;
}

static int region_find(struct s3_config *c, const struct mr_s3_options *o, const struct s3_files *f,
                       struct mr_err *err)
{
    const char *given = o->region              ? o->region
                        : s3_env("AWS_REGION") ? s3_env("AWS_REGION")
                                               : s3_env("AWS_DEFAULT_REGION");

    c->region = given ? copy(given) : files_find(f, "region");
    if (!c->region) {
        c->region = copy("us-east-1");
    }
    if (strlen(c->region) > 63 ||
        strspn(c->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(c->region)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.80s' is not a region: expected a-z, 0-9 and '-'",
                       c->region);
    }
    return MR_OK;
}

/* The endpoint at which roles are assumed. */
static int sts_find(struct s3_config *c, const struct s3_files *f, struct mr_err *err)
{
    char *of_profile = files_find(f, "endpoint_url");
    const char *text = s3_env("AWS_ENDPOINT_URL_STS") ? s3_env("AWS_ENDPOINT_URL_STS")
                       : s3_env("AWS_ENDPOINT_URL")   ? s3_env("AWS_ENDPOINT_URL")
                                                      : of_profile;
    struct s3_config given = {0};
    struct mr_buf url;
    int rc = text ? endpoint_take(&given, text, err) : MR_OK;

    mr_buf_init(&url, 0);
    if (text && rc == MR_OK) {
        mr_buf_printf(&url, "http%s://%s", given.is_tls ? "s" : "", given.host);
    } else {
        mr_buf_printf(&url, "https://sts.%s.amazonaws.com%s", c->region,
                      strncmp(c->region, "cn-", 3) == 0 ? ".cn" : "");
    }
    c->sts = mr_strndup(url.ptr, url.len);
    mr_buf_fini(&url);
    mr_free(given.host);
    mr_free(of_profile);
    return rc;
}

int s3_config_load(struct s3_config *out, const struct mr_s3_options *o, struct mr_err *err)
{
    struct s3_config c = {.addressing = o->addressing, .ca_file = copy(s3_env("AWS_CA_BUNDLE"))};
    struct s3_files *f = s3_files_read();
    int rc;

    MR_TRY(region_find(&c, o, f, err));
    MR_TRY(endpoint_find(&c, o, f, err));
    MR_TRY(o->is_anonymous ? MR_OK : credentials_find(&c, f, err));
    MR_TRY(c.is_provided ? sts_find(&c, f, err) : MR_OK);
    *out = c;
out:
    s3_files_free(&f);
    if (rc < 0) {
        s3_config_fini(&c);
    }
    return rc;
}

void s3_config_fini(struct s3_config *c)
{
    mr_freep(&c->host);
    mr_freep(&c->region);
    mr_freep(&c->ca_file);
    mr_freep(&c->sts);
    s3_credentials_fini(&c->credentials);
}
