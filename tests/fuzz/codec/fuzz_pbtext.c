/* Model configurations from any text, as text format and as JSON, and from the wire. What is
 * accepted must survive printing and parsing again, in both forms, to the last byte. */
#include "fuzz.h"

#include "codec/pbtext.h"
#include "model_config.pb-c.h"

typedef int(parse_fn)(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                      struct mr_err *err);

static void pack(const ProtobufCMessage *m, struct mr_buf *out)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    char *to = mr_buf_reserve(out, len + 1);
    REQUIRE(to);
    protobuf_c_message_pack(m, (uint8_t *)to);
    out->len = len;
}

/* `text` is a print of m: parses to the same message. */
static void same_after(parse_fn *parse, const ProtobufCMessage *m, const struct mr_buf *text)
{
    struct mr_buf want, got;
    ProtobufCMessage *again = NULL;
    REQUIRE(!text->failed);
    REQUIRE(parse(m->descriptor, mr_buf_view(text), &again, NULL) == MR_OK);
    mr_buf_init(&want, 0);
    mr_buf_init(&got, 0);
    pack(m, &want);
    pack(again, &got);
    REQUIRE(mr_str_eq(mr_buf_view(&want), mr_buf_view(&got)));
    mr_buf_fini(&want);
    mr_buf_fini(&got);
    protobuf_c_message_free_unpacked(again, NULL);
}

static void note_path(void *ctx, const char *path, const ProtobufCMessage *owner)
{
    size_t *total = ctx;
    REQUIRE(owner && path[0]);
    *total += strlen(path);
}

/* from_wire: strings and enums may then be what no text gives, so printing must only be safe. */
static void print_all(const ProtobufCMessage *m, bool from_wire)
{
    struct mr_buf b;
    size_t total = 0;
    mr_buf_init(&b, 0);
    mr_pbtext_print(m, &b);
    if (!from_wire) {
        same_after(mr_pbtext_parse, m, &b);
    }
    for (int with_defaults = 0; with_defaults < 2; with_defaults++) {
        mr_buf_reset(&b);
        mr_pbjson_print(m, with_defaults, &b);
        if (!from_wire) {
            same_after(mr_pbjson_parse, m, &b);
        }
    }
    mr_pb_walk_set_fields(m, note_path, &total);
    mr_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static parse_fn *const parsers[] = {mr_pbtext_parse, mr_pbjson_parse};
    const ProtobufCMessageDescriptor *desc = &inference__model_config__descriptor;
    for (int i = 0; i < 2; i++) {
        struct mr_err err = {0};
        ProtobufCMessage *m = NULL;
        int rc = parsers[i](desc, mr_str_n((const char *)data, size), &m, &err);
        REQUIRE(rc == err.status && (rc == MR_OK) == (m != NULL));
        if (m) {
            print_all(m, false);
            protobuf_c_message_free_unpacked(m, NULL);
        }
    }
    ProtobufCMessage *m = protobuf_c_message_unpack(desc, NULL, size, data);
    if (m) {
        print_all(m, true);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return 0;
}
