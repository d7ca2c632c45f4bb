# tests/ mirrors src/: one GoogleTest executable per room, all files of the folder.
find_package(GTest REQUIRED)
include(GoogleTest)

# tests/support: what the rooms' tests share (the float64 oracle, tensors of many layouts).
file(GLOB support CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/support/*.cpp)
list(FILTER support EXCLUDE REGEX "_test\\.cpp$")
add_library(gnomon_testing STATIC ${support})
target_include_directories(gnomon_testing PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/tests)
target_link_libraries(gnomon_testing PUBLIC gnomon_core GTest::gtest)

function(gnomon_test_room name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/${name}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(gnomon_test_${name} ${sources})
  target_include_directories(gnomon_test_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(gnomon_test_${name} PRIVATE gnomon_testing ${ARGN} GTest::gtest GTest::gmock GTest::gtest_main)
  set(environment)
  if(gnomon_test_environment_${name})
    set(environment ENVIRONMENT ${gnomon_test_environment_${name}})
  endif()
  gtest_discover_tests(gnomon_test_${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ${environment})
endfunction()

foreach(room core plan cpu engine cuda)
  if(TARGET gnomon_${room})
    gnomon_test_room(${room} gnomon_${room})
  endif()
endforeach()
# Libraries that say they are cuDNN: too old, without a function, with all of them. And a driver that does nothing.
if(TARGET gnomon_test_cuda)
  foreach(fake old partial whole)
    add_library(gnomon_fake_cudnn_${fake} MODULE ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/fakes/cudnn.cpp)
    set_target_properties(gnomon_fake_cudnn_${fake} PROPERTIES OUTPUT_NAME cudnn-${fake}
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fakes)
    target_compile_definitions(gnomon_fake_cudnn_${fake} PRIVATE FAKE_VERSION=$<IF:$<STREQUAL:${fake},old>,91001,91002>
                               $<$<STREQUAL:${fake},whole>:FAKE_WHOLE>)
    add_dependencies(gnomon_test_cuda gnomon_fake_cudnn_${fake})
  endforeach()
  add_library(gnomon_fake_cuda MODULE ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/fakes/cuda.cpp)
  set_target_properties(gnomon_fake_cuda PROPERTIES OUTPUT_NAME cuda-fake
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fakes)
  target_link_options(gnomon_fake_cuda PRIVATE -Wl,-soname,libcuda.so.1)
  add_dependencies(gnomon_test_cuda gnomon_fake_cuda)
  target_compile_definitions(gnomon_test_cuda PRIVATE GNOMON_FAKE_LIBRARIES="${CMAKE_CURRENT_BINARY_DIR}/fakes")
endif()
if(TARGET gnomon_cpu)
  gnomon_test_room(reference gnomon_cpu)  # src/reference is compiled into it
endif()
# A process chooses its instruction set once, so what runs on vector code is tested again under each other set.
if(TARGET gnomon_test_cpu AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  foreach(isa sse4 avx2 avx512)
    add_test(NAME cpu.isa_${isa} COMMAND gnomon_test_cpu --gtest_filter=VecKernels*:HeadAttention*:RowIo*:StackPlan*)
    set_tests_properties(cpu.isa_${isa} PROPERTIES ENVIRONMENT "GNOMON_ISA=${isa}" TIMEOUT 300
                         SKIP_REGULAR_EXPRESSION "this machine or build does not have it")
  endforeach()
endif()
gnomon_test_room(support gnomon_core)
# Under the address sanitizer only when asked for: two and a half minutes on two cores. Never under the thread sanitizer, which would
# have to be told of the fibers' stacks.
if(GNOMON_SANITIZE)
  set(emulated OFF)
else()
  set(emulated ON)
endif()
option(GNOMON_EMULATED_TESTS "The tests that run device kernels on a CPU" ${emulated})
if(GNOMON_EMULATED_TESTS AND NOT GNOMON_SANITIZE MATCHES thread)
  include(cmake/emulator.cmake)
endif()

# The interface's tests see what a user sees: the shared library and the two public headers.
if(TARGET libgnomon)
  gnomon_test_room(api libgnomon)
  target_compile_definitions(gnomon_test_api PRIVATE GNOMON_VERSION="${PROJECT_VERSION}")

  # The installed package and the command line are tested from outside, with Debian's Python.
  if(NOT GNOMON_SANITIZE)
    foreach(suite IN ITEMS api cli)
      add_test(NAME ${suite}.from_outside COMMAND /usr/bin/python3 -m pytest -q -p no:cacheprovider ${CMAKE_CURRENT_SOURCE_DIR}/tests/${suite})
      set_tests_properties(${suite}.from_outside PROPERTIES TIMEOUT 600
                           ENVIRONMENT "GNOMON_BUILD=${CMAKE_CURRENT_BINARY_DIR};GNOMON_PLAN_DIR=${CMAKE_CURRENT_BINARY_DIR}/test-plans;PYTHONDONTWRITEBYTECODE=1;${gnomon_test_environment_cuda}")
    endforeach()
  endif()
endif()
