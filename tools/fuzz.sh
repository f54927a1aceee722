#!/bin/sh
# fuzz.sh SECONDS [RUNS]: builds the fuzz targets with clang's libFuzzer under ASan + UBSan and runs each for so long, as many at once as there are
# processors. With RUNS it tries so many inputs that a fixed seed makes from the checked-in seeds alone, the same on every machine (the tests do),
# within SECONDS.
set -e
cd "$(dirname "$0")/.."
if [ "$1" = --target ]; then  # what follows below starts for each: --target SECONDS RUNS PATH
  name=$(basename "$4")
  corpus="build-fuzz/corpus/$name" limit=""
  if [ -n "$3" ]; then
    corpus=$(mktemp -d) limit="-runs=$3 -seed=1"
  fi
  mkdir -p "$corpus"
  seeds="tests/fuzz/seeds/${name#fuzz_}"
  [ -d "$seeds" ] || seeds=""
  status=0
  "$4" $limit -max_total_time="$2" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
    "$corpus" $seeds > "build-fuzz/$name.log" 2>&1 || status=1
  [ $status = 0 ] || tail -40 "build-fuzz/$name.log"
  echo "== $name, at most $2 s: $(grep -E "stat::number_of_executed_units|stat::average_exec" "build-fuzz/$name.log" | tr -s ' \n' ' ')"
  exit $status
fi
CC=clang-19 CXX=clang++-19 tools/configure.sh build-fuzz -DCMAKE_BUILD_TYPE=Quick -DCOIL_FUZZ=ON -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_TESTS=OFF \
  -DCOIL_BUILD_BENCH=OFF
ninja -C build-fuzz all_fuzz
find build-fuzz/fuzz -name 'fuzz_*' -type f -perm -u+x | sort | xargs -P "$(nproc)" -n 1 tools/fuzz.sh --target "$1" "$2"
