/* Models that are newer than this build of ONNX Runtime: names their versions, the supported ones, and a remedy.
 *
 * ONNX Runtime's interface does not report the supported versions, but its error about an impossible version does. So
 * when a model was refused for its version, two models of a few bytes are loaded, one for each number.
 *
 * Thread: the one that opens the model. */
#include <fcntl.h>
#include <unistd.h>

#include "fields.h"
#include "onnxruntime/session/message.h"
#include "onnxruntime/session/onnx.h"

struct versions {
    uint64_t ir;
    uint64_t opset; /* of the domain of ONNX itself */
};

/* OperatorSetIdProto: domain 1, version 2. */
static void opset_read(struct onnx_reader *r, struct onnx_slice s, struct versions *v)
{
    char domain[16] = "";
    uint64_t version = 0;
    struct onnx_field f;

    while (s.at < s.end && onnx_field_next(r, &s, &f)) {
        if (f.number == 1 && f.has_bytes && !onnx_text_read(r, f.bytes, domain, sizeof domain)) {
            return;
        }
        version = f.number == 2 && !f.has_bytes ? f.value : version;
    }
    if (!domain[0] || strcmp(domain, "ai.onnx") == 0) {
        v->opset = version;
    }
}

/* ModelProto: ir_version 1, opset_import 8. */
static struct versions file_versions(const char *path, uint64_t bytes)
{
    struct versions v = {0, 0};
    struct onnx_reader r = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct onnx_slice s = {0, bytes};
    struct onnx_field f;

    while (r.fd >= 0 && s.at < s.end && onnx_field_next(&r, &s, &f)) {
        if (f.number == 1 && !f.has_bytes) {
            v.ir = f.value;
        } else if (f.number == 8 && f.has_bytes) {
            opset_read(&r, f.bytes, &v);
        }
    }
    if (r.fd >= 0) {
        close(r.fd);
    }
    return v;
}

/* The number after `words` in ONNX Runtime's error for these bytes, 0 = none. */
static uint64_t asked(struct onnx_backend *b, const void *model, size_t bytes, const char *words)
{
    OrtSessionOptions *options = NULL;
    OrtSession *session = NULL;
    unsigned long long n = 0;
    OrtStatus *status = onnx_api->CreateSessionOptions(&options);

    if (!status) {
        status = onnx_api->CreateSessionFromArray(b->env, model, bytes, options, &session);
    }
    if (status) {
        const char *at = strstr(onnx_api->GetErrorMessage(status), words);
        n = at ? strtoull(at + strlen(words), NULL, 10) : 0;
        onnx_api->ReleaseStatus(status);
    }
    if (session) {
        onnx_api->ReleaseSession(session);
    }
    if (options) {
        onnx_api->ReleaseSessionOptions(options);
    }
    return n;
}

void onnx_versions_explain(struct onnx_backend *b, const char *path, uint64_t bytes,
                           struct mr_err *err)
{
    /* Each an empty graph "g": ir_version 9999 and opset 1, ir_version 3 and opset 9999. */
    static const uint8_t ir[] = {0x08, 0x8f, 0x4e, 0x3a, 3, 0x12, 1, 'g', 0x42, 2, 0x10, 1};
    static const uint8_t opset[] = {0x08, 3, 0x3a, 3, 0x12, 1, 'g', 0x42, 3, 0x10, 0x8f, 0x4e};

    if (!strstr(err->msg, "Unsupported model IR version") &&
        !strstr(err->msg, "official support for domain ai.onnx is till opset")) {
        return;
    }
    const struct versions has = file_versions(path, bytes);
    const struct versions reads = {
        asked(b, ir, sizeof ir, "max supported IR version: "),
        asked(b, opset, sizeof opset, "support for domain ai.onnx is till opset ")};
    if (reads.ir == 0 || reads.opset == 0) {
        return; /* a release with another text */
    }
    mr_backend_fail(
        err, MR_E_UNSUPPORTED,
        "the model has IR version %llu and opset %llu; this build, with ONNX Runtime %s, reads at "
        "most "
        "IR version %llu and opset %llu. In Python: m = onnx.version_converter.convert_version("
        "onnx.load(FILE), %llu); m.ir_version = %llu; onnx.save(m, FILE)",
        (unsigned long long)has.ir, (unsigned long long)has.opset,
        OrtGetApiBase()->GetVersionString(), (unsigned long long)reads.ir,
        (unsigned long long)reads.opset,
        (unsigned long long)(has.opset < reads.opset ? has.opset : reads.opset),
        (unsigned long long)reads.ir);
}
