"""Kernels in Triton: made into machine code without a GPU, put into packages, and launched as Triton itself would launch them. Their machine code
does not run here: on the emulated device C++ that does the same (triton_kernels/twins.cu) is in its place."""

import importlib
import json
import os
import re

import pytest
import torch

import emulated_cuda
import harness

pytest.importorskip("triton", exc_type=ImportError)
import triton  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

import coil  # noqa: E402
import triton_kernels  # noqa: E402
import coil.triton  # noqa: E402
from coil import _compile  # noqa: E402
from triton_packages import Emulated, add_into, compare, exported, package_of, rows_of, source_of, whole  # noqa: E402


@pytest.mark.parametrize("name", triton_kernels.NAMES)
def test_twelve_kernels(name, tmp_path):
    """Exported with dynamic sizes, compiled without a GPU, and launched with the right parameters, sizes and order; at other sizes, and with
    tensors that are not aligned."""
    module = importlib.import_module(f"triton_kernels.{name}")
    model, args = module.Model().eval(), module.example("cpu")
    package = package_of(exported(model, args, module.dims), tmp_path / "model.coil.pt2")
    assert rows_of(package)
    program = Emulated(package, tmp_path)
    compare(program.run(args), module.reference(model, *args), module.tolerance)
    if name not in ("attention", "embedding_bag", "rotary"):
        fewer = tuple(a[:16] if spec else a for a, spec in zip(args, module.dims))
        compare(program.run(fewer), module.reference(model, *fewer), module.tolerance)
        compare(program.run(fewer, shift=1), module.reference(model, *fewer), module.tolerance)


def test_shared_memory_and_threads_are_tritons(tmp_path):
    from triton_kernels import matmul

    package = package_of(exported(matmul.Model(), matmul.example("cpu"), matmul.dims), tmp_path / "model.coil.pt2")
    rows = rows_of(package)
    assert len(rows) == 3 and {r[0] for r in rows} == {"matmul_groups"} and len({r[3] for r in rows}) == 3
    assert all(threads == 128 and shared >= 8192 for _, threads, shared, _ in rows)  # the first configuration's four warps
    text = source_of(package)
    # Three ways to launch it: for aligned tensors and sizes, for aligned tensors, for all.
    conditions = re.findall(r"cuda_has\(call, \d\)( && \(.*\))?\) \{", text)
    assert ["aligned" in c for c in conditions] == [True, True, False] and ["% 16" in c for c in conditions] == [True, False, False]


def test_several_architectures(tmp_path):
    from triton_kernels import softmax

    program = exported(softmax.Model(), softmax.example("cpu"), softmax.dims)
    package = package_of(program, tmp_path / "model.coil.pt2", "cuda:sm_80,cuda:sm_90,cuda:compute_80")
    images = re.findall(r"\{(\d+), (\d), coil_image_\d+", source_of(package))
    assert {("80", "1"), ("80", "2"), ("90", "0")} == set(images) and len(images) == 3 + 3 * 2


@triton_op("coiltest::add_into_", mutates_args={"total"})
def add_into_(x: torch.Tensor, total: torch.Tensor, by: float) -> None:
    wrap_triton(add_into)[(triton.cdiv(x.numel(), 64),)](x, total, x.numel(), by, True, BLOCK=64)


ADD_TWIN = """
COIL_KERNEL void add_into(const float* x, float* total, int n, float by, signed char flag, void*, void*) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (threadIdx.x < 64 && i < n && flag) total[i] += by * x[i];
}
"""


class Adds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(70))

    def forward(self, x):
        total = torch.ones_like(x)
        add_into_(x, total, 0.5)
        first = total * 1
        add_into_(x, total, 2.0)
        add_into_(first, self.count, 1.0)
        return first, total, self.count * 1


def test_what_a_kernel_changes_is_functional(tmp_path):
    """Old values that somebody reads stay, new ones are read after, and a module's state is changed."""
    package = package_of(exported(Adds(), (torch.randn(70),)), tmp_path / "model.coil.pt2")
    source, names = emulated_cuda.kernels_of(package)
    program = Emulated.__new__(Emulated)
    program.package, program.folder, program.library = package, tmp_path, tmp_path / "kernels.so"
    emulated_cuda.build_kernels(source + emulated_cuda.rewrite(ADD_TWIN), [*names, "add_into"], program.library)
    x = torch.randn(70)
    compare(program.run((x,)), (1 + 0.5 * x, 1 + 2.5 * x, 1 + 0.5 * x), 1e-6)
    # Both changes of `total` are made where it lies, because nobody reads the old elements again; the state is copied, and written when all is done.
    assert source_of(package).count("cd::cuda_copy(call") == 2


class Kept(torch.nn.Module):
    """What is changed is an input, an output as it was before, or read again after."""

    def forward(self, x, y):
        ones = torch.ones_like(x)
        changed = ones * 1
        add_into_(x, changed, 0.5)
        other = x.sin()
        old = other * 2
        copy = y.clone()
        add_into_(other, copy, 1.0)
        add_into_(copy, old, 1.0)
        before = x.exp()
        after = before.clone()
        add_into_(x, after, 1.0)
        return changed, copy, old, before, after


def test_old_elements_that_are_read_again_stay(tmp_path):
    package = package_of(exported(Kept(), (torch.randn(70), torch.randn(70))), tmp_path / "model.coil.pt2")
    source, names = emulated_cuda.kernels_of(package)
    program = Emulated.__new__(Emulated)
    program.package, program.folder, program.library = package, tmp_path, tmp_path / "kernels.so"
    emulated_cuda.build_kernels(source + emulated_cuda.rewrite(ADD_TWIN), [*names, "add_into"], program.library)
    x, y = torch.randn(70), torch.randn(70)
    copy = y + x.sin()
    compare(program.run((x, y)), (1 + 0.5 * x, copy, x.sin() * 2 + copy, x.exp(), x.exp() + x), 1e-6)


def test_equal_launches_share_their_code(tmp_path):
    """Layers of a network that differ in their weights alone."""
    from triton_kernels import softmax

    class Layers(torch.nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = softmax.softmax(x + 1)
            return x

    package = package_of(exported(Layers(), softmax.example("cpu")), tmp_path / "model.coil.pt2")
    assert len(rows_of(package)) == 2


def test_refused_on_the_cpu():
    from triton_kernels import softmax

    program = exported(softmax.Model(), softmax.example("cpu"))
    for target in ("cpu", "cpu,cuda:sm_90"):
        with pytest.raises(coil.KernelError, match="coiltest.softmax.*no code for the CPU") as caught:
            package_of(program, "unused.coil.pt2", target)
        assert "softmax.py:" in str(caught.value) and "hint" in str(caught.value)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no code for the CPU"):
        torch.compile(softmax.Model(), backend="coil")(*softmax.example("cpu"))


@triton_op("coiltest::doubled", mutates_args={})
def doubled(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x)
    wrap_triton(add_into)[(triton.cdiv(x.numel(), 64),)](x, total, x.numel(), 2.0, True, BLOCK=64)
    return total


@doubled.register_kernel("cpu")
def doubled_on_cpu(x):
    return x * 2


def test_the_users_function_on_the_cpu():
    torch._dynamo.reset()
    coil.reset_compile_stats()
    x = torch.randn(70)
    torch.testing.assert_close(torch.compile(lambda x: doubled(x.sin()) + 1, backend="coil")(x), x.sin() * 2 + 1)
    assert coil.compile_stats().fallback_operators == 1 and "coiltest.doubled" in next(iter(coil.compile_stats().fallbacks))


def test_configurations_are_the_tuners_choices(tmp_path):
    """All are there to be timed; a package holds those that its record names, with their own threads, shared memory and grids."""
    from triton_kernels import matmul

    model, record = tmp_path / "model.pt2", tmp_path / "r.json"
    importlib.import_module("coil.triton").save(exported(matmul.Model(), matmul.example("cpu"), matmul.dims), model, "cuda:sm_90")
    env = {**os.environ, "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so")}
    arguments = ("compile", model, "-o", tmp_path / "model.coil.pt2", "--target", "cuda:sm_90")
    fake = {**env, **emulated_cuda.environment(), "FAKE_CUDA_IDLE": "1"}
    done = harness.coil(*arguments, "--tune", "fast", "--tune-budget", "2s", env=fake)  # a device whose kernels do nothing: all are timed
    assert done.returncode == 0, done.stderr
    done = harness.coil(*arguments, "--tune", "fast", "--record", record, env=env)
    assert done.returncode == 0, done.stderr
    table = json.loads(record.read_text())
    assert table["problems"][0]["to_time"] == [{"config": 1}, {"config": 2}] and "matmul_groups" in table["problems"][0]["problem"]
    table.pop("untimed")
    seen = set()
    for config, threads, grid in ((0, 128, "5L * floor_div((s[0] + 63L), 64L)"), (1, 256, "3L * floor_div((s[0] + 127L), 128L)"), (2, 128, "3L * floor_div((s[0] + 31L), 32L)")):
        for problem in table["problems"]:
            problem.pop("to_time", None)
            problem["rows"] = [{"up_to": None, "choice": {"config": config} if config and problem is table["problems"][0] else {}, "text": ""}]
        record.write_text(json.dumps(table))
        done = harness.coil(*arguments, "--replay", record, env=env)
        assert done.returncode == 0, done.stderr
        rows = rows_of(tmp_path / "model.coil.pt2")
        assert len(rows) == 3 and all(row[1] == threads for row in rows) and grid in source_of(tmp_path / "model.coil.pt2")
        seen.add(tuple(row[2] for row in rows))
    assert len(seen) > 1  # shared memory


def graph_of(function, *args):
    """What AOTAutograd gives a backend on a GPU: launches in a functional graph."""
    from torch._dynamo.backends.common import aot_autograd

    from coil.triton._tracing import tracing

    class Caught(Exception):
        pass

    found = []

    def catch(gm, inputs):
        found.append(gm)
        raise Caught

    torch._dynamo.reset()
    with torch.no_grad(), tracing(), pytest.raises(Exception):
        torch.compile(function, backend=aot_autograd(fw_compiler=catch, inference_compiler=catch))(*args)
    return found[0]


def test_torch_compile_on_a_gpu(tmp_path):
    """The graph that torch.compile gives becomes one program with the kernel inside."""
    from coil.dynamo import _program
    from coil.dynamo._split import Split
    from coil.dynamo._support import torch_nodes

    gm = graph_of(lambda x: whole(x.sin()) + 1, torch.randn(128))
    registrations = coil.triton.rewrite_graph(gm.graph, "cuda:sm_90")
    assert len(registrations) == 1
    split = Split(gm.graph, set(torch_nodes(gm.graph, torch.device("cpu"))))  # where the example tensors are
    ((level, nodes),) = split.programs.items()
    parts = _program._write(split, level, nodes)
    settings = dict(_compile.settings_of({}, "cuda:sm_90"), kernels=registrations, name="x")
    package, report = importlib.import_module("coil._compiler").compile_json(parts.writer.text_with_traces(parts.document), {}, None, settings)
    (tmp_path / "x.coil.pt2").write_bytes(bytes(package))
    assert report["kernels"] == 3 and rows_of(tmp_path / "x.coil.pt2")


def test_what_coil_does_not_take_stays_in_pytorch():
    """Under torch.compile: the launch itself, between coil's programs."""
    from coil.dynamo._graph import _Assembler
    from coil.dynamo._split import Split
    from coil.dynamo._support import torch_nodes
    from triton_kernels import softmax

    gm = graph_of(lambda x: softmax.softmax(x), torch.randn(7, 200)[:, :100])
    refused = {}
    assert coil.triton.rewrite_graph(gm.graph, "cuda:sm_90", refused=refused) == []
    assert "a view whose memory coil does not know" in next(iter(refused.values()))
    reasons = {**torch_nodes(gm.graph, torch.device("cpu")), **refused, **{n: "" for n in gm.graph.nodes if "empty" in str(n.target)}}
    graph = _Assembler(gm, Split(gm.graph, set(reasons)), {}).run()
    assert [n for n in graph.nodes if "triton_kernel_wrapper_functional" in str(n.target)]
    with pytest.raises(coil.KernelError, match="a view whose memory coil does not know"):
        coil.triton.rewrite_graph(gm.graph, "cuda:sm_90")
