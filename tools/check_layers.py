#!/usr/bin/env python3
"""Checks that src/ keeps to layers.txt and that files stay small.

A folder under src/ is a library; it may include its own headers and those of the layers that its line allows, transitively.
device/ headers are for everyone, include/coil/ for everyone. codegen/<a> must not include codegen/<b> of another target
(cpu and cuda never see each other). More than 600 lines is a warning, more than 1000 an error; tables (.def) and device/ are
exempt. Prints one line per finding; exit code 1 if there is an error.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
WARN_LINES, MAX_LINES = 600, 1000
TARGETS = {"cpu", "cuda"}  # folders of codegen that are rivals


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


def check_includes(layers, errors):
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".def"):
            continue
        parts = path.relative_to(ROOT / "src").parts
        if parts[0] not in layers:
            errors.append(f"{path.relative_to(ROOT)}: folder {parts[0]} is not in layers.txt")
            continue
        for match in INCLUDE.finditer(path.read_text(errors="replace")):
            target = match.group(1)
            line = path.read_text(errors="replace").count("\n", 0, match.start()) + 1
            where = f"{path.relative_to(ROOT)}:{line}"
            top = target.split("/")[0]
            if "/" not in target:
                errors.append(f'{where}: include "{target}" by its path from src/')
            elif top in layers and top not in layers[parts[0]]:
                errors.append(f'{where}: {parts[0]} must not include "{target}" (allowed: {", ".join(sorted(layers[parts[0]]))})')
            elif top in layers and top == "codegen" == parts[0] and len(parts) > 2:
                other = target.split("/")[1]
                if other in TARGETS and parts[1] in TARGETS and other != parts[1]:
                    errors.append(f'{where}: codegen/{parts[1]} must not see codegen/{other}')
            elif top not in layers and top not in ("device", "coil", "include"):
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
