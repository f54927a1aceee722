"""The command line: help, JSON, exit codes, determinism."""

import json
import os
import pathlib
import re

import numpy as np
import pytest

import harness
import zoo
from harness import DIGITS, DIGITS_TEST, assert_refused, coil, coil_json, coil_ok

COMMANDS = ["compile", "run", "bench", "inspect", "check", "env"]


def zoo_names(**parameters):
    return ["mlp", "dynamic_pointwise", "linalg_inverse_float32"]


def test_help_lists_commands():
    text = coil_ok("--help").stdout
    assert all(command in text for command in COMMANDS), text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command):
    text = coil_ok(command, "--help").stdout
    assert "example" in text.lower() and f"coil {command}" in text, text


def test_version():
    assert re.search(r"\d+\.\d+", coil_ok("--version").stdout)


@pytest.mark.parametrize("words, message, meant", [
    (["inspekt", "x"], "there is no command 'inspekt'", "did you mean inspect?"),
    (["nothing"], "there is no command 'nothing'", "see `coil --help`"),
    (["inspect", "m.pt2", "--kernel"], "coil inspect has no option --kernel", "did you mean --kernels?"),
    (["report", "a.pt2", "b.pt2", "--second", "3"], "coil report has no option --second", "`coil report --help`"),
    (["--versoin"], "coil has no option --versoin", "did you mean --version?"),
    (["run", "m.pt2", "-x"], "coil run has no option -x", "see `coil run --help`"),
    (["compile", "m.pt2", "-O5", "-o", "x"], "Value 5 not in range", "`coil compile --help`"),
])
def test_a_word_that_nobody_knows_is_named(words, message, meant):
    assert_refused(coil(*words), message, meant, code=402)


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


def test_check_for_a_gpu(tmp_path):
    program = zoo.make("linalg_inverse_float32") / "linalg_inverse_float32.aten.pt2"
    coil_ok("check", program)
    done = coil("check", program, "--target", "cuda:sm_90")
    assert done.returncode == 0 and re.search(r"host +aten\.linalg_inv\.default", done.stdout) and "computed by the CPU" in done.stdout, done.stdout + done.stderr
    coil_ok("check", DIGITS, "--target", "cpu,cuda:sm_90")


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


def test_package_of_a_small_program(tmp_path):
    """Under 40 KB, and nothing of CUDA in a package for the CPU."""
    import torch

    class Multiply(torch.nn.Module):
        def forward(self, x, y):
            return x * y

    torch.export.save(torch.export.export(Multiply(), (torch.ones(10), torch.ones(10))), tmp_path / "multiply.pt2")
    assert harness.coil("compile", tmp_path / "multiply.pt2", "-o", tmp_path / "m.coil.pt2").returncode == 0
    data = (tmp_path / "m.coil.pt2").read_bytes()
    assert len(data) < 42 * 1024
    assert b"nvidia" not in data and b"libcuda" not in data


def test_runtime_library():
    """libcoil_runtime: under 4 MB, and only the C and C++ libraries."""
    import subprocess

    library = harness.BUILD / "libcoil_runtime.so"
    assert library.stat().st_size < 4_000_000
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    names = {pathlib.Path(line.split()[0]).name.split(".")[0] for line in needed.splitlines()}
    assert names <= {"libc", "libm", "libstdc++", "libgcc_s", "linux-vdso", "ld-linux-x86-64"}, needed


# A program with every kind of input: a transposed tensor, an integer size, fixed values, a float16 tensor.
@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    import torch

    class Mixed(torch.nn.Module):
        def forward(self, x, n, flag, y, scale):
            return (x * n if flag else x) + y.float().sum(), y * 2, scale * x

    folder = tmp_path_factory.mktemp("mixed")
    arguments = (torch.arange(15.0).reshape(5, 3).t(), 7, True, torch.linspace(-1, 1, 12).reshape(3, 4).half(), 0.5)
    shapes = {"x": {1: torch.export.Dim("cols", min=2, max=50)}, "n": torch.export.Dim.DYNAMIC, "flag": None, "y": None, "scale": None}
    program = torch.export.export(Mixed(), arguments, dynamic_shapes=shapes)
    torch.export.save(program, folder / "mixed.pt2")
    coil_ok("compile", folder / "mixed.pt2", "-q", "--dim", "cols=x:1")  # writes mixed.coil.pt2
    arrays = {"in_0": arguments[0].numpy(), "in_1": np.array(7), "in_2": np.array(True), "in_3": arguments[3].float().numpy(), "in_4": np.array(0.5)}
    return folder / "mixed.coil.pt2", arrays, [t.numpy() for t in Mixed()(*arguments)]


def run_arrays(package, folder, arrays):
    np.savez(folder / "in.npz", **arrays)
    done = coil("run", package, "--input", folder / "in.npz", "--output", folder / "out.npz")
    return done, harness.load_outputs(folder / "out.npz") if done.returncode == 0 else None


def test_run_mixed_inputs(tmp_path, mixed):
    package, arrays, expected = mixed
    done, outputs = run_arrays(package, tmp_path, arrays)
    assert done.returncode == 0, done.stderr
    harness.compare(outputs, expected, 1e-3)
    done, outputs = run_arrays(package, tmp_path, {k: v for k, v in arrays.items() if k not in ("in_2", "in_4")})  # fixed ones may be left out
    assert done.returncode == 0, done.stderr
    harness.compare(outputs, expected, 1e-3)


def test_run_single_files(tmp_path, mixed):
    package, arrays, expected = mixed
    for key, array in arrays.items():
        np.save(tmp_path / f"{key}.npy", array)
    by_order = [a for i in (0, 1, 3) for a in ("--input", tmp_path / f"in_{i}.npy")]
    by_name = [a for n, i in (("y", 3), ("n", 1), ("x", 0)) for a in ("-i", f"{n}={tmp_path}/in_{i}.npy")]
    for given in (by_order, by_name):
        coil_ok("run", package, *given, "-o", tmp_path / "o.npz")
        harness.compare(harness.load_outputs(tmp_path / "o.npz"), expected, 1e-3)


def test_a_size_that_the_export_assumed_to_be_one_is_broadcast(tmp_path):
    import torch

    class Windows(torch.nn.Module):
        def forward(self, x):
            windows = x.unfold(-3, 2, 2)  # s//2 of them, which the export assumes to be 1
            return torch.minimum(windows.select(-2, -2), windows)

    x = torch.randint(-8, 9, (3, 8, 8), dtype=torch.int8)
    torch.export.save(torch.export.export(Windows(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)), tmp_path / "p.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    coil_ok("run", tmp_path / "p.pt2", "--input", tmp_path / "x.npy", "--output", tmp_path / "out.npz")
    np.testing.assert_array_equal(harness.load_outputs(tmp_path / "out.npz")[0], Windows()(x).numpy())


def test_run_empty_inputs_of_any_strides(tmp_path):
    """Strides before the dimension of no elements say nothing."""
    import torch

    class Add(torch.nn.Module):
        def forward(self, a, b):
            return a + 1, b * 2

    args = torch.zeros(1, 0, 0).expand(9, 0, 0), torch.zeros(0, 4, 5).permute(2, 1, 0)
    torch.export.save(torch.export.export(Add(), args), tmp_path / "p.pt2")
    np.savez(tmp_path / "in.npz", a=args[0].numpy(), b=args[1].numpy())
    coil_ok("run", tmp_path / "p.pt2", "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    assert [x.shape for x in harness.load_outputs(tmp_path / "out.npz")] == [(9, 0, 0), (5, 4, 0)]


@pytest.mark.parametrize("change,code,text", [
    ({"in_2": np.array(False)}, 210, "True"), ({"in_4": np.array(0.25)}, 210, "0.5"), ({"in_1": np.array(7.5)}, 202, "integer"), ({"in_1": None}, 201, "'n'"),
    ({"in_0": np.zeros((3, 51), np.float32)}, 204, "cols"), ({"in_0": np.zeros((3, 5), np.float16)}, 202, "float32"), ({"in_5": np.array(1)}, 201, "in_5")])
def test_mixed_inputs_refused(change, code, text, tmp_path, mixed):
    package, arrays, _ = mixed
    done, _ = run_arrays(package, tmp_path, {k: v for k, v in (arrays | change).items() if v is not None})
    assert_refused(done, text, code=code)


def test_memory_formula(mixed, digits_package):
    """What inspect computes is what a call asks for."""
    for package, shape in ((mixed[0], "cols=9"), (digits_package, "batch=33")):
        memory = coil_json("bench", package, "--shape", shape, "--repeat", 2)["memory"]
        assert memory["arena_bytes"] == memory["arena_bytes_formula"] and memory["output_bytes"] == memory["output_bytes_formula"], memory
        example = coil_json("inspect", package, "--shape", shape)["memory"]["example"]
        assert example["peak_bytes"] == memory["arena_bytes"] + memory["output_bytes"], (example, memory)


def test_inspect_kernels_and_source(digits_package):
    text = coil_ok("inspect", digits_package, "--kernels", "--fusion", "--memory", "--entries").stdout
    assert re.search(r"conv2d.*relu", text) and "train.py:38" in text and "manifest.json" in text and "Not fused" in text
    source = coil_ok("inspect", digits_package, "--source", "max_pool").stdout
    assert "COIL_NAME(max_pool" in source and "train.py:38" in source and source.count("{") == source.count("}")
    assert "coil_model" in coil_ok("inspect", digits_package, "--source", "host.cc").stdout
    assert_refused(coil("inspect", digits_package, "--source", "nobody"), "nobody", code=402)


def test_compile_never_overwrites_the_program(tmp_path):
    (tmp_path / "digits.pt2").write_bytes(DIGITS.read_bytes())
    assert_refused(coil("compile", tmp_path / "digits.pt2", "-o", tmp_path / "digits.pt2"), code=402)
    assert (tmp_path / "digits.pt2").read_bytes() == DIGITS.read_bytes()


def test_debug_levels_and_dump(tmp_path):
    def compile_with(**variables):
        return coil_ok("compile", DIGITS, "-q", "-o", tmp_path / "o.pt2", env=os.environ | variables).stderr

    assert compile_with() == ""
    assert "[1 build]" in compile_with(COIL_DEBUG="1")
    assert "not fused into" in compile_with(COIL_DEBUG="3") and "[2 max_pool" in compile_with(COIL_DEBUG="2")
    lines = re.findall(r"^\S+ \[(\d \w+)\]", compile_with(COIL_DEBUG="5@graph_dead_code"), re.M)
    assert lines == ["5 graph_dead_code"], lines
    compile_with(COIL_DUMP=str(tmp_path / "dump"))
    names = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert names[0] == "00_graph.txt" and any(n.endswith("_plan.txt") for n in names) and any(n.endswith("_host.cc") for n in names), names
    assert_refused(coil("compile", DIGITS, "-o", tmp_path / "o.pt2", env=os.environ | {"COIL_SKIP": "nobody"}), "nobody", code=402)


def test_output_that_cannot_be_written(digits_package):
    with open("/dev/full", "w") as full:
        import subprocess

        done = subprocess.run([harness.COIL, "inspect", digits_package], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3 and "COIL-E003" in done.stderr
