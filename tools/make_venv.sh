#!/bin/sh
# make_venv.sh FOLDER: the Python environment of the tests (PyTorch and the models). Reused while tests/requirements.txt is
# unchanged: the stamp is the checksum of that file.
set -e
folder=$1
requirements="$(dirname "$0")/../tests/requirements.txt"
want=$(sha256sum < "$requirements")
[ -f "$folder/.coil-stamp" ] && [ "$(cat "$folder/.coil-stamp")" = "$want" ] && exit 0
[ -x "$folder/bin/python" ] || { mkdir -p "$(dirname "$folder")"; python3 -m venv "$folder"; }
echo "installing tests/requirements.txt into $folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
echo "$want" > "$folder/.coil-stamp"
