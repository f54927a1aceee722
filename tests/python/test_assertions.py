"""What a program asserts about sizes and data is checked on every call: by coil's runtime and in stock PyTorch, and never too often.

That the good inputs pass is in test_differential.py, which runs the same programs.
"""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import emulated_cuda
import harness
import ops_checks
import ops_control
import ops_data_sizes
import zoo

FAILING = ops_checks.FAILING | ops_data_sizes.FAILING | ops_control.FAILING
CASES = [(name, form) for name in FAILING for form in ("aten", "core")]


def zoo_names(**parameters):
    return list(FAILING)


def check_message(text, code, wanted):
    assert f"COIL-E{code}" in text, text
    assert any(part in text for part in wanted.split("|")), f"'{wanted}' is not in: {text}"


@pytest.mark.parametrize("name,form", CASES, ids=[f"{name}-{form}" for name, form in CASES])
def test_refused(name, form, tmp_path):
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", zoo.make(name, form) / f"{name}.{form}.pt2", "-o", package)
    for inputs, code, text in FAILING[name]:
        np.savez(tmp_path / "in.npz", **{f"in_{i}": zoo.widen(v) for i, v in enumerate(inputs)})
        done = harness.coil("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        assert done.returncode == 6, done.stderr
        check_message(done.stderr, code, text if form == "aten" else "")
        if code == 211:
            assert "in forward" in done.stderr, f"no source line: {done.stderr}"
        assert not (tmp_path / "out.npz").exists()


def test_stock_pytorch(tmp_path):
    """One process loads every package: eager refuses what coil's code in stock PyTorch refuses, and the next good call is right."""
    rows = []
    for name in FAILING:
        package = tmp_path / f"{name}.coil.pt2"
        harness.coil_ok("compile", zoo.make(name) / f"{name}.aten.pt2", "-o", package)
        rows.append([name, str(package)])
    (tmp_path / "request.json").write_text(json.dumps(rows))
    done = subprocess.run([sys.executable, harness.REPO / "tests/python/torch_asserting.py", tmp_path / "request.json"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    for name, failing in FAILING.items():
        for (_, code, text), said in zip(failing, answer[name]["errors"], strict=True):
            assert said, f"{name}: stock PyTorch computed where the program asserts"
            check_message(said, code, text)
        assert answer[name]["worst"] <= 1e-5, answer[name]


def test_failed_assertion_leaves_state(tmp_path):
    """The buffer of assert_then_write is written by good calls only. One context, through the C API."""
    import capi

    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", zoo.make("assert_then_write") / "assert_then_write.aten.pt2", "-o", package)
    model = capi.Model(harness.BUILD / "libcoil_runtime.so", package)
    ten, much = np.full(3, 10, np.float32), np.full(3, 50, np.float32)
    assert model.run(ten)[0] == 70
    with pytest.raises(capi.Error, match="no credit"):
        model.run(much)
    assert model.run(ten)[0] == 40
    model.close()


@pytest.mark.parametrize("graphs", ["0", "2"])
def test_failed_assertion_leaves_state_on_cuda(graphs, tmp_path):
    made = emulated_cuda.Emulated(zoo.make("assert_then_write") / "assert_then_write.aten.pt2", tmp_path)
    assert made.compiled.returncode == 0, made.compiled.stderr
    amounts = [1, 1, 1, 1, 1, 1, 50, 10, 50, 2]
    call = [sys.executable, harness.REPO / "tests/python/emulated_faults.py", harness.BUILD / "libcoil_runtime.so", made.package, *amounts]
    done = subprocess.run([str(c) for c in call], capture_output=True, text=True, env={**made.environment(), "COIL_CUDA_GRAPHS": graphs})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    rest = 100
    for amount, said in zip(amounts, told, strict=True):
        if 3 * amount > rest:
            assert "no credit" in said, told
        else:
            rest -= 3 * amount
            assert said == [rest], told


def changed_program(source, path, change):
    """A copy of the exported program whose JSON is what `change` made of it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program)
            new.writestr(info, data)
    return path


def test_assertion_about_sizes(tmp_path):
    """Programs of older PyTorch versions hold nodes that assert something about sizes; it is checked before anything is computed."""

    def change(program):
        graph = program["graph_module"]["graph"]
        (batch,) = graph["tensor_values"]["args_0"]["sizes"]
        text = batch["as_expr"]["expr_str"]
        graph["sym_bool_values"]["few"] = {"as_expr": {"expr_str": f"LessThan({text}, Integer(8))", "hint": None}}
        graph["nodes"].insert(0, {"target": "torch.ops.aten._assert_scalar.default", "name": "few_rows", "outputs": [],
                                  "inputs": [{"name": "self", "arg": {"as_sym_bool": {"as_name": "few"}}, "kind": 1},
                                             {"name": "assert_msg", "arg": {"as_string": "at most eight rows"}, "kind": 1}],
                                  "metadata": {"stack_trace": 'File "/home/me/net.py", line 12, in forward\n    torch._check(x.shape[0] <= 8)'},
                                  "is_hop_single_tensor_return": None})

    path = changed_program(zoo.make("assert_sizes") / "assert_sizes.aten.pt2", tmp_path / "changed.pt2", change)
    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", path, "-o", package)
    for rows, code in ((8, 0), (10, 6), (7, 6)):
        np.savez(tmp_path / "in.npz", in_0=np.ones(rows, np.float32), in_1=np.ones(30, np.float32))
        done = harness.coil("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
        assert done.returncode == code, done.stderr
        if rows == 10:
            assert "COIL-E211: assertion failed: at most eight rows (net.py:12 in forward: torch._check(x.shape[0] <= 8)): " in done.stderr, done.stderr
            assert " <= 8 (here " in done.stderr and " is 10, " in done.stderr, done.stderr
        if rows == 7:
            assert "COIL-E204" in done.stderr, done.stderr


def test_guards_that_cannot_be_read_are_refused(tmp_path):
    """An assumption of the export that coil does not understand is no reason to run without it."""
    source = zoo.make("assert_sizes") / "assert_sizes.aten.pt2"
    for guard, code in [("L['args'][0].size()[0] ~ 3", 105), ("L['nobody'].size()[0] == 3", 105), ("L['args'][0].size()[0] < 0", 104),
                        ("(" * 200 + "1" + ")" * 200 + " == 1", 105), ("L['args'][0].size()[0] ** 90 == 1", 105), ("L['args'][0].size()[7] == 1", 105)]:
        path = changed_program(source, tmp_path / "changed.pt2", lambda program: program["guards_code"].append(guard))
        harness.assert_refused(harness.coil("compile", path, "-o", tmp_path / "o.pt2"), guard[:20], code=code)
