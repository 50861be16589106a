mr_fuzz(config SOURCES tests/fuzz/fuzz_config.c DEPS model plugin codec base)
if(TARGET fuzz_config)
    target_include_directories(fuzz_config PRIVATE ${CMAKE_SOURCE_DIR}/src/model)
endif()
