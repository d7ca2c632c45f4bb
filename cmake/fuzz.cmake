# Fuzz targets: libFuzzer under the address and undefined-behaviour sanitizers, over the rooms they need and no others.
#   CXX=clang++ cmake -S . -B build-fuzz -DGNOMON_FUZZ=ON -DGNOMON_TESTS=OFF && cmake --build build-fuzz --target fuzz
#   build-fuzz/fuzz_grammar -max_total_time=600 build-fuzz/corpus/grammar tests/fuzz/corpus/grammar
# The first folder of a run takes what the fuzzer finds, the others are only read; they are made by tests/fuzz/make_corpus.py.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "GNOMON_FUZZ needs clang (CXX=clang++), the compiler is ${CMAKE_CXX_COMPILER_ID}")
endif()

add_custom_target(fuzz)

# fuzz_<name>.cpp over a room. The rooms themselves are instrumented: their libraries of this build carry the flags.
function(gnomon_fuzz name room)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/fuzz_${name}.cpp OR NOT TARGET gnomon_${room})
    return()
  endif()
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL tests/fuzz/fuzz_${name}.cpp)
  target_link_libraries(fuzz_${name} PRIVATE gnomon_${room})
  target_compile_options(fuzz_${name} PRIVATE ${fuzz_compile_options})
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer,address,undefined)
  add_dependencies(fuzz fuzz_${name})
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/corpus/${name})
endfunction()

set(fuzz_compile_options -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
foreach(room core plan)
  if(TARGET gnomon_${room})
    target_compile_options(gnomon_${room} PRIVATE ${fuzz_compile_options})
    target_link_options(gnomon_${room} PUBLIC -fsanitize=address,undefined)  # for whatever else links the room
  endif()
endforeach()

gnomon_fuzz(safetensors core)
gnomon_fuzz(npy core)
gnomon_fuzz(grammar core)
gnomon_fuzz(plan_store plan)
