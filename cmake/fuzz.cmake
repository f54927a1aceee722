# tests/fuzz/fuzz_<name>.cc -> fuzz_<name>, in fuzz/ of the build. A target links what reads files from elsewhere, no LLVM. Two forms:
# - in every build, with a main of its own: tries inputs that are the same on every machine (tests/fuzz/fixed_inputs.cc); what `make test` runs.
# - with COIL_FUZZ=ON, CC=clang-19 CXX=clang++-19 and COIL_SANITIZE=address,undefined, with libFuzzer: searches, and tries the same inputs too; what
#   `make fuzz` runs. It compiles all of coil once more, which takes as long as the build itself.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.cc)
add_library(coil_fixed_inputs OBJECT EXCLUDE_FROM_ALL tests/fuzz/fixed_inputs.cc)
if(COIL_FUZZ)
  set(fuzz_flags -fsanitize=fuzzer)
else()
  set(fuzz_flags "")
  target_compile_definitions(coil_fixed_inputs PRIVATE COIL_OWN_MAIN)
endif()
foreach(source IN LISTS fuzz_sources)
  get_filename_component(stem ${source} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" stem ${stem})
  add_executable(fuzz_${stem} EXCLUDE_FROM_ALL ${source} $<TARGET_OBJECTS:coil_fixed_inputs>)
  target_link_libraries(fuzz_${stem} PRIVATE coil_passes coil_frontend coil_runtime_objects coil_tune coil_cache coil_base coil_options)
  target_compile_options(fuzz_${stem} PRIVATE ${fuzz_flags})
  target_link_options(fuzz_${stem} PRIVATE ${fuzz_flags})
  set_target_properties(fuzz_${stem} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endforeach()
# What `coil inspect` makes of a package.
target_sources(fuzz_package PRIVATE $<TARGET_OBJECTS:coil_inspection>)
target_link_libraries(fuzz_package PRIVATE coil_report)
# The texts that are generated for programs whose names are anything, and for foreign kernels.
foreach(target IN ITEMS fuzz_text fuzz_images fuzz_plan fuzz_loops fuzz_plans)
  target_link_libraries(${target} PRIVATE coil_codegen coil_templates coil_schedule coil_lower coil_loop coil_expr)
  target_compile_definitions(${target} PRIVATE COIL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
endforeach()
get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER targets INCLUDE REGEX "^fuzz_")
add_custom_target(all_fuzz DEPENDS ${targets})
