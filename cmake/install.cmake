# bin/millrace looks for its backends in ../lib/millrace, so the two keep that distance whatever the
# prefix is, and the library folder is plain lib, not lib/<architecture>.
include(GNUInstallDirs)
get_property(programs GLOBAL PROPERTY MR_PROGRAM_TARGETS)
get_property(backends GLOBAL PROPERTY MR_BACKEND_TARGETS)
# Backends that exist only to break things on purpose are for the tests.
list(REMOVE_ITEM backends backend_fault)

if(programs)
    install(TARGETS ${programs} RUNTIME DESTINATION bin)
endif()
if(backends)
    install(TARGETS ${backends} LIBRARY DESTINATION lib/millrace)
endif()
if(TARGET backend_onnxruntime AND OnnxRuntime_BUNDLE)
    install(FILES ${OnnxRuntime_FILE} DESTINATION lib/millrace RENAME libonnxruntime.so.1
            PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()
if(EXISTS ${MR_DUCKDB})
    install(FILES ${MR_DUCKDB} DESTINATION lib/millrace
            PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()
get_property(libraries GLOBAL PROPERTY MR_LIBRARY_TARGETS)
if(libraries)
    # For programs outside of this tree: find_package(millrace), and pkg-config.
    include(CMakePackageConfigHelpers)
    set(package lib/cmake/millrace)
    install(TARGETS ${libraries} LIBRARY DESTINATION lib)
    write_basic_package_version_file(${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake
        VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion)
    install(FILES ${CMAKE_SOURCE_DIR}/cmake/millraceConfig.cmake ${CMAKE_BINARY_DIR}/millraceConfigVersion.cmake
            DESTINATION ${package})
    # --prefix may be relative to where cmake runs.
    install(CODE "
        get_filename_component(PREFIX \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
        set(VERSION \"${PROJECT_VERSION}\")
        configure_file(\"${CMAKE_SOURCE_DIR}/cmake/millrace.pc.in\" \"${CMAKE_BINARY_DIR}/millrace.pc\" @ONLY)
        file(INSTALL \"${CMAKE_BINARY_DIR}/millrace.pc\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/pkgconfig\")")
endif()
if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/include/millrace)
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/millrace DESTINATION include FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
endif()
foreach(file IN ITEMS README.md LICENSE CHANGELOG.md CONTRIBUTING.md)
    if(EXISTS ${CMAKE_SOURCE_DIR}/${file})
        install(FILES ${CMAKE_SOURCE_DIR}/${file} DESTINATION ${CMAKE_INSTALL_DOCDIR})
    endif()
endforeach()
if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/docs)
    # docs/ stays a folder, so that the links of the README hold.
    install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN "man" EXCLUDE)
endif()
if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/docs/man)
    file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/docs/man/*.1)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
# The unit names the program where it is installed, and the prefix is known only then.
install(CODE "
    get_filename_component(BINDIR \"\${CMAKE_INSTALL_PREFIX}/bin\" ABSOLUTE)
    get_filename_component(DOCDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR}\" ABSOLUTE)
    configure_file(\"${CMAKE_SOURCE_DIR}/systemd/millrace.service.in\" \"${CMAKE_BINARY_DIR}/millrace.service\" @ONLY)
    file(INSTALL \"${CMAKE_BINARY_DIR}/millrace.service\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")")
