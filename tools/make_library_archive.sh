#!/bin/sh
# make_library_archive.sh LLVM_BIN OUTPUT LIBS LAPACK BLAS OBJECT...: one archive of OBJECTs and of the members of the two archives that they
# need. A trial link against the libc, libm and loader (which has stack protectors' guard on some machines) in LIBS says which; it also fails if anything but libc, libm and cd::fail (device/host_support.cc) is left undefined.
set -e
bin=$1 output=$2 libs=$3 lapack=$4 blas=$5
shift 5
work=$output.parts
rm -rf "$work" "$output"
mkdir -p "$work"
"$bin/ld.lld" -shared -Bsymbolic --no-undefined --trace --defsym=_ZN2cd4failEP9CoilErroriPKcz=0 -o "$work/trial.so" "$@" "$lapack" "$blas" -L"$libs" --as-needed -l:libm.so.6 -l:libc.so.6 "$libs"/ld-linux-*.so.* > "$work/trace"
# Their names say where they are from: a package lists what it contains (src/package/notice.h).
for archive in "$lapack" "$blas"; do
  from=lapack
  [ "$archive" = "$lapack" ] || from=blas
  members=$(sed -n "s|^$archive(\(.*\))\$|\1|p" "$work/trace" | sort -u)
  [ -z "$members" ] || (cd "$work" && "$bin/llvm-ar" x "$archive" $members)
  for member in $members; do mv "$work/$member" "$work/${from}_$member"; done
done
find "$work" -name '*.o' -exec "$bin/llvm-objcopy" --strip-debug {} \;
# Deterministic (D): the same inputs give the same bytes.
"$bin/llvm-ar" rcsD "$output" "$@" $(find "$work" -name '*.o' | sort)
rm -rf "$work"
