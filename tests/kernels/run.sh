#!/bin/sh
# Builds and runs the kernel tests by themselves, for work on the kernels: run.sh [asan] [gtest options]
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
work=${COIL_KERNEL_TESTS:-/tmp/coil-kernel-tests}
clang=${CLANGXX:-clang++-19}
command -v ccache > /dev/null && clang="ccache $clang"
sanitize=
if [ "$1" = asan ]; then
  shift
  work=$work-asan
  sanitize="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined -O1 -g1"
fi
mkdir -p "$work"
# As in cmake/device.cmake.
flags="-std=c++20 -O3 -fPIC -ffp-contract=on -fno-math-errno -fwrapv -fno-exceptions -fno-rtti -fvisibility=hidden -nostdinc++"
for source in "$root"/device/kernels/*.cc; do
  name=$(basename "$source" .cc)
  $clang $flags -Wall -Wextra -Werror -Wno-psabi -DCOIL_ISA=v3 -march=x86-64-v3 $sanitize -c "$source" -o "$work/$name.v3.o"
  $clang $flags -Wall -Wextra -Werror -Wno-psabi -DCOIL_ISA=v4 -march=x86-64-v4 -mprefer-vector-width=512 $sanitize -c "$source" \
    -o "$work/$name.v4.o"
  case $name in *_f64) continue ;; esac   # doubles never ask for AMX
  $clang $flags -Wall -Wextra -Werror -Wno-psabi -DCOIL_ISA=emulated -march=x86-64-v4 -mprefer-vector-width=512 -I"$root" \
    -include "$root/tests/kernels/emulated_tiles.h" $sanitize -c "$source" -o "$work/$name.emulated.o"
done
for source in "$root"/tests/kernels/*_test.cc "$root"/tests/kernels/*_support.cc "$root"/src/templates/packing.cc; do
  $clang -std=c++20 -O2 -Wall -Wextra -I"$root" -I"$root/src" $sanitize -c "$source" -o "$work/$(basename "$source" .cc).o"
done
${CLANGXX:-clang++-19} $sanitize "$work"/*.o -lgtest -lgtest_main -lpthread -o "$work/kernels_tests"
exec "$work/kernels_tests" "$@"
