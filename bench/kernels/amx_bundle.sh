#!/bin/sh
# Builds what compares AMX with AVX512-BF16 and oneDNN on a machine where nothing is installed: amx_bundle.sh FOLDER [libdnnl.so]
# FOLDER/run.sh prints the kernels' tests and the comparison.
set -e
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
clang=${CLANGXX:-clang++-19}
# As in cmake/device.cmake.
flags="-std=c++20 -O3 -fPIC -ffp-contract=on -fno-math-errno -fwrapv -fno-exceptions -fno-rtti -fvisibility=hidden -nostdinc++ -I$root"
v4="-march=x86-64-v4 -mprefer-vector-width=512"
for source in "$root"/device/kernels/*.cc; do
  name=$(basename "$source" .cc)
  $clang $flags -DCOIL_ISA=v3 -march=x86-64-v3 -c "$source" -o "$work/$name.v3.o"
  $clang $flags -DCOIL_ISA=v4 $v4 -c "$source" -o "$work/$name.v4.o"
  $clang $flags -DCOIL_ISA=noamx -DCOIL_NO_AMX $v4 -c "$source" -o "$work/$name.noamx.o"
  $clang $flags -DCOIL_ISA=emulated $v4 -include "$root/tests/kernels/emulated_tiles.h" -c "$source" -o "$work/$name.emulated.o"
done
bench="$clang -std=c++20 -O2 -ffp-contract=fast -march=x86-64-v4 -I$root -I$root/src -I$root/bench/kernels $root/src/runtime/thread_pool.cc $root/src/runtime/cpu_limits.cc"
$bench -static "$root/bench/kernels/amx_bench.cc" "$work"/*.v3.o "$work"/*.v4.o "$work"/*.noamx.o -o "$out/amx_bench"
for source in "$root"/tests/kernels/*_test.cc "$root"/src/templates/packing.cc; do
  $clang -std=c++20 -O2 -I"$root" -I"$root/src" -c "$source" -o "$work/$(basename "$source" .cc).test.o"
done
$clang -static "$work"/*.test.o "$work"/*.v3.o "$work"/*.v4.o "$work"/*.emulated.o -lgtest -lgtest_main -o "$out/kernels_tests"
strip "$out/amx_bench" "$out/kernels_tests"
if [ -n "$library" ]; then
  $bench -DCOIL_BENCH_ONEDNN -static-libstdc++ -static-libgcc "$root/bench/kernels/amx_bench.cc" "$root"/device/onednn*.cc "$work"/*.v3.o "$work"/*.v4.o \
    "$work"/*.noamx.o -o "$out/amx_bench_onednn"
  cp -L "$library" "$out/libdnnl.so.3"
  for needed in libgomp.so.1 libstdc++.so.6 libgcc_s.so.1; do cp -L "/usr/lib/x86_64-linux-gnu/$needed" "$out/"; done
  strip "$out/amx_bench_onednn" "$out/libdnnl.so.3"
fi
cat > "$out/run.sh" <<'RUN'
#!/bin/sh
cd "$(dirname "$0")"
grep -m1 "model name" /proc/cpuinfo
grep -o -w -m1 "amx_bf16\|amx_tile\|amx_int8" /proc/cpuinfo | sort -u | tr '\n' ' '
nproc
timeout 40 ./kernels_tests --gtest_brief=1 2>&1 | tail -3
export COIL_ONEDNN="$PWD/libdnnl.so.3" LD_LIBRARY_PATH="$PWD"
bench=./amx_bench_onednn
[ -x $bench ] && $bench 2> /dev/null | head -1 > /dev/null || bench=./amx_bench
$bench 1 "$(nproc)"
RUN
chmod +x "$out/run.sh"
