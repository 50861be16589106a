mr_fuzz(warmup SOURCES tests/fuzz/fuzz_warmup.c DEPS sched oip codec tensor base)
if(TARGET fuzz_warmup)
    target_include_directories(fuzz_warmup PRIVATE ${CMAKE_SOURCE_DIR}/src/sched)
endif()
