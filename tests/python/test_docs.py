"""The documents stay readable and true: short lines, links that lead somewhere, commands and options that exist."""

import functools
import json
import os
import re
import subprocess
import sys

import pytest

import coil._compiler
from harness import DIGITS, REPO, coil_ok

sys.path.insert(0, str(REPO / "tools/docs"))

WIDTH = 120
ROOT = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
COMMANDS = ("compile", "run", "bench", "profile", "generate", "import-gguf", "report", "inspect", "check", "diff", "bisect", "reduce", "debug", "explain", "cache", "env")
CACHE_COMMANDS = ("pack", "unpack", "explain", "clear", "show")
# Words of our own for which the field has a name. Quoted output of the command may have them.
PRIVATE = {r"\bown rules?\b": "default", r"\bways to (run|fuse)\b": "variants", r"\btakes [\d.]+ % less\b": "runs ... % faster", r"\bpast the caches\b": "non-temporal stores"}


def documents():
    return [REPO / name for name in ROOT] + sorted((REPO / "docs").rglob("*.md"))


def names(paths):
    return [str(path.relative_to(REPO)) for path in paths]


def prose(text):
    """The text without blocks of code, inline code and quotations."""
    return re.sub(r'"[^"\n]*"', "", re.sub(r"`[^`]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)))


def anchors(text):
    """The anchors that GitHub and MkDocs make of headings."""
    titles = re.findall(r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", title.lower())) for title in titles}


@functools.cache
def options_of(*command):
    """The options that `coil COMMAND --help` lists; of `coil cache` those of its subcommands too."""
    found = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", coil_ok(*command, "--help").stdout))
    if command == ("cache",):
        found |= {option for sub in CACHE_COMMANDS for option in options_of("cache", sub)}
    return found


def test_readme_is_short():
    assert len((REPO / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("path", documents(), ids=names(documents()))
def test_lines_are_short(path):
    long = [f"{n}: {line[:60]}... ({len(line)})" for n, line in enumerate(path.read_text().splitlines(), 1) if len(line) > WIDTH]
    assert not long


@pytest.mark.parametrize("path", documents(), ids=names(documents()))
def test_links_lead_somewhere(path):
    text = path.read_text()
    bad = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there.read_text())):
            bad.append(target)
    assert not bad


def mentioned_commands(text):
    """[(subcommand, rest of the command)] of what a document writes as code; lines that end with a backslash go on."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.M | re.S)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    code = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()] + [" ".join(span.split()) for span in spans]
    pattern = r"(?:^|[\s;(/])coil (" + "|".join(COMMANDS) + r")\b([^#;|]*)"
    return [(command, rest) for line in code for command, rest in re.findall(pattern, line)]


@pytest.mark.parametrize("path", documents(), ids=names(documents()))
def test_options_of_commands_exist(path):
    for command, rest in mentioned_commands(path.read_text()):
        for option in re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", rest):
            assert option in options_of(command), f"coil {command} has no {option}"


def test_every_option_alone_exists():
    """What README and the guides write as `--option` alone is one of coil's, of another program's that they name beside it, or of a test's."""
    known = {option for command in COMMANDS for option in options_of(command)}
    others = set()
    for pattern in ("bench/**/*.py", "tests/**/*.py", "tools/*.py"):
        for path in REPO.glob(pattern):
            others |= set(re.findall(r'"(--[a-z][\w-]*)"', path.read_text()))
    for path in documents():
        for option in re.findall(r"`(--[a-z][\w-]*)[^`]*`", path.read_text()):
            assert option in known | others | {"--preset"}, f"{path.name}: {option}"


def test_options_page_is_the_table():
    """docs/options.md, the command line and Python have the options of src/compiler/options.def, with one default."""
    import options

    assert (REPO / "docs/options.md").read_text() == options.page(), "run tools/docs/options.py"
    rows = list(options.rows())
    assert {flag for _, _, flag, _, _ in rows if flag} <= options_of("compile")
    assert {name: default for name, default, *_ in rows} == {name: json.dumps(v) if isinstance(v, str) else repr(v) for name, v in coil._compiler.option_defaults().items()}


@pytest.mark.parametrize("path", documents(), ids=names(documents()))
def test_words_are_those_of_the_field(path):
    text = " ".join(prose(path.read_text()).split())
    found = {m[0]: better for word, better in PRIVATE.items() if (m := re.search(word, text))}
    assert not found, f"better: {found}"


@pytest.mark.parametrize("command", COMMANDS)
def test_words_of_help_are_those_of_the_field(command):
    text = " ".join(coil_ok(command, "--help").stdout.split())
    assert not [word for word in [*PRIVATE, r"\bof such\b", r"\bdoes without\b"] if re.search(word, text)]


def test_debugging_names_every_pass():
    """The passes that --skip takes, those of graphs and those of loops."""
    tables = [re.search(r"kPasses\[\] = \{(.*?)\n\};", (REPO / folder / "pipeline.cc").read_text(), re.S)[1] for folder in ("src/passes", "src/lower")]
    passes = re.findall(r'\{"(\w+)",', "".join(tables))
    section = (REPO / "docs/debugging.md").read_text().split("**Is it a pass?**")[1].split("\n6.")[0]
    assert len(passes) >= 11 and set(re.findall(r"`(\w+)`", section)) - {"COIL_SKIP", "COIL_DUMP"} == set(passes)


def test_debugging_names_the_files_of_a_dump(tmp_path):
    names = set(re.findall(r"\b(\d\d_\w+\.\w+)", (REPO / "docs/debugging.md").read_text()))
    coil_ok("compile", DIGITS, "-q", "--target", "cpu", "-o", tmp_path / "x.pt2", env=dict(os.environ, COIL_DUMP=str(tmp_path / "dump")))
    assert len(names) >= 8 and names <= {path.name for path in (tmp_path / "dump").iterdir()}


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z][\w-]*):", (REPO / "Makefile").read_text(), re.M))
    for path in documents():
        text = path.read_text()
        code = re.findall(r"`(make [a-z][\w-]*)", text) + re.findall(r"^(make [a-z][\w-]*)", "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.M | re.S)), re.M)
        for target in code:
            assert target.split()[1] in targets, f"{path.name}: {target}"


def test_programs_that_documents_name_exist():
    """`bench/x.py`, `tests/python/y.py`, `src/a/b.cc`: files and folders of this tree."""
    done = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    tracked = set(done.stdout.split("\n"))
    folders = {"/".join(name.split("/")[:n]) for name in tracked for n in range(1, name.count("/") + 1)}
    for path in documents():
        for name in re.findall(r"(?<![\w/.-])((?:src|tests|bench|tools|device|examples|python|include|cmake|third_party)/[\w./-]*\w)(?![\w*{<])", path.read_text()):
            assert name in tracked or name in folders, f"{path.relative_to(REPO)} names {name}"


# The site (make docs): what is made before MkDocs runs.
def test_the_c_reference_has_every_function():
    import reference

    header = (REPO / "include/coil/coil.h").read_text()
    page = reference.page(REPO / "include/coil/coil.h")
    titles = {name for line in re.findall(r"^## (.*)", page, re.M) for name in line.split(", ")}
    functions = set(re.findall(r"^COIL_API [^(]*?(\w+)\(", header, re.M))
    assert len(functions) > 25 and functions <= titles
    assert {"coil_tensor", "coil_options", "coil_memory", "coil_dtype", "coil_parallel_for"} <= titles
    opened = page.split("## coil_open\n")[1].split("\n## ")[0]
    assert "The file is mapped" in opened and "coil_status coil_open(const char* path, const coil_options* options, coil_model** model);" in opened
    assert page.count("```") % 2 == 0 and "COIL_API" not in page


def test_the_cpp_reference_has_the_public_members():
    import reference

    page = reference.page(REPO / "include/coil/coil.hpp")
    classes = re.findall(r"^class (\w+)[^;]*\{", (REPO / "include/coil/coil.hpp").read_text(), re.M)
    assert len(classes) >= 5 and all(f"## {name}\n" in page for name in classes)
    assert "std::int64_t numel() const;" in page and "std::vector<std::int64_t> strides = {});" in page and "void synchronize();" in page
    assert "data_" not in page and "struct Destroy" not in page and "return" not in re.sub(r"//[^\n]*", "", page.split("## Exception")[1])


def test_every_page_of_the_site_has_links_to_pages(tmp_path):
    import stage

    stage.stage(tmp_path / "pages")
    pages = {path.relative_to(tmp_path / "pages").as_posix(): path for path in (tmp_path / "pages").rglob("*.md")}
    assert {"index.md", "security.md", "architecture.md", "design/tuning.md", "log/README.md", "reference/c.md"} <= set(pages)
    for path in pages.values():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)):
            assert re.match(r"[a-z]+:|#", target) or (path.parent / target.partition("#")[0]).exists(), f"{path.name}: {target}"
    named = re.findall(r"^ +- [^:]+: (\S+\.md)$", (REPO / "mkdocs.yml").read_text(), re.M)
    assert len(named) > 15 and set(named) <= set(pages)
    assert "](performance.md)" in pages["index.md"].read_text() and "(`examples/c`)" in pages["index.md"].read_text()


def test_the_checks_see_faults():
    """The helpers above find what they are for."""
    text = "# Some title\n\n```\nbuild/coil run m.pt2 --nothing x   # --comment\n```\n\nThe own rule, and `coil compile\nm.pt2 --target cpu`; \"own rule\"."
    assert anchors(text) == {"some-title"}
    assert mentioned_commands(text) == [("run", " m.pt2 --nothing x   "), ("compile", " m.pt2 --target cpu")]
    assert "--nothing" not in options_of("run") and "--device" in options_of("run") and "--trust" in options_of("cache")
    assert re.search(r"own rule", prose(text)) and len(re.findall(r"own rule", prose(text))) == 1
