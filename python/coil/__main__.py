"""`python -m coil`: the command `coil`, which `pip install` puts beside `python`, or which a build has made."""

import importlib.metadata
import os
import pathlib
import sys


def command():
    """The program, or None where there is none."""
    build = pathlib.Path(os.path.abspath(__file__)).parents[2] / "coil"  # build/python/coil/__main__.py is a link
    try:
        installed = [pathlib.Path(f.locate()) for f in importlib.metadata.files("coil") or () if f.name == "coil" and f.parent.name == "bin"]
    except importlib.metadata.PackageNotFoundError:
        installed = []
    return next((p.resolve() for p in [*installed, build] if p.is_file() and os.access(p, os.X_OK)), None)


def main():
    program = command()
    if program is None:
        sys.exit("coil: the command is not beside this package; install coil with pip, or build it with `ninja -C build coil`")
    os.execv(program, ["coil", *sys.argv[1:]])


if __name__ == "__main__":
    main()
