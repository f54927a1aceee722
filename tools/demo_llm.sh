#!/bin/sh
# demo_llm.sh [BUILD]: compiles the small decoder of examples/generate and generates text, with the command and from C; no Python, no PyTorch.
# `make demo-llm` builds, then calls this.
set -e
cd "$(dirname "$0")/.."
build=${1:-build}
[ -x "$build/coil" ] && [ -e "$build/libcoil_runtime.so" ] || { echo "$build is not built: build first (make demo-llm does)" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
say() { echo; echo "\$ $*"; }

say coil compile examples/generate/decoder.pt2 -o decoder.coil.pt2
"$build/coil" compile examples/generate/decoder.pt2 -o "$folder/decoder.coil.pt2"
say coil generate decoder.coil.pt2 --bytes --prompt '"You may "' --tokens 200
"$build/coil" generate "$folder/decoder.coil.pt2" --bytes --prompt "You may " --tokens 200
say coil generate decoder.coil.pt2 --bytes --prompt '"The licensee "' --tokens 200 --temperature 0.7 --seed 4
"$build/coil" generate "$folder/decoder.coil.pt2" --bytes --prompt "The licensee " --tokens 200 --temperature 0.7 --seed 4
say cc examples/generate/generate.c -Iinclude -lcoil_runtime -o generate
cc -std=c11 -O2 examples/generate/generate.c -Iinclude -L"$build" -lcoil_runtime -Wl,-rpath,"$(cd "$build" && pwd)" -o "$folder/generate"
say ./generate decoder.coil.pt2 '"This program is "' 200
"$folder/generate" "$folder/decoder.coil.pt2" "This program is " 200
