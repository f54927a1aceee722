#!/bin/sh
# run_if_isa.sh v3|v4 COMMAND...: runs the command if this machine has the instruction set, else exits 77 (skipped).
case "$1" in
  v3) need="avx2 fma f16c bmi2" ;;
  v4) need="avx512f avx512bw avx512cd avx512dq avx512vl" ;;
  *) echo "unknown instruction set: $1" >&2; exit 2 ;;
esac
shift
for flag in $need; do
  grep -qw "$flag" /proc/cpuinfo || { echo "skipped: this machine lacks $flag"; exit 77; }
done
exec "$@"
