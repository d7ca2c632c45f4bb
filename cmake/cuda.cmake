include(GNUInstallDirs)

# Both sides of the border are compiled from the same headers by the same compiler, or the plugin is refused.
set(build_id ${CMAKE_CURRENT_BINARY_DIR}/generated/device_plugin_build_id.cpp)
file(GLOB border_headers CONFIGURE_DEPENDS src/core/*.hpp src/plan/*.hpp src/engine/device_*.hpp)
add_custom_command(OUTPUT ${build_id} DEPENDS ${border_headers} cmake/build_id.cmake VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${build_id} -DROOT=${CMAKE_CURRENT_SOURCE_DIR}
          "-DID=${PROJECT_VERSION} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${GNOMON_SANITIZE}"
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/build_id.cmake)
target_sources(gnomon_engine PRIVATE ${build_id})
target_compile_definitions(gnomon_engine PRIVATE GNOMON_PLUGIN_FOLDER="../${CMAKE_INSTALL_LIBDIR}")
target_link_libraries(gnomon_engine PRIVATE ${CMAKE_DL_LIBS})

# The CUDA backend: a plugin that libgnomon loads when asked for a device. Nothing of CUDA is linked; building takes one
# header, cuda.h, from the toolkit or from PyPI's nvidia-cuda-runtime (tools/requirements-cuda.txt puts it into .venv).
set(GNOMON_CUDA AUTO CACHE STRING "The CUDA backend: ON, OFF, or AUTO (when cuda.h is found)")
set_property(CACHE GNOMON_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT GNOMON_CUDA)
  return()
endif()
if(GNOMON_SANITIZE)
  message(STATUS "CUDA backend: not built under sanitizers, which NVIDIA's libraries do not pass")
  return()
endif()

file(GLOB pypi_folders ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13
     ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cuda_runtime)
find_path(GNOMON_CUDA_INCLUDE_DIR cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda ${pypi_folders}
          PATH_SUFFIXES include NO_DEFAULT_PATH)
find_path(GNOMON_CUDA_INCLUDE_DIR cuda.h)
if(GNOMON_CUDA_INCLUDE_DIR)
  file(STRINGS ${GNOMON_CUDA_INCLUDE_DIR}/cuda.h cuda_version REGEX "^#define CUDA_VERSION ")
  string(REGEX MATCH "[0-9]+" cuda_version "${cuda_version}")
endif()
if(NOT cuda_version OR cuda_version LESS 12040)
  set(reason "no cuda.h")
  if(cuda_version)
    set(reason "${GNOMON_CUDA_INCLUDE_DIR}/cuda.h is of version ${cuda_version}, 12040 is needed")
  endif()
  if(GNOMON_CUDA STREQUAL AUTO)
    message(STATUS "CUDA backend: not built (${reason}); this build is for the CPU")
    return()
  endif()
  message(FATAL_ERROR "GNOMON_CUDA=${GNOMON_CUDA}, but ${reason}: install the CUDA toolkit, or nvidia-cuda-runtime from PyPI")
endif()
message(STATUS "CUDA backend: built with ${GNOMON_CUDA_INCLUDE_DIR}/cuda.h (${cuda_version})")

file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/cuda/kernels/*.cuh)
set(embedded_kernels ${CMAKE_CURRENT_BINARY_DIR}/generated/embedded_kernels.cpp)
add_custom_command(OUTPUT ${embedded_kernels} DEPENDS ${kernel_sources} cmake/embed_kernels.cmake VERBATIM
  COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded_kernels} -DFOLDER=${CMAKE_CURRENT_SOURCE_DIR}/src/cuda/kernels
          -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/embed_kernels.cmake)

gnomon_room(cuda gnomon_plan gnomon_core ${CMAKE_DL_LIBS})
target_sources(gnomon_cuda PRIVATE ${embedded_kernels})
target_include_directories(gnomon_cuda SYSTEM PUBLIC ${GNOMON_CUDA_INCLUDE_DIR})

# The tests find the run-time compiler of .venv where there is no other.
file(GLOB pypi_libraries ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/cu13/lib)
if(pypi_libraries)
  set(gnomon_test_environment_cuda "GNOMON_CUDA_LIBRARIES=${pypi_libraries}")
endif()

# The plugin: the room and its one way in. Nothing of CUDA is linked, and nothing but that way leaves it.
add_library(gnomon_cuda_plugin MODULE ${CMAKE_CURRENT_SOURCE_DIR}/src/cuda/plugin/plugin.cpp ${build_id})
set_target_properties(gnomon_cuda_plugin PROPERTIES OUTPUT_NAME gnomon-cuda)
target_link_libraries(gnomon_cuda_plugin PRIVATE gnomon_cuda)
target_link_options(gnomon_cuda_plugin PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete -Wl,-z,defs)
install(TARGETS gnomon_cuda_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES $<TARGET_FILE:gnomon_cuda_plugin> DESTINATION gnomon/lib COMPONENT python EXCLUDE_FROM_ALL)  # the wheel

# Times of the operators, of the resident kernel and of what ends a graph, alone, on a device: not built unless asked for.
foreach(alone operators resident graphs)
  add_executable(gnomon_cuda_${alone} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/bench/cuda_${alone}.cpp)
  target_link_libraries(gnomon_cuda_${alone} PRIVATE gnomon_cuda)
endforeach()
