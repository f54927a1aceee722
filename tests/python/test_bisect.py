"""`coil bisect`: which option of a compile makes a program wrong or slow. The faults are planted into edited kernels, and the others are edited too, harmlessly."""

import json

import pytest

import planted
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_ok

NAMES = list(planted.programs())
LEVEL = ("--target", "cpu:x86-64-v3", "-O", "1")  # one of the machine's: half the time


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return planted.export(tmp_path_factory.mktemp("planted"))


def bisect(*arguments):
    done = coil("bisect", *arguments, *LEVEL, "--json")
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def one_fault(program, folder, change):
    """(function, arguments): all kernels are replaced, one of them by a faulty text."""
    bad = planted.planted(program, folder, change, *LEVEL)
    if not bad:
        pytest.skip("no kernel that the fault can be planted in")
    function, _ = bad[-1]
    (folder / "harmless").mkdir()
    others = [a for f, options in planted.planted(program, folder / "harmless", lambda text: "// edited\n" + text, *LEVEL) if f != function for a in options]
    return function, [*others, "--replace-kernel", f"{function}={folder}/{function}.cc"]


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_kernel_is_named(programs, name, tmp_path):
    program, inputs = programs[name]
    function, options = one_fault(program, tmp_path, planted.wrong_constant)
    code, found = bisect(program, "-i", inputs, *options)
    assert code == 1 and found["there"] and [(c["kind"], c["name"]) for c in found["culprits"]] == [("edited kernel", function)]
    assert f"{function}={tmp_path}" in found["culprits"][0]["option"]
    assert found["kernel"]["function"][:-9] == function[:-9]


@pytest.mark.parametrize("name", NAMES)
def test_the_slow_kernel_is_named(programs, name, tmp_path):
    program, inputs = programs[name]
    function, options = one_fault(program, tmp_path, planted.slow)
    code, found = bisect(program, "-i", inputs, *options, "--slow", "--threads", "1")
    assert code == 1 and ("edited kernel", function) in [(c["kind"], c["name"]) for c in found["culprits"]]
    assert [c["name"] for c in found["culprits"] if c["kind"] == "edited kernel"] == [function]
    assert found["best_seconds"] < found["seconds"]


def test_what_only_two_options_together_avoid(programs, tmp_path):
    """Two faults: neither edited kernel alone is the cause."""
    program, inputs = programs["gelu"]
    faults = planted.planted(program, tmp_path, planted.wrong_constant, *LEVEL)
    more = planted.planted(program, tmp_path, planted.race, *LEVEL)
    faults += [m for m in more if m[0] not in [f for f, _ in faults]]
    if len(faults) < 2:
        pytest.skip("one kernel only")
    options = [o for _, arguments in faults for o in arguments]
    code, found = bisect(program, "-i", inputs, *options)
    assert code == 1 and found["together"] and {c["name"] for c in found["culprits"]} == {f for f, _ in faults}
    text = coil("bisect", program, "-i", inputs, *options, *LEVEL).stdout
    assert "no option alone is the cause" in text and "avoided by" in text


def test_nothing_is_wrong(programs):
    program, inputs = programs["norm"]
    assert bisect(program, "-i", inputs) == (0, {"model": str(program), "looked_for": "wrong", "there": False, "culprits": [], "together": False, "compiles": 0})
    assert "nothing is wrong" in coil_ok("bisect", program, "-i", inputs).stdout
    assert bisect(program, "-i", inputs, "--slow", "--limit", "10000")[0] == 0


def test_what_is_asked_wrongly_is_refused(tmp_path):
    assert_refused(coil("bisect", DIGITS, "-i", DIGITS_TEST, "--slow", "--wrong"), "two questions", code=402)
    assert_refused(coil("bisect", DIGITS, "-i", DIGITS_TEST, "--limit", "3"), "--slow", code=402)
    coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "d.pt2")
    assert_refused(coil("bisect", tmp_path / "d.pt2", "-i", DIGITS_TEST), "package", code=402)
    assert_refused(coil("bisect", DIGITS, "--shape", "batch"), "--shape", code=402)
