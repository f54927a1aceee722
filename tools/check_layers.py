#!/usr/bin/env python3
"""Checks that src/ keeps to layers.txt and that files stay small.

A folder under src/ is a library; it may include its own headers and those of the layers that its line allows, transitively. A line may
name a folder inside another (codegen/cpu): its files belong to that layer, the rest to the outer one. What an allowed header includes is
checked where it stands, so nothing comes in through another header. device/ and include/coil/ are for everyone. More than 600 lines is a warning, more than 1000 an error; tables (.def) and device/ are
exempt. Prints one line per finding; exit code 1 if there is an error.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
WARN_LINES, MAX_LINES = 600, 1000


def read_layers():
    direct = {}
    for line in (ROOT / "layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            name, _, deps = line.partition(":")
            direct[name.strip()] = deps.split()

    def closure(name, path=()):
        if name not in direct:
            sys.exit(f"layers.txt: unknown layer {name} (needed by {path[-1]})")
        if name in path:
            sys.exit(f"layers.txt: cycle {' -> '.join(path + (name,))}")
        allowed = {name}
        for dep in direct[name]:
            allowed |= closure(dep, path + (name,))
        return allowed

    return {name: closure(name) for name in direct}


def layer_of(layers, path):
    """The innermost layer that a path from src/ belongs to; None: of no layer."""
    folders = path.split("/")[:-1]
    names = ("/".join(folders[:n]) for n in range(len(folders), 0, -1))
    return next((name for name in names if name in layers), None)


def check_includes(layers, errors):
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".def"):
            continue
        layer = layer_of(layers, path.relative_to(ROOT / "src").as_posix())
        if layer is None:
            errors.append(f"{path.relative_to(ROOT)}: its folder is not in layers.txt")
            continue
        text = path.read_text(errors="replace")
        for match in INCLUDE.finditer(text):
            target = match.group(1)
            where = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            of = layer_of(layers, target)
            if "/" not in target:
                errors.append(f'{where}: include "{target}" by its path from src/')
            elif of is not None and of not in layers[layer]:
                errors.append(f'{where}: {layer} must not include "{target}" (allowed: {", ".join(sorted(layers[layer]))})')
            elif of is None and target.split("/")[0] not in ("device", "coil", "include"):
                errors.append(f'{where}: include "{target}" is in no layer')


def check_sizes(errors, warnings):
    for folder in ("src", "tools", "tests", "include", "python", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".h", ".cc", ".hpp", ".cpp", ".py"):
                continue
            name = path.relative_to(ROOT)
            if name.name.endswith(("_table.cc", "_tables.cc", "_table.h")):
                continue
            lines = path.read_text(errors="replace").count("\n")
            if lines > MAX_LINES:
                errors.append(f"{name}: {lines} lines (limit {MAX_LINES}): split it")
            elif lines > WARN_LINES:
                warnings.append(f"{name}: {lines} lines, think of a split")


def main():
    errors, warnings = [], []
    check_includes(read_layers(), errors)
    check_sizes(errors, warnings)
    for text in warnings:
        print(f"warning: {text}")
    for text in errors:
        print(f"error: {text}")
    print(f"layers: {len(errors)} errors, {len(warnings)} warnings")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
