#!/bin/sh
# Builds the library that compare.py loads: build.sh OUTPUT.so [extra compiler flags for the kernels]
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang=${CLANGXX:-clang++-19}
# As in cmake/device.cmake.
flags="-std=c++20 -O3 -fPIC -ffp-contract=on -fno-math-errno -fwrapv -fno-exceptions -fno-rtti -fvisibility=hidden -nostdinc++"
for source in "$root"/device/kernels/*.cc; do
  name=$(basename "$source" .cc)
  $clang $flags -DCOIL_ISA=v3 -march=x86-64-v3 "$@" -c "$source" -o "$work/$name.v3.o"
  $clang $flags -DCOIL_ISA=v4 -march=x86-64-v4 -mprefer-vector-width=512 "$@" -c "$source" -o "$work/$name.v4.o"
done
# Only fma_peak in this file cares for the ISA: that of this machine.
$clang -std=c++20 -O2 -fPIC -shared -ffp-contract=fast -march=native -mprefer-vector-width=512 -I"$root" -I"$root/src" \
  "$root/bench/kernels/bench_host.cc" "$root/src/runtime/thread_pool.cc" "$root/src/runtime/openmp_team.cc" "$root/src/base/cpu_limits.cc" \
  "$root/src/base/env.cc" "$root/src/base/result.cc" "$root/src/base/text.cc" "$work"/*.o -lpthread -lfmt -o "$out"
