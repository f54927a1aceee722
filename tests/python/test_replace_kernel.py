"""`coil compile --replace-kernel NAME=FILE`: an edited kernel runs in the place of the generated one, and what does not fit is refused by name."""

import re

import numpy as np
import pytest
import torch

import emulated_cuda
import planted
from harness import DIGITS, DIGITS_TEST, REPO, assert_refused, coil, coil_json, coil_ok, load_outputs


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
        done = coil("compile", DIGITS, "-q", "--replace-kernel", f"{bare}={tmp_path / 'twice.cc'}", "-o", tmp_path / "bad.pt2")
        assert_refused(done, "device library", "--replace-kernel kernels/", code=402)


@pytest.fixture(scope="module")
def attend(tmp_path_factory):
    """(program, inputs) with a kernel that is code of the device library alone."""
    return planted.export(tmp_path_factory.mktemp("attend"), ["attend"])["attend"]


def test_the_device_librarys_files_can_be_edited(attend, tmp_path):
    """Attention has no generated text: the file of the library that it is takes the place of one."""
    program, inputs = attend
    coil_ok("compile", program, "-q", "-o", tmp_path / "plain.pt2")
    file, = {k["device"] for k in coil_json("inspect", tmp_path / "plain.pt2")["kernels"] if k["kind"] == "attention" and not k["function"]}
    assert f"includes {file}" in coil_ok("inspect", tmp_path / "plain.pt2", "--source", "attention").stdout
    text = coil_ok("inspect", tmp_path / "plain.pt2", "--source", file).stdout
    assert text == (REPO / "device" / file).read_text()
    head = "(const CoilAttention* args, const CoilHost* host) {"
    assert head in text
    other = text.replace(head, head.replace("args", "given") + "\n  CoilAttention copy = *given;\n  copy.scale *= 1.5f;\n  const CoilAttention* args = &copy;")
    results = {}
    for name, edit in (("same", text), ("edited", other)):
        (tmp_path / f"{name}.cc").write_text(edit)
        report = coil_json("compile", program, "--replace-kernel", f"device/{file}={tmp_path / name}.cc", "-o", tmp_path / f"{name}.pt2")
        assert report["replaced"] == ["attention"]
        coil_ok("run", tmp_path / f"{name}.pt2", "-i", inputs, "-o", tmp_path / f"{name}.npz")
        results[name] = load_outputs(tmp_path / f"{name}.npz")[0]
    coil_ok("run", tmp_path / "plain.pt2", "-i", inputs, "-o", tmp_path / "plain.npz")
    plain = load_outputs(tmp_path / "plain.npz")[0]
    assert np.array_equal(plain, results["same"]) and not np.allclose(plain, results["edited"], atol=1e-4)
    assert coil_ok("inspect", tmp_path / "edited.pt2", "--source", file).stdout == (tmp_path / "edited.cc").read_text()
    found = coil("diff", program, "-i", inputs, "--replace-kernel", f"{file}={tmp_path / 'edited.cc'}")
    assert found.returncode == 1 and "wrong kernel attention" in found.stdout


def test_files_that_are_none_or_do_not_fit_are_refused(attend, tmp_path):
    (tmp_path / "bad.cc").write_text("no C++\n")
    refused = lambda name, *texts, code: assert_refused(coil("compile", attend[0], "-q", "--replace-kernel", f"{name}={tmp_path / 'bad.cc'}", "-o", tmp_path / "x.pt2"), *texts, code=code)  # noqa: E731
    refused("kernels/attention.cc", "kernels/attention.cc", "does not compile", code=409)
    refused("kernels/conv2d.cc", "no kernel of the program has code of 'kernels/conv2d.cc'", code=402)
    refused("cuda/gemm_simt.h", "no kernel of the program has code of 'cuda/gemm_simt.h'", code=402)
    refused("kernels/none.cc", "has no file 'kernels/none.cc'", "kernels/gemm.cc", code=402)
    refused("simd/../../x.h", "has no file", code=402)
    twice = ["--replace-kernel", f"kernels/gemm.cc={tmp_path / 'bad.cc'}", "--replace-kernel", f"device/kernels/gemm.cc={tmp_path / 'bad.cc'}"]
    assert_refused(coil("compile", attend[0], "-q", *twice, "-o", tmp_path / "x.pt2"), "twice", code=402)


def test_templates_for_cuda_can_be_edited(attend, tmp_path):
    """On the emulated device: the edited header is what its kernels are compiled with, those of other headers stay as they are."""
    program, inputs = attend
    text = (REPO / "device/cuda/attention_simt.h").read_text()
    (tmp_path / "edited.h").write_text(text.replace("scale = attention_scale(t)", "scale = 1.5f * attention_scale(t)"))
    assert (tmp_path / "edited.h").read_text() != text
    made = {}
    for name, options in (("plain", ()), ("edited", ("--replace-kernel", f"cuda/attention_simt.h={tmp_path / 'edited.h'}"))):
        (tmp_path / name).mkdir()
        emulated = emulated_cuda.Emulated(program, tmp_path / name, options=options)
        assert emulated.compiled.returncode == 0, emulated.compiled.stderr
        done, made[name] = emulated.run(inputs)
        assert done.returncode == 0, done.stderr
        rows = [k for k in coil_json("inspect", emulated.package)["kernels"] if "replaced" in k]
        assert [k["kind"] for k in rows] == (["attention"] if options else [])
        source = coil_ok("inspect", emulated.package, "--source", "attention").stdout
        assert "includes cuda/attention_simt.h" in source
    assert not np.allclose(made["plain"][0], made["edited"][0], atol=1e-4)
    (tmp_path / "bad.h").write_text(text + "no such thing\n")
    done = coil("compile", program, "-q", "--target", "cuda:sm_90", "--replace-kernel", f"cuda/attention_simt.h={tmp_path / 'bad.h'}", "-o", tmp_path / "x.pt2")
    if "COIL-E405" not in done.stderr:
        assert_refused(done, "cuda/attention_simt.h", "does not compile", "bad.h", code=409)


def test_whole_names_come_before_parts_of_names(tmp_path):
    """`--source NAME` of a kernel's whole name shows that kernel alone, so that it can be edited; what has no text says where its code is."""
    class Two(torch.nn.Module):
        def forward(self, x, w):
            spectrum = torch.fft.rfft(x)
            total = torch.cumsum(w * 2, 0)
            return torch.fft.irfft(spectrum * 2, n=16), (total.sum(-1, keepdim=True) + 1) * total, torch.cumsum(total.exp(), 1)

    torch.export.save(torch.export.export(Two(), (torch.randn(3, 16), torch.randn(9, 40))), tmp_path / "two.pt2")
    coil_ok("compile", tmp_path / "two.pt2", "-q", "-o", tmp_path / "two.coil.pt2")
    kernels = coil_json("inspect", tmp_path / "two.coil.pt2")["kernels"]
    for k in kernels:
        text = coil_ok("inspect", tmp_path / "two.coil.pt2", "--source", k["name"]).stdout
        functions = {other["function"] for other in kernels if other["name"] == k["name"] and other["function"]}
        assert text.count("COIL_KERNEL") == len(functions), text
        assert functions or "a routine of a library" in text
    bare = next(k["name"] for k in kernels if k["kind"] == "library")
    (tmp_path / "x.cc").write_text("")
    done = coil("compile", tmp_path / "two.pt2", "--replace-kernel", f"{bare}={tmp_path / 'x.cc'}", "-o", tmp_path / "x.pt2")
    assert_refused(done, f"'{bare}' is a routine of a library", code=402)


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


def test_source_of_every_target(tmp_path):
    """A package of two targets has kernels of one name twice, and functions that only the second one has."""
    done = coil("compile", DIGITS, "-q", "--target", "cpu,cuda:sm_90", "-o", tmp_path / "two.pt2")
    if "COIL-E405" in done.stderr:
        pytest.skip("no NVRTC")
    assert done.returncode == 0, done.stderr
    manifest = coil_json("inspect", tmp_path / "two.pt2")
    second = [k["function"] for t in manifest["targets"] for k in t.get("kernels", []) if k["function"]]
    assert second and not {k["function"] for k in manifest["kernels"]} & set(second)
    for function in second:
        assert coil_ok("inspect", tmp_path / "two.pt2", "--source", function).stdout.startswith("// cuda/kernels_")
