/* The options of `millrace serve`: the table agrees with the server's defaults, Triton's command lines
 * are understood, and contradictions are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/serve/opt_serve.h"
#include "cli/serve/serve_print.h"

struct parsed {
    struct mr_serve_options s;
    struct mr_serve_arrays arrays;
    struct mr_options o;
    struct mr_err err;
    int rc;
};

static void parse(struct parsed *p, const char *line)
{
    static char text[1024];
    char *argv[32];
    int argc = 0;

    memset(p, 0, sizeof *p);
    snprintf(text, sizeof text, "%s", line);
    for (char *rest = text, *word; (word = strsep(&rest, " "));) {
        if (*word) {
            argv[argc++] = word;
        }
    }
    mr_server_options_init(&p->s.server);
    mr_options_init(&p->o, "millrace serve", mr_serve_table, mr_serve_table_len, &p->s);
    p->rc = mr_options_parse(&p->o, argc, argv, NULL, &p->err);
    if (p->rc == MR_OK) {
        p->rc = mr_serve_options_finish(&p->s, &p->arrays, &p->err);
    }
}

static void done(struct parsed *p)
{
    mr_serve_arrays_fini(&p->arrays);
    mr_options_fini(&p->o);
}

/* The defaults in the table are those of the server. */
static void defaults_agree(void **state)
{
    (void)state;
    struct mr_server_options plain;
    struct parsed p;

    parse(&p, "--model-repository=/m");
    assert_int_equal(p.rc, MR_OK);
    struct mr_server_options *o = &p.s.server;
    mr_server_options_init(&plain);
#define SAME(member) assert_int_equal(o->member, plain.member)
    assert_string_equal(o->id, plain.id);
    SAME(models.control);
    SAME(models.poll_ns);
    SAME(models.overrides);
    SAME(models.auto_complete);
    SAME(models.load_threads);
    SAME(models.load_retries);
    SAME(models.update_threads);
    SAME(models.retry_pause_ns);
    SAME(models.switch_policy);
    SAME(models.memory_budget);
    SAME(models.memory_check);
    SAME(models.default_max_batch);
    SAME(allow_http);
    assert_string_equal(o->http_address, plain.http_address);
    SAME(http_port);
    SAME(reuse_http_port);
    SAME(allow_grpc);
    assert_string_equal(o->grpc_address, plain.grpc_address);
    SAME(grpc_port);
    SAME(reuse_grpc_port);
    SAME(allow_metrics);
    assert_ptr_equal(o->metrics_address, plain.metrics_address);
    SAME(metrics_port);
    SAME(loop_threads);
    SAME(http_max_input_bytes);
    SAME(grpc_max_message_bytes);
    SAME(json_max_depth);
    SAME(memory_budget_bytes);
    SAME(max_queue_size);
    SAME(busy_poll_ns);
    SAME(inline_threshold_ns);
    SAME(default_warmup_ns);
    SAME(start_warmup_ns);
    SAME(recorded_warmup_ns);
    SAME(grpc_compression);
    assert_ptr_equal(o->header_forward, plain.header_forward);
    SAME(exit_on_error);
    SAME(strict_readiness);
    SAME(exit_timeout_ns);
    SAME(http.max_connections);
    SAME(http.max_header_bytes);
    SAME(http.max_headers);
    SAME(http.header_timeout_ns);
    SAME(http.body_timeout_ns);
    SAME(http.idle_timeout_ns);
    SAME(http.write_timeout_ns);
    SAME(http.min_rate);
    SAME(http.max_output_backlog);
    SAME(http.h2_max_streams);
    SAME(http.h2_window_bytes);
    SAME(http.h2_max_resets);
    SAME(http.h2_ping_interval_ns);
#undef SAME
    done(&p);
}

/* Every row is well formed: unique, with a sentence, its default within its range (parse checks that). */
static void table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < mr_serve_table_len; i++) {
        const struct mr_option *a = &mr_serve_table[i];
        assert_non_null(a->name);
        if (a->kind == MR_OPTION_GROUP) {
            continue;
        }
        assert_non_null(a->help);
        assert_true(a->help[0] != '\0' && a->help[strlen(a->help) - 1] != '.');
        for (size_t j = i + 1; j < mr_serve_table_len; j++) {
            assert_string_not_equal(a->name, mr_serve_table[j].name);
        }
        bool known = a->flags & (MR_OPTION_IGNORED | MR_OPTION_REFUSED);
        assert_true(known || a->size > 0);
        assert_true(a->size <= 8 || a->kind == MR_OPTION_LIST);
    }
}

static void triton_command_line(void **state)
{
    (void)state;
    struct parsed p;

    parse(&p, "--model-store=/a --model-repository /b --model-control-mode=explicit --load-model=x "
              "--load-model=y --http-address 0.0.0.0 --http-port 18000 --allow-grpc false "
              "--exit-timeout-secs=5 --strict-readiness=false --backend-directory=/opt/backends "
              "--backend-config=onnxruntime,intra=2 --backend-config=default-max-batch-size=8 "
              "--backend-config=onnxruntime,list=a,b=c --disable-auto-complete-config "
              "--log-verbose=1 --pinned-memory-pool-byte-size=1024 --http-thread-count=8 "
              "--rate-limit=off --allow-client-shm=false --model-namespacing=false");
    assert_string_equal(p.err.msg, "");
    assert_int_equal(p.rc, MR_OK);
    const struct mr_server_options *o = &p.s.server;
    assert_int_equal(o->models.repository_count, 2);
    assert_int_equal(o->models.control, MR_MODEL_CONTROL_EXPLICIT);
    assert_int_equal(o->models.load_model_count, 2);
    assert_string_equal(o->models.load_models[1], "y");
    assert_int_equal(o->http_port, 18000);
    assert_false(o->allow_grpc);
    assert_int_equal(o->exit_timeout_ns, INT64_C(5000000000));
    assert_false(o->strict_readiness);
    assert_false(o->models.auto_complete);
    assert_string_equal(o->models.backend_dirs[0], "/opt/backends");
    assert_true(o->models.backend_dir_count >= 2);
    assert_int_equal(o->models.default_max_batch, 8);
    assert_int_equal(o->models.backend_setting_name_count, 1);
    assert_string_equal(o->models.backend_setting_names[0], "onnxruntime");
    assert_int_equal(o->models.backend_setting_counts[0], 2);
    assert_string_equal(o->models.backend_settings[0][0].key, "intra");
    assert_string_equal(o->models.backend_settings[0][0].value, "2");
    assert_string_equal(o->models.backend_settings[0][1].value, "a,b=c");
    assert_int_equal(p.o.warnings.len, 2);
    assert_string_equal(p.o.warnings.at[0], "--pinned-memory-pool-byte-size has no effect: nothing "
                                            "here is kept in GPU or pinned memory");
    done(&p);
}

static void expect(const char *line, int rc, const char *message)
{
    struct parsed p;

    parse(&p, line);
    if (p.rc != rc || strcmp(p.err.msg, message) != 0) {
        print_error("'%s' gave %d '%s'\n", line, p.rc, p.err.msg);
    }
    assert_int_equal(p.rc, rc);
    assert_string_equal(p.err.msg, message);
    done(&p);
}

static void errors(void **state)
{
    (void)state;
    expect("", MR_E_INVALID, "no models: give --model-repository=DIR");
    expect("--model-repository=", MR_E_INVALID, "--model-repository: must not be empty");
    expect("--model-repository=/a --load-model=x", MR_E_INVALID,
           "--load-model needs --model-control-mode=explicit");
    expect("--model-repository=/a --load-model=x --mesh=local", MR_OK, "");
    expect("--model-repository=/a --load-model=x --model-runtime=/b", MR_OK, "");
    expect("--model-repository=/a --allow-http=false --allow-grpc=false", MR_E_INVALID,
           "neither --allow-http nor --allow-grpc: no request could reach the server");
    expect("--model-repository=/a --http-port=8001", MR_E_INVALID,
           "--http-port and --grpc-port are both 8001 (0: any free one)");
    expect("--model-repository=/a --grpc-port=8002", MR_E_INVALID,
           "--grpc-port and --metrics-port are both 8002 (0: any free one)");
    expect("--model-repository=/a --http-address=unix:/x --grpc-address=unix:/x", MR_E_INVALID,
           "--http-address and --grpc-address are both unix:/x");
    expect("--model-repository=/a --http-port=8001 --allow-grpc=false", MR_OK, "");
    expect("--model-repository=/a --http-port=8001 --http-address=127.0.0.2", MR_OK, "");
    expect("--model-repository=/a --http-port=0 --grpc-port=0 --metrics-port=0", MR_OK, "");
    expect("--model-repository=/a --http-port=8001 --reuse-http-port --reuse-grpc-port", MR_OK, "");
    expect("--model-repository=/a --http-address=unix:/x --grpc-port=8000", MR_OK, "");
    expect("--model-repository=/a --http-address=localhost:8000", MR_E_INVALID,
           "--http-address: 'localhost:8000' is not an address; --http-port says the port");
    expect("--model-repository=/a --metrics-address=[::1]:80", MR_E_INVALID,
           "--metrics-address: '[::1]:80' is not an address; --metrics-port says the port");
    expect("--model-repository=/a --http-address=[::1] --grpc-address=fe80::1%lo", MR_OK, "");
    expect("--model-repository=/a --backend-config=x", MR_E_INVALID,
           "--backend-config=x: expected NAME,KEY=VALUE");
    expect("--model-repository=/a --backend-config=min-compute=1", MR_E_INVALID,
           "--backend-config=min-compute=1: the only setting without a backend's name is "
           "default-max-batch-size; others are given as NAME,KEY=VALUE");
    expect(
        "--model-repository=/a --backend-config=default-max-batch-size=-1", MR_E_INVALID,
        "--backend-config=default-max-batch-size=-1: -1 is out of range; allowed: 0 to 2147483647");
    expect(
        "--model-repository=/a --http-header-forward-pattern=a --grpc-header-forward-pattern=b",
        MR_E_INVALID,
        "--http-header-forward-pattern and --grpc-header-forward-pattern differ, but one pattern "
        "serves both");
    expect("--cache-config=local,size=1", MR_E_UNSUPPORTED,
           "--cache-config: the response cache is not available in this version");
    expect("--trace-config=level=TIMESTAMPS", MR_E_UNSUPPORTED,
           "--trace-config: request tracing is not available in this version");
    expect("--rate-limit=execution_count", MR_E_UNSUPPORTED,
           "--rate-limit: rate limiting is not available in this version");
    expect("--http-restricted-api=nosuch:k=v", MR_E_INVALID,
           "--http-restricted-api: unknown restricted api 'nosuch'");
    expect("--http-max-input-size=0", MR_E_INVALID,
           "--http-max-input-size: 0 is out of range; allowed: 1 to 64 GiB");
}

static void audience(void **state)
{
    (void)state;
    assert_string_equal(mr_serve_audience("127.0.0.1", NULL), "this machine only");
    assert_string_equal(mr_serve_audience("::1", NULL), "this machine only");
    assert_string_equal(mr_serve_audience("unix:/x", NULL), "whoever may open the file");
    assert_non_null(strstr(mr_serve_audience("0.0.0.0", NULL), "EVERYONE"));
    assert_non_null(strstr(mr_serve_audience("::", NULL), "EVERYONE"));
    assert_non_null(strstr(mr_serve_audience("10.0.0.1", NULL), "everyone"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_agree),
        cmocka_unit_test(table_is_sound),
        cmocka_unit_test(triton_command_line),
        cmocka_unit_test(errors),
        cmocka_unit_test(audience),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
