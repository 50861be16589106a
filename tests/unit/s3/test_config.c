/* Where endpoint, region and credentials come from, and which of them goes before which. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "s3_priv.h"

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID",   "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_REGION",          "AWS_DEFAULT_REGION",    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_PROFILE",           "AWS_CA_BUNDLE"};
static char credentials[] = "/tmp/mr-s3-credentials-XXXXXX";
static char config[] = "/tmp/mr-s3-config-XXXXXX";

static void file_put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int begin(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        unsetenv(variables[i]);
    }
    file_put(credentials, "# mine\n[default]\naws_access_key_id = FILE\r\n"
                          "aws_secret_access_key=of=file\n[other]\naws_access_key_id=OTHER\n"
                          "aws_secret_access_key = o\naws_session_token = t\n");
    file_put(config, "[default]\nregion = eu-north-1\ns3 =\n  region = no\n"
                     "[profile other]\nregion = eu-west-1\nendpoint_url = http://minio:9000/\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", credentials, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    return 0;
}

static void loads(const struct mr_s3_options *o, const char *host, const char *region,
                  const char *id, const char *secret)
{
    struct s3_config c;
    struct mr_err err;

    if (s3_config_load(&c, o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(c.host, host);
    assert_string_equal(c.region, region);
    assert_string_equal(c.credentials.id ? c.credentials.id : "", id);
    assert_string_equal(c.credentials.secret ? c.credentials.secret : "", secret);
    s3_config_fini(&c);
}

static void files(void **state)
{
    (void)state;
    loads(&(struct mr_s3_options){0}, "s3.eu-north-1.amazonaws.com", "eu-north-1", "FILE",
          "of=file");
    setenv("AWS_PROFILE", "other", 1);
    loads(&(struct mr_s3_options){0}, "minio:9000", "eu-west-1", "OTHER", "o");
}

static void environment(void **state)
{
    (void)state;
    setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "e", 1);
    setenv("AWS_DEFAULT_REGION", "us-west-1", 1);
    setenv("AWS_ENDPOINT_URL", "https://one:443", 1);
    loads(&(struct mr_s3_options){0}, "one", "us-west-1", "ENV", "e");
    setenv("AWS_REGION", "us-west-2", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://two:80", 1);
    loads(&(struct mr_s3_options){0}, "two", "us-west-2", "ENV", "e");
    loads(&(struct mr_s3_options){.endpoint = "http://[::1]:9", .region = "auto"}, "[::1]:9",
          "auto", "ENV", "e");
    loads(&(struct mr_s3_options){.is_anonymous = true}, "two", "us-west-2", "", "");
}

static void wrong(void **state)
{
    static const char *const endpoints[] = {"minio:9000",        "ftp://x",
                                            "https://",          "http://a/b",
                                            "http://user@host",  "https://key:topsecret@host",
                                            "key:topsecret@host"};
    struct s3_config c;
    struct mr_err err;

    (void)state;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        const struct mr_s3_options o = {.endpoint = endpoints[i]};
        assert_int_equal(s3_config_load(&c, &o, &err), MR_E_INVALID);
        assert_null(strstr(err.msg, "topsecret"));
    }
    assert_int_equal(s3_config_load(&c, &(struct mr_s3_options){.region = "a/b"}, &err),
                     MR_E_INVALID);
    setenv("AWS_SECRET_ACCESS_KEY", "topsecret", 1); /* and no id */
    assert_int_equal(s3_config_load(&c, &(struct mr_s3_options){0}, &err), MR_E_FORBIDDEN);
    assert_null(strstr(err.msg, "topsecret"));
}

static void renewal(void **state)
{
    struct s3_config c;
    struct mr_err err;

    (void)state;
    assert_int_equal(s3_config_load(&c, &(struct mr_s3_options){0}, &err), MR_OK);
    file_put(credentials, "[default]\naws_access_key_id = NEW\naws_secret_access_key = n\n");
    assert_int_equal(s3_credentials_renew(&c.credentials, &err), MR_OK);
    assert_string_equal(c.credentials.id, "NEW");
    file_put(credentials, "[default]\n");
    assert_int_equal(s3_credentials_renew(&c.credentials, &err), MR_E_FORBIDDEN);
    assert_string_equal(c.credentials.id, "NEW");
    s3_config_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files, begin),
        cmocka_unit_test_setup(environment, begin),
        cmocka_unit_test_setup(wrong, begin),
        cmocka_unit_test_setup(renewal, begin),
    };

    if (mkstemp(credentials) < 0 || mkstemp(config) < 0) {
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(credentials);
    unlink(config);
    return failed;
}
