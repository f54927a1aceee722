# bench/<name>.cc -> bench_<name>, with Google Benchmark, the compiler and the runtime; bench/device_<name>.cc: compiled by clang
# against the device headers, bench_device_<name>_v3 and _v4. bench_ targets are not part of `all`.
find_library(COIL_BENCHMARK NAMES benchmark)
file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.cc)
foreach(source IN LISTS bench_sources)
  get_filename_component(stem ${source} NAME_WE)
  string(REGEX REPLACE "^bench_" "" stem ${stem})
  if(stem MATCHES "^device_")
    foreach(isa IN ITEMS v3 v4)
      set(object ${CMAKE_BINARY_DIR}/device/bench_${stem}_${isa}.o)
      add_custom_command(OUTPUT ${object}
        COMMAND ${COIL_CCACHE} ${COIL_CLANGXX} -std=c++20 -O3 -fPIC -ffp-contract=on -fno-math-errno -fwrapv ${COIL_ISA_FLAGS_${isa}}
                -I${CMAKE_SOURCE_DIR} -MMD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d COMMENT "Device bench ${stem} for ${isa}" VERBATIM)
      add_executable(bench_${stem}_${isa} EXCLUDE_FROM_ALL ${object})
      set_target_properties(bench_${stem}_${isa} PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
      target_link_libraries(bench_${stem}_${isa} PRIVATE ${COIL_BENCHMARK} Threads::Threads coil_options)
    endforeach()
    continue()
  endif()
  add_executable(bench_${stem} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(bench_${stem} PRIVATE coil_compiler coil_runtime_objects coil_options ${COIL_BENCHMARK} Threads::Threads)
  target_compile_definitions(bench_${stem} PRIVATE COIL_SOURCE_DIR="${CMAKE_SOURCE_DIR}" COIL_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(bench_${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER targets INCLUDE REGEX "^bench_")
add_custom_target(all_bench DEPENDS ${targets})
