/* Programs that hand over what they must not: NULLs, structs without a size, of another size, and clients that were freed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "millrace/client.h"

static struct mr_sdk *client;

static void refused(int rc, const struct mr_err *err, const char *word)
{
    assert_int_equal(rc, MR_E_INVALID);
    if (!strstr(err->msg, word)) {
        fail_msg("'%s' does not name '%s'", err->msg, word);
    }
}

static void create_refused(const struct mr_sdk_options *options, const char *word)
{
    struct mr_err err = {0};
    struct mr_sdk *none = NULL;

    refused(mr_sdk_create(&none, options, &err), &err, word);
    assert_null(none);
}

static void infer_refused(struct mr_sdk *c, const struct mr_sdk_request *request, const char *word)
{
    struct mr_sdk_result *result = NULL;
    struct mr_sdk_call *call = NULL;
    struct mr_err err = {0};

    refused(mr_sdk_infer(c, request, &result, &err), &err, word);
    refused(mr_sdk_infer_start(c, request, NULL, NULL, &call, &err), &err, word);
    assert_null(result);
    assert_null(call);
    assert_int_equal(mr_sdk_infer(c, request, &result, NULL), MR_E_INVALID);
}

static void test_options(void **state)
{
    const char *urls[] = {"http://127.0.0.1:1", NULL};
    struct mr_sdk_options o = {.size = sizeof o, .urls = urls, .url_count = 2};

    (void)state;
    create_refused(NULL, "options");
    create_refused(&o, "urls: text 2");
    o.urls = NULL;
    create_refused(&o, "urls: text 1");
    o.urls = urls;
    o.url_count = 1;
    o.header_count = 1;
    create_refused(&o, "headers");
    o.size = 0;
    create_refused(&o, "size is 0");
}

static void test_requests(void **state)
{
    const struct mr_sdk_tensor nameless = {.size = sizeof nameless}, sizeless = {0};
    const struct mr_sdk_param empty = {
        .size = sizeof empty, .kind = MR_SDK_PARAM_STRING, .name = "p"};
    const char *none[] = {NULL};
    struct mr_sdk_request q = {.size = sizeof q, .model = "m"};

    (void)state;
    infer_refused(NULL, &q, "client");
    infer_refused(client, NULL, "request");
    q.input_count = 1;
    infer_refused(client, &q, "inputs");
    q.inputs = &sizeless;
    infer_refused(client, &q, "size is 0");
    q.inputs = &nameless;
    infer_refused(client, &q, "input 1 has no name");
    q.input_count = 0;
    q.output_count = 1;
    infer_refused(client, &q, "outputs");
    q.outputs = none;
    infer_refused(client, &q, "outputs: text 1");
    q.output_count = 0;
    q.header_count = 1;
    q.headers = none;
    infer_refused(client, &q, "headers");
    q.header_count = 0;
    q.param_count = 1;
    infer_refused(client, &q, "params");
    q.params = &empty;
    infer_refused(client, &q, "'p': NULL");
    q.size = 3;
    infer_refused(client, &q, "size is 3");
    q.size = offsetof(struct mr_sdk_request, model); /* without its members */
    infer_refused(client, &q, "no model");
}

static void test_clients_that_were_freed(void **state)
{
    const struct mr_sdk_question question = {.size = sizeof question, .kind = MR_SDK_SERVER_LIVE};
    const struct mr_sdk_stream_options o = {.size = sizeof o, .model = "m"};
    struct mr_sdk_shadow_stats stats = {.size = sizeof stats};
    struct mr_sdk_stream *stream = NULL;
    struct mr_sdk_result *result = NULL;
    struct mr_err err = {0};

    (void)state;
    refused(mr_sdk_ask(NULL, &question, &result, &err), &err, "client");
    refused(mr_sdk_ask(client, NULL, &result, &err), &err, "question");
    refused(mr_sdk_stream_open(NULL, &o, &stream, &err), &err, "client");
    refused(mr_sdk_stream_open(client, NULL, &stream, &err), &err, "options");
    refused(mr_sdk_shadow_stats(NULL, "e", &stats, &err), &err, "client");
    refused(mr_sdk_shadow_stats(client, NULL, &stats, &err), &err, "endpoint");
    refused(mr_sdk_shadow_stats(client, "e", NULL, &err), &err, "stats: NULL");
    stats.size = 0;
    refused(mr_sdk_shadow_stats(client, "e", &stats, &err), &err, "stats: its size is 0");
    assert_string_equal(mr_sdk_warning(NULL), "");
    assert_int_equal(mr_sdk_fd(NULL), -1);
    assert_int_equal(mr_sdk_process(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options),
                                       cmocka_unit_test(test_requests),
                                       cmocka_unit_test(test_clients_that_were_freed)};
    const char *url = "http://127.0.0.1:1";
    const struct mr_sdk_options options = {.size = sizeof options, .urls = &url, .url_count = 1};
    struct mr_err err;

    if (mr_sdk_create(&client, &options, &err) < 0) {
        return 1;
    }
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    mr_sdk_free(&client);
    return rc;
}
