# The functions that the CMakeLists.txt of modules, backends and tests are written in.

# mr_module(<name> LAYER <n> [FOLDERS folder…] SOURCES … [DEPS module…] [EXTERNAL library…])
#
# Static library mr_<name>. Others may include what is in src/<name>/api; the rest of the folder is
# private. DEPS are modules of lower layers: configuration fails on any other, same layer included
# (two modules that need each other are one module). FOLDERS are the folders that its files are in, each after
# those that it uses; tools/check_includes.py holds that order.
function(mr_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LAYER" "FOLDERS;SOURCES;DEPS;EXTERNAL")
    if(NOT arg_LAYER MATCHES "^[0-9]+$" OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mr_module(${name}): needs LAYER <n> and SOURCES …; got ${ARGN}")
    endif()
    foreach(dep IN LISTS arg_DEPS)
        mr_layer_of(${dep} dep_layer)
        if(NOT dep_layer LESS arg_LAYER)
            message(FATAL_ERROR "module ${name} (layer ${arg_LAYER}) may not depend on ${dep} (layer ${dep_layer})")
        endif()
        if(NOT TARGET mr_${dep})
            message(FATAL_ERROR "module ${name} depends on ${dep}, which is not being built (MR_ONLY_MODULES=${MR_ONLY_MODULES})")
        endif()
    endforeach()

    add_library(mr_${name} STATIC ${arg_SOURCES})
    if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/api)
        target_include_directories(mr_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/api)
    endif()
    # Private headers are spelled "x.h"; where there are folders, "<name>/<folder>/x.h".
    set(private ${CMAKE_CURRENT_SOURCE_DIR})
    if(arg_FOLDERS)
        set(private ${CMAKE_SOURCE_DIR}/src)
    endif()
    target_include_directories(mr_${name} PRIVATE ${private})
    set_property(TARGET mr_${name} PROPERTY MR_PRIVATE_DIR ${private})
    target_include_directories(mr_${name} PUBLIC ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(mr_${name} PRIVATE MR_VERSION="${PROJECT_VERSION}")
    mr_resolve_external(external ${arg_EXTERNAL})
    list(TRANSFORM arg_DEPS PREPEND mr_)
    target_link_libraries(mr_${name} PUBLIC ${arg_DEPS} ${external} Threads::Threads)
    target_link_libraries(mr_${name} PRIVATE $<BUILD_INTERFACE:mr_warnings> $<BUILD_INTERFACE:mr_lto_compile>)
    set_property(TARGET mr_${name} PROPERTY MR_SOURCE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()

# The layer that src/<name>/CMakeLists.txt declares; read from the file, because a module of a higher
# layer is not configured yet when a lower one names it.
function(mr_layer_of name out)
    set(list ${CMAKE_SOURCE_DIR}/src/${name}/CMakeLists.txt)
    if(NOT EXISTS ${list})
        message(FATAL_ERROR "there is no module ${name} (no src/${name}/CMakeLists.txt); "
                            "a part of the tree configures with -DMR_ONLY_MODULES='base;…' and -DMR_BACKENDS=…")
    endif()
    file(READ ${list} text)
    if(NOT text MATCHES "mr_module\\([ \t\r\n]*${name}[ \t\r\n]+LAYER[ \t\r\n]+([0-9]+)")
        message(FATAL_ERROR "src/${name}/CMakeLists.txt does not begin mr_module(${name} LAYER <n> …)")
    endif()
    set(${out} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# mr_program(<name> SOURCES … DEPS module…): an executable in bin/. Sources are relative to the folder
# of the caller.
function(mr_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;EXTERNAL")
    add_executable(${name} ${arg_SOURCES})
    target_compile_definitions(${name} PRIVATE MR_VERSION="${PROJECT_VERSION}")
    mr_resolve_external(external ${arg_EXTERNAL})
    list(TRANSFORM arg_DEPS PREPEND mr_)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${name} PRIVATE ${arg_DEPS} ${external}
        mr_warnings mr_lto_compile mr_lto_link mr_program_link)
    set_property(GLOBAL APPEND PROPERTY MR_PROGRAM_TARGETS ${name})
endfunction()

# mr_client_library(<name> <module> <map>): lib<name>.so in lib/, with all of a module and what it uses of others in it. It exports
# what the linker's map names.
function(mr_client_library name module map)
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}_shared.c CONTENT "extern const char ${name}_is_of_modules;\n")
    add_library(${name}_shared SHARED ${CMAKE_CURRENT_BINARY_DIR}/${name}_shared.c)
    set_target_properties(${name}_shared PROPERTIES
        OUTPUT_NAME ${name} VERSION 1.0.0 SOVERSION 1 LINKER_LANGUAGE CXX
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
        LINK_DEPENDS ${map})
    target_link_libraries(${name}_shared PRIVATE
        -Wl,--whole-archive $<TARGET_FILE:mr_${module}> -Wl,--no-whole-archive mr_${module} mr_lto_link)
    target_link_options(${name}_shared PRIVATE -Wl,--version-script=${map})
    if(MR_STATIC_CXX)
        # Not mr_program_link, whose --exclude-libs would hide the interface as well; the map hides what is not.
        target_link_options(${name}_shared PRIVATE -static-libstdc++ -static-libgcc)
    endif()
    if(NOT mr_sanitizers)
        target_link_options(${name}_shared PRIVATE -Wl,--no-undefined)
    endif()
    set_property(GLOBAL APPEND PROPERTY MR_LIBRARY_TARGETS ${name}_shared)
endfunction()

# mr_backend(<name> [FOLDERS folder…] SOURCES … [EXTERNAL library…])
#
# Shared object lib/millrace/libmillrace_<name>.so, to be loaded at run time. It sees
# include/millrace/*.h and its own folder, and nothing of src/: the host hands it a table of functions. FOLDERS: as of
# mr_module.
function(mr_backend name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;SOURCES;EXTERNAL")
    add_library(backend_${name} MODULE ${arg_SOURCES})
    set_target_properties(backend_${name} PROPERTIES
        PREFIX lib OUTPUT_NAME millrace_${name}
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/millrace
        # Libraries that travel with a backend lie beside it, built and installed alike.
        BUILD_WITH_INSTALL_RPATH ON
        INSTALL_RPATH "$ORIGIN")
    target_include_directories(backend_${name} PRIVATE ${CMAKE_SOURCE_DIR}/include)
    if(arg_FOLDERS)
        target_include_directories(backend_${name} PRIVATE ${CMAKE_SOURCE_DIR}/backends)
    endif()
    target_compile_definitions(backend_${name} PRIVATE MR_VERSION="${PROJECT_VERSION}")
    mr_resolve_external(external ${arg_EXTERNAL})
    target_link_libraries(backend_${name} PRIVATE ${external} Threads::Threads mr_warnings mr_lto_compile mr_lto_link)
    if(NOT mr_sanitizers)
        # A sanitizer's run-time symbols come from the program, so only plain builds can be strict.
        target_link_options(backend_${name} PRIVATE -Wl,--no-undefined)
    endif()
    set_property(GLOBAL APPEND PROPERTY MR_BACKEND_TARGETS backend_${name})
endfunction()

# What a test needs to run the same way from ctest, by hand and under a sanitizer.
function(mr_test_environment test)
    set_property(TEST ${test} PROPERTY ENVIRONMENT
        MR_SOURCE_DIR=${CMAKE_SOURCE_DIR} MR_BUILD_DIR=${CMAKE_BINARY_DIR} MR_BUILD=${MR_KIND}
        ASAN_OPTIONS=handle_sigill=1:detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
endfunction()

# mr_unit_test(<module> <file> [PROGRAM name] [DEPS module…] [EXTERNAL library…] [LABELS label…] [TIMEOUT seconds])
#
# Makes tests/unit/<module>/<file>.c, which has a main() of cmocka, part of tests/unit/unit_<module> and runs it, alone in its
# process, as ctest unit.<module>.<file>. It sees the private headers of its module. PROGRAM: part of unit_<name> instead,
# for files that link something that others of the module must not. `make test` runs it in the asan build; label tsan
# also in the tsan build, which leaves out the others, label release also in the release build,
# with label release_only there alone. To be called from tests/unit/<module>/CMakeLists.txt.
function(mr_unit_test module file)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "PROGRAM;TIMEOUT" "DEPS;EXTERNAL;LABELS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "mr_unit_test(${module} ${file}): one file each, ${arg_UNPARSED_ARGUMENTS} would not be run")
    endif()
    if(NOT MR_TESTS OR MR_KIND STREQUAL "fuzz" OR (MR_KIND STREQUAL "tsan" AND NOT "tsan" IN_LIST arg_LABELS)
       OR (MR_KIND STREQUAL "asan" AND "release_only" IN_LIST arg_LABELS))
        return()
    endif()
    if(NOT arg_PROGRAM)
        set(arg_PROGRAM ${module})
    endif()
    set(target unit_${arg_PROGRAM})
    if(NOT TARGET ${target})
        mr_unit_program(${target} ${module})
    endif()
    set(source ${CMAKE_SOURCE_DIR}/tests/unit/${module}/${file}.c)
    target_sources(${target} PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES
        COMPILE_DEFINITIONS main=main_of_${file} COMPILE_OPTIONS -Wno-missing-prototypes)
    set_property(TARGET ${target} APPEND PROPERTY MR_UNIT_FILES ${file})
    if(MR_KIND IN_LIST arg_LABELS)
        set_property(GLOBAL APPEND PROPERTY MR_TEST_TARGETS ${target})
    endif()
    mr_resolve_external(external ${arg_EXTERNAL})
    list(TRANSFORM arg_DEPS PREPEND mr_)
    target_link_libraries(${target} PRIVATE ${arg_DEPS} ${external})
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 1200) # of a test that hangs, as in pytest.ini; a slow machine must not reach it
    endif()
    set(test unit.${module}.${file})
    add_test(NAME ${test} COMMAND ${MR_TEST_LAUNCHER} $<TARGET_FILE:${target}> ${file} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${module};${arg_LABELS}")
    mr_test_environment(${test})
endfunction()

# The program that mr_unit_test adds files to: the main() of each as main_of_<file>, chosen by tests/unit/unit.c.
function(mr_unit_program target module)
    add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/unit/unit.c)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${target})
    set_property(TARGET ${target} PROPERTY RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/unit)
    get_target_property(private mr_${module} MR_PRIVATE_DIR)
    target_include_directories(${target} PRIVATE
        ${private} ${CMAKE_SOURCE_DIR}/tests/unit/${module} ${CMAKE_SOURCE_DIR}/tests/unit)
    target_compile_definitions(${target} PRIVATE MR_VERSION="${PROJECT_VERSION}" UNIT_FILES="${out}.inc")
    target_link_libraries(${target} PRIVATE mr_${module} PkgConfig::CMOCKA mr_warnings mr_test_link)
    file(GENERATE OUTPUT ${out}.inc CONTENT "UNIT($<JOIN:$<TARGET_PROPERTY:${target},MR_UNIT_FILES>,)\nUNIT(>)\n")
endfunction()

# mr_fuzz(<target> SOURCES tests/fuzz/<module>/fuzz_<target>.c [DEPS module…])
#
# In the fuzz build a libFuzzer program bin/fuzz_<target>. In every other build a program that replays
# tests/fuzz/corpus/<target>/, as ctest fuzz.<target>. May be called from any CMakeLists.txt; sources
# are relative to the top folder.
function(mr_fuzz name)
    if(NOT MR_TESTS)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;EXTERNAL")
    list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_SOURCE_DIR}/)
    set(target fuzz_${name})
    add_executable(${target} ${arg_SOURCES})
    mr_resolve_external(external ${arg_EXTERNAL})
    list(TRANSFORM arg_DEPS PREPEND mr_)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz)
    target_link_libraries(${target} PRIVATE ${arg_DEPS} ${external} mr_warnings mr_test_link)
    # libFuzzer's entry point has no prototype in any header. On the sources, as a target's own options
    # come before those of the targets that it links.
    set_property(SOURCE ${arg_SOURCES} PROPERTY COMPILE_OPTIONS -Wno-missing-prototypes)
    if(MR_KIND STREQUAL "fuzz")
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
        set_property(TARGET ${target} PROPERTY LINKER_LANGUAGE CXX)
        return()
    endif()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/standalone_driver.c)
    set_property(TARGET ${target} PROPERTY RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/fuzz)
    add_test(NAME fuzz.${name} COMMAND ${MR_TEST_LAUNCHER} $<TARGET_FILE:${target}> ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 1200 LABELS "fuzz")
    mr_test_environment(fuzz.${name})
endfunction()
