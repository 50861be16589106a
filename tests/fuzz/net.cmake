mr_fuzz(http1 SOURCES tests/fuzz/fuzz_http1.c DEPS net base)
mr_fuzz(h2 SOURCES tests/fuzz/fuzz_h2.c DEPS net base)
# They reach below the interface of the module: parsers, and connections without sockets.
foreach(target IN ITEMS fuzz_http1 fuzz_h2)
    if(TARGET ${target})
        target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src/net)
    endif()
endforeach()
