"""What people who adopt coil look for: one version, licences that are complete, packages that say what they contain."""

import collections
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from harness import COIL, REPO, assert_refused, coil, coil_json, coil_ok

sys.path.insert(0, str(REPO / "tests"))
try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

PROGRAMS, SEEDS = REPO / "tests/fuzz/programs", REPO / "tests/fuzz/seeds/reader"
VERSION = re.search(r"project\(coil VERSION ([0-9.]+)", (REPO / "CMakeLists.txt").read_text())[1]


def tracked():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [REPO / name for name in done.stdout.split("\0") if name]


# One version number
def test_the_command_has_the_version():
    assert coil_ok("--version").stdout == f"coil {VERSION}\n"
    assert coil_json("env")["version"] == VERSION


def test_python_has_the_version():
    package = pytest.importorskip("coil")
    assert package.__version__ == VERSION
    from importlib import metadata

    found = [d for d in metadata.distributions(path=[str(pathlib.Path(package.__file__).parents[1])]) if d.metadata["Name"] == "coil"]
    assert [d.version for d in found] == [VERSION]


def test_the_wheel_has_the_version():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    assert "version" not in project["project"] and "version" in project["project"]["dynamic"]
    rule = project["tool"]["scikit-build"]["metadata"]["version"]
    assert re.search(rule["regex"], (REPO / rule["input"]).read_text())["value"] == VERSION
    pytest.importorskip("scikit_build_core")
    done = subprocess.run([sys.executable, "-c", "from scikit_build_core.build import prepare_metadata_for_build_wheel as p; import sys; print(p(sys.argv[1]))", "METADATA"],
                          cwd=REPO, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": "/tmp"})
    if done.returncode:  # an older scikit-build-core than pyproject.toml asks for
        pytest.skip(done.stderr[-300:])
    try:
        text = (REPO / "METADATA" / done.stdout.split()[-1] / "METADATA").read_text()
    finally:
        subprocess.run(["rm", "-rf", REPO / "METADATA"], check=True)
    assert f"\nVersion: {VERSION}\n" in text and "\nLicense-Expression: BSD-3-Clause\n" in text
    for file in ("LICENSE", "NOTICE", "third_party/pocketfft/LICENSE.md", "third_party/licenses/LAPACK.txt"):
        assert f"\nLicense-File: {file}\n" in text


def test_the_version_is_written_once():
    """Elsewhere it is an example, a fixture, a measurement, or history."""
    history = ("CHANGELOG.md", "bench/results/", "examples/reports/", "tests/fuzz/seeds/", "tests/runtime/fixture.cc", "tests/requirements.txt", "src/runtime/manifest.h", "include/coil/coil.h")
    for path in tracked():
        name = str(path.relative_to(REPO))
        if name == "CMakeLists.txt" or name.startswith(history) or not path.is_file():
            continue
        content = path.read_bytes()
        assert not re.search(rb"(?<![0-9.])" + re.escape(VERSION.encode()) + rb"(?![0-9.])", content), f"{name} repeats the version"
    assert re.search(rf"^## {re.escape(VERSION)}$", (REPO / "CHANGELOG.md").read_text(), re.M)


# Tools of people who change it
def test_presets_configure_what_make_does():
    """CMakePresets.json has the folders and variables of the Makefile's and the fuzzer's configurations."""
    presets = {p["name"]: p for p in json.loads((REPO / "CMakePresets.json").read_text())["configurePresets"]}
    texts = (REPO / "Makefile").read_text() + (REPO / "tools/fuzz.sh").read_text().replace("\\\n", " ")
    calls = re.findall(r"tools/configure\.sh (build-[\w-]+)((?: +-D\S+)+)", texts)
    assert len(calls) >= 3
    for folder, variables in calls:
        preset = next(p for p in presets.values() if p["binaryDir"] == "${sourceDir}/" + folder)
        assert preset["cacheVariables"] == dict(v[2:].split("=", 1) for v in variables.split()), folder
    assert presets["default"]["binaryDir"] == "${sourceDir}/build" and presets["default"]["generator"] == "Ninja"
    assert "cacheVariables" not in presets["default"] and "cmake -G Ninja" in (REPO / "tools/configure.sh").read_text()


# Licences
def components():
    """Rows of NOTICE's table."""
    rows = re.findall(r"^(\S.*?)  +(\S+) +(\S.*?)  +((?:coil|wheel|runtime|packages)(?:, \w+)*)  +(\S.*?)  +(\S.*)$", (REPO / "NOTICE").read_text(), re.M)
    return {name: dict(zip(("version", "license", "where", "text", "copyright"), rest)) for name, *rest in rows}


def test_modules_that_tests_import_have_distinct_names():
    """All tests may run in one process: of two modules of one name in folders of its path, one test gets the other's."""
    inserted = re.compile(r"^sys\.path\.insert\(0, str\((?:harness\.)?REPO / (.+?)\)\)$", re.M)
    folders = {"tests/python"} | {"/".join(re.findall(r'"(.+?)"', path)) for test in (REPO / "tests/python").glob("*.py") for path in inserted.findall(test.read_text())}
    assert {"tests/conformance", "tests/models", "tests/hunt", "bench"} <= folders
    names = collections.defaultdict(list)
    for folder in sorted(folders):
        for module in (REPO / folder).glob("*.py"):
            names[module.stem].append(folder)
    names = {name: found for name, found in names.items() if not name.startswith(("conftest", "test_"))}  # found by path
    assert {name: found for name, found in names.items() if len(found) > 1} == {}


def test_the_files_are_there():
    assert "BSD 3-Clause" in (REPO / "LICENSE").read_text() and "The coil authors" in (REPO / "LICENSE").read_text()
    for file in ("NOTICE", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (REPO / file).stat().st_size > 500
    for file in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", (REPO / file).read_text()):
            assert (REPO / link).exists(), f"{file} points to {link}"


def test_notice_names_what_is_linked():
    known = components()
    assert len(known) >= 15
    for name, row in known.items():
        if row["text"].startswith("("):
            continue
        file = REPO / row["text"] if "/" in row["text"] else REPO / "third_party/licenses" / row["text"]
        assert file.stat().st_size > 500, name
    # Each development package that is installed for the build is in the table, or makes nothing that is shipped.
    packages = re.search(r'packages="(.*?)"', (REPO / "tools/install_deps.sh").read_text(), re.S)[1].split()
    tools = {"git", "make", "g++", "cmake", "ninja-build", "ccache", "python3", "python3-venv", "python3-dev", "libgtest-dev", "libbenchmark-dev", "libclang-rt-19-dev", "clang-format-19"}
    names = {"clang-19": "LLVM", "lld-19": "LLVM", "llvm-19-dev": "LLVM", "libclang-19-dev": "LLVM", "liblld-19-dev": "LLVM", "libpolly-19-dev": "Polly", "libfmt-dev": "fmt",
             "libxxhash-dev": "xxHash", "rapidjson-dev": "RapidJSON", "nlohmann-json3-dev": "nlohmann json", "libcli11-dev": "CLI11", "zlib1g-dev": "zlib", "libdeflate-dev": "libdeflate",
             "libzstd-dev": "zstd", "liblapack-dev": "LAPACK", "libblas-dev": "BLAS", "libssl-dev": "OpenSSL"}
    for package in packages:
        if package not in tools:
            assert any(name.startswith(names[package]) for name in known), f"NOTICE lacks {package}"
    for folder in (REPO / "third_party").iterdir():
        assert folder.name == "licenses" or any(name.lower().replace("-", "") == folder.name for name in known), folder


def test_versions_are_those_of_the_packages():
    known, names = components(), {"fmt": "libfmt-dev", "zlib": "zlib1g-dev", "libdeflate": "libdeflate-dev", "zstd": "libzstd-dev", "LAPACK": "liblapack-dev", "BLAS (reference)": "libblas-dev",
                                  "OpenSSL": "libssl-dev", "xxHash": "libxxhash-dev", "RapidJSON": "rapidjson-dev", "nlohmann json": "nlohmann-json3-dev", "CLI11": "libcli11-dev",
                                  "LLVM, clang, lld": "llvm-19-dev", "Polly": "libpolly-19-dev", "libstdc++, libgcc": "libstdc++-12-dev"}
    for name, package in names.items():
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True) if pathlib.Path("/usr/bin/dpkg-query").exists() else None
        if done and done.returncode == 0 and done.stdout.endswith("deb12u1") | ("deb" not in done.stdout):
            assert re.match(rf"(\d+:)?{re.escape(known[name]['version'])}\b", done.stdout), f"{name}: NOTICE says {known[name]['version']}, the build has {done.stdout}"


def test_packages_terms_are_those_of_the_files():
    source = (REPO / "src/package/notice.cc").read_text()
    for file in ("LICENSE", "third_party/pocketfft/LICENSE.md", "third_party/licenses/LAPACK.txt"):
        assert (REPO / file).read_text().strip() in source, file
    for name in ("LAPACK", "BLAS", "PocketFFT"):
        row = next(v for k, v in components().items() if k.startswith(name))
        assert f'{{"{name}", "{row["version"]}", "{row["license"]}"' in source


# What a package contains
@pytest.mark.parametrize("program, parts", [
    (SEEDS / "mlp.pt2", ["coil"]), (PROGRAMS / "fourier.pt2", ["coil", "PocketFFT"]), (PROGRAMS / "solve.pt2", ["coil", "LAPACK", "BLAS"]),
    (PROGRAMS / "checks.pt2", ["coil", "PocketFFT", "LAPACK", "BLAS"])], ids=lambda v: v.stem if isinstance(v, pathlib.Path) else "")
def test_a_package_lists_its_parts(program, parts, tmp_path):
    package = tmp_path / "p.coil.pt2"
    coil_ok("compile", program, "-o", package, "--target", "cpu:x86-64-v3")
    text = coil_ok("inspect", package, "--licenses").stdout
    assert re.findall(r"^  (\S+) \S+ \(BSD-3-Clause\)$", text, re.M) == parts
    assert text.count("THIS SOFTWARE IS PROVIDED") == len(set(parts) - {"BLAS"})  # LAPACK's terms are BLAS's
    listed = coil_json("inspect", package, "--licenses")
    assert [row["name"] for row in listed["licenses"]] == parts and listed["licenses"][0]["version"] == VERSION and listed["notice"] == text
    with zipfile.ZipFile(package) as archive:
        name = next(n for n in archive.namelist() if n.endswith("/data/coil/NOTICE"))
        assert archive.read(name).decode() == text
        code = next(archive.read(n) for n in archive.namelist() if n.endswith(".so"))
    # The code says the same: LAPACK's routines name themselves when an argument is wrong.
    assert (b"DGETRF" in code or b"SGETRF" in code) == ("LAPACK" in parts)


def test_a_package_without_the_entry_says_so(tmp_path):
    package, other = tmp_path / "p.coil.pt2", tmp_path / "q.coil.pt2"
    coil_ok("compile", SEEDS / "mlp.pt2", "-o", package, "--target", "cpu:x86-64-v3")
    with zipfile.ZipFile(package) as old, zipfile.ZipFile(other, "w") as new:
        for entry in old.namelist():
            if not entry.endswith("NOTICE"):
                new.writestr(entry, old.read(entry))
    assert_refused(coil("inspect", other, "--licenses"), "does not say what it contains", code=301)
    coil_ok("inspect", other)
