#!/bin/sh
# Installs the Debian packages that the build needs (with the argument `test`: the tests as well; `aarch64`: what `make aarch64` and its tests need
# besides); a quick no-op when all are present.
set -e
packages="git make g++ cmake ninja-build ccache python3 python3-venv python3-dev
  clang-19 lld-19 llvm-19-dev libclang-19-dev liblld-19-dev libpolly-19-dev libclang-rt-19-dev clang-format-19
  libfmt-dev libxxhash-dev rapidjson-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libdeflate-dev libzstd-dev
  libgtest-dev libbenchmark-dev liblapack-dev libblas-dev libssl-dev"
# Headers for aarch64's part of the device library. A build without them has no target aarch64.
cross="libc6-dev-arm64-cross libstdc++-12-dev-arm64-cross"
# The tests start a Redis server of their own; its package also starts one as a service, which a build has no business with.
[ "$1" = test ] && packages="$packages redis-server openssl libdnnl2"
[ "$1" = aarch64 ] && packages="$packages gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user"
absent() {
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "^install ok installed" || printf ' %s' "$package"
  done
}
missing=$(absent $packages)
missing_cross=$(absent $cross)
[ -z "$missing$missing_cross" ] && exit 0
# The runtime's and the command's own needs are a subset; COIL_NO_INSTALL=1 leaves the machine as it is.
if [ -n "$COIL_NO_INSTALL" ]; then
  [ -z "$missing" ] && exit 0
  echo "missing packages:$missing" >&2
  exit 1
fi
sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo > /dev/null || [ -n "$missing" ] || exit 0
  command -v sudo > /dev/null || { echo "not root and no sudo; install these packages:$missing" >&2; exit 1; }
  sudo=sudo
fi
echo "installing:$missing$missing_cross"
$sudo apt-get update -qq || [ -z "$missing" ]
[ -z "$missing" ] || DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing > /dev/null
[ -z "$missing_cross" ] || DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing_cross > /dev/null ||
  echo "without$missing_cross: this build has no target aarch64"
