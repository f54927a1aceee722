#!/usr/bin/env python3
"""Checks that names of one file's own differ within a folder of src/, or tools/coil: what stands in `namespace {` or is `static`.

The build compiles the files of a folder in groups (cmake/standard_headers.cmake), where two such names would be one. Types, constants and functions of
the same parameters are compared; overloads and equal aliases (`using Json = ...`) may repeat. Prints one line per finding; exit code 1 if there is one.
"""
import collections
import pathlib
import re
import sys

import check_layers

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
ROOT = ROOT if ROOT.is_dir() else ROOT.parent.parent
TYPE = re.compile(r"(?:template <[^>]*>\s*)?(?:struct|class|enum class|enum) (\w+)\b(?! *;)")
ALIAS = re.compile(r"using (\w+) = (.*);")
CONSTANT = re.compile(r"(?:inline |static )*(?:constexpr|const) [^=(]*?\b(k[A-Z]\w*)\b(?:\[.*?\])?\s*[={;]")
FUNCTION = re.compile(r"[\w:<>,&*\[\] ]*?[ &*]([a-z_]\w*)\((.*)$")
NAMESPACE = re.compile(r"namespace ([\w:]+) \{")


def parameters(lines, at, rest):
    """The types of a function's parameters: its text up to the closing parenthesis, without names and default values."""
    while rest.count("(") + 1 > rest.count(")") and at + 1 < len(lines):
        at += 1
        rest += " " + lines[at].strip()
    depth, end = 1, 0
    while depth and end < len(rest):
        depth += {"(": 1, ")": -1}.get(rest[end], 0)
        end += 1
    text = re.sub(r"\s*=\s*[^,]*", "", rest[:end - 1])
    return re.sub(r"\s*\b\w+(?=,|$)", "", text)


def own_names(text, header=False):
    """(namespace, name, what tells it from another of this name, line number) of each declaration at the beginning of a line. Of a header: of all."""
    space, inside = "", header
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if match := NAMESPACE.match(line):
            space = match[1]
        if line.startswith(("namespace {", "}  // namespace")):
            inside = header or line.startswith("namespace {")
        elif line and line[0] not in " }/#" and (inside or line.startswith("static ")):
            if match := ALIAS.match(line):
                yield space, match[1], "= " + match[2], at + 1
            elif match := TYPE.match(line) or CONSTANT.match(line):
                yield space, match[1], "", at + 1
            elif not line.startswith("using ") and (match := FUNCTION.match(line)):
                yield space, match[1], f"({parameters(lines, at, match[2])})", at + 1


def clashes(sources, headers):
    """Groups of files and lines whose names are one. `headers`: what header_names() found, for any source may come after any header."""
    seen = collections.defaultdict(dict)
    for source in sources:
        for space, name, form, line in own_names(source.read_text()):
            seen[space, name].setdefault(source, (form, line))
    for (space, name), places in seen.items():
        alike = collections.defaultdict(list)
        for header, form, line in headers.get((space, name), ()):
            alike[form if form.startswith("(") else ""].append((form, f"{header.relative_to(ROOT)}:{line}"))
        for source, (form, line) in places.items():
            alike[form if form.startswith("(") else ""].append((form, f"{source.relative_to(ROOT)}:{line}"))
        for parameter_list, found in alike.items():
            forms = {form for form, _ in found}
            if len(found) > 1 and not (len(forms) == 1 and min(forms).startswith("= ")):
                yield name + parameter_list, [place for _, place in found]


def header_names(layers):
    """What headers of these layers declare."""
    found = collections.defaultdict(list)
    for header in sorted((ROOT / "src").rglob("*.h")):
        if header.relative_to(ROOT / "src").parts[0] not in layers:
            continue
        for space, name, form, line in own_names(header.read_text(), True):
            if not form.startswith("("):  # a file's own function may be meant to be the one that a header declares
                found[space, name].append((header, form, line))
    return found


def main():
    found, layers = False, check_layers.read_layers()
    for folder in [*sorted(path for path in (ROOT / "src").iterdir() if path.is_dir()), ROOT / "tools/coil"]:
        inner = [name for name in layers if name.split("/")[0] == folder.name]
        seen = {name.split("/")[0] for layer in inner or layers for name in layers[layer]}
        for name, where in clashes(sorted(folder.rglob("*.cc")), header_names(seen)):
            found = True
            print(f"{name} is declared in {' and '.join(where)}: one group of files may hold both, so one needs another name")
    sys.exit(found)


if __name__ == "__main__":
    main()
