"""docs/options.md from the table of options.

usage: python3 tools/docs/options.py [OUTPUT.md]    default: docs/options.md
"""

import pathlib
import re
import sys
import textwrap

REPO = pathlib.Path(__file__).resolve().parents[2]
HEAD = """# Options of the compiler

Every command that compiles takes them, and `options` of [`coil.compile`](python.md) and `torch.compile` under the name
in the first column. This page is made from `src/compiler/options.def` by `tools/docs/options.py`.
"""


def rows():
    """(name in Python, default, option of the command line, what stands behind it, help) of each."""
    text = (REPO / "src/compiler/options.def").read_text()
    word = r'"((?:[^"\\]|\\.)*)"'
    for kind, name, rest in re.findall(r"^(TEXT|NUMBER|WITHOUT|LIST)\((\w+), (.*)\)$", text, re.M):
        words = re.findall(word, rest)
        if kind == "NUMBER":
            default, (flag, placeholder, help_text) = rest.split(",")[0], words
        elif kind == "WITHOUT":
            default, placeholder, (flag, help_text) = "True", "", words
        elif kind == "LIST":
            default, (flag, placeholder, help_text) = "[]", words
        else:
            default, flag, placeholder, help_text = f'"{words[0]}"', *words[1:]
        yield name, default, flag.partition("{")[0], placeholder, help_text


def page():
    parts = [HEAD]
    for name, default, flag, placeholder, help_text in rows():
        said = f", `{flag}{' ' + placeholder if placeholder else ''}`" if flag else ""
        text = re.sub(r"(--[\w-]+(?:=\w+)?)", r"`\1`", re.sub(r"`[^`]*`", lambda m: m[0].replace("--", "-\0-"), help_text)).replace("\0", "")
        parts.append("\n".join(textwrap.wrap(f"- `{name}` ({default}){said}: {text}.", 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)) + "\n")
    return parts[0] + "\n" + "".join(parts[1:])


if __name__ == "__main__":
    (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else REPO / "docs/options.md").write_text(page())
