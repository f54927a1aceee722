#!/bin/sh
# bench.sh BUILD: every benchmark. The Google Benchmark binaries of bench/*.cc first, then the comparisons with the peers (Python;
# peers.py makes its artefacts on the first run, which takes minutes). Results: BUILD/bench/*.json and the terminal.
set -e
cd "$(dirname "$0")/.."
build=${1:-build}
python=${COIL_VENV:-$HOME/.cache/coil/venv}/bin/python
for binary in "$build"/bench/bench_*; do
  [ -x "$binary" ] || continue
  case "$binary" in
    *_v3) tools/run_if_isa.sh v3 "$binary" || [ $? = 77 ] ;;
    *_v4) tools/run_if_isa.sh v4 "$binary" || [ $? = 77 ] ;;
    *) "$binary" --benchmark_out="$binary.json" --benchmark_out_format=json ;;
  esac
done
if [ -f bench/startup.py ]; then "$python" bench/startup.py --json "$build/bench/startup.json"; fi
if [ -f bench/peers.py ]; then "$python" bench/peers.py run --json "$build/bench/peers.json"; fi
