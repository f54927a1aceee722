# What users get: the command, and the runtime as a shared and as a static library.
file(GLOB tool_sources CONFIGURE_DEPENDS tools/coil/*.cc)
if(COIL_RUNTIME_ONLY)
  list(FILTER tool_sources EXCLUDE REGEX "cmd_(compile|check|cache|diff|bisect|reduce|debug|import_gguf)|compile_log|with_compiler|diff_text|save_difference|reducer|line_diff|torch_results|child")
  set(tool_libraries coil_frontend coil_report)
else()
  list(FILTER tool_sources EXCLUDE REGEX "no_compiler")
  set(tool_libraries coil_compiler coil_report)
endif()
# What `coil inspect` makes of a package, for a fuzz target too.
set(inspection_sources ${CMAKE_SOURCE_DIR}/tools/coil/inspect_package.cc ${CMAKE_SOURCE_DIR}/tools/coil/inspect_source.cc
  ${CMAKE_SOURCE_DIR}/tools/coil/decisions.cc
  ${CMAKE_SOURCE_DIR}/tools/coil/archive_kind.cc ${CMAKE_SOURCE_DIR}/tools/coil/shapes.cc ${CMAKE_SOURCE_DIR}/tools/coil/sizes.cc
  ${CMAKE_SOURCE_DIR}/tools/coil/terminal.cc ${CMAKE_SOURCE_DIR}/tools/coil/pattern.cc)
if(tool_sources)
  list(REMOVE_ITEM tool_sources ${inspection_sources})
  add_library(coil_inspection OBJECT ${inspection_sources})
  target_link_libraries(coil_inspection PRIVATE ${tool_libraries} coil_runtime_objects coil_options)
  add_library(coil_command OBJECT ${tool_sources})
  target_link_libraries(coil_command PRIVATE ${tool_libraries} coil_runtime_objects coil_options)
  foreach(target IN ITEMS coil_inspection coil_command)
    coil_standard_headers_less(${target})
    coil_group_files(${target})
  endforeach()
  add_executable(coil $<TARGET_OBJECTS:coil_command> $<TARGET_OBJECTS:coil_inspection>)
  target_link_libraries(coil PRIVATE ${tool_libraries} coil_runtime_objects coil_options)
  set_target_properties(coil PROPERTIES LINKER_LANGUAGE CXX)
  # Not position-independent: LLVM has 100,000 addresses in its tables, and relocating them costs 6 ms at each start.
  target_link_options(coil PRIVATE -no-pie -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,-O1
    $<$<NOT:$<CONFIG:Debug>>:-Wl,--strip-all>)
  set_target_properties(coil PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()

get_target_property(runtime_type coil_runtime_objects TYPE)
if(runtime_type STREQUAL STATIC_LIBRARY)
  # The way to the CUDA driver is the same in the runtime and in the packages.
  target_sources(coil_runtime_objects PRIVATE ${CMAKE_SOURCE_DIR}/device/cuda_driver.cc ${CMAKE_SOURCE_DIR}/device/cuda_upload.cc)
  # Only the members of coil_base that the runtime refers to are pulled in.
  file(WRITE ${CMAKE_BINARY_DIR}/empty.cc "")
  file(WRITE ${CMAKE_BINARY_DIR}/runtime.map "{ global: coil_*; local: *; };\n")
  add_library(coil_runtime SHARED ${CMAKE_BINARY_DIR}/empty.cc)
  target_link_libraries(coil_runtime PRIVATE -Wl,--whole-archive coil_runtime_objects -Wl,--no-whole-archive coil_base coil_options)
  target_link_options(coil_runtime PRIVATE -Wl,--gc-sections -Wl,-O1 -Wl,--version-script=${CMAKE_BINARY_DIR}/runtime.map
    -Wl,--no-undefined $<$<NOT:$<CONFIG:Debug>>:-Wl,--strip-all>)
  set_target_properties(coil_runtime PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/include)

  # The static form: the runtime, base, zlib and libdeflate in one archive. A user links it with -lpthread and the C++ library.
  set(mri ${CMAKE_BINARY_DIR}/runtime_static.mri)
  file(GENERATE OUTPUT ${mri} CONTENT "CREATE ${CMAKE_BINARY_DIR}/libcoil_runtime.a
ADDLIB $<TARGET_FILE:coil_runtime_objects>
ADDLIB $<TARGET_FILE:coil_base>
ADDLIB ${COIL_ZLIB_STATIC}
ADDLIB ${COIL_DEFLATE_STATIC}
SAVE
END
")
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/libcoil_runtime.a
    COMMAND ${CMAKE_COMMAND} -E rm -f ${CMAKE_BINARY_DIR}/libcoil_runtime.a
    COMMAND ${CMAKE_AR} -M < ${mri}
    DEPENDS coil_runtime_objects coil_base ${mri} VERBATIM)
  add_custom_target(coil_runtime_static ALL DEPENDS ${CMAKE_BINARY_DIR}/libcoil_runtime.a)

  # The examples that users may copy, as `make demo` and the tests run them.
  if(EXISTS ${CMAKE_SOURCE_DIR}/examples/digits/digits.cc)
    add_executable(digits_demo examples/digits/digits.cc)
    target_include_directories(digits_demo PRIVATE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(digits_demo PRIVATE coil_runtime)
    target_compile_options(digits_demo PRIVATE -Wall -Wextra -Werror)
    target_link_options(digits_demo PRIVATE ${COIL_LLD})
    set_target_properties(digits_demo PROPERTIES BUILD_RPATH "\$ORIGIN" RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  endif()
endif()
