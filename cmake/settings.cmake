# Language, flags and the packages that our code needs.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release (-O2), Debug, or Quick (-O1: compiles fast, for loops of editing)" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_QUICK "-O1")
set(CMAKE_C_FLAGS_QUICK "-O1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")

# Paths below the sources are hashed as relative ones, so that clones and work trees share what the cache holds.
find_program(COIL_CCACHE_PROGRAM ccache)
set(COIL_CCACHE "")
if(COIL_CCACHE_PROGRAM)
  set(COIL_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${COIL_CCACHE_PROGRAM})  # else it keeps nothing that uses precompiled headers
  set(CMAKE_CXX_COMPILER_LAUNCHER ${COIL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${COIL_CCACHE})
endif()

set(COIL_LLVM_ROOT /usr/lib/llvm-19 CACHE PATH "Where Debian's LLVM 19 lives")
find_package(Threads REQUIRED)

# Options of our own code. Everything that links our code links this.
add_library(coil_options INTERFACE)
target_compile_options(coil_options INTERFACE -ffunction-sections -fdata-sections
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-missing-field-initializers>
  # g++ 12 sees overflows and unset values in inlined library code (vector, variant, optional) where there are none.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict -Wno-maybe-uninitialized>)
# Memory for time: g++ looks for what it may free when it holds a few hundred MB more; a seventh of what it takes otherwise. The code is the same.
target_compile_options(coil_options INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-expand=300 --param ggc-min-heapsize=524288>")
target_include_directories(coil_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(coil_options INTERFACE COIL_VERSION="${PROJECT_VERSION}")
if(COIL_SANITIZE)
  # Not vptr: the files that derive from LLVM's classes are built without RTTI, and the linker may keep their copies of inlined classes.
  target_compile_options(coil_options INTERFACE -fsanitize=${COIL_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -g1
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-error>)  # g++ judges warnings
  target_link_options(coil_options INTERFACE -fsanitize=${COIL_SANITIZE})
endif()
# Debian's RapidJSON 1.1: clang 19 rejects an unused member function unless it parses templates late, and its empty stack adds an
# offset to a null pointer (which is no access).
if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  set_source_files_properties(src/base/json_read.cc PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-fdelayed-template-parsing;-fno-sanitize=pointer-overflow")
endif()
if(COIL_FUZZ)
  target_compile_options(coil_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=fuzzer-no-link -Wno-error>)
endif()
# lld links the coil binary with LLVM in 6 s, Debian's default linker takes minutes.
set(COIL_LLD -B${COIL_LLVM_ROOT}/bin -fuse-ld=lld)
target_link_options(coil_options INTERFACE ${COIL_LLD})

# Third-party code that ends in our binaries must be static or header-only: ldd shows only libc, libm, libstdc++, libgcc.
# OpenSSL: authentication codes and TLS for caches that machines share.
find_library(COIL_ZLIB_STATIC NAMES libz.a REQUIRED)
find_library(COIL_DEFLATE_STATIC NAMES libdeflate.a REQUIRED)
if(NOT COIL_RUNTIME_ONLY)
  find_library(COIL_SSL_STATIC NAMES libssl.a REQUIRED)
  find_library(COIL_CRYPTO_STATIC NAMES libcrypto.a REQUIRED)
  find_library(COIL_ZSTD_STATIC NAMES libzstd.a REQUIRED)
endif()
