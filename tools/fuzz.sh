#!/bin/sh
# fuzz.sh SECONDS [INPUTS [BUILD]]: runs each fuzz target for at most so long, as many at once as there are processors.
# Without INPUTS it searches: libFuzzer keeps what reaches new code and mutates it again, under ASan and UBSan, which are built for that (build-fuzz).
# With INPUTS nothing is searched: each target tries so many inputs made of the checked-in seeds, the same on every machine. With BUILD these are the targets
# of that build (the tests do so), without sanitizers and without compiling coil once more.
set -e
cd "$(dirname "$0")/.."
if [ "$1" = --target ]; then  # what follows below starts for each: --target SECONDS INPUTS FOLDER PATH
  name=$(basename "$5")
  seeds="tests/fuzz/seeds/${name#fuzz_}"
  [ -d "$seeds" ] || seeds=""
  status=0
  if [ "$3" -gt 0 ]; then
    ASAN_OPTIONS=handle_abort=1:max_allocation_size_mb=2048:allocator_may_return_null=0 "$5" --inputs="$3" --seconds="$2" \
      --artifact="$4/$name-input" $seeds > "$4/$name.log" 2>&1 || status=1
    tried=$(tail -1 "$4/$name.log")
  else
    corpus="$4/corpus/$name"
    mkdir -p "$corpus"
    "$5" -max_total_time="$2" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$4/$name-" \
      "$corpus" $seeds > "$4/$name.log" 2>&1 || status=1
    tried=$(grep -E "stat::number_of_executed_units|stat::average_exec" "$4/$name.log" | tr -s ' \n' ' ')
  fi
  [ $status = 0 ] || tail -80 "$4/$name.log"
  echo "== $name, at most $2 s: $tried"
  exit $status
fi
build=${3:-build-fuzz}
if [ -z "$3" ]; then
  CC=clang-19 CXX=clang++-19 tools/configure.sh build-fuzz -DCMAKE_BUILD_TYPE=Quick -DCOIL_FUZZ=ON -DCOIL_SANITIZE=address,undefined -DCOIL_BUILD_TESTS=OFF \
    -DCOIL_BUILD_BENCH=OFF
fi
ninja -C "$build" all_fuzz
find "$build/fuzz" -maxdepth 1 -name 'fuzz_*' -type f -perm -u+x | sort |
  xargs -P "$(nproc)" -n 1 tools/fuzz.sh --target "$1" "${2:-0}" "$build/fuzz"
