"""The pages of the documentation site, in a folder for MkDocs: copies of the documents, with links that fit, and the references.

usage: python3 tools/docs/stage.py FOLDER

README.md becomes index.md, docs/ the pages beside it, bench/log/ a folder of its own. A link to a file that is no page
(sources, examples) becomes the file's name. The C and C++ references are made from the headers' comments; the Python one is a
page for mkdocstrings, which reads the sources.
"""

import os
import pathlib
import posixpath
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reference

REPO = pathlib.Path(__file__).resolve().parents[2]
PYTHON = """# Python reference

The package `coil`. [python.md](../python.md) is the guide.

::: coil

## Replacing AOTInductor

::: coil._aoti.aoti_compile_and_package
    options:
      show_root_heading: true
      heading_level: 3

::: coil._aoti.aoti_load_package
    options:
      show_root_heading: true
      heading_level: 3
"""


def pages():
    """{path in the repository: path of the page}"""
    found = {"README.md": "index.md"}
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        found[name] = name.lower()
    for path in sorted((REPO / "docs").rglob("*.md")):
        name = str(path.relative_to(REPO / "docs"))
        found[f"docs/{name}"] = name
    for path in sorted((REPO / "bench/log").glob("*.md")):
        found[f"bench/log/{path.name}"] = f"log/{path.name}"
    return found


def relinked(text, source, known):
    """The text of a document with links for where its page is. Blocks of code stay."""
    here = known[source]

    def link(match):
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:|#|images/", target):
            return match[0]
        file, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), file))
        if file not in known and f"{file}/README.md" in known:
            file = f"{file}/README.md"
        if file in known:
            there = posixpath.relpath(known[file], posixpath.dirname(here) or ".")
            return f"[{words}]({there}{'#' + anchor if anchor else ''})"
        return f"{words} (`{file}`)" if words.strip("`") != file else f"`{file}`"

    parts = re.split(r"(^```.*?^```)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, part) for i, part in enumerate(parts))


def stage(folder):
    if folder.exists():
        shutil.rmtree(folder)
    known = pages()
    for source, page in known.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(relinked((REPO / source).read_text(), source, known))
    shutil.copytree(REPO / "docs/images", folder / "images")
    (folder / "reference").mkdir()
    for header, page in (("coil.h", "c.md"), ("coil.hpp", "cpp.md")):
        (folder / "reference" / page).write_text(reference.page(REPO / "include/coil" / header))
    (folder / "reference/python.md").write_text(PYTHON)


if __name__ == "__main__":
    stage(pathlib.Path(os.path.abspath(sys.argv[1])))
