# The emulator of device kernels (tests/cuda/emulator/emulate.hpp) and the tests that run kernels on it. Needs nothing of
# CUDA. Device code is compiled as it is; headers that hold PTX are replaced by those of the same name in
# tests/cuda/emulator/kernels. Includes between quotes look beside the including file first, so both lie in one folder.
file(GLOB device_headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/cuda/kernels/*.cuh)
file(GLOB replacements CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/emulator/kernels/*.cuh)
set(emulated_headers ${CMAKE_CURRENT_BINARY_DIR}/generated/emulated)
file(REMOVE_RECURSE ${emulated_headers})
file(MAKE_DIRECTORY ${emulated_headers})
foreach(header IN LISTS device_headers replacements)  # a replacement comes second
  get_filename_component(name ${header} NAME)
  file(CREATE_LINK ${header} ${emulated_headers}/${name} SYMBOLIC)
endforeach()

file(GLOB emulator_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/emulator/*.cpp)
file(GLOB emulated_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/emulated/*_test.cpp)

add_library(gnomon_emulator STATIC ${emulator_sources})
target_link_libraries(gnomon_emulator PUBLIC gnomon_core)
target_include_directories(gnomon_emulator PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/tests)
# Not our compiler's warnings: NVRTC's are an error in tests/cuda/compile_test.cpp.
target_include_directories(gnomon_emulator SYSTEM INTERFACE ${CMAKE_CURRENT_BINARY_DIR}/generated)
# GCC would go where the links lead; and dynamic shared memory, thread_local here, has no constructor that it need look for.
target_compile_options(gnomon_emulator INTERFACE
                       "$<$<CXX_COMPILER_ID:GNU>:-fno-canonical-system-headers;-fno-extern-tls-init>")
# The arithmetic of the tensor cores is most of a run's time, whatever the build is for; it checks its bounds itself.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/emulator/wgmma.cpp PROPERTIES COMPILE_OPTIONS "-O3;-fno-sanitize=all")

add_executable(gnomon_test_cuda_emulated ${emulated_tests})
target_link_libraries(gnomon_test_cuda_emulated PRIVATE gnomon_emulator gnomon_testing GTest::gtest GTest::gmock GTest::gtest_main)
# Optimised little: each kernel instance is compiled for a single run of a second.
target_compile_options(gnomon_test_cuda_emulated PRIVATE -O1 -Wno-uninitialized -Wno-maybe-uninitialized)
gtest_discover_tests(gnomon_test_cuda_emulated TEST_PREFIX "cuda_emulated." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
