#!/bin/sh
# fuzz.sh SECONDS [INPUTS]: builds the fuzz targets with clang's libFuzzer under ASan + UBSan and runs each for so long, as many at once as there are
# processors. With INPUTS nothing is searched: each tries so many inputs made of the checked-in seeds, the same on every machine (the tests do), or as many
# of them as SECONDS allow.
set -e
cd "$(dirname "$0")/.."
if [ "$1" = --target ]; then  # what follows below starts for each: --target SECONDS RUNS PATH
  name=$(basename "$4")
  seeds="tests/fuzz/seeds/${name#fuzz_}"
  [ -d "$seeds" ] || seeds=""
  status=0
  if [ -n "$3" ]; then
    ASAN_OPTIONS=handle_abort=1:max_allocation_size_mb=2048:allocator_may_return_null=0 "$4" --inputs="$3" --seconds="$2" \
      --artifact="build-fuzz/$name-input" $seeds > "build-fuzz/$name.log" 2>&1 || status=1
    tried=$(tail -1 "build-fuzz/$name.log")
  else
    corpus="build-fuzz/corpus/$name"
    mkdir -p "$corpus"
    "$4" -max_total_time="$2" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
      "$corpus" $seeds > "build-fuzz/$name.log" 2>&1 || status=1
    tried=$(grep -E "stat::number_of_executed_units|stat::average_exec" "build-fuzz/$name.log" | tr -s ' \n' ' ')
  fi
  [ $status = 0 ] || tail -80 "build-fuzz/$name.log"
  echo "== $name, at most $2 s: $tried"
  exit $status
fi
CC=clang-19 CXX=clang++-19 tools/configure.sh build-fuzz -DCMAKE_BUILD_TYPE=Quick -DCOIL_FUZZ=ON -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_TESTS=OFF \
  -DCOIL_BUILD_BENCH=OFF
ninja -C build-fuzz all_fuzz
find build-fuzz/fuzz -name 'fuzz_*' -type f -perm -u+x | sort | xargs -P "$(nproc)" -n 1 tools/fuzz.sh --target "$1" "$2"
