#!/bin/sh
# build.sh BUILD: the documentation as a site in BUILD/site, by MkDocs Material in a virtual environment of its own (COIL_DOCS_VENV).
set -e
cd "$(dirname "$0")/../.."
build=$1
venv=${COIL_DOCS_VENV:-$HOME/.cache/coil/docs-venv}
tools/make_venv.sh "$venv" tools/docs/requirements.txt
"$venv/bin/python" tools/docs/stage.py "$build/pages"
NO_MKDOCS_2_WARNING=1 COIL_PAGES="$build/pages" "$venv/bin/mkdocs" build --strict --quiet --site-dir "$(realpath "$build")/site"
echo "$build/site/index.html"
