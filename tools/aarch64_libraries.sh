#!/bin/sh
# aarch64_libraries.sh [FOLDER]: Debian's static libraries for aarch64 that coil and its device library link (zlib, libdeflate, LAPACK, BLAS), unpacked below FOLDER
# (~/.cache/coil/aarch64). apt fetches and checks them with lists of its own below FOLDER, so that the machine's packages and architectures stay as they are.
set -e
folder=${1:-$HOME/.cache/coil/aarch64}
[ -f "$folder/usr/lib/aarch64-linux-gnu/lapack/liblapack.a" ] && [ -f "$folder/usr/lib/aarch64-linux-gnu/libz.a" ] &&
  [ -f "$folder/usr/lib/aarch64-linux-gnu/libdeflate.a" ] && exit 0
work=$folder/fetch
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/state" "$work/debs"
touch "$work/state/status"
apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$work/state" -o Dir::State::lists="$work/lists" -o Dir::State::status="$work/state/status" \
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}
echo "fetching Debian's libraries for aarch64"
apt update > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
(cd "$work/debs" && apt download zlib1g-dev libdeflate-dev liblapack-dev libblas-dev > "$work/log" 2>&1) || { cat "$work/log" >&2; exit 1; }
for package in "$work"/debs/*.deb; do dpkg -x "$package" "$folder"; done
rm -rf "$work"
