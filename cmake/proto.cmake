# mr_proto(<target> PROTOS x.proto …)
#
# Static library <target> with protobuf-c's structs for proto/x.proto (header "x.pb-c.h") and the
# serialised FileDescriptorSet of all of them, imports included, as mr_descriptor_set and
# mr_descriptor_set_len (header "mr_descriptor_set.h"): what gRPC server reflection serves.
# A module takes it as EXTERNAL <target>. Paths are relative to proto/.
function(mr_proto target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PROTOS")
    find_program(PROTOC protoc)
    find_program(PROTOC_GEN_C protoc-gen-c)
    if(NOT PROTOC OR NOT PROTOC_GEN_C)
        message(FATAL_ERROR "protoc or protoc-gen-c was not found. tools/setup installs what is missing.")
    endif()
    mr_resolve_external(runtime PkgConfig::PROTOBUF_C)

    set(root ${CMAKE_SOURCE_DIR}/proto)
    set(out ${CMAKE_BINARY_DIR}/gen/${target})
    file(MAKE_DIRECTORY ${out})
    set(inputs)
    set(generated)
    foreach(proto IN LISTS arg_PROTOS)
        string(REGEX REPLACE "\\.proto$" "" stem ${proto})
        list(APPEND inputs ${root}/${proto})
        list(APPEND generated ${out}/${stem}.pb-c.c ${out}/${stem}.pb-c.h)
    endforeach()
    add_custom_command(OUTPUT ${generated}
        COMMAND ${PROTOC} --plugin=protoc-gen-c=${PROTOC_GEN_C} --proto_path=${root} --c_out=${out} ${inputs}
        DEPENDS ${inputs} VERBATIM COMMENT "protoc --c_out ${target}")
    add_custom_command(OUTPUT ${out}/descriptor_set.pb
        COMMAND ${PROTOC} --proto_path=${root} --include_imports
                --descriptor_set_out=${out}/descriptor_set.pb ${inputs}
        DEPENDS ${inputs} VERBATIM COMMENT "protoc --descriptor_set_out ${target}")
    add_custom_command(OUTPUT ${out}/mr_descriptor_set.c ${out}/mr_descriptor_set.h
        COMMAND ${CMAKE_COMMAND} -DIN=${out}/descriptor_set.pb -DOUT=${out} -DSYMBOL=mr_descriptor_set
                -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
        DEPENDS ${out}/descriptor_set.pb ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM COMMENT "embed descriptors of ${target}")

    add_library(${target} STATIC ${generated} ${out}/mr_descriptor_set.c ${out}/mr_descriptor_set.h)
    target_include_directories(${target} SYSTEM PUBLIC ${out})
    target_link_libraries(${target} PUBLIC ${runtime} PRIVATE $<BUILD_INTERFACE:mr_lto_compile>)
    target_compile_options(${target} PRIVATE -w)
endfunction()
