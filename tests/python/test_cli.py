"""The command line: help, JSON, exit codes, determinism."""

import json
import os
import pathlib
import re

import pytest

import harness
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok

COMMANDS = ["compile", "run", "bench", "inspect", "check", "env"]


def zoo_names(**parameters):
    return ["mlp", "dynamic_pointwise"]


def test_help_lists_commands():
    text = coil_ok("--help").stdout
    assert all(command in text for command in COMMANDS), text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    text = coil_ok(command, "--help").stdout
    assert "example" in text.lower() and f"coil {command}" in text, text


def test_version():
    assert re.search(r"\d+\.\d+", coil_ok("--version").stdout)


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["compile"], ["compile", "--frobnicate", str(DIGITS)], ["run"], ["bench", str(DIGITS), "--shape", "batch"],
                                       ["bench", str(DIGITS), "--shape", "nobody=3"], ["bench", str(DIGITS), "--shape", "batch=0"]])
def test_wrong_usage(arguments):
    done = coil(*arguments)
    assert 2 <= done.returncode < 70 and done.stderr.strip(), f"{done.returncode}: {done.stdout}{done.stderr}"


def test_env():
    table = coil_json("env")
    assert "COIL_DEBUG" in json.dumps(table) and "COIL_DUMP" in json.dumps(table)
    assert "COIL_DEBUG" in coil_ok("env").stdout


def test_check_lists_ops_with_lines():
    text = coil_ok("check", DIGITS).stdout
    assert "conv2d" in text and re.search(r"train\.py:\d+", text), text
    assert "conv2d" in json.dumps(coil_json("check", DIGITS))


def test_compile_json(tmp_path):
    done = coil_ok("compile", DIGITS, "-o", tmp_path / "o.pt2", "--json")
    assert isinstance(json.loads(done.stdout), dict)


def test_error_json(tmp_path):
    done = coil("check", tmp_path / "none.pt2", "--json")
    assert done.returncode == 3 and "COIL-E001" in done.stdout + done.stderr


def test_inspect(digits_package):
    text = coil_ok("inspect", digits_package).stdout
    assert "image" in text and "batch" in text and "512" in text and "memory" in text.lower(), text
    table = coil_json("inspect", digits_package)
    assert "image" in json.dumps(table) and "batch" in json.dumps(table)


def test_bench_json(digits_package):
    for model in (digits_package, DIGITS):
        assert isinstance(coil_json("bench", model, "--shape", "batch=8"), dict)


def test_run_json(tmp_path, digits_package):
    done = coil_ok("run", digits_package, "--input", DIGITS_TEST, "--output", tmp_path / "o.npz", "--json")
    assert isinstance(json.loads(done.stdout), dict)


def test_compile_is_deterministic(tmp_path):
    """The same bytes from other folders, names, working directories and numbers of processors."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    copy = tmp_path / "b" / "digits.pt2"
    copy.write_bytes(DIGITS.read_bytes())
    coil_ok("compile", DIGITS, "-o", tmp_path / "a" / "x.coil.pt2")
    coil_ok("compile", copy, "-o", tmp_path / "b" / "x.coil.pt2", cwd=tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
    assert (tmp_path / "a/x.coil.pt2").read_bytes() == (tmp_path / "b/x.coil.pt2").read_bytes()


def test_run_is_deterministic(tmp_path, digits_package):
    for name, cores in (("a", None), ("b", {min(os.sched_getaffinity(0))})):
        coil_ok("run", digits_package, "--input", DIGITS_TEST, "--output", tmp_path / f"{name}.npz", preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)
    a, b = (harness.load_outputs(tmp_path / f"{name}.npz")[0] for name in "ab")
    assert a.tobytes() == b.tobytes()


def test_runs_without_a_toolchain(tmp_path):
    """An empty PATH, no HOME: nothing else is needed to compile and run."""
    coil_ok("run", DIGITS, "--input", DIGITS_TEST, "--output", tmp_path / "o.npz", env={"PATH": "/nonexistent"}, cwd=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["o.npz"]


def test_package_is_small_and_imports_only_c(tmp_path, digits_package):
    import subprocess
    import zipfile

    with zipfile.ZipFile(digits_package) as archive:
        names = archive.namelist()
        assert len({name.split("/")[0] for name in names}) == 1, "one root folder"
        library = next(name for name in names if name.endswith(".wrapper.so"))
        (tmp_path / "m.so").write_bytes(archive.read(library))
    symbols = subprocess.run(["nm", "-D", "--undefined-only", tmp_path / "m.so"], capture_output=True, text=True, check=True).stdout
    assert "_Z" not in symbols, symbols
    needed = subprocess.run(["objdump", "-p", tmp_path / "m.so"], capture_output=True, text=True, check=True).stdout
    assert all(re.match(r"lib(c|m)\.so|ld-linux", n) for n in re.findall(r"NEEDED\s+(\S+)", needed)), needed


def test_runtime_library():
    """libcoil_runtime: under 4 MB, and only the C and C++ libraries."""
    import subprocess

    library = harness.BUILD / "libcoil_runtime.so"
    assert library.stat().st_size < 4_000_000
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = {pathlib.Path(line.split()[0]).name.split(".")[0] for line in needed.splitlines()}
    assert names <= {"libc", "libm", "libstdc++", "libgcc_s", "linux-vdso", "ld-linux-x86-64"}, needed
