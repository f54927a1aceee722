#!/bin/sh
# tidy.sh BUILD [FILE...]: .clang-tidy's checks over sources; without FILEs those that differ from BASE (a commit; default: the last one).
# Needs clang-tidy 19 (Debian: clang-tidy-19; or CLANG_TIDY=... from PyPI's clang-tidy==19.1.0); configures BUILD-alone, where each file has a command of its own.
set -e
cd "$(dirname "$0")/.."
build=$1
shift
tidy=${CLANG_TIDY:-clang-tidy-19}
command -v "$tidy" > /dev/null || { echo "tidy.sh: no $tidy; apt-get install clang-tidy-19, or set CLANG_TIDY"; exit 1; }
# How each file is compiled alone: the build itself compiles them in groups.
tools/configure.sh "$build-alone" -DCOIL_UNITY=OFF
[ $# -gt 0 ] || set -- $(git diff --name-only --diff-filter=d "${BASE:-HEAD~1}" -- 'src/*.cc' 'tools/coil/*.cc')
[ $# -gt 0 ] || { echo "no sources changed"; exit 0; }
status=0
for file in "$@"; do
  # The build's compiler may be gcc, some of whose options (--param) clang has not.
  "$tidy" --quiet -p "$build-alone" --extra-arg=-Wno-unused-command-line-argument "$file" 2> /dev/null || status=1
done
exit $status
