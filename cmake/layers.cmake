# One static library per line of layers.txt: folder `x` becomes target coil_x (the runtime: coil_runtime_objects, because
# coil_runtime is the shared library that users link). Dependencies are those of layers.txt, so a forbidden include of a
# header-only kind is caught by tools/check_layers.py and a forbidden call by the linker.
function(coil_layer_target out folder)
  if(folder STREQUAL runtime)
    set(${out} coil_runtime_objects PARENT_SCOPE)
  else()
    set(${out} coil_${folder} PARENT_SCOPE)
  endif()
endfunction()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/layers.txt)
file(STRINGS layers.txt COIL_LAYER_LINES REGEX "^[a-z_]+:")  # folders inside a layer are no libraries of their own
set(COIL_LAYERS "")
# Not those that a package's call runs, nor those in which compiling a program takes its time (expressions, passes, loops, scheduling).
set(COIL_LAYERS_OF_COMPILING frontend lower reference templates codegen cache toolchain package report tune compiler)
# ... but for loops over each number of a model's weights.
file(GLOB loops_over_weights CONFIGURE_DEPENDS src/frontend/block_forms.cc src/templates/packing*.cc)
set_source_files_properties(${loops_over_weights} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2> SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
foreach(line IN LISTS COIL_LAYER_LINES)
  string(REGEX MATCH "^([a-z_]+):(.*)$" _ "${line}")
  set(folder ${CMAKE_MATCH_1})
  string(REGEX REPLACE "#.*" "" deps "${CMAKE_MATCH_2}")
  separate_arguments(deps UNIX_COMMAND "${deps}")
  if(COIL_RUNTIME_ONLY AND NOT folder MATCHES "^(base|ops|expr|graph|frontend|runtime|report)$")
    continue()
  endif()
  list(APPEND COIL_LAYERS ${folder})
  coil_layer_target(target ${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${folder}/*.cc)
  if(sources)
    add_library(${target} STATIC ${sources})
    set(kind PUBLIC)
    if(folder IN_LIST COIL_LAYERS_OF_COMPILING)
      coil_standard_headers_less(${target})
    else()
      coil_standard_headers(${target})
    endif()
    coil_group_files(${target})
  else()
    add_library(${target} INTERFACE)
    set(kind INTERFACE)
  endif()
  target_link_libraries(${target} ${kind} coil_options)
  foreach(dep IN LISTS deps)
    string(REGEX REPLACE "/.*" "" dep ${dep})
    coil_layer_target(dep_target ${dep})
    target_link_libraries(${target} ${kind} ${dep_target})
  endforeach()
endforeach()

# An object of its own, so that the runtime's archive has nlohmann's code only for those who ask for it.
set_source_files_properties(src/base/json.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# fmt: Debian ships no static libfmt. base/fmt_impl.cc compiles it once; header-only use would cost every file 2 s.
target_link_libraries(coil_base PUBLIC ${COIL_ZLIB_STATIC} ${COIL_DEFLATE_STATIC} Threads::Threads)
if(TARGET coil_cache)
  target_link_libraries(coil_cache PUBLIC ${COIL_SSL_STATIC} ${COIL_CRYPTO_STATIC} ${CMAKE_DL_LIBS} Threads::Threads)
endif()
