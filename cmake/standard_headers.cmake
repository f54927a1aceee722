# The headers of the C++ library and of fmt that most of our files include, parsed once and not 700 times: a third of what the build takes.
# A file still includes all that it uses: clang-tidy and the cross build (COIL_PRECOMPILE=OFF) see it without them.
option(COIL_PRECOMPILE "Parse the C++ library's headers once (precompiled headers of the compiler)" ON)
set(COIL_STANDARD_HEADERS <algorithm> <array> <charconv> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <numeric> <optional>
  <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# One for libraries (-fPIC), one for the programs of tests (-fPIE, with GoogleTest): a compiler takes one only with the options that made it.
function(coil_standard_headers target)
  if(COIL_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM coil_standard_headers)
  endif()
endfunction()

function(coil_test_headers target)
  if(NOT COIL_PRECOMPILE OR COIL_SANITIZE)  # some tests are optimised there, others are not
    return()
  endif()
  if(NOT TARGET coil_test_headers)
    add_executable(coil_test_headers EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/headers_main.cc)
    target_link_libraries(coil_test_headers PRIVATE GTest::gtest coil_options)
    target_precompile_headers(coil_test_headers PRIVATE ${COIL_STANDARD_HEADERS} <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM coil_test_headers)
endfunction()

if(COIL_PRECOMPILE)
  file(CONFIGURE OUTPUT headers_main.cc CONTENT "int main() { return 0; }\n")
  add_library(coil_standard_headers STATIC EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/headers_main.cc)
  target_link_libraries(coil_standard_headers PRIVATE coil_options)
  target_precompile_headers(coil_standard_headers PRIVATE ${COIL_STANDARD_HEADERS})
endif()
