mr_fuzz(manifest SOURCES tests/fuzz/fuzz_manifest.c DEPS batch codec base)
if(TARGET fuzz_manifest)
    target_include_directories(fuzz_manifest PRIVATE ${CMAKE_SOURCE_DIR}/src/batch)
endif()
