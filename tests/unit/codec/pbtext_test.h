/* Helpers of the tests of text and JSON forms: parse a ModelConfig and compare messages by their
 * bytes. */
#ifndef MR_TEST_CODEC_PBTEXT_TEST_H
#define MR_TEST_CODEC_PBTEXT_TEST_H

#include "codec_test.h"

#include "codec/pbtext.h"
#include "model_config.pb-c.h"

typedef int(parse_fn)(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                      struct mr_err *err);

/** The config, or NULL with *err filled; the text is given in exactly as many bytes as it has. */
static inline Inference__ModelConfig *parse_config_n(parse_fn *parse, mr_str text,
                                                     struct mr_err *err)
{
    char *copy = exact_copy(text);
    ProtobufCMessage *m = NULL;
    int rc = parse(&inference__model_config__descriptor, mr_str_n(copy, text.len), &m, err);
    free(copy);
    assert_true(rc == MR_OK ? m != NULL : m == NULL);
    if (rc != MR_OK) {
        assert_int_equal(rc, err->status);
    }
    return (Inference__ModelConfig *)m;
}

static inline Inference__ModelConfig *parse_config(parse_fn *parse, const char *text,
                                                   struct mr_err *err)
{
    return parse_config_n(parse, mr_str_c(text), err);
}

static inline void config_free(Inference__ModelConfig *c)
{
    inference__model_config__free_unpacked(c, NULL);
}

/** Fails unless both messages have the same encoding. */
static inline void assert_same_message(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    size_t len = protobuf_c_message_get_packed_size(a);
    assert_int_equal(protobuf_c_message_get_packed_size(b), len);
    uint8_t *bytes_a = malloc(len + 1);
    uint8_t *bytes_b = malloc(len + 1);
    assert_non_null(bytes_a);
    assert_non_null(bytes_b);
    protobuf_c_message_pack(a, bytes_a);
    protobuf_c_message_pack(b, bytes_b);
    assert_memory_equal(bytes_a, bytes_b, len);
    free(bytes_a);
    free(bytes_b);
}

/** A configuration that uses every kind of field. */
static const char *const full_config =
    "name: \"full\"  # the model\n"
    "platform: 'onnxruntime_onnx'\n"
    "max_batch_size: 8\n"
    "version_policy: { specific { versions: [1, 3] } }\n"
    "input [\n"
    "  { name: \"IN0\" data_type: TYPE_FP32 dims: [ 3, -1, 224 ] format: FORMAT_NCHW\n"
    "    reshape { shape: [ ] } },\n"
    "  { name: \"IN1\", data_type: 8; dims: 1 dims: 16 optional: true }\n"
    "]\n"
    "output { name: \"OUT\" data_type: TYPE_STRING dims: -1 label_filename: "
    "\"l\\303\\244bels.txt\" }\n"
    "instance_group [ { count: 2 kind: KIND_CPU rate_limiter { resources < name: 'R' global: t "
    "count: 4 >\n"
    "  priority: 2 } }, { kind: KIND_GPU gpus: [0, 1] } ]\n"
    "dynamic_batching {\n"
    "  preferred_batch_size: [ 4, 8 ]\n"
    "  max_queue_delay_microseconds: 18446744073709551615\n"
    "  priority_levels: 2\n"
    "  default_priority_level: 1\n"
    "  priority_queue_policy { key: 1 value: { timeout_action: DELAY default_timeout_microseconds: "
    "500 } }\n"
    "  priority_queue_policy { key: 2 value: { max_queue_size: 10 } }\n"
    "}\n"
    "parameters { key: \"a\" value: { string_value: \"1\" } }\n"
    "parameters: { key: \"b\" value: { string_value: \"x\" ' y' \"\\tz\" } }\n"
    "metric_tags [ { key: 'k' value: 'v' } ]\n"
    "model_warmup { name: \"w\" batch_size: 1 inputs { key: \"IN0\" value { data_type: TYPE_FP32\n"
    "  dims: [3, 224, 224] zero_data: true } } count: 3 }\n"
    "optimization { execution_accelerators { gpu_execution_accelerator : [ { name : \"tensorrt\"\n"
    "  parameters { key: \"precision_mode\" value: \"FP16\" } } ] } priority: PRIORITY_MAX }\n"
    "model_metrics { metric_control: [ { metric_identifier { family: \"f\" }\n"
    "  histogram_options { buckets: [ 0.1, 1, 2.5e3, inf ] } } ] }\n"
    "response_cache { enable: false }\n";

#endif
