#!/bin/sh
# Builds math_speed.cc for an instruction set (v3 or v4; by default v4) and runs it. From the repository's root.
set -e
isa=${1:-v4}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
${CXX:-clang++-19} -std=c++20 -O3 -march=x86-64-"$isa" -mprefer-vector-width=512 -ffp-contract=on -fno-math-errno -fwrapv -I. \
  tests/device/speed/math_speed.cc -o "$out/math_speed"
"$out/math_speed"
