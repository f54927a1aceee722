"""Kernels in Triton: made into machine code without a GPU, put into packages, and launched as Triton itself would launch them. Their machine code
does not run here: on the emulated device C++ that does the same (triton_kernels/twins.cu) is in its place."""

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

import emulated_cuda
import harness

pytest.importorskip("triton", exc_type=ImportError)
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from torch.library import triton_op, wrap_triton  # noqa: E402

import coil  # noqa: E402
import triton_kernels  # noqa: E402
import coil.triton  # noqa: E402
from coil import _compile  # noqa: E402

TWINS = harness.REPO / "tests/python/triton_kernels/twins.cu"


def exported(model, args, dims=None):
    made = {}
    shapes = None if dims is None else tuple({at: made.setdefault(n, torch.export.Dim(n, min=3, max=8192)) for at, n in spec.items()} for spec in dims)
    return torch.export.export(model.eval(), args, dynamic_shapes=shapes)


def package_of(program, path, target="cuda:sm_90", **options):
    """Without opening it, which needs a device."""
    _compile._compile_any(program, str(path), None, None, None, _compile.settings_of(options, target))
    return path


def source_of(package):
    with zipfile.ZipFile(package) as archive:
        return next(archive.read(n).decode() for n in archive.namelist() if n.endswith("/host.cc"))


def rows_of(package):
    """(name, threads, shared memory, image) of the kernels that Triton made."""
    rows = re.findall(r'\{"(\w+)", (\d+), (\d+), \d+, "[^"]*", (\d+)\}', source_of(package))
    return [(name, int(threads), int(shared), int(image)) for name, threads, shared, image in rows if image != "0"]


class Emulated:
    def __init__(self, package, folder):
        self.package, self.folder, self.library = package, folder, folder / "kernels.so"
        source, names = emulated_cuda.kernels_of(package)
        twins = emulated_cuda.rewrite(TWINS.read_text())
        emulated_cuda.build_kernels(source + twins, [*names, *re.findall(r"COIL_KERNEL void (\w+)\(", twins)], self.library)

    def run(self, args, shift=0):
        inputs, out = self.folder / "in.npz", self.folder / "out.npz"
        np.savez(inputs, **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
        env = emulated_cuda.environment(self.library, 90)
        if shift:
            script = harness.REPO / "tests/python/emulated_call.py"
            done = subprocess.run([sys.executable, script, harness.BUILD / "libcoil_runtime.so", self.package, inputs, out, str(shift)], capture_output=True, text=True, env=env)
        else:
            done = harness.coil("run", self.package, "--device", "cuda:0", "--input", inputs, "--output", out, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return harness.load_outputs(out)


def compare(actual, expected, tolerance):
    expected = [e.detach().numpy() for e in (expected if isinstance(expected, (tuple, list)) else [expected])]
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        assert a.shape == e.shape and a.dtype == e.dtype
        np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=tolerance, atol=tolerance * (1 + np.abs(e.astype(np.float64)).max()))


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


@triton.jit
def add_into(x, total, n, by, flag, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if flag:
        tl.store(total + i, tl.load(total + i, mask=i < n) + by * tl.load(x + i, mask=i < n), mask=i < n)


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


@triton.jit
def broken(x, y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)) @ 3)


@triton_op("coiltest::broken", mutates_args={})
def broken_op(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(broken)[(1,)](x, y, BLOCK=64)
    return y


@triton_op("coiltest::gaps_", mutates_args={"x"})
def gaps_(x: torch.Tensor) -> None:
    wrap_triton(add_into)[(1,)](x, x, x.shape[0], 1.0, True, BLOCK=64)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.heuristics({"flag": lambda args: args["n"] % 64 == 0})
@triton.jit
def add_if(x, total, n, by, flag: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total + i, tl.load(x + i, mask=i < n) * (by if flag else 0), mask=i < n)


@triton_op("coiltest::whole", mutates_args={})
def whole(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(add_if)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0)
    return y


class Broken(torch.nn.Module):
    def forward(self, x):
        return broken_op(x)


class Gaps(torch.nn.Module):
    def forward(self, x):
        pairs = torch.ones(x.shape[0], 2)
        gaps_(pairs[:, 0])
        return pairs


class Whole(torch.nn.Module):
    def forward(self, x):
        return whole(x)


@pytest.mark.parametrize("model, code, text, dims", [
    (Broken(), 409, "Triton kernel 'broken': Triton cannot compile it", None),
    (Gaps(), 408, "Triton kernel 'add_into': it writes to 'total', a view with gaps", None),
    (Whole(), 408, "Triton kernel 'add_if': its constant 'flag' depends on a dynamic size", ({0: "n"},)),
])
def test_errors_name_the_kernel_and_the_line(model, code, text, dims, tmp_path):
    with pytest.raises(coil.Error, match=text) as caught:
        package_of(exported(model, (torch.randn(64),), dims), tmp_path / "x.coil.pt2")
    assert caught.value.number == code and "test_triton.py:" in str(caught.value) and "hint:" in str(caught.value)


def test_heuristics_are_respected(tmp_path):
    """Two sizes, two values of the constant that the heuristic computes: other machine code, and the configuration's two warps."""
    codes = []
    for size in (128, 100):
        program, kernels = importlib.import_module("coil.triton").prepare(exported(Whole(), (torch.randn(size),)), "cuda:sm_90")
        (image, *_) = json.loads(kernels[0])["cuda"]["images"]
        assert image["threads"] == 64
        codes.append(image["code"])
    assert codes[0] != codes[1]


def test_registrations_are_checked(tmp_path):
    """The JSON between Python and the compiler is anyone's text."""
    from triton_kernels import softmax

    program, kernels = importlib.import_module("coil.triton").prepare(exported(softmax.Model(), softmax.example("cpu")), "cuda:sm_90")
    (text,) = kernels

    def compiled(change):
        registration = json.loads(text)
        change(registration)
        settings = dict(_compile.settings_of({}, "cuda:sm_90"), kernels=[json.dumps(registration)], name="x")
        importlib.import_module("coil._program").compile_exported(program, str(tmp_path / "x.coil.pt2"), settings)

    compiled(lambda r: None)
    images = lambda r: r["cuda"]["images"]  # noqa: E731
    wrong = {"base64": lambda r: images(r)[0].update(code="!!"), "out of its range": lambda r: images(r)[0].update(threads=5000),
             "does not fit the signature": lambda r: images(r)[0]["params"].append(["ptr", "nobody"]), "any alignment": lambda r: images(r).pop(),
             "not one grid": lambda r: r["cuda"]["grids"].append(["1"]), "no machine code for sm_90": lambda r: [i.update(sm=80) for i in images(r)],
             "not there": lambda r: images(r)[0].update(config=7), "initial": lambda r: r.update(initial=["nobody"]), "both a source": lambda r: r["cuda"].update(text="x")}
    for message, change in wrong.items():
        with pytest.raises(coil.KernelError, match=message):
            compiled(change)


def command(model, *arguments, **environment):
    env = {**os.environ, "COIL_TORCH": sys.executable, "PYTHONPATH": str(harness.BUILD / "python"), **environment}
    return harness.coil("compile", model, *arguments, env=env)


def test_command_line(tmp_path):
    """A file of torch.export.save, and the Python file of its operators: the package is that of coil.compile."""
    from triton_kernels import softmax

    program, file = exported(softmax.Model(), softmax.example("cpu"), softmax.dims), harness.REPO / "tests/python/triton_kernels/softmax.py"
    model, package = tmp_path / "model.pt2", tmp_path / "model.coil.pt2"
    torch.export.save(program, model, extra_files={"coil_dims.json": json.dumps({"s77": "rows"})})
    done = command(model, "--triton", file, "--target", "cuda:sm_90", "-o", package)
    assert done.returncode == 0, done.stderr
    assert rows_of(package) == rows_of(package_of(program, tmp_path / "same.coil.pt2"))
    assert "rows" in harness.coil("inspect", package).stdout
    harness.assert_refused(command(model, "--triton", file), "coiltest.softmax", "no code for the CPU", "softmax.py:", "--target cuda:sm_90", code=408)
    harness.assert_refused(command(model, "--triton", "nothing.py", "--target", "cuda:sm_90"), "there is no file 'nothing.py'", code=402)
    other = harness.REPO / "tests/python/triton_kernels/scan.py"
    harness.assert_refused(command(model, "--triton", other, "--target", "cuda:sm_90"), "no module defines", "coiltest.softmax.default", code=402)
    harness.assert_refused(command(model, "--triton", file, COIL_TORCH="/nowhere/python"), "cannot start", code=402)
    harness.assert_refused(command(model, "--target", "cuda:sm_90"), "--triton", code=102)


@pytest.mark.parametrize("text, line, what, hint", [
    ("import torch\nnothing\n", 2, "NameError", "mend the file"),
    ("def f(:\n", 1, "SyntaxError", "mend the file"),
    ("import module_that_nobody_has\n", 1, "ModuleNotFoundError", "install 'module_that_nobody_has'"),
    ("import sys\n\nsys.exit(3)\n", 3, "SystemExit", "mend the file"),
    ("def f():\n    raise ValueError('\x1b[31m \u00e9')\nf()\n", 2, "ValueError", "mend the file"),
])
def test_a_file_that_fails_is_named_with_its_line(tmp_path, text, line, what, hint):
    """The hint is about the file, not about the Python that ran it."""
    from triton_kernels import softmax

    torch.export.save(exported(softmax.Model(), softmax.example("cpu"), softmax.dims), tmp_path / "model.pt2")
    (tmp_path / "ops.py").write_text(text)
    done = command(tmp_path / "model.pt2", "--triton", tmp_path / "ops.py", "--target", "cuda:sm_90", "-o", tmp_path / "x.coil.pt2")
    harness.assert_refused(done, what, f"ops.py:{line}", hint, code=402)
    assert "set COIL_TORCH to" not in done.stderr and "\x1b" not in done.stderr
    harness.assert_refused(command(tmp_path / "model.pt2", "--triton", "module_that_nobody_has", "--target", "cuda:sm_90"), "path of a Python file", code=402)


def test_saved_programs(tmp_path):
    """coil.triton.save writes what the command compiles without Python."""
    from triton_kernels import softmax

    model = tmp_path / "model.pt2"
    importlib.import_module("coil.triton").save(exported(softmax.Model(), softmax.example("cpu")), model, "cuda:sm_90")
    done = harness.coil("compile", model, "--target", "cuda:sm_90", "-o", tmp_path / "model.coil.pt2")
    assert done.returncode == 0, done.stderr
    assert len(rows_of(tmp_path / "model.coil.pt2")) == 2
    harness.assert_refused(harness.coil("compile", model, "--target", "cuda:sm_80", "-o", tmp_path / "x.coil.pt2"), "no machine code for sm_80", "softmax.py:33", code=408)


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
