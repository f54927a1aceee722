"""`import coil`: programs compiled and packages run from Python, with torch tensors, NumPy arrays and DLPack."""

import copy
import pickle
import threading
import typing

import ml_dtypes
import numpy as np
import pytest
import torch

import harness
import coil
from api_modules import DYNAMIC, Counter, Linear, Nested, ScaleInPlace, python
from harness import DIGITS, DIGITS_TEST


@pytest.fixture(scope="module")
def linear():
    torch.manual_seed(0)
    return Linear().eval()


@pytest.fixture(scope="module")
def linear_program(linear):
    return torch.export.export(linear, (torch.randn(4, 16),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))


@pytest.fixture(scope="module")
def compiled(linear_program):
    return coil.compile(linear_program, options={"dims": {"batch": "x:0"}})


@pytest.fixture(scope="module")
def nested():
    x, more = torch.randn(4, 3), {"k": [torch.ones(2)]}
    shapes = {"x": {0: DYNAMIC}, "more": {"k": [None]}, "flag": None, "n": None}
    return coil.compile(Nested(), args=(x, more), kwargs={"flag": False, "n": 5}, dynamic_shapes=shapes)


# ---- Importing

def test_import_needs_no_torch(digits_package):
    """Neither importing nor running with NumPy loads PyTorch, and the compiler's module is not loaded either."""
    done = python(f"""
import sys, numpy as np, coil
model = coil.load({str(digits_package)!r})
shape = [1 if isinstance(s, str) else s for s in model.inputs[0].shape]
y = model(np.zeros(shape, model.inputs[0].dtype))
assert isinstance(y, np.ndarray), type(y)
assert "torch" not in sys.modules and "coil._compiler" not in sys.modules
print("fine")
""")
    assert done.stdout == "fine\n", done.stderr


def test_public_names_have_docs_and_types():
    for name in coil.__all__:
        value = getattr(coil, name)
        assert value if name == "__version__" else value.__doc__, name
        if callable(value) and not isinstance(value, type):
            assert "return" in typing.get_type_hints(value), name
    assert (harness.PYTHON_PATH / "coil/py.typed").exists() and (harness.PYTHON_PATH / "coil/_runtime.pyi").exists()


# ---- Compiling

def test_compile_a_file_and_save(tmp_path):
    model = coil.compile(DIGITS)
    with np.load(DIGITS_TEST) as data:
        name = next(n for n in data.files if data[n].dtype == np.float32)
        images = data[name][:8].reshape([8 if isinstance(s, str) else s for s in model.inputs[0].shape])
    model.save(tmp_path / "saved.coil.pt2")
    assert np.array_equal(coil.load(tmp_path / "saved.coil.pt2")(images), model(images))
    assert harness.coil_ok("inspect", tmp_path / "saved.coil.pt2")


def test_compile_to_a_file(tmp_path, linear, linear_program):
    model = coil.compile(linear_program, tmp_path / "linear.coil.pt2")
    x = torch.randn(3, 16)
    torch.testing.assert_close(model(x), linear(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch._inductor.aoti_load_package(str(tmp_path / "linear.coil.pt2"))(x), linear(x), atol=1e-5, rtol=1e-5)
    model.save(tmp_path / "copy.coil.pt2")
    assert (tmp_path / "copy.coil.pt2").read_bytes() == (tmp_path / "linear.coil.pt2").read_bytes()
    assert model.report["kernels"] >= 1 and model.report["stages"]["build"] > 0


def test_every_form_of_a_program_makes_the_same_package(tmp_path, linear_program):
    """From a file, from its bytes, and from the ExportedProgram without a file."""
    path = tmp_path / "model.pt2"
    torch.export.save(linear_program, path)
    for i, program in enumerate((path, str(path), path.read_bytes(), linear_program)):
        coil.compile(program, options={"name": "same"}).save(tmp_path / f"{i}.coil.pt2")
    assert len({(tmp_path / f"{i}.coil.pt2").read_bytes() for i in range(4)}) == 1


def test_compile_a_module_and_a_function(linear):
    x = torch.randn(5, 16)
    model = coil.compile(linear, args=(x,))
    torch.testing.assert_close(model(x), linear(x), atol=1e-5, rtol=1e-5)
    function = coil.compile(lambda a, b: a.sin() @ b, args=(x, torch.ones(16, 2)))
    torch.testing.assert_close(function(x, torch.ones(16, 2)), x.sin() @ torch.ones(16, 2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("case", ["list", "by name", "all dims"])
def test_named_dimensions(linear, case):
    """An export knows them as s31; coil, which exports here, keeps what the caller named."""
    batch = torch.export.Dim("batch", min=2, max=64)
    model = coil.compile(linear, args=(torch.randn(4, 16),), dynamic_shapes={"list": [{0: batch}], "by name": {"x": {0: batch}}, "all dims": ((batch, None),)}[case])
    assert model.inputs[0].shape == ("batch", 16) and model.outputs[0].shape == ("batch", 8)
    with pytest.raises(coil.Error, match="'batch'"):
        model(torch.randn(65, 16))


def test_named_dimensions_of_nested_arguments():
    batch, seq = torch.export.Dim("batch"), torch.export.Dim("seq")

    def function(pair, more):
        return pair[0] + more["k"][1:] + pair[1].sum()

    args = ([torch.randn(4, 16), torch.randn(7)], {"k": torch.randn(5, 16)})
    model = coil.compile(function, args=args, dynamic_shapes=([{0: batch}, {0: seq}], {"k": {0: batch + 1}}))
    assert [i.shape for i in model.inputs] == [("batch", 16), ("seq",), ("batch + 1", 16)]
    other = ([torch.randn(9, 16), torch.randn(3)], {"k": torch.randn(10, 16)})
    torch.testing.assert_close(model(*other), function(*other))
    given = coil.compile(function, args=args, dynamic_shapes=([{0: batch}, {0: seq}], {"k": {0: batch + 1}}), options={"dims": {"n": "pair_0:0"}})
    assert given.inputs[0].shape == ("n", 16)
    with pytest.raises(coil.Error, match="(?s)COIL-E106.*its tensor inputs: pair_0, pair_1"):
        coil.compile(function, args=args, options={"dims": {"n": "x:0"}})


def test_tied_and_strided_weights():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.randn(6, 4))
            self.b = self.a
            self.register_buffer("view", torch.arange(24.0).reshape(4, 6).t()[1:5, 1:], persistent=False)

        def forward(self, x):
            return x @ self.a @ self.b.t() + self.view.sum(), self.view * 2

    model, x = Tied(), torch.randn(2, 6)
    for ours, theirs in zip(coil.compile(model, args=(x,))(x), model(x)):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_options(linear_program):
    one = coil.compile(linear_program, target="cpu:x86-64-v3", options={"opt_level": 1, "threads": 1})
    assert one.isa == "x86-64-v3"
    for options, text in (({"speed": "much"}, "there is no option 'speed'"), ({"tune": "much"}, "no tuning 'much'"), ({"tune_budget": "5s"}, "need a tuner"), ({"opt_level": 7}, "0 to 3"),
                          ({"dims": {"rows": "nothing:0"}}, "nothing")):
        with pytest.raises(coil.Error, match=text):
            coil.compile(linear_program, options=options)
    with pytest.raises(coil.OptionError, match="there is no target 'tpu'"):
        coil.compile(linear_program, target="tpu")
    with pytest.raises(coil.OptionError, match="args"):
        coil.compile(Linear())
    with pytest.raises(TypeError):
        coil.compile(3)


# ---- Looking

def test_inputs_and_outputs(compiled, nested):
    (x,), (y,) = compiled.inputs, compiled.outputs
    assert (x.name, x.dtype, x.shape) == ("x", "float32", ("batch", 16))
    assert (x.dims[0].min, x.dims[0].max, x.dims[1].symbol) == (1, 64, None)
    assert y.shape == ("batch", 8) and str(y).endswith("float32[batch, 8]")
    assert [o.number for o in nested.outputs] == [None, "int", None, None]
    assert "x86-64" in repr(compiled) and compiled.device == "cpu" and compiled.num_threads >= 1


# ---- Calling

def test_nesting_keywords_and_numbers(nested):
    x, one = torch.randn(3, 3), torch.ones(2)
    first, (second, (third,)), none = nested(x, {"k": [one]}, flag=False, n=5)
    assert list(first) == ["y", "rows"] and first["rows"] == 3 and isinstance(first["rows"], int) and none is None
    torch.testing.assert_close(first["y"], x * 5)
    torch.testing.assert_close(second, one + 1)
    torch.testing.assert_close(third, x.sum())
    again = nested(more={"k": [one]}, x=x, n=5, flag=False)
    torch.testing.assert_close(again[0]["y"], x * 5)


def test_kinds_of_tensors(compiled, linear):
    x = torch.randn(3, 16)
    expected = linear(x).detach()
    assert isinstance(compiled(x), torch.Tensor) and isinstance(compiled(x.numpy()), np.ndarray)
    np.testing.assert_allclose(compiled(x.numpy()), expected.numpy(), atol=1e-5)

    class Foreign:
        """A library's array that has DLPack and nothing else."""

        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

        def __array_namespace__(self):
            return np

    np.testing.assert_allclose(compiled(Foreign(x)), expected.numpy(), atol=1e-5)
    torch.testing.assert_close(compiled(torch.nn.Parameter(x)), expected, atol=1e-5, rtol=1e-5)
    assert not compiled(torch.nn.Parameter(x)).requires_grad
    frozen = x.numpy().copy()
    frozen.flags.writeable = False
    np.testing.assert_allclose(compiled(frozen), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                                   torch.float32, torch.float64], ids=str)
def test_dtypes(dtype):
    model = coil.compile(lambda a, b: torch.cat([a, b]), args=(torch.ones(3, dtype=dtype), torch.zeros(2, dtype=dtype)))
    a, b = torch.tensor([1, 0, 1], dtype=dtype), torch.tensor([0, 1], dtype=dtype)
    result = model(a, b)
    assert result.dtype == dtype and torch.equal(result, torch.cat([a, b]))
    arrays = [t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if dtype == torch.bfloat16 else t.numpy() for t in (a, b)]
    result = model(*arrays)
    assert result.dtype == arrays[0].dtype and result.tolist() == np.concatenate(arrays).tolist()


def test_strided_inputs_are_copied(compiled, linear):
    x = torch.randn(16, 6).t()
    torch.testing.assert_close(compiled(x), linear(x), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(compiled(x.numpy()), linear(x).detach().numpy(), atol=1e-5)


def test_inputs_get_the_strides_of_the_program():
    """A program exported for an input with gaps takes any other: the copy has the same gaps."""
    rows, columns = torch.export.Dim("rows", min=1, max=64), torch.export.Dim("columns", min=2, max=99)
    for dims in ({0: rows}, {0: rows, 1: columns}):
        model = coil.compile(lambda a, b: (a * 2 + 1, a - b), args=(torch.randn(4, 12)[:, ::2], torch.randn(6, 4).t()), dynamic_shapes=(dims, dims))
        for n in (1, 5, 64):
            for x in (torch.randn(n, 12)[:, ::2], torch.randn(n, 6), torch.randn(6, n).t()):
                doubled, zero = model(x, x)
                assert torch.equal(doubled, x * 2 + 1) and not zero.any()
                assert np.array_equal(model(x.numpy(), x.numpy())[0], doubled.numpy())


def test_inputs_that_overlap_in_the_program_are_not_copied():
    model = coil.compile(lambda a: a + 1, args=(torch.randn(1, 4).expand(3, 4),))
    assert torch.equal(model(torch.ones(1, 4).expand(3, 4)), torch.full((3, 4), 2.0))
    with pytest.raises(coil.InputError, match="COIL-E205"):
        model(torch.randn(3, 4))


def test_lazy_negation_is_seen(compiled, linear):
    lazy = torch.randn(3, 16, dtype=torch.complex64).conj().imag
    assert lazy.is_neg()
    torch.testing.assert_close(compiled(lazy), linear(lazy), atol=1e-5, rtol=1e-5)


def test_result_strides():
    model = coil.compile(lambda a: a.sin().t(), args=(torch.randn(3, 5),))
    assert model(torch.randn(3, 5)).stride() == (1, 5)
    assert model(np.ones((3, 5), np.float32)).strides == (4, 20)


def test_mutation_of_inputs():
    model = coil.compile(ScaleInPlace(), args=(torch.ones(4),))
    x = torch.ones(4)
    assert model.inputs[0].mutated and torch.equal(model(x), torch.full((4,), 3.0)) and torch.equal(x, torch.full((4,), 2.0))
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(coil.InputError, match="read-only"):
        model(frozen)
    assert frozen.tolist() == [1] * 4


def test_state():
    model = coil.compile(Counter(), args=(torch.zeros(2),))
    x = torch.zeros(2)
    assert [model(x)[0].item() for _ in range(3)] == [1, 2, 3]
    model.reset_state()
    assert model(x)[0].item() == 1


def test_results_live_on(compiled):
    """A result is memory of its own, not the model's."""
    x = torch.randn(3, 16)
    first = compiled(x)
    kept = first.clone()
    compiled(torch.randn(3, 16))
    assert torch.equal(first, kept)


def test_threads_share_a_model(compiled, linear):
    inputs = [torch.randn(n % 8 + 1, 16) for n in range(32)]
    expected = [linear(x).detach() for x in inputs]
    wrong = []

    def work():
        for _ in range(30):
            for x, e in zip(inputs, expected):
                if not torch.allclose(compiled(x), e, atol=1e-5):
                    wrong.append(x.shape)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_nesting_without_torch(tmp_path):
    """The nesting is restored where PyTorch is not loaded."""


    model = coil.compile(lambda x: {"a": (x + 1, [x * 2])}, args=(torch.ones(2),))
    model.save(tmp_path / "tree.coil.pt2")
    done = python(f"import numpy as np, coil; print(coil.load({str(tmp_path / 'tree.coil.pt2')!r})(np.ones(2, np.float32)))")
    assert "{'a': (array([2., 2.]" in done.stdout.replace(", dtype=float32", ""), done.stdout + done.stderr


# ---- Errors


def test_sizes_from_data():
    """Results whose sizes only the data decides: new tensors of each call."""
    class Positive(torch.nn.Module):
        def forward(self, x):
            return x[x > 0] * 2, x.nonzero(), x + 1

    compiled = coil.compile(Positive(), args=(torch.tensor([1.0, -2.0, 3.0]),))
    kept = []
    for x in (torch.tensor([1.0, -2.0, 3.0]), torch.zeros(3), torch.ones(3)):
        kept.append((compiled(x), Positive()(x)))
    for got, expected in kept:
        for a, b in zip(got, expected, strict=True):
            assert a.shape == b.shape and a.stride() == b.stride() and torch.equal(a, b)
    values, positions, _ = compiled(np.array([0, 5, -1], np.float32))
    assert isinstance(values, np.ndarray) and values.tolist() == [10] and positions.tolist() == [[1], [2]]


def test_vmap_inside(tmp_path):
    """torch.export leaves the bounds of vmap in the program; a file of it is refused with what to do."""
    class Batched(torch.nn.Module):
        def forward(self, w, x):
            return torch.vmap(lambda a: (x @ a).sin())(w), torch.vmap(torch.vmap(torch.dot, (None, 0)), (0, None))(x, x)

    args = (torch.randn(3, 4, 5), torch.randn(2, 4))
    program = torch.export.export(Batched(), args)
    for got, expected in zip(coil.compile(program)(*args), Batched()(*args), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    if any("predispatch" in str(node.target) for node in program.graph.nodes):
        torch.export.save(program, tmp_path / "batched.pt2")
        with pytest.raises(coil.UnsupportedError, match="run_decompositions"):
            coil.compile(tmp_path / "batched.pt2")


@pytest.mark.parametrize("transform", [lambda f, x: torch.func.jacrev(f)(x), lambda f, x: torch.func.vjp(f, x)[1](x)], ids=["jacrev", "vjp"])
def test_transforms_that_an_export_left_open(transform):
    """Their tensors have no numbers outside of the transform, and to read one ends the process in some versions of PyTorch."""
    class Transformed(torch.nn.Module):
        def forward(self, x):
            return transform(lambda v: v.sin() * v, x)

    try:
        program = torch.export.export(Transformed(), (torch.randn(5),))
    except Exception as error:
        pytest.skip(f"this version of PyTorch does not export it: {error}")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in program.constants.values()):
        with pytest.raises(coil.UnsupportedError, match="a transform of torch.func that torch.export did not finish"):
            coil.compile(program)
    else:
        x = torch.randn(5)
        torch.testing.assert_close(coil.compile(program)(x), Transformed()(x))


@pytest.mark.parametrize("how", [copy.deepcopy, pickle.dumps])
def test_a_model_is_saved_instead_of_copied(how, compiled, linear):
    with pytest.raises(TypeError, match=r"model\.save\(path\)"):
        how(compiled)
    x = torch.randn(3, 16)
    torch.testing.assert_close(copy.copy(compiled)(x), linear(x), atol=1e-5, rtol=1e-5)
