# tests/<folder>/*.cc -> <folder>_tests. A folder that is named after a layer links that layer; tests/kernels links the device
# library and templates; any other folder links the compiler and the runtime. tests/<folder>/links.txt (one layer a line) adds
# layers. tests/device is special: clang, per ISA.
# tests/common/*.{h,cc}: helpers for every test (include as "tests/common/x.h").
# None of them is part of `all`, which is what users get: `all_tests` is.
find_package(GTest REQUIRED)
file(GLOB common_sources CONFIGURE_DEPENDS tests/common/*.cc)
file(GLOB test_folders RELATIVE ${CMAKE_SOURCE_DIR}/tests CONFIGURE_DEPENDS tests/*)
set(COIL_TEST_TARGETS "")
# Where the clone lies, in a header instead of a definition: other files compile to the same objects wherever they are (ccache).
file(CONFIGURE OUTPUT generated/tests/paths.h CONTENT [[
#pragma once
#define COIL_SOURCE_DIR "${CMAKE_SOURCE_DIR}"
#define COIL_BINARY_DIR "${CMAKE_BINARY_DIR}"
]])
foreach(folder IN LISTS test_folders)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/${folder}/*.cc)
  if(NOT IS_DIRECTORY ${CMAKE_SOURCE_DIR}/tests/${folder} OR NOT sources OR folder MATCHES "^(device|common|python|fuzz|capi)$")
    continue()
  endif()
  set(target ${folder}_tests)
  add_executable(${target} EXCLUDE_FROM_ALL ${sources} ${common_sources})
  if(folder IN_LIST COIL_LAYERS)
    coil_layer_target(layer ${folder})
    target_link_libraries(${target} PRIVATE ${layer})
  elseif(folder STREQUAL kernels)
    # Once more with AMX in plain C++, which runs on any machine. (Doubles never ask for it.)
    set(emulated_objects "")
    set(emulated_kernels ${device_kernels})
    list(FILTER emulated_kernels EXCLUDE REGEX "_f64")
    foreach(source IN LISTS emulated_kernels)
      coil_device_object(object ${source} emulated ${COIL_DEVICE_FLAGS} ${COIL_ISA_FLAGS_emulated})
      list(APPEND emulated_objects ${object})
    endforeach()
    target_sources(${target} PRIVATE ${COIL_DEVICE_OBJECTS_v3} ${COIL_DEVICE_OBJECTS_v4} ${emulated_objects})
    target_link_libraries(${target} PRIVATE coil_templates)
  else()
    target_link_libraries(${target} PRIVATE coil_compiler coil_runtime_objects)
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/${folder}/links.txt)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/links.txt)
    file(STRINGS tests/${folder}/links.txt extra REGEX "^[a-z]")
    foreach(name IN LISTS extra)
      coil_layer_target(layer ${name})
      target_link_libraries(${target} PRIVATE ${layer})
    endforeach()
  endif()
  target_link_libraries(${target} PRIVATE coil_base GTest::gtest GTest::gtest_main coil_options)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated)
  target_link_options(${target} PRIVATE -no-pie)
  coil_optimise_less(${target})
  coil_test_headers(${target})
  coil_group_files(${target})
  if(COIL_SANITIZE AND folder MATCHES "^(kernels|expr)$")
    target_compile_options(${target} PRIVATE -O1)  # these compute for minutes without
  endif()
  if(folder STREQUAL compiler)
    target_link_options(${target} PRIVATE -Wl,--export-dynamic-symbol=pthread_create)  # allocations.cc: the C++ library calls that one
  endif()
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  list(APPEND COIL_TEST_TARGETS ${target})
endforeach()

# tests/device/*.cc: compiled by clang once per instruction set with the device headers. Every function of them for every type is inlined here: -O2 takes
# half as long again as -O1.
file(GLOB device_tests CONFIGURE_DEPENDS tests/device/*.cc)
if(device_tests)
  set(device_test_flags "")
  if(COIL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL Clang)  # the runtime that is linked must be that of the compiler
    set(device_test_flags -O1 -fsanitize=${COIL_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  endif()
  foreach(isa IN ITEMS v3 v4)
    set(objects "")
    foreach(source IN LISTS device_tests)
      get_filename_component(stem ${source} NAME_WE)
      if(stem MATCHES "^blas" AND NOT isa STREQUAL v3)  # of device/library, which packages have for v3 alone
        continue()
      endif()
      set(object ${CMAKE_BINARY_DIR}/device/${stem}_test_${isa}.o)
      add_custom_command(OUTPUT ${object}
        COMMAND ${COIL_CCACHE} ${COIL_CLANGXX} -std=c++20 -O1 -fPIC -ffp-contract=on -fno-math-errno -fwrapv -Wall -Wextra -Werror -Wno-psabi
                ${device_test_flags} ${COIL_ISA_FLAGS_${isa}} -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/device -I${CMAKE_SOURCE_DIR}/src
                -MMD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d COMMENT "Device test ${stem} for ${isa}" VERBATIM)
      list(APPEND objects ${object})
    endforeach()
    add_executable(device_tests_${isa} EXCLUDE_FROM_ALL ${objects})
    set_target_properties(device_tests_${isa} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(device_tests_${isa} PRIVATE GTest::gtest GTest::gtest_main Threads::Threads quadmath coil_options)
    # A machine without the instruction set skips: exit code 77 from the wrapper.
    add_test(NAME device_tests_${isa} COMMAND ${CMAKE_SOURCE_DIR}/tools/run_if_isa.sh ${isa} $<TARGET_FILE:device_tests_${isa}>
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(device_tests_${isa} PROPERTIES SKIP_RETURN_CODE 77)
    list(APPEND COIL_TEST_TARGETS device_tests_${isa})
  endforeach()
endif()
# Their headers declare the same names, once for each library of CUDA that is stood in for.
file(GLOB cuda_tests tests/runtime/cuda_*.cc tests/runtime/aoti_cuda_*.cc)
set_source_files_properties(${cuda_tests} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# The longest start first, so that the others run beside them.
set_tests_properties(codegen_tests compiler_tests kernels_tests PROPERTIES COST 100)
add_custom_target(all_tests DEPENDS ${COIL_TEST_TARGETS})
