mr_fuzz(s3 SOURCES tests/fuzz/fuzz_s3.c DEPS s3 net base)
if(TARGET fuzz_s3)
    target_include_directories(fuzz_s3 PRIVATE ${CMAKE_SOURCE_DIR}/src/s3)
endif()
