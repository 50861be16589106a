# Finds ONNX Runtime's C library and header; defines OnnxRuntime::OnnxRuntime. The first that has both wins:
#   1. ONNXRUNTIME_ROOT (CMake or environment): include/ or include/onnxruntime/, and lib/
#   2. pkg-config libonnxruntime
#   3. the system's folders (Debian 13: libonnxruntime-dev)
#   4. build/deps/onnxruntime, where tools/setup puts what it fetched
# OnnxRuntime_BUNDLE is true when the loader would not find the library by itself; it is then put
# beside the backend, in the build tree and by `make install`.

# A build folder that is configured again, by another user or in another shell, keeps what the environment said last.
if(DEFINED ENV{ONNXRUNTIME_ROOT})
    set(MR_ENV_ONNXRUNTIME_ROOT "$ENV{ONNXRUNTIME_ROOT}" CACHE INTERNAL "")
endif()
if(NOT ONNXRUNTIME_ROOT)
    set(ONNXRUNTIME_ROOT "${MR_ENV_ONNXRUNTIME_ROOT}")
endif()

# Looks below one root, or in the default folders if root is "".
macro(_ort_look root origin)
    if(NOT OnnxRuntime_LIBRARY OR NOT OnnxRuntime_INCLUDE_DIR)
        unset(OnnxRuntime_LIBRARY)
        unset(OnnxRuntime_INCLUDE_DIR)
        set(_ort_hint)
        if(NOT "${root}" STREQUAL "")
            set(_ort_hint HINTS ${root} NO_DEFAULT_PATH)
        endif()
        find_path(OnnxRuntime_INCLUDE_DIR onnxruntime_c_api.h ${_ort_hint} NO_CACHE
            PATH_SUFFIXES include include/onnxruntime include/onnxruntime/core/session onnxruntime
                          onnxruntime/core/session)
        find_library(OnnxRuntime_LIBRARY NAMES onnxruntime libonnxruntime.so.1 ${_ort_hint} NO_CACHE
            PATH_SUFFIXES lib lib64)
        set(OnnxRuntime_ORIGIN ${origin})
    endif()
endmacro()

unset(OnnxRuntime_LIBRARY)
unset(OnnxRuntime_INCLUDE_DIR)
if(ONNXRUNTIME_ROOT)
    _ort_look("${ONNXRUNTIME_ROOT}" "ONNXRUNTIME_ROOT")
    if(NOT OnnxRuntime_LIBRARY OR NOT OnnxRuntime_INCLUDE_DIR)
        message(FATAL_ERROR "ONNXRUNTIME_ROOT=${ONNXRUNTIME_ROOT} lacks lib/libonnxruntime.so or include/onnxruntime_c_api.h")
    endif()
endif()
if(NOT OnnxRuntime_LIBRARY)
    find_package(PkgConfig QUIET)
    pkg_check_modules(_ort_pc QUIET libonnxruntime)
    if(_ort_pc_FOUND)
        find_path(OnnxRuntime_INCLUDE_DIR onnxruntime_c_api.h HINTS ${_ort_pc_INCLUDE_DIRS} ${_ort_pc_INCLUDEDIR} NO_CACHE
            PATH_SUFFIXES onnxruntime onnxruntime/core/session core/session)
        find_library(OnnxRuntime_LIBRARY NAMES onnxruntime HINTS ${_ort_pc_LIBRARY_DIRS} ${_ort_pc_LIBDIR} NO_CACHE)
        set(OnnxRuntime_ORIGIN "pkg-config")
    endif()
endif()
_ort_look("" "system")
_ort_look("${CMAKE_SOURCE_DIR}/build/deps/onnxruntime" "tools/setup")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OnnxRuntime REQUIRED_VARS OnnxRuntime_LIBRARY OnnxRuntime_INCLUDE_DIR)

if(OnnxRuntime_FOUND AND NOT TARGET OnnxRuntime::OnnxRuntime)
    file(REAL_PATH ${OnnxRuntime_LIBRARY} OnnxRuntime_FILE)
    get_filename_component(_ort_dir ${OnnxRuntime_LIBRARY} DIRECTORY)
    file(REAL_PATH ${_ort_dir} _ort_dir)
    set(OnnxRuntime_BUNDLE ON)
    foreach(_dir IN LISTS CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        if(EXISTS ${_dir})
            file(REAL_PATH ${_dir} _dir)
            if(_dir STREQUAL _ort_dir)
                set(OnnxRuntime_BUNDLE OFF)
            endif()
        endif()
    endforeach()
    add_library(OnnxRuntime::OnnxRuntime SHARED IMPORTED GLOBAL)
    set_target_properties(OnnxRuntime::OnnxRuntime PROPERTIES
        IMPORTED_LOCATION ${OnnxRuntime_FILE}
        INTERFACE_INCLUDE_DIRECTORIES ${OnnxRuntime_INCLUDE_DIR})
    message(STATUS "ONNX Runtime: ${OnnxRuntime_LIBRARY} (${OnnxRuntime_ORIGIN})")
    if(OnnxRuntime_BUNDLE)
        # A link is enough in the build tree; the library is some 45 MB and there are several build kinds.
        file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib/millrace)
        file(CREATE_LINK ${OnnxRuntime_FILE} ${CMAKE_BINARY_DIR}/lib/millrace/libonnxruntime.so.1
             COPY_ON_ERROR SYMBOLIC)
    endif()
endif()
