mr_fuzz(cli SOURCES tests/fuzz/fuzz_cli.c DEPS cli oip tensor base)
if(TARGET fuzz_cli)
    target_include_directories(fuzz_cli PRIVATE ${CMAKE_SOURCE_DIR}/src/cli)
endif()
