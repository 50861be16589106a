/* Where the storage is, and who asks: options first, then the environment, then the files of AWS's own tools.
 *
 * Only what says it plainly is understood: keys in the environment or in a file. Roles to be assumed, sign-in by a browser
 * and the services of cloud machines are not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3_priv.h"

#define FILE_MOST ((size_t)1 << 20)

static const char *env(const char *name)
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
                   line.ptr[0] != ';' && /* a line that is set in belongs to the one before */
                   mr_str_eq_c(mr_str_trim(mr_str_sub(line, 0, (size_t)equals)), key)) {
            mr_buf_reset(out);
            mr_buf_str(out, mr_str_trim(mr_str_sub(line, (size_t)equals + 1, line.len)));
            return out->len > 0;
        }
    }
    return false;
}

/* A file of at most FILE_MOST bytes; empty if it cannot be read. */
static void file_read(const char *path, struct mr_buf *out)
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
    const char *home = env("HOME");
    const char *path = env(variable);
    struct mr_buf made;

    mr_buf_init(&made, 0);
    mr_buf_init(out, FILE_MOST);
    if (!path && home) {
        mr_buf_printf(&made, "%s/.aws/%s", home, name);
        path = mr_buf_cstr(&made);
    }
    if (path) {
        file_read(path, out);
    }
    mr_buf_fini(&made);
}

static const char *profile(void)
{
    return env("AWS_PROFILE") ? env("AWS_PROFILE") : "default";
}

/* Of the profile, from one of the two files; NULL: it is not there. */
static char *setting(mr_str credentials, mr_str config, const char *key)
{
    struct mr_buf value;
    char *found = NULL;

    mr_buf_init(&value, 0);
    if (s3_ini_find(credentials, profile(), key, &value) ||
        s3_ini_find(config, profile(), key, &value)) {
        found = mr_strndup(value.ptr, value.len);
    }
    mr_buf_fini(&value);
    return found;
}

struct files {
    struct mr_buf credentials;
    struct mr_buf config;
};

static void files_read(struct files *f)
{
    aws_file_read("AWS_SHARED_CREDENTIALS_FILE", "credentials", &f->credentials);
    aws_file_read("AWS_CONFIG_FILE", "config", &f->config);
}

static char *files_find(const struct files *f, const char *key)
{
    return setting(mr_buf_view(&f->credentials), mr_buf_view(&f->config), key);
}

static void files_drop(struct files *f)
{
    mr_buf_fini(&f->credentials);
    mr_buf_fini(&f->config);
}

/* ---- credentials ---- */

static void secret_free(char **secret)
{
    if (*secret) {
        explicit_bzero(*secret, strlen(*secret));
    }
    mr_freep(secret);
}

static void credentials_fini(struct s3_credentials *c)
{
    mr_freep(&c->id);
    secret_free(&c->secret);
    secret_free(&c->token);
}

static void credentials_of_files(struct s3_credentials *c, const struct files *f)
{
    c->id = files_find(f, "aws_access_key_id");
    c->secret = files_find(f, "aws_secret_access_key");
    c->token = files_find(f, "aws_session_token");
    c->is_of_files = true;
}

static int credentials_find(struct s3_credentials *c, const struct files *f, struct mr_err *err)
{
    if (env("AWS_ACCESS_KEY_ID") || env("AWS_SECRET_ACCESS_KEY")) {
        c->id = copy(env("AWS_ACCESS_KEY_ID"));
        c->secret = copy(env("AWS_SECRET_ACCESS_KEY"));
        c->token = copy(env("AWS_SESSION_TOKEN"));
    } else {
        credentials_of_files(c, f);
    }
    if (c->id && c->secret) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_FORBIDDEN,
                   "no credentials for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put "
                   "both into the profile '%s' of ~/.aws/credentials, or ask without any "
                   "(--s3-anonymous)",
                   profile());
}

int s3_credentials_renew(struct s3_credentials *c, struct mr_err *err)
{
    struct s3_credentials found = {0};
    struct files f;
    int rc = MR_OK;

    files_read(&f);
    credentials_of_files(&found, &f);
    files_drop(&f);
    if (found.id && found.secret) {
        credentials_fini(c);
        *c = found;
    } else {
        credentials_fini(&found);
        rc = MR_FAIL(err, MR_E_FORBIDDEN, "the credentials for S3 are gone from their file");
    }
    return rc;
}

/* ---- the endpoint ---- */

/* A text with a user may have a secret, and is not repeated. */
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
    const mr_str usual = c->is_tls ? MR_STR(":443") : MR_STR(":80"); /* goes without saying */
    rest.len -= mr_str_ends(rest, usual) ? usual.len : 0;
    if (rest.len == 0 || mr_str_find(rest, '/') >= 0 || mr_str_find(rest, '@') >= 0) {
        return endpoint_refuse(text, "a host and perhaps a port, no path and no user", err);
    }
    c->host = mr_strndup(rest.ptr, rest.len);
    return MR_OK;
}

static int endpoint_find(struct s3_config *c, const struct mr_s3_options *o, const struct files *f,
                         struct mr_err *err)
{
    char *of_profile = files_find(f, "endpoint_url");
    const char *text = o->endpoint                  ? o->endpoint
                       : env("AWS_ENDPOINT_URL_S3") ? env("AWS_ENDPOINT_URL_S3")
                       : env("AWS_ENDPOINT_URL")    ? env("AWS_ENDPOINT_URL")
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

static int region_find(struct s3_config *c, const struct mr_s3_options *o, const struct files *f,
                       struct mr_err *err)
{
    const char *told = o->region           ? o->region
                       : env("AWS_REGION") ? env("AWS_REGION")
                                           : env("AWS_DEFAULT_REGION");

    c->region = told ? copy(told) : files_find(f, "region");
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

int s3_config_load(struct s3_config *out, const struct mr_s3_options *o, struct mr_err *err)
{
    struct s3_config c = {.addressing = o->addressing, .ca_file = copy(env("AWS_CA_BUNDLE"))};
    struct files f;
    int rc;

    files_read(&f);
    MR_TRY(region_find(&c, o, &f, err));
    MR_TRY(endpoint_find(&c, o, &f, err));
    MR_TRY(o->is_anonymous ? MR_OK : credentials_find(&c.credentials, &f, err));
    *out = c;
out:
    files_drop(&f);
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
    credentials_fini(&c->credentials);
}
