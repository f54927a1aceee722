#!/bin/sh
# make_library_archive.sh LLVM_BIN OUTPUT LAPACK BLAS OBJECT...: one archive of OBJECTs and of the members of the two archives that they
# need. A trial link says which; it also fails if anything but libc, libm and cd::fail (device/host_support.cc) is left undefined.
set -e
bin=$1 output=$2 lapack=$3 blas=$4
shift 4
work=$output.parts
rm -rf "$work" "$output"
mkdir -p "$work"
"$bin/ld.lld" -shared -Bsymbolic --no-undefined --trace --defsym=_ZN2cd4failEP9CoilErroriPKcz=0 -o "$work/trial.so" "$@" "$lapack" "$blas" -L/usr/lib/x86_64-linux-gnu --as-needed -l:libm.so.6 -l:libc.so.6 > "$work/trace"
for archive in "$lapack" "$blas"; do
  members=$(sed -n "s|^$archive(\(.*\))\$|\1|p" "$work/trace" | sort -u)
  [ -z "$members" ] || (cd "$work" && "$bin/llvm-ar" x "$archive" $members)
done
find "$work" -name '*.o' -exec "$bin/llvm-objcopy" --strip-debug {} \;
# Deterministic (D): the same inputs give the same bytes.
"$bin/llvm-ar" rcsD "$output" "$@" $(find "$work" -name '*.o' | sort)
rm -rf "$work"
