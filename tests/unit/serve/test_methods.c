/* The gRPC methods: each that a service declares has a row, with the kind that its declaration asks for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "endpoints.pb-c.h"
#include "health.pb-c.h"
#include "inference.pb-c.h"
#include "model_mesh.pb-c.h"
#include "model_runtime.pb-c.h"
#include "models.pb-c.h"
#include "reflection_v1.pb-c.h"
#include "reflection_v1alpha.pb-c.h"
#include "serve/grpc/methods_priv.h"

static const struct grpc_method *find(const char *service, const char *method)
{
    char path[256];
    int n = snprintf(path, sizeof path, "/%s/%s", service, method);

    return grpc_method_find(mr_str_n(path, (size_t)n));
}

static void test_every_declared_method_has_a_row(void **state)
{
    const ProtobufCServiceDescriptor *const services[] = {
        &inference__grpcinference_service__descriptor,
        &millrace__model_control__descriptor,
        &millrace__endpoint_control__descriptor,
        &mmesh__model_mesh__descriptor,
        &mmesh__model_runtime__descriptor,
        &grpc__health__v1__health__descriptor,
        &grpc__reflection__v1__server_reflection__descriptor,
        &grpc__reflection__v1alpha__server_reflection__descriptor,
    };

    (void)state;
    for (size_t i = 0; i < sizeof services / sizeof *services; i++) {
        for (unsigned k = 0; k < services[i]->n_methods; k++) {
            const struct grpc_method *m = find(services[i]->name, services[i]->methods[k].name);
            if (!m) {
                fail_msg("%s.%s has no row", services[i]->name, services[i]->methods[k].name);
            }
            assert_non_null(m->handle);
            assert_true(m->api < MR_API_COUNT);
        }
    }
}

static void test_kinds_and_classes(void **state)
{
    static const struct {
        const char *service, *method;
        enum grpc_kind kind;
        enum mr_api api;
    } rows[] = {
        {"inference.GRPCInferenceService", "ModelInfer", GRPC_INFER, MR_API_INFERENCE},
        {"inference.GRPCInferenceService", "ModelStreamInfer", GRPC_TENSORS, MR_API_INFERENCE},
        {"inference.GRPCInferenceService", "RepositoryModelLoad", GRPC_DATA,
         MR_API_MODEL_REPOSITORY},
        {"inference.GRPCInferenceService", "ModelStatistics", GRPC_SMALL, MR_API_STATISTICS},
        {"inference.GRPCInferenceService", "CudaSharedMemoryStatus", GRPC_SMALL,
         MR_API_SHARED_MEMORY},
        {"millrace.ModelControl", "ModelLabel", GRPC_SMALL, MR_API_MODEL_REPOSITORY},
        {"millrace.EndpointControl", "EndpointChange", GRPC_SMALL, MR_API_MODEL_REPOSITORY},
        {"grpc.health.v1.Health", "Watch", GRPC_SMALL, MR_API_HEALTH},
        {"grpc.reflection.v1.ServerReflection", "ServerReflectionInfo", GRPC_STREAM,
         MR_API_REFLECTION},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct grpc_method *m = find(rows[i].service, rows[i].method);
        assert_non_null(m);
        assert_int_equal(m->kind, rows[i].kind);
        assert_int_equal(m->api, rows[i].api);
        assert_int_equal(grpc_is_stream(m), m->kind == GRPC_STREAM || m->kind == GRPC_TENSORS);
    }
}

static void test_unknown_methods(void **state)
{
    (void)state;
    assert_null(find("inference.GRPCInferenceService", "ModelInfers"));
    assert_null(find("inference.GRPCInferenceService", "ModelInfe"));
    assert_null(find("inference.GRPCInferenceService", ""));
    assert_null(find("inference", "ModelInfer"));
    assert_null(grpc_method_find(MR_STR("")));
    assert_null(grpc_method_find(MR_STR("ModelInfer")));
    assert_false(grpc_is_stream(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_declared_method_has_a_row),
        cmocka_unit_test(test_kinds_and_classes),
        cmocka_unit_test(test_unknown_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
