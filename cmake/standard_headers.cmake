# The headers of the C++ library and of fmt that most of our files include, parsed once and not 700 times: a third of what the build takes.
# A file still includes all that it uses: clang-tidy and the cross build (COIL_PRECOMPILE=OFF) see it without them.
option(COIL_PRECOMPILE "Parse the C++ library's headers once (precompiled headers of the compiler)" ON)
set(COIL_STANDARD_HEADERS <algorithm> <array> <charconv> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <numeric> <optional>
  <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# A compiler takes precompiled headers only with the options that made them. So there are three: of libraries, of those that are optimised less
# (coil_optimise_less), and of the programs of tests (-fPIE, with GoogleTest).
function(coil_standard_headers target)
  if(COIL_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM coil_standard_headers)
  endif()
endfunction()

# For code that no call of a package runs: -O1 takes two thirds of the time that -O2 does. (-Og takes four fifths of the time that -O1 does, but what
# `coil profile` measures a processor by was four times as slow.)
function(coil_optimise_less target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

function(coil_standard_headers_less target)
  coil_optimise_less(${target})
  if(COIL_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM coil_standard_headers_less)
  endif()
endfunction()

# Several files in one run of the compiler, which parses our headers and makes what they have inline once: half of the time. Each file still includes what
# it uses (the cross build and `cmake -DCOIL_UNITY=OFF` see it alone), and names at file level differ within a folder (tools/check_names.py).
option(COIL_UNITY "Compile the files of a folder in groups; off for an edit's sake" ON)
set(COIL_GROUP 27)  # a folder of 100 files keeps several processors busy
set(COIL_GROUP_lower 10)  # who adds an operator edits these: a group is compiled and tested in 20 s, and a group more costs some 2 s of a clean build
function(coil_group_files target)
  set(size ${COIL_GROUP})
  string(REGEX REPLACE "^coil_" "" folder ${target})
  if(DEFINED COIL_GROUP_${folder})
    set(size ${COIL_GROUP_${folder}})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${COIL_UNITY} UNITY_BUILD_MODE BATCH UNITY_BUILD_BATCH_SIZE ${size})
  if(COIL_UNITY)  # a type of a file's own in another of its types: no other file sees either
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(coil_test_headers target)
  if(NOT COIL_PRECOMPILE OR COIL_SANITIZE)  # some tests are optimised there, others are not
    return()
  endif()
  if(NOT TARGET coil_test_headers)
    add_executable(coil_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/headers_main.cc)
    target_link_libraries(coil_test_headers PRIVATE GTest::gtest coil_options)
    coil_optimise_less(coil_test_headers)
    target_precompile_headers(coil_test_headers PRIVATE ${COIL_STANDARD_HEADERS} <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM coil_test_headers)
endfunction()

if(COIL_PRECOMPILE)
  file(CONFIGURE OUTPUT headers_main.cc CONTENT "int main() { return 0; }\n")
  foreach(name IN ITEMS coil_standard_headers coil_standard_headers_less)
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/headers_main.cc)
    target_link_libraries(${name} PRIVATE coil_options)
    target_precompile_headers(${name} PRIVATE ${COIL_STANDARD_HEADERS})
  endforeach()
  coil_optimise_less(coil_standard_headers_less)
endif()
