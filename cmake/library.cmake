# libgnomon.so (the C ABI), the command line `gnomon`, and the installation of both.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET gnomon_engine)
  file(GLOB api_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/api/*.cpp)
  set(version_script ${CMAKE_CURRENT_SOURCE_DIR}/src/api/gnomon.map)
  # Not `gnomon`: that is the command line's file, and of two things of one name `ninja gnomon` makes only the file.
  add_library(libgnomon SHARED ${api_sources})
  add_library(gnomon::gnomon ALIAS libgnomon)
  set_target_properties(libgnomon PROPERTIES OUTPUT_NAME gnomon EXPORT_NAME gnomon VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${version_script})
  target_compile_definitions(libgnomon PRIVATE GNOMON_VERSION="${PROJECT_VERSION}")
  target_compile_features(libgnomon INTERFACE c_std_99 cxx_std_20)
  target_include_directories(libgnomon PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(libgnomon PRIVATE gnomon_engine)
  # Only gnomon_* leaves the library: neither our C++ nor what the static rooms bring along.
  # It is never unloaded: the worker threads wait in its code after the last engine is gone.
  target_link_options(libgnomon PRIVATE -Wl,--version-script=${version_script} -Wl,--exclude-libs,ALL -Wl,-z,nodelete)

  # The command line links the rooms statically and carries the suite: one file to copy.
  file(READ bench/suite.json SUITE_JSON)
  configure_file(cmake/suite.hpp.in generated/suite.hpp @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/bench/suite.json)
  file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/cli/*.cpp)
  add_executable(gnomon_cli ${cli_sources})
  set_target_properties(gnomon_cli PROPERTIES OUTPUT_NAME gnomon)
  target_compile_definitions(gnomon_cli PRIVATE GNOMON_VERSION="${PROJECT_VERSION}")
  target_include_directories(gnomon_cli PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
  target_link_libraries(gnomon_cli PRIVATE gnomon_engine CLI11::CLI11)

  install(TARGETS libgnomon EXPORT gnomon-targets)
  install(TARGETS gnomon_cli)
  if(TARGET gnomon_cuda_plugin)  # who builds the program or the library gets what it loads beside it
    add_dependencies(gnomon_cli gnomon_cuda_plugin)
    add_dependencies(libgnomon gnomon_cuda_plugin)
  endif()
  install(FILES include/gnomon/gnomon.h include/gnomon/gnomon.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gnomon)

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gnomon)
  install(EXPORT gnomon-targets NAMESPACE gnomon:: FILE gnomonTargets.cmake DESTINATION ${package_dir})
  configure_package_config_file(cmake/gnomonConfig.cmake.in gnomonConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(gnomonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gnomonConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/gnomonConfigVersion.cmake
          DESTINATION ${package_dir})
  file(RELATIVE_PATH PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)  # the package may be moved as a whole
  configure_file(cmake/gnomon.pc.in gnomon.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gnomon.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  # A sanitized program may not run where the build runs (leak checker under ptrace), so only plain builds make completions.
  if(NOT GNOMON_SANITIZE)
    foreach(shell IN ITEMS bash zsh fish)
      add_custom_command(OUTPUT completion.${shell} DEPENDS gnomon_cli VERBATIM
                         COMMAND sh -c "\"$0\" completion ${shell} > completion.${shell}" $<TARGET_FILE:gnomon_cli>)
      list(APPEND completions ${CMAKE_CURRENT_BINARY_DIR}/completion.${shell})
    endforeach()
    add_custom_target(gnomon_completions ALL DEPENDS ${completions})
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME gnomon)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _gnomon)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/completion.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME gnomon.fish)
  endif()
endif()
