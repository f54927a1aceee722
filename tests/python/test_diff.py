"""`coil diff`: each kernel beside a reference that starts from the kernel's own inputs. What is right is called right, and what is planted is named."""

import json
import os

import numpy as np
import pytest
import torch

import planted
from harness import COIL, DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok, has_aarch64

NAMES = list(planted.programs())


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return planted.export(tmp_path_factory.mktemp("planted"))


def diff(*arguments, **options):
    """(exit code, what --json says)"""
    done = coil("diff", *arguments, "--json", **options)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def family(function):
    """The function's name without the hash of its text."""
    return function[:-9]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_right_is_the_same(programs, name):
    program, inputs = programs[name]
    code, found = diff(program, "-i", inputs)
    assert code == 0 and found["same"] and found["first"] is None
    assert all(k["compared"] for k in found["kernels"]) and len(found["kernels"]) == coil_json("compile", program, "-o", program.with_suffix(".out"))["kernels"]
    assert all(k["largest_error"] <= 1 for k in found["kernels"]) and [r["different"] for r in found["results"]] == [0]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_constant_is_named(programs, name, tmp_path):
    program, inputs = programs[name]
    faults = planted.planted(program, tmp_path, planted.wrong_constant)
    if not faults:
        pytest.skip("no kernel has a constant")
    function, options = faults[-1]
    code, found = diff(program, "-i", inputs, *options, "--kernels-only")
    assert code == 1 and family(found["first"]["function"]) == family(function) and found["first"]["function"] != function
    assert found["first"]["kind"] == "wrong" and abs(found["first"]["found"] - found["first"]["expected"]) > found["first"]["bound"]
    assert found["first"]["origins"] and "planted.py" in found["first"]["origins"][0]["source"]
    text = coil("diff", program, "-i", inputs, *options).stdout
    assert "wrong kernel" in text and found["first"]["function"] in text and "planted.py" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_race_is_named(programs, name, tmp_path):
    program, inputs = programs[name]
    faults = planted.planted(program, tmp_path, planted.race)
    if not faults:
        pytest.skip("no kernel has rows of that form")
    function, options = faults[-1]
    code, found = diff(program, "-i", inputs, *options, "--kernels-only")
    assert code == 1 and family(found["first"]["function"]) == family(function)
    assert found["first"]["kind"] in ("wrong", "unordered")


def test_a_race_on_one_thread_is_a_race(programs, tmp_path):
    """Where a loop runs in order nothing is wrong, and the reverse order tells all the same."""
    program, inputs = programs["norm"]
    (function, options), *_ = planted.planted(program, tmp_path, planted.race)
    code, found = diff(program, "-i", inputs, *options, "--threads", "1")
    assert code == 1 and found["first"]["kind"] == "unordered" and family(found["first"]["function"]) == family(function)
    assert "race" in coil("diff", program, "-i", inputs, *options, "--threads", "1").stdout


def test_most_programs_have_something_to_plant(programs, tmp_path):
    assert sum(bool(planted.planted(p, tmp_path, planted.wrong_constant)) for p, _ in programs.values()) >= 9
    assert sum(bool(planted.planted(p, tmp_path, planted.race)) for p, _ in programs.values()) >= 9


def test_all_goes_on_after_the_first(programs, tmp_path):
    program, inputs = programs["gelu"]
    faults = planted.planted(program, tmp_path, planted.wrong_constant)
    options = [o for _, more in faults for o in more]
    code, found = diff(program, "-i", inputs, *options, "--all", "--kernels-only")
    assert code == 1 and {family(d["function"]) for d in found["differences"]} == {family(f) for f, _ in faults}


def test_the_first_nan_and_infinity_have_an_origin(tmp_path):
    class Bad(torch.nn.Module):
        def forward(self, x):
            low = torch.log(x)
            return torch.softmax(low - low.amax(-1, keepdim=True), -1)

    x = torch.rand(20, 64) + 0.5
    x[17] = 0
    torch.export.save(torch.export.export(Bad(), (x,)), tmp_path / "bad.pt2")
    np.savez(tmp_path / "x.npz", in_0=x.numpy())
    code, found = diff(tmp_path / "bad.pt2", "-i", tmp_path / "x.npz")
    assert code == 0, "the program itself makes them"
    assert found["first_nan"]["index"][0] == 17 and "-inf - -inf" in found["first_nan"]["from"] and "test_diff.py" in found["first_nan"]["where"]
    text = coil_ok("diff", tmp_path / "bad.pt2", "-i", tmp_path / "x.npz").stdout
    assert "first NaN" in text and "-inf - -inf" in text


def test_against_packages_and_pytorch(programs, tmp_path):
    program, inputs = programs["silu"]
    coil_ok("compile", program, "-q", "-o", tmp_path / "same.pt2")
    (_, options), *_ = planted.planted(program, tmp_path, planted.wrong_constant)
    coil_ok("compile", program, "-q", *options, "-o", tmp_path / "other.pt2")
    assert diff(program, "-i", inputs, "--whole", "--against", tmp_path / "same.pt2")[0] == 0
    code, found = diff(program, "-i", inputs, "--whole", "--against", tmp_path / "other.pt2")
    assert code == 1 and found["results"][0]["different"] > 0 and found["beside"].endswith("other.pt2")
    environment = dict(os.environ, COIL_TORCH=os.environ.get("COIL_TORCH") or __import__("sys").executable)
    code, found = diff(program, "-i", inputs, "--whole", "--torch", env=environment)
    assert code == 0 and found["beside"] == "PyTorch" and 0 <= found["results"][0]["largest_relative"] < 1e-4
    assert diff(program, "-i", inputs, "--against", "cpu:x86-64-v3", "--kernels-only")[0] == 0


def test_a_wrong_pass_shows_in_the_whole_program(programs, tmp_path):
    """What no kernel does wrong is seen from end to end: here another program's results."""
    program, inputs = programs["silu"]
    coil_ok("compile", programs["gelu"][0], "-q", "-o", tmp_path / "other.pt2")
    code, found = diff(program, "-i", inputs, "--against", tmp_path / "other.pt2")
    assert code == 1 and found["first"] is None and found["results"][0]["different"] > 0


def test_the_example_and_what_cannot_be_compared(tmp_path):
    assert coil("diff", DIGITS, "-i", DIGITS_TEST, "-q").returncode == 0
    coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "d.pt2")
    assert_refused(coil("diff", tmp_path / "d.pt2", "-i", DIGITS_TEST), "package", "--against", code=402)
    assert_refused(coil("diff", DIGITS, "-i", DIGITS_TEST, "--shape", "batch=2"), "exclude each other", code=402)
    assert_refused(coil("diff", DIGITS, "--shape", "none=2"), "no dynamic dimension 'none'", code=106)
    if has_aarch64():
        assert_refused(coil("diff", DIGITS, "-i", DIGITS_TEST, "--target", "aarch64"), "processor or GPU", code=402)
    assert_refused(coil("diff", DIGITS, "-i", DIGITS_TEST, "--against", DIGITS), "neither a target nor a package", code=402)
    assert_refused(coil("diff", DIGITS, "-i", DIGITS_TEST, "--torch", "--whole", env=dict(os.environ, COIL_TORCH="/none")), "/none", code=402)
    assert_refused(coil("diff", DIGITS, "-i", DIGITS_TEST, "--without", "nothing"), "no step 'nothing'", code=402)


def test_random_inputs():
    """Of the sizes that are asked for, the same in every run."""
    found = [coil_ok("diff", DIGITS, "--shape", "batch=3", "--json").stdout for _ in range(2)]
    assert found[0] == found[1]
    assert [r["elements"] for r in json.loads(found[0])["results"]] == [30]
    assert "batch is 8" in coil_ok("diff", DIGITS).stderr


@pytest.mark.parametrize("step", ["fusion", "epilogues", "siblings", "tiles", "inlining", "images", "in_place", "split", "keys", "select", "beside", "padding"])
def test_every_step_of_the_scheduler_can_be_left_out(programs, step):
    for name in ("attend", "conv", "norm"):
        program, inputs = programs[name]
        assert coil("diff", program, "-i", inputs, "-q", "--without", step).returncode == 0


def test_without_fusion_there_are_more_kernels(programs, tmp_path):
    program, _ = programs["gelu"]

    def count(*options):
        return coil_json("compile", program, "-o", tmp_path / "x.pt2", *options)["kernels"]

    assert count() < count("--without", "epilogues") <= count("--without", "fusion")
    value = coil_json("inspect", tmp_path / "x.pt2")["kernels"][0]["ops"][0]
    assert count("--without", f"fusion:{value}") > count()


@pytest.mark.parametrize("name,form,inputs", [("while_newton", "core", "many"), ("state_two_writes", "aten", "example"), ("state_adam", "core", "example")])
def test_programs_whose_results_are_near_nothing_or_written_in_place(name, form, inputs):
    """A residual that cancels out has a bound by what rounding does to it; states that kernels write in place have the values that the program gives them."""
    import zoo

    folder = zoo.make(name, form)
    assert coil("diff", folder / f"{name}.{form}.pt2", "-i", folder / f"{inputs}.npz", "-q").returncode == 0
