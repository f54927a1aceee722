#!/bin/sh
# make_venv.sh FOLDER [REQUIREMENTS]: a Python environment; by default that of the tests (PyTorch and the models). Reused while the
# file of requirements is unchanged: the stamp is its checksum.
set -e
folder=$1
requirements=${2:-"$(dirname "$0")/../tests/requirements.txt"}
want=$(sha256sum < "$requirements")
[ -f "$folder/.coil-stamp" ] && [ "$(cat "$folder/.coil-stamp")" = "$want" ] && exit 0
[ -x "$folder/bin/python" ] || { mkdir -p "$(dirname "$folder")"; python3 -m venv "$folder"; }
echo "installing $requirements into $folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
echo "$want" > "$folder/.coil-stamp"
