#!/bin/sh
# configure.sh FOLDER [cmake options]: configures once; ninja re-runs cmake by itself when its files change.
set -e
folder=$1
shift
if [ ! -f "$folder/build.ninja" ]; then
  cmake -G Ninja -S "$(dirname "$0")/.." -B "$folder" "$@" > "$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
  mv "$folder.log" "$folder/configure.log"
fi
