#!/bin/sh
# fuzz.sh SECONDS [RUNS]: builds the fuzz targets with clang's libFuzzer under ASan + UBSan and runs each for so long. With RUNS it tries so many
# inputs that a fixed seed makes from the checked-in seeds alone, the same on every machine (the tests do), within SECONDS.
set -e
cd "$(dirname "$0")/.."
CC=clang-19 CXX=clang++-19 tools/configure.sh build-fuzz -DCOIL_FUZZ=ON -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_TESTS=OFF \
  -DCOIL_BUILD_BENCH=OFF
ninja -C build-fuzz all_fuzz
status=0
for target in build-fuzz/fuzz/fuzz_*; do
  [ -x "$target" ] || continue
  name=$(basename "$target")
  corpus="build-fuzz/corpus/$name" limit=""
  if [ -n "$2" ]; then
    corpus=$(mktemp -d) limit="-runs=$2 -seed=1"
  fi
  mkdir -p "$corpus"
  seeds="tests/fuzz/seeds/${name#fuzz_}"
  [ -d "$seeds" ] || seeds=""
  echo "== $name for $1 s"
  "$target" $limit -max_total_time="$1" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
    "$corpus" $seeds > "build-fuzz/$name.log" 2>&1 || { status=1; tail -40 "build-fuzz/$name.log"; }
  grep -E "stat::number_of_executed_units|stat::average_exec" "build-fuzz/$name.log" || true
done
exit $status
