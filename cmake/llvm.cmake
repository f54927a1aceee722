# coil_llvm: clang, lld and LLVM 19, linked statically, so that `coil` needs no compiler on the machine that runs it.
# Missing packages are reported when something that needs them is built, not here: the runtime needs none of this.
find_program(COIL_LLVM_CONFIG NAMES llvm-config-19 HINTS ${COIL_LLVM_ROOT}/bin REQUIRED)
execute_process(
  COMMAND ${COIL_LLVM_CONFIG} --link-static --libs x86 aarch64 core support passes lto option targetparser frontendopenmp frontendhlsl
          frontenddriver windowsdriver coverage
  OUTPUT_VARIABLE llvm_libs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(llvm_libs)
if(NOT EXISTS ${COIL_LLVM_ROOT}/lib/libPolly.a)
  message(FATAL_ERROR "libpolly-19-dev is missing: run `make deps`")
endif()

# What the front end and the code generator pull in; the tools' libraries (clangd, tidy, ...) stay out.
set(clang_libs "")
foreach(name IN ITEMS FrontendTool Frontend Driver Serialization CodeGen Parse Sema ExtractAPI InstallAPI StaticAnalyzerFrontend
        StaticAnalyzerCheckers StaticAnalyzerCore CrossTU Index Rewrite RewriteFrontend ARCMigrate Analysis Edit ASTMatchers AST
        Lex Basic APINotes Support ToolingCore ToolingInclusions)
  list(APPEND clang_libs -lclang${name})
endforeach()

add_library(coil_llvm INTERFACE)
target_include_directories(coil_llvm SYSTEM INTERFACE ${COIL_LLVM_ROOT}/include)
target_link_directories(coil_llvm INTERFACE ${COIL_LLVM_ROOT}/lib)
target_link_libraries(coil_llvm INTERFACE -llldELF -llldCommon -Wl,--start-group ${clang_libs} -Wl,--end-group ${llvm_libs}
  ${COIL_ZLIB_STATIC} ${COIL_ZSTD_STATIC} -ldl -lm Threads::Threads)
# --wrap: src/toolchain/llvm_guard.cc has another try where memory runs out in lld, and knows what is being made, and which locks are held, where it does in clang.
target_link_options(coil_llvm INTERFACE -Wl,--gc-sections -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
  -Wl,--wrap=__cxa_guard_acquire -Wl,--wrap=__cxa_guard_release
  -Wl,--wrap=pthread_rwlock_rdlock -Wl,--wrap=pthread_rwlock_wrlock -Wl,--wrap=pthread_rwlock_unlock
  -Wl,--wrap=pthread_mutex_lock -Wl,--wrap=pthread_mutex_unlock)
if(TARGET coil_toolchain)
  get_target_property(type coil_toolchain TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    target_link_libraries(coil_toolchain PRIVATE coil_llvm)
  endif()
endif()
# Debian builds LLVM without RTTI: our files that derive from its classes must do the same. What is left by a longjmp (src/toolchain/llvm_guard.h) has
# no exceptions either.
file(GLOB llvm_users CONFIGURE_DEPENDS src/toolchain/llvm_*.cc)
set_source_files_properties(${llvm_users} PROPERTIES COMPILE_OPTIONS "-fno-rtti;-Wno-unused-parameter")
set_source_files_properties(src/toolchain/llvm_clang.cc src/toolchain/llvm_lld.cc PROPERTIES COMPILE_OPTIONS "-fno-rtti;-fno-exceptions;-Wno-unused-parameter")
set_source_files_properties(${llvm_users} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
