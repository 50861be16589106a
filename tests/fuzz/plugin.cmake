if(TARGET backend_onnxruntime)
    mr_fuzz(onnx SOURCES tests/fuzz/fuzz_onnx.c backends/onnxruntime/external.c
            backends/onnxruntime/fields.c backends/onnxruntime/tensors.c backends/onnxruntime/cache.c backends/onnxruntime/seen.c DEPS codec base EXTERNAL OnnxRuntime::OnnxRuntime)
    if(TARGET fuzz_onnx)
        target_include_directories(fuzz_onnx PRIVATE ${CMAKE_SOURCE_DIR}/backends/onnxruntime)
    endif()
endif()
