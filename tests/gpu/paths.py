"""Where the built command and library are: build/, or COIL_BUILD, or COIL_BIN and COIL_RUNTIME."""

import os
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
BUILD = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build")).resolve()
COIL = pathlib.Path(os.environ.get("COIL_BIN", BUILD / "coil")).resolve()
RUNTIME = pathlib.Path(os.environ.get("COIL_RUNTIME", COIL.parent / "libcoil_runtime.so")).resolve()
