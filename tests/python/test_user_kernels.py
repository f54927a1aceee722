"""Kernels that users write: in PyTorch, in programs, tuned, packaged, under torch.compile."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import coil
import emulated_cuda
import harness
from harness import assert_refused
from harness import coil as command
from user_kernel_programs import Network, STEPS, add_times, program, split_rows, steps, swish, swish_reference


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the network as a file, and a folder of the registrations with their sources beside them."""
    folder = tmp_path_factory.mktemp("kernels")
    torch.export.save(program(), folder / "network.pt2")
    (folder / "kernels").mkdir()
    for kernel in (swish, add_times):
        registration = copy.deepcopy(kernel.registration)
        for place, suffix in (("cpu", "cc"), ("cuda", "cu")):
            name = f"{kernel.name.partition('::')[2]}.{suffix}"
            (folder / "kernels" / name).write_text(registration[place].pop("text"))
            del registration[place]["file"]
            registration[place]["source"] = name
        (folder / "kernels" / f"{kernel.name.partition('::')[2]}.json").write_text(json.dumps(registration))
    return folder


# ---- PyTorch's operator

def test_operator_in_pytorch():
    x, w = torch.randn(7, 33), torch.randn(33)
    torch.testing.assert_close(swish(x, w, 0.5), swish_reference(x, w, 0.5))
    torch.testing.assert_close(torch.ops.usertest.swish(x.double(), w.double()), swish_reference(x, w).double(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.ops.usertest.swish(x.t(), w[:7]), swish_reference(x.t(), w[:7]))
    for dtype in (torch.bfloat16, torch.float16):
        torch.testing.assert_close(swish(x.to(dtype), w.to(dtype)), swish_reference(x.to(dtype), w.to(dtype)))
    assert swish(torch.randn(0, 33), w).shape == (0, 33)
    a, b = torch.ones(9), torch.arange(9.0)
    assert add_times(a, b, 2) is None and torch.equal(a, 1 + 2 * b)
    add_times(a, b, 1, True, [5, 4])
    assert torch.equal(a, 1 + 5 * b)


def test_several_results_missing_tensors_and_strides():
    x, add = torch.randn(4, 6), torch.randn(6)
    for tensor in (x, x.t().contiguous().t(), torch.randn(8, 6)[::2]):
        first, second = split_rows(tensor, 1)
        assert torch.equal(first, tensor[:1]) and torch.equal(second, tensor[1:].double())
        first, second = split_rows(tensor, 3, add=add)
        assert torch.equal(first, tensor[:3] + add) and torch.equal(second, (tensor[3:] + add).double())


def test_opcheck():
    for arguments in ((torch.randn(3, 4), torch.randn(4), 0.5), (torch.randn(3, 4).bfloat16(), torch.randn(4).bfloat16())):
        torch.library.opcheck(swish.op, arguments, test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(add_times.op, (torch.ones(3), torch.ones(3), 2), test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(split_rows.op, (torch.randn(4, 4), 1, None), test_utils=("test_schema", "test_faketensor"))


def test_check_and_benchmark():
    swish.check(torch.randn(5, 8), torch.randn(8), 0.3)
    add_times.check(torch.ones(5), torch.ones(5), 2)
    x = torch.arange(5, dtype=torch.int32)
    with pytest.raises(coil.KernelError, match="E408.*'STEPS': 1, 'WRONG': 1.*the first configuration's"):
        steps.check(x.flip(0))
    rows = steps.benchmark(x, warmup=0.1, rep=0.1, quantiles=[0.2, 0.8])
    assert [config for config, _ in rows] == steps.configs and all(0 < low <= high for _, (low, high) in rows)


# ---- Programs

@pytest.mark.parametrize("decomposed", [False, True])
def test_in_a_program(decomposed):
    exported, module = program(decomposed), Network()
    model = coil.compile(exported)
    for batch in (5, 1, 17):
        x = torch.randn(batch, 33)
        for actual, expected in zip(model(x), module(x)):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_of_several_types_and_sizes_in_one_program():
    class Several(torch.nn.Module):
        def forward(self, x, w):
            y = swish(x, w)
            z = swish(y.bfloat16(), w.bfloat16()).float()
            first, second = split_rows(z.t(), x.shape[1] - 2, z[:, 0])
            return swish(z[:, 1:], w[1:]), first, second

    x, w = torch.randn(6, 10), torch.randn(10)
    rows, columns = torch.export.Dim("rows", min=4, max=50), torch.export.Dim("columns", min=4, max=50)
    model = coil.compile(Several(), args=(x, w), dynamic_shapes=({0: rows, 1: columns}, {0: columns}), kernels=[swish, split_rows])
    for sizes in ((6, 10), (4, 37), (50, 4)):
        x, w = torch.randn(*sizes), torch.randn(sizes[1])
        for actual, expected in zip(model(x, w), Several()(x, w)):
            torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_writes_to_an_input_and_through_a_view():
    class Writing(torch.nn.Module):
        def forward(self, x, cache):
            add_times(cache, x, 3)
            rows = torch.zeros(2, 4)
            add_times(rows[1], x, 1)
            return cache * 2, rows

    x, cache = torch.randn(4), torch.randn(4)
    expected_cache = cache.clone()
    expected = Writing()(x, expected_cache)
    model = coil.compile(torch.export.export(Writing(), (x, cache.clone())))
    for actual, wanted in zip(model(x, cache), expected):
        torch.testing.assert_close(actual, wanted)
    torch.testing.assert_close(cache, expected_cache)


def test_inside_of_control_flow():
    class Branch(torch.nn.Module):
        def forward(self, x, w):
            return torch.cond(x.sum() > 0, lambda a, b: swish(a, b) + 1, lambda a, b: a * b, (x, w))

    x, w = torch.rand(3, 4) + 1, torch.randn(4)
    model = coil.compile(torch.export.export(Branch(), (x, w)))
    for sign in (1, -1):
        torch.testing.assert_close(model(sign * x, w), Branch()(sign * x, w))


@torch.library.custom_op("usertest::stranger", mutates_args=())
def stranger(x: torch.Tensor) -> torch.Tensor:
    """An operator that nobody has a kernel for."""
    return x * 2


@stranger.register_fake
def _(x):
    return torch.empty_like(x)


def test_kernels_of_other_operators_cost_no_compiles(monkeypatch, tmp_path):
    """What is known to stay in PyTorch is not compiled and refused once more for each graph of a process that has kernels of its own."""
    from coil._registry import may_have_kernel
    from coil.dynamo import _graph
    torch._dynamo.reset()
    torch.compile(lambda x: stranger(x) + 3, backend="coil")(torch.ones(4))
    torch._dynamo.reset()
    refused = []
    original = _graph.find_problems
    monkeypatch.setattr(_graph, "find_problems", lambda *args: refused.append(args) or original(*args))
    x = torch.randn(3, 5)
    torch.testing.assert_close(torch.compile(lambda x: stranger(x).sum(1), backend="coil")(x), (x * 2).sum(1))
    assert not refused
    of_another = {"kernels": [json.dumps(swish.registration)], "kernel_files": []}
    assert may_have_kernel(of_another, "usertest::swish") and not may_have_kernel(of_another, "usertest::stranger")
    of_a_file = {"kernels": [], "kernel_files": [str(tmp_path)]}
    assert may_have_kernel(of_a_file, "usertest::stranger") and not may_have_kernel(of_a_file, "aten::relu")


def test_under_torch_compile():
    w = torch.randn(8)

    def function(x):
        y = swish(x * 2, w, 0.3)
        total = torch.zeros(8)
        add_times(total, y[0], 2)  # what writes to its arguments runs by itself
        return y.sum(1), total

    x = torch.randn(4, 8)
    coil.reset_compile_stats()
    torch._dynamo.reset()
    for actual, expected in zip(torch.compile(function, backend="coil")(x), function(x)):
        torch.testing.assert_close(actual, expected)
    assert not any("swish" in row for row in coil.compile_stats().fallbacks), coil.compile_stats().fallbacks
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: swish(x, w) + 1, backend="coil", options={"kernels": [swish], "fallback": "error"})(x), swish(x, w) + 1)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: swish(x, w) + 2, backend="coil", options={"kernels": []})(x), swish(x, w) + 2)  # PyTorch's work
    torch._dynamo.reset()
    torch.compile(lambda x: swish(x, w) + 3, backend="coil", options={"fallback": "error"})(x)


# ---- The command line, packages

def test_command_line(files, tmp_path):
    package = tmp_path / "network.coil.pt2"
    assert_refused(command("compile", files / "network.pt2", "-o", package), "usertest.swish", "user_kernel_programs.py:", code=102)
    done = harness.coil_json("check", files / "network.pt2", "--kernels", files / "kernels", "--json")
    assert done["native"] and "usertest.swish.default" in [row["op"] for row in done["ops"]]
    harness.coil_ok("compile", files / "network.pt2", "-o", package, "--kernels", files / "kernels/swish.json", "--kernels", files / "kernels/add_times_.json")
    folder = tmp_path / "folder.coil.pt2"
    harness.coil_ok("compile", files / "network.pt2", "-o", folder, "--kernels", files / "kernels")
    assert package.read_bytes() == folder.read_bytes()
    module, x = Network(), np.random.default_rng(0).standard_normal((3, 33)).astype("f")
    np.save(tmp_path / "x.npy", x)
    harness.coil_ok("run", package, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npz")
    expected = [v.detach().numpy() for v in module(torch.from_numpy(x))]
    for actual, wanted in zip(harness.load_outputs(tmp_path / "y.npz"), expected):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)
    kernels = harness.coil_json("inspect", package, "--json")["kernels"]
    assert [k["user"] for k in kernels if k["kind"] == "user"] == [
        {"name": "usertest::swish", "config": "BLOCK=64", "configs": 3}, {"name": "usertest::add_times_", "config": "no constants", "configs": 1},
        {"name": "usertest::swish", "config": "BLOCK=64", "configs": 3}]


def test_in_stock_pytorch(files, tmp_path):
    """A process that knows nothing of the operators."""
    package = tmp_path / "network.coil.pt2"
    harness.coil_ok("compile", files / "network.pt2", "-o", package, "--kernels", files / "kernels")
    x = torch.randn(4, 33)
    torch.save(x, tmp_path / "x.pt")
    script = "import sys, torch\ntorch.save(torch._inductor.aoti_load_package(sys.argv[1])(torch.load(sys.argv[2])), sys.argv[3])"
    done = subprocess.run([sys.executable, "-c", script, package, tmp_path / "x.pt", tmp_path / "y.pt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for actual, expected in zip(torch.load(tmp_path / "y.pt"), Network()(x)):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_same_bytes_and_saved_registrations(files, tmp_path):
    swish.save(tmp_path / "swish.json")
    add_times.save(tmp_path / "add.json")
    for name in ("a", "b"):
        harness.coil_ok("compile", files / "network.pt2", "-o", tmp_path / name, "--kernels", tmp_path / "swish.json", "--kernels", tmp_path / "add.json")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---- The tuner

class Stepping(torch.nn.Module):
    def forward(self, x):
        return torch.ops.usertest.steps(x + 1) * 2


def test_tuner_takes_the_fast_one_and_never_the_wrong_one(tmp_path):
    x = torch.arange(4000, dtype=torch.int32)
    torch.export.save(torch.export.export(Stepping(), (x,)), tmp_path / "p.pt2")
    steps.save(tmp_path / "steps.json")
    options = ["--kernels", tmp_path / "steps.json"]
    harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / "tuned", *options, "--tune", "fast", "--tune-budget", "3s", "--tune-threads", 1, "--record",
                    tmp_path / "r.json", "--tune-log", tmp_path / "log.txt")
    record = json.loads((tmp_path / "r.json").read_text())
    entry = next(e for e in record["problems"] if e["problem"].startswith("user usertest::steps x i32[4000]"))
    assert [row["choice"] for row in entry["rows"]] == [{"config": 2}] and entry["rows"][0]["text"] == "STEPS=1 WRONG=0", entry
    assert "STEPS=1 WRONG=1  (wrong result)" in (tmp_path / "log.txt").read_text()
    for name in ("first", "second"):
        harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / name, *options, "--replay", tmp_path / "r.json")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    kernel = next(k for k in harness.coil_json("inspect", tmp_path / "first", "--json")["kernels"] if k["kind"] == "user")
    assert [row["run"] for row in kernel["choices"]["rows"]] == ["STEPS=1 WRONG=0"]
    assert torch.equal(coil.load(tmp_path / "first")(x), (x + 1) * 2)
    # Another source is another problem: the record does not serve it.
    changed = dict(steps.registration, cpu=dict(steps.registration["cpu"], text=STEPS + "// changed\n"))
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    assert_refused(command("compile", tmp_path / "p.pt2", "-o", tmp_path / "x", "--kernels", tmp_path / "changed.json", "--replay", tmp_path / "r.json"), "usertest::steps",
                   code=407)


def test_each_size_its_configuration(tmp_path):
    """A record that names a configuration for small sizes and another for large ones."""
    x = torch.arange(8, dtype=torch.int32)
    torch.export.save(torch.export.export(Stepping(), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=100)},)), tmp_path / "p.pt2")
    steps.save(tmp_path / "steps.json")
    options = ["--kernels", tmp_path / "steps.json"]
    harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / "tuned", *options, "--tune", "fast", "--tune-budget", "1s", "--record", tmp_path / "r.json")
    record = json.loads((tmp_path / "r.json").read_text())
    entry = next(e for e in record["problems"] if e["problem"].startswith("user usertest::steps"))
    entry["rows"] = [{"up_to": 10, "choice": {"config": 2}, "text": ""}, {"up_to": None, "choice": {"config": 1}, "text": ""}]
    (tmp_path / "r.json").write_text(json.dumps(record))
    harness.coil_ok("compile", tmp_path / "p.pt2", "-o", tmp_path / "made", *options, "--replay", tmp_path / "r.json")
    kernel = next(k for k in harness.coil_json("inspect", tmp_path / "made", "--json")["kernels"] if k["kind"] == "user")
    assert [(row["up_to"], row["run"]) for row in kernel["choices"]["rows"]] == [(10, "STEPS=1 WRONG=0"), (None, "STEPS=1 WRONG=1")]
    model = coil.load(tmp_path / "made")
    for n in (2, 10, 11, 100):
        x = torch.arange(n, dtype=torch.int32) + 5
        right, wrong = (x + 1) * 2, torch.arange(n, dtype=torch.int32) * 2
        assert torch.equal(model(x), right if n <= 10 or record["hardware"]["isa"] != host_isa() else wrong), n
    entry["rows"] = [{"up_to": None, "choice": {"config": 3}, "text": ""}]
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert_refused(command("compile", tmp_path / "p.pt2", "-o", tmp_path / "x", *options, "--replay", tmp_path / "r.json"), "usertest::steps", code=407)


def host_isa():
    return coil._runtime.host_isa().removeprefix("x86-64-")


# ---- CUDA, on the emulator

@pytest.mark.parametrize("sm", [80, 90])
def test_on_cuda(files, tmp_path, sm):
    made = emulated_cuda.Emulated(files / "network.pt2", tmp_path, sm, ["--kernels", files / "kernels"])
    assert made.compiled.returncode == 0, made.compiled.stderr
    module = Network()
    for batch in (3, 1, 20):
        x = torch.randn(batch, 33)
        np.savez(tmp_path / "x.npz", x=x.numpy())
        done, outputs = made.run(tmp_path / "x.npz")
        assert done.returncode == 0, done.stderr
        fresh = copy.deepcopy(module)
        for actual, expected in zip(outputs, fresh(x)):
            np.testing.assert_allclose(actual, expected.detach().numpy(), rtol=1e-4, atol=1e-4)


def test_nvrtc_takes_it(files, tmp_path):
    done = command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", files / "kernels", "--target", "cuda:sm_90,cuda:sm_80,cuda:compute_80")
    if done.returncode and "E405" in done.stderr:
        pytest.skip("NVRTC is not installed")
    assert done.returncode == 0, done.stderr
    (files / "broken").mkdir(exist_ok=True)
    registration = dict(swish.registration, cuda=dict(swish.registration["cuda"], text="__global__ void swish(auto x) {\n  x.sum();\n}\n", file="my.cu"))
    (files / "broken/swish.json").write_text(json.dumps(registration))
    done = command("compile", files / "network.pt2", "-o", tmp_path / "p", "--kernels", files / "broken", "--kernels", files / "kernels/add_times_.json", "--target", "cuda:sm_90")
    assert_refused(done, "usertest::swish", "coil calls it as swish(coil::Tensor<const float, 2> x", code=409)
