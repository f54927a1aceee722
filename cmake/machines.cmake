# The machines that packages hold CPU code for, as clang's driver is called for them when coil is built; src/base/host_machine.cc is the same table for
# the compiler inside. A machine MACHINE has the folder device/MACHINE and these lists:
#   COIL_NAME_MACHINE            as src/base/host_machine.cc calls it
#   COIL_LEVELS_MACHINE          instruction sets that the kernels are compiled for, each with COIL_ISA_FLAGS_LEVEL
#   COIL_FLAGS_MACHINE           of everything for it
#   COIL_ANY_FLAGS_MACHINE       of what runs on every such machine
#   COIL_LIBRARY_FLAGS_MACHINE   of device/library: what every package asks for at least
#   COIL_PARTS_MACHINE           kinds of packages and of libraries that there are for it beside plain ones: cuda, onednn
#   COIL_LIBS_MACHINE            where its libc and libm lie, which the library's routines are linked against on trial
#   COIL_LAPACK_MACHINE, COIL_BLAS_MACHINE   Debian's static libraries; where one is missing coil has no library routines for that machine
set(COIL_MACHINES x86_64 aarch64)

set(COIL_NAME_x86_64 x86-64)
set(COIL_LEVELS_x86_64 v3 v4)
set(COIL_ISA_FLAGS_v3 -DCOIL_ISA=v3 -DCOIL_ISA_V3=1 -march=x86-64-v3)
set(COIL_ISA_FLAGS_v4 -DCOIL_ISA=v4 -DCOIL_ISA_V4=1 -march=x86-64-v4 -mprefer-vector-width=512)
set(COIL_FLAGS_x86_64 "")
set(COIL_ANY_FLAGS_x86_64 -march=x86-64-v2)
set(COIL_LIBRARY_FLAGS_x86_64 -march=x86-64-v3)
set(COIL_PARTS_x86_64 cuda onednn)
set(COIL_LIBS_x86_64 /usr/lib/x86_64-linux-gnu)
find_library(COIL_LAPACK_x86_64 NAMES liblapack.a PATH_SUFFIXES lapack REQUIRED)
find_library(COIL_BLAS_x86_64 NAMES libblas.a PATH_SUFFIXES blas REQUIRED)

# Atomics outline would call libgcc's functions. char is signed, as the sources take it to be.
set(COIL_NAME_aarch64 aarch64)
set(COIL_LEVELS_aarch64 neon i8mm)
set(COIL_ISA_FLAGS_neon -DCOIL_ISA=neon -DCOIL_ISA_NEON=1 -march=armv8-a)
set(COIL_ISA_FLAGS_i8mm -DCOIL_ISA=i8mm -DCOIL_ISA_I8MM=1 -march=armv8.6-a)
set(COIL_FLAGS_aarch64 --target=aarch64-linux-gnu -fsigned-char -mno-outline-atomics)
set(COIL_ANY_FLAGS_aarch64 -march=armv8-a)
# PocketFFT divides pi in long double, which is software there.
set(COIL_LIBRARY_FLAGS_aarch64 -march=armv8-a -Xclang -mlong-double-64)
set(COIL_PARTS_aarch64 "")
set(COIL_LIBS_aarch64 /usr/aarch64-linux-gnu/lib)
# tools/aarch64_libraries.sh puts Debian's libraries there. Not cached: `make aarch64` asks again.
set(COIL_AARCH64_LIBRARIES $ENV{HOME}/.cache/coil/aarch64 CACHE PATH "Debian's static libraries for aarch64")
set(COIL_LAPACK_aarch64 ${COIL_AARCH64_LIBRARIES}/usr/lib/aarch64-linux-gnu/lapack/liblapack.a)
set(COIL_BLAS_aarch64 ${COIL_AARCH64_LIBRARIES}/usr/lib/aarch64-linux-gnu/blas/libblas.a)
# Its part of the device library is compiled with that machine's C and C++ headers. A coil built without them says so where it is asked for the target.
if(NOT EXISTS /usr/aarch64-linux-gnu/include/stdio.h OR NOT EXISTS /usr/aarch64-linux-gnu/include/c++)
  list(REMOVE_ITEM COIL_MACHINES aarch64)
  message(STATUS "Without the target aarch64: libc6-dev-arm64-cross and libstdc++-12-dev-arm64-cross (tools/install_deps.sh) are not there")
endif()
