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
  gtest_discover_tests(gnomon_test_${name} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

foreach(room core plan reference cpu engine)
  if(TARGET gnomon_${room})
    gnomon_test_room(${room} gnomon_${room})
  endif()
endforeach()
gnomon_test_room(support gnomon_core)
