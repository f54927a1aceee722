"""`coil compile --replace-kernel NAME=FILE`: an edited kernel runs in the place of the generated one, and what does not fit is refused by name."""

import re

import numpy as np
import pytest

from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok, load_outputs


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """(package, [(kernel, function, kind)]) of the digits example."""
    package = tmp_path_factory.mktemp("digits") / "digits.coil.pt2"
    coil_ok("compile", DIGITS, "-q", "-o", package)
    kernels = coil_json("inspect", package)["kernels"]
    return package, [(k["name"], k["function"], k["kind"]) for k in kernels]


def outputs(package, path):
    coil_ok("run", package, "-i", DIGITS_TEST, "-o", path)
    return load_outputs(path)


def edited(package, function, path, change):
    text = coil_ok("inspect", package, "--source", function).stdout
    path.write_text(change(text))
    assert path.read_text() != text
    return path


def last_with_text(digits):
    return [(name, function) for name, function, _ in digits[1] if function][-1]


def doubled(text):
    """Every stored value twice as large."""
    text = re.sub(r"cd::store\((.*), (\w+)\);", r"cd::store(\1, cd::add(\2, \2));", text)
    return re.sub(r"cd::store_tail\((.*), (\w+), lanes\);", r"cd::store_tail(\1, cd::add(\2, \2), lanes);", text)


def test_an_edited_kernel_is_what_runs(digits, tmp_path):
    package, _ = digits
    name, function = last_with_text(digits)
    file = edited(package, function, tmp_path / "edited.cc", doubled)
    for called, out in ((name, "a.pt2"), (function, "b.pt2")):
        report = coil_json("compile", DIGITS, "--replace-kernel", f"{called}={file}", "-o", tmp_path / out)
        assert len(report["replaced"]) == 1 and report["replaced"][0] != function
    before, after = outputs(package, tmp_path / "before.npz"), outputs(tmp_path / "a.pt2", tmp_path / "after.npz")
    assert any(not np.array_equal(x, y) for x, y in zip(before, after))
    assert all(np.array_equal(x, y) for x, y in zip(after, outputs(tmp_path / "b.pt2", tmp_path / "b.npz")))
    rows = [k for k in coil_json("inspect", tmp_path / "a.pt2")["kernels"] if "replaced" in k]
    assert [(k["name"], k["replaced"]) for k in rows] == [(name, "edited.cc")]
    assert "replaced: its code is that of edited.cc" in coil_ok("inspect", tmp_path / "a.pt2", "--kernels").stdout
    assert not [k for k in coil_json("inspect", package)["kernels"] if "replaced" in k]


def test_the_text_as_it_was_gives_the_same_results(digits, tmp_path):
    package, _ = digits
    name, function = last_with_text(digits)
    file = edited(package, function, tmp_path / "same.cc", lambda text: "// nothing else\n" + text)
    coil_ok("compile", DIGITS, "-q", "--replace-kernel", f"{name}={file}", "-o", tmp_path / "same.pt2")
    assert all(np.array_equal(x, y) for x, y in zip(outputs(package, tmp_path / "x.npz"), outputs(tmp_path / "same.pt2", tmp_path / "y.npz")))


def test_what_does_not_fit_is_refused(digits, tmp_path):
    package, kernels = digits
    name, function = last_with_text(digits)

    def refused(change, *texts, code=409, called=name):
        file = edited(package, function, tmp_path / "bad.cc", change)
        assert_refused(coil("compile", DIGITS, "-q", "--replace-kernel", f"{called}={file}", "-o", tmp_path / "bad.pt2"), *texts, code=code)
        assert not (tmp_path / "bad.pt2").exists()

    refused(lambda text: text.replace("long", "int", 1), "another signature", "expected")
    refused(lambda text: text.replace(function, "other"), "defines no kernel of this name")
    refused(lambda text: text + text, "defines other kernels too")
    refused(lambda text: text.replace("const auto", "no_such_type", 1), "does not compile", "bad.cc")
    refused(lambda text: text + " ", f"no kernel is called '{name}x'", function, code=402, called=name + "x")
    for item in ("", "x", "=", "x=", "=y"):
        assert_refused(coil("compile", DIGITS, "-q", "--replace-kernel", item, "-o", tmp_path / "bad.pt2"), code=402)
    assert_refused(coil("compile", DIGITS, "-q", "--replace-kernel", f"{name}={tmp_path}/none.cc", "-o", tmp_path / "bad.pt2"), code=1)
    again = f"{name}={edited(package, function, tmp_path / 'twice.cc', lambda text: text + ' ')}"
    assert_refused(coil("compile", DIGITS, "-q", "--replace-kernel", again, "--replace-kernel", again, "-o", tmp_path / "bad.pt2"), "twice", code=402)
    for bare in [n for n, f, kind in kernels if not f and kind != "copy"][:1]:
        assert_refused(coil("compile", DIGITS, "-q", "--replace-kernel", f"{bare}={tmp_path / 'twice.cc'}", "-o", tmp_path / "bad.pt2"), "device library", code=402)


def test_kernels_for_cuda(tmp_path):
    done = coil("compile", DIGITS, "-q", "--target", "cuda:sm_90", "-o", tmp_path / "x.pt2")
    if "COIL-E405" in done.stderr:
        pytest.skip("no NVRTC")
    assert done.returncode == 0, done.stderr
    function = [k["function"] for k in coil_json("inspect", tmp_path / "x.pt2")["kernels"] if k["function"]][-1]
    file = edited(tmp_path / "x.pt2", function, tmp_path / "k.cu", lambda text: text + "// edited\n")
    report = coil_json("compile", DIGITS, "--target", "cuda:sm_90", "--replace-kernel", f"{function}={file}", "-o", tmp_path / "y.pt2")
    assert len(report["replaced"]) == 1
    bad = edited(tmp_path / "x.pt2", function, tmp_path / "bad.cu", lambda text: text.replace("void* p[", "void* q[", 1))
    assert_refused(coil("compile", DIGITS, "-q", "--target", "cuda:sm_90", "--replace-kernel", f"{function}={bad}", "-o", tmp_path / "z.pt2"), "struct of arguments", code=409)
