#!/bin/sh
# demo.sh [BUILD]: compiles the digits net and runs it on held-out images; no Python, no PyTorch. `make demo` builds, then calls this.
set -e
cd "$(dirname "$0")/.."
build=${1:-build}
for file in "$build/coil" "$build/digits_demo"; do
  [ -x "$file" ] || { echo "$file is missing: build first (make demo does)" >&2; exit 2; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
package=$folder/digits.coil.pt2

echo "\$ $build/coil compile examples/digits/digits.pt2 -o digits.coil.pt2"
start=$(date +%s%N)
"$build/coil" compile examples/digits/digits.pt2 -o "$package"
end=$(date +%s%N)

echo
echo "\$ $build/digits_demo digits.coil.pt2 examples/digits/digits_test.npz"
echo
"$build/digits_demo" "$package" examples/digits/digits_test.npz
awk -v ns=$((end - start)) -v model="$(stat -c %s examples/digits/digits.pt2)" -v package="$(stat -c %s "$package")" 'BEGIN {
  printf "compile time    %.2f s (whole process)\n", ns / 1e9
  printf "package         %.0f KB (the exported program: %.0f KB)\n", package / 1024, model / 1024 }'
