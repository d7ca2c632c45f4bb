# What the wheel holds beside python/gnomon: the component `python`, installed by pip (pyproject.toml) and never by a plain
# `cmake --install`. Files, not targets: a wheel cannot hold the symbolic links of a versioned library.
add_custom_target(gnomon_wheel DEPENDS libgnomon gnomon_cli)
set(in_wheel COMPONENT python EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:libgnomon> DESTINATION gnomon/lib RENAME libgnomon.so ${in_wheel})
install(PROGRAMS $<TARGET_FILE:gnomon_cli> DESTINATION gnomon/bin RENAME gnomon ${in_wheel})
if(TARGET gnomon_cuda_plugin)
  add_dependencies(gnomon_wheel gnomon_cuda_plugin)
  install(FILES $<TARGET_FILE:gnomon_cuda_plugin> DESTINATION gnomon/lib ${in_wheel})
endif()
# The bench's suite, reference and description of the machine are those of bench/: nothing is written twice.
install(FILES bench/suite.json bench/stack_config.py bench/reference.py bench/peers/machine.py
        DESTINATION gnomon/_bench/shared ${in_wheel})
install(CODE "set(source_dir \"${CMAKE_CURRENT_SOURCE_DIR}\")" ${in_wheel})
install(SCRIPT cmake/bundle_libraries.cmake ${in_wheel})
