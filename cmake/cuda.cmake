# The CUDA backend: a plugin that libgnomon loads when asked for a device. Nothing of CUDA is linked; building takes one
# header, cuda.h, from the toolkit or from PyPI's nvidia-cuda-runtime (tools/requirements-cuda.txt puts it into .venv).
set(GNOMON_CUDA AUTO CACHE STRING "The CUDA backend: ON, OFF, or AUTO (when cuda.h is found)")
set_property(CACHE GNOMON_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT GNOMON_CUDA)
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
