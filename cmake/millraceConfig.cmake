# find_package(millrace): the client library as millrace::client. Found from where this file is, so that an installed tree may
# be moved.
get_filename_component(MILLRACE_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET millrace::client)
    add_library(millrace::client SHARED IMPORTED)
    set_target_properties(millrace::client PROPERTIES
        IMPORTED_LOCATION "${MILLRACE_PREFIX}/lib/libmillrace.so"
        INTERFACE_INCLUDE_DIRECTORIES "${MILLRACE_PREFIX}/include")
endif()
