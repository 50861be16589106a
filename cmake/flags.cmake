# Compiler and linker flags of every build kind; nothing outside this file sets global flags.
#
#   release  -O2, link-time optimisation, frame pointers kept so that perf and gdb can walk stacks
#   debug    -Og
#   asan     AddressSanitizer + UndefinedBehaviorSanitizer; the first finding ends the program
#   tsan     ThreadSanitizer
#   fuzz     libFuzzer targets under ASan + UBSan; needs clang
#   clang    clang reads everything with the flags of release and makes no code: a second opinion on the warnings

set(MR_KIND release CACHE STRING "Build kind: release, debug, asan, tsan, fuzz, clang")
set_property(CACHE MR_KIND PROPERTY STRINGS release debug asan tsan fuzz clang)
option(MR_WERROR "Warnings are errors; on in tests and CI, off for packagers" OFF)

if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND MR_KIND STREQUAL "release")
    option(MR_LTO "Link-time optimisation of the program and the backends" ON)
else()
    set(MR_LTO OFF)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-g -fno-omit-frame-pointer)
include(CheckPIESupported)
if(MR_KIND STREQUAL "asan")
    # What the sanitizers know of each object are half a million addresses, to be relocated at each start of a program.
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
    # Exceptions of a backend's library pass through AddressSanitizer, which looks for them when the program starts.
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-Wl,--push-state,--no-as-needed,-lstdc++,--pop-state>)
else()
    check_pie_supported()
endif()

set(mr_sanitizers)
if(MR_KIND MATCHES "^(release|clang)$")
    # Some distributions predefine _FORTIFY_SOURCE, and a second value for it is a warning.
    add_compile_options(-O2 -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
    add_link_options(-Wl,-z,relro,-z,now)
elseif(MR_KIND STREQUAL "debug")
    add_compile_options(-Og)
elseif(MR_KIND STREQUAL "asan")
    # Undefined behaviour is a trap, which AddressSanitizer reports with the line as ILL: what the other sanitizer would
    # have to know for a text of its own is 10 MB, which each start and end of a program reads.
    set(mr_sanitizers -fsanitize=address,undefined -fsanitize-undefined-trap-on-error)
    add_compile_options(-O1 -g1) # functions and lines, which is what reports say: a fifth of the compile time less
elseif(MR_KIND STREQUAL "tsan")
    set(mr_sanitizers -fsanitize=thread)
    add_compile_options(-O1 -g1)
elseif(MR_KIND STREQUAL "fuzz")
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "The fuzz build needs clang: cmake --preset fuzz, or CC=clang CXX=clang++")
    endif()
    set(mr_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
    add_compile_options(-O1 -fsanitize=fuzzer-no-link)
else()
    message(FATAL_ERROR "MR_KIND=${MR_KIND}: expected release, debug, asan, tsan, fuzz or clang")
endif()
add_compile_options(${mr_sanitizers})
add_link_options(${mr_sanitizers})

# Objects that were compiled before, in this checkout or another, come from ccache where it is installed;
# -DMR_CCACHE=OFF: they do not.
find_program(MR_CCACHE ccache)
set(mr_launcher env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${MR_CCACHE})
foreach(language IN ITEMS C CXX)
    if(MR_CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER AND NOT MR_KIND STREQUAL "clang")
        set(CMAKE_${language}_COMPILER_LAUNCHER ${mr_launcher})
    endif()
endforeach()

# In the clang build objects, libraries and programs are empty files, so that the build system knows what is up to date.
if(MR_KIND STREQUAL "clang")
    foreach(language IN ITEMS C CXX)
        set(CMAKE_${language}_COMPILE_OBJECT
            "<CMAKE_${language}_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "<CMAKE_COMMAND> -E touch <OBJECT>")
        set(CMAKE_${language}_ARCHIVE_CREATE "<CMAKE_COMMAND> -E touch <TARGET>")
        set(CMAKE_${language}_ARCHIVE_FINISH "")
        foreach(kind IN ITEMS LINK_EXECUTABLE CREATE_SHARED_LIBRARY CREATE_SHARED_MODULE)
            set(CMAKE_${language}_${kind} "<CMAKE_COMMAND> -E touch <TARGET>")
        endforeach()
    endforeach()
endif()

# Warnings go to our own code only, through this target; generated code does not link it.
add_library(mr_warnings INTERFACE)
set(mr_warnings_both -Wall -Wextra -Wshadow -Wvla -Wundef -Wformat=2 -Wimplicit-fallthrough -Wwrite-strings)
target_compile_options(mr_warnings INTERFACE
    ${mr_warnings_both}
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    $<$<BOOL:${MR_WERROR}>:-Werror>)

# Module objects carry machine code beside the intermediate code: the program and the backends are
# linked with optimisation across modules, the many small test programs without it, at once.
add_library(mr_lto_compile INTERFACE)
add_library(mr_lto_link INTERFACE)
add_library(mr_test_link INTERFACE)
if(MR_LTO)
    # Said aloud, as gcc's linker plugin takes up the intermediate code of such objects by itself.
    target_link_options(mr_test_link INTERFACE -fno-lto)
    target_compile_options(mr_lto_compile INTERFACE -flto=auto -ffat-lto-objects)
    target_link_options(mr_lto_link INTERFACE -flto=auto -O2)
endif()

# The few functions that one C++ file takes from libstdc++ (float text) are linked in: the program then
# loads no C++ run-time unless a backend brings one, and exports none of its symbols to it.
add_library(mr_program_link INTERFACE)
if(MR_KIND STREQUAL "release" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    option(MR_STATIC_CXX "Link libstdc++ and libgcc into the program" ON)
    if(MR_STATIC_CXX)
        target_link_options(mr_program_link INTERFACE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,--gc-sections)
    endif()
endif()

# Where the kernel spreads mappings wider than ThreadSanitizer's run-time knows (vm.mmap_rnd_bits above
# 28, gcc before 14), programs built with it die at start unless address randomisation is off.
set(MR_TEST_LAUNCHER)
if(MR_KIND STREQUAL "tsan")
    execute_process(COMMAND setarch -R true RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
        set(MR_TEST_LAUNCHER setarch -R)
    endif()
endif()
