"""The scripts of the build: the layer check finds what it must, the counter of tests counts, products link what they should."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("COIL_BUILD", ROOT / "build")).resolve()


def check(tree):
    return subprocess.run([sys.executable, ROOT / "tools/check_layers.py", tree], capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "layers.txt").write_text("base:\nops: base\ngraph: ops   # a comment\nruntime: base\ncodegen: graph\n"
                                       "codegen/shared: codegen\ncodegen/cpu: codegen/shared\ncodegen/cuda: codegen/shared\n")
    for name, text in {"base/a.h": "", "graph/g.h": '#include "base/a.h"\n#include "device/model_abi.h"\n#include <vector>\n',
                       "codegen/cpu/host/h.cc": '#include "codegen/shared/s.h"\n#include "codegen/c.h"\n#include "graph/g.h"\n',
                       "runtime/r.cc": '#include "base/a.h"\n#include "coil/coil.h"\n'}.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_layers_ok(tree):
    result = check(tree)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("file, text, word", [
    ("runtime/x.cc", '#include "graph/g.h"\n', "runtime must not include"),
    ("base/x.h", '  #  include "ops/o.h"\n', "base must not include"),
    ("graph/x.cc", '#include "g.h"\n', "by its path from src/"),
    ("graph/x.cc", '#include "nowhere/g.h"\n', "in no layer"),
    ("strange/x.cc", "", "not in layers.txt"),
    ("codegen/cpu/x.cc", '#include "codegen/cuda/y.h"\n', "codegen/cpu must not include"),
    ("codegen/cpu/host/x.cc", '#include "codegen/cuda/host/y.h"\n', "codegen/cpu must not include"),
    ("codegen/shared/x.cc", '#include "codegen/cpu/y.h"\n', "codegen/shared must not include"),
    ("codegen/x.cc", '#include "codegen/cpu/y.h"\n', "codegen must not include"),
    ("graph/x.cc", '#include "codegen/shared/y.h"\n', "graph must not include"),
    ("base/long.cc", "\n" * 1001, "split it"),
])
def test_layer_violations(tree, file, text, word):
    path = tree / "src" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    result = check(tree)
    assert result.returncode == 1 and word in result.stdout, result.stdout


def test_long_file_warns_and_tables_are_exempt(tree):
    (tree / "src/base/longish.cc").write_text("\n" * 700)
    (tree / "src/base/table.def").write_text("\n" * 5000)
    result = check(tree)
    assert result.returncode == 0 and "longish.cc: 700 lines" in result.stdout and "table.def" not in result.stdout


def test_layer_cycle(tree):
    (tree / "layers.txt").write_text("a: b\nb: a\n")
    assert "cycle" in check(tree).stderr


def clash(tree, first, second):
    """What tools/check_names.py says of two files of a folder, and its exit code."""
    for name, text in (("a.cc", first), ("deep/b.cc", second)):
        path = tree / "src/graph" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("namespace coil {\nnamespace {\n\n" + text + "\n\n}  // namespace\n}  // namespace coil\n")
    (tree / "tools/coil").mkdir(parents=True)
    result = subprocess.run([sys.executable, ROOT / "tools/check_names.py", tree], capture_output=True, text=True)
    return result.returncode, result.stdout


@pytest.mark.parametrize("first, second, name", [
    ("struct Row {\n};", "struct Row {\n  int a;\n};", "Row"),
    ("constexpr int kMost = 3;", "constexpr double kMost = 4;  // of something", "kMost"),
    ("constexpr Row kRows[] = {\n};", "constexpr Other kRows[] = {\n};", "kRows"),
    ("int add(int a, int b) {\n}", "int add(int x,\n        int y = 0) {\n}", "add"),
    ("using Json = A;", "using Json = B;", "Json"),
    ("class Row {\n};", "using Row = int;", "Row"),
])
def test_names_that_clash(tree, first, second, name):
    code, text = clash(tree, first, second)
    assert code == 1 and text.startswith(name) and "graph/a.cc:4 and src/graph/deep/b.cc:4" in text, text


def test_a_name_that_a_header_has_clashes_too(tree):
    (tree / "src/ops").mkdir()
    (tree / "src/ops/o.h").write_text("namespace coil {\n\nstruct Step {\n};\nint add(int a);\n\n}  // namespace coil\n")
    code, text = clash(tree, "using Step = int;\nint add(int a) {\n}", "")
    assert code == 1 and text.count("\n") == 1 and "Step is declared in src/ops/o.h:3 and src/graph/a.cc:4" in text, text
    (tree / "layers.txt").write_text((tree / "layers.txt").read_text().replace("graph: ops", "graph: base"))
    assert subprocess.run([sys.executable, ROOT / "tools/check_names.py", tree]).returncode == 0, "of a layer that it does not see"


@pytest.mark.parametrize("first, second", [
    ("int add(int a, int b) {\n}", "int add(double a) {\n}"),
    ("using Json = A;", "using Json = A;"),
    ("struct Row;", "struct Row {\n};"),
    ("int f() {\n  const int kMost = 1;\n}", "int g() {\n  const int kMost = 2;\n}"),
])
def test_names_that_may_repeat(tree, first, second):
    assert clash(tree, first, second) == (0, "")


@pytest.fixture
def run_tests(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import run_tests
    return run_tests


def test_reports_are_counted(run_tests, tmp_path):
    report = tmp_path / "r.xml"
    report.write_text('<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure/></testcase>'
                      '<testcase name="c"><skipped/></testcase><testcase name="d" status="notrun"/>'
                      '<testcase name="e"><error/></testcase></testsuite></testsuites>')
    assert run_tests.count_report(report) == (1, 2)


@pytest.mark.parametrize("text", ["", '<testsuites><testsuite><testcase name="a"/>'])
def test_a_report_cut_short_is_a_failure(run_tests, tmp_path, capsys, text):
    report = tmp_path / "r.xml"
    report.write_text(text)
    assert run_tests.count_report(report) == (0, 1)
    assert "no whole report" in capsys.readouterr().out


def test_failures_are_said_again_at_the_end(run_tests, tmp_path):
    (tmp_path / "ctest-summary.xml").write_text(
        '<testsuite><testcase name="good" classname="good"/><testcase name="told" classname="told"><failure/></testcase>'
        '<testcase name="crashed" classname="crashed"><failure message=""/><system-out>' + "before\n" * 50 + "signal 11</system-out></testcase></testsuite>")
    (tmp_path / "told.xml").write_text('<testsuites><testsuite><testcase name="Works" classname="Suite"/><testcase name="Fails" classname="Suite">'
                                       '<failure message="one"/><failure message="two"/></testcase></testsuite></testsuites>')
    (tmp_path / "cut.xml").write_text("<testsuites>")
    crashed, told = run_tests.failures(tmp_path)
    assert told == ("Suite.Fails", ["one", "two"])
    assert crashed[0] == "crashed.crashed" and crashed[1][-2:] == ["before", "signal 11"] and len(crashed[1]) == run_tests.LINES_SHOWN


def test_files_that_cannot_be_read_end_the_run_first(run_tests, monkeypatch, tmp_path, capsys):
    (tmp_path / "test_good.py").write_text("def test_good():\n    pass\n")
    assert run_tests.collect(BUILD, [], tmp_path) == (None, 1)
    (tmp_path / "test_gone.py").write_text("from json import a_name_that_is_gone\n\n\ndef test_gone():\n    pass\n")
    failure, cases = run_tests.collect(BUILD, [], tmp_path)
    assert "test_gone.py" in failure and "a_name_that_is_gone" in failure and "test_good" not in failure and cases == 0

    def no_run(*args):
        raise AssertionError("tests were started")

    monkeypatch.setattr(run_tests, "collect", lambda build, args: (failure, 0))
    for name in ("make_programs", "run_source_checks", "run_ctest", "run_pytest", "run_fuzz"):
        monkeypatch.setattr(run_tests, name, no_run)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--build", str(tmp_path / "build")])
    assert run_tests.main() == 1
    printed = capsys.readouterr().out
    assert "a_name_that_is_gone" in printed and printed.endswith("\n0 passed, 1 failed\n")


def parts(folder, *options):
    """(name, outcome) of the tests that a part of these 30 runs."""
    (folder / "test_cases.py").write_text("import pytest\n\n\n@pytest.mark.parametrize('i', range(28))\ndef test_many(i):\n    assert i >= 0\n\n\n"
                                          "def test_one():\n    pass\n\n\ndef test_other():\n    assert False\n")
    shutil.copy(ROOT / "tests/conftest.py", folder)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", folder, "--junitxml", folder / "report.xml", *options]
    subprocess.run(command, capture_output=True, timeout=300)
    cases = ElementTree.parse(folder / "report.xml").getroot().iter("testcase")
    return {case.get("name"): "".join(child.tag for child in case) for case in cases}


def test_parts_are_all_tests_together(tmp_path):
    sample, rest = parts(tmp_path, "--part", "sample"), parts(tmp_path, "--part", "rest")
    assert not set(sample) & set(rest) and len(sample | rest) == len(parts(tmp_path)) == 30
    assert len(sample) == 2 + 4  # places 0, 1, 12 and 24
    assert {name: outcome for name, outcome in sample.items() if outcome} == {"test_other": "failure"} and not any(rest.values())


def test_what_no_time_is_left_for_is_skipped_and_counted(run_tests, tmp_path):
    assert not any("skipped" in outcome for outcome in parts(tmp_path, "--until", str(time.time() + 600)).values())
    assert run_tests.cases_of(tmp_path / "report.xml") == (30, 0)
    assert set(parts(tmp_path, "--until", str(time.time() - 1)).values()) == {"skipped"}
    assert run_tests.cases_of(tmp_path / "report.xml") == (30, 30) and run_tests.count_report(tmp_path / "report.xml") == (0, 0)


def test_a_part_that_no_time_is_left_for_is_not_started(run_tests, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("COIL_TEST_ALL", raising=False)
    started = []
    monkeypatch.setattr(run_tests, "run_part", lambda build, reports, args, part, until: started.append(part) or (7, 1, 9))
    assert run_tests.run_pytest(BUILD, tmp_path, [], time.time() - 60 * run_tests.MINUTES["rest"] + 30, 30) == (7, 1) and started == ["sample"]
    assert capsys.readouterr().out.startswith("21 of 30 pytest cases were not tried")
    assert run_tests.run_pytest(BUILD, tmp_path, [], time.time(), 18) == (14, 2) and started == ["sample", "sample", "rest"]
    assert capsys.readouterr().out == ""


def test_temporary_files_are_removed(run_tests, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with run_tests.temporary_folder():
        folder = pathlib.Path(os.environ["TMPDIR"])
        subprocess.run([sys.executable, "-c", "import tempfile; open(tempfile.mkdtemp() + '/left', 'w')"], check=True)
        assert folder.parent == tmp_path and list(folder.rglob("left"))
    assert not list(tmp_path.iterdir())


def test_sources_are_formatted():
    """As .clang-format says; `make fmt` does it."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.cpp", "*.hpp"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [name for name in listed.stdout.splitlines() if not name.startswith("third_party/") and (ROOT / name).exists()]
    assert len(files) > 900
    done = subprocess.run(["clang-format-19", "--dry-run", "-Werror", "--ferror-limit=1", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run `make fmt`:\n" + "\n".join(re.findall(r"^\S+:\d+:\d+: error.*", done.stderr, re.MULTILINE)[:20])


@pytest.mark.parametrize("product", ["coil", "libcoil_runtime.so"])
def test_products_need_only_the_c_and_cpp_libraries(product):
    out = subprocess.run(["ldd", BUILD / product], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0].split("/")[-1] for line in out.splitlines()}
    assert names <= {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}


def test_runtime_is_small_and_exports_only_its_interface():
    library = BUILD / "libcoil_runtime.so"
    assert library.stat().st_size < 4 << 20
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in out.splitlines()}
    header = "".join((ROOT / f"include/coil/{name}.h").read_text() for name in ("coil", "generate"))
    assert names and all(name in header for name in names), names
