"""Attention that programs write by hand becomes the template, whatever precision its softmax has and however its mask is written."""

import attention_forms
import emulated_cuda
import pytest
import torch

import coil
from test_cuda_sorts import check

BOUNDS = {torch.float32: 3e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}


def operands(dtype, rows=40, dim=32, seed=0):
    torch.manual_seed(seed)
    return *(torch.randn(2, 4, rows, dim).to(dtype) for _ in range(3)), torch.randn(rows, rows)


def compiled(form):
    torch._dynamo.reset()
    return torch.compile(form, backend="coil")


def kinds(function, *arguments):
    with coil.profile(all_calls=True) as profile:
        function(*arguments)
    return [kernel["kind"] for kernel in profile.kernels()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", attention_forms.FORMS)
def test_becomes_the_template(name, dtype):
    form = attention_forms.FORMS[name]
    arguments = operands(dtype)
    function = compiled(form)
    with torch.no_grad():
        got = function(*arguments)
        want = form(*(x.double() for x in arguments))
        used = kinds(function, *arguments)
    assert got.dtype == dtype and not want.isnan().any()
    torch.testing.assert_close(got.double(), want, atol=BOUNDS[dtype], rtol=BOUNDS[dtype])
    # The lowest number of float16 that is added is no such number: scores beside it count, so a row that sees nothing shows them.
    lowest = name == "filled_twice" and dtype == torch.float16
    assert ("attention" in used) == (not lowest), used
    assert "gemm" not in used or lowest


@pytest.mark.parametrize("name", attention_forms.FORMS)
def test_under_autocast(name):
    form = attention_forms.FORMS[name]
    arguments = operands(torch.float32)
    function = compiled(form)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got = function(*arguments)
        used = kinds(function, *arguments)
    torch.testing.assert_close(got.double(), form(*(x.double() for x in arguments)), atol=5e-2, rtol=5e-2)
    if name != "triangle_by_where":  # torch.where makes float32 of bfloat16 scores and a float32 number there
        assert "attention" in used


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["filled_with_infinity", "filled_with_the_lowest", "filled_twice", "chosen_by_where", "shown_by_where", "filled_and_biased"])
def test_rows_that_see_nothing(name, dtype):
    form = attention_forms.FORMS[name]
    q, k, v, mask = operands(dtype)
    mask[3], mask[7, 1:] = -torch.rand(mask.shape[1]) * 1.5, -1.0
    with torch.no_grad():
        got, want = compiled(form)(q, k, v, mask), form(*(x.float() for x in (q, k, v, mask)))
    torch.testing.assert_close(got.float(), want, atol=BOUNDS[dtype], rtol=BOUNDS[dtype], equal_nan=True)
    assert want[:, :, 3].isnan().any() == (name not in ("filled_with_the_lowest", "filled_twice", "chosen_by_where"))


@pytest.mark.parametrize("fill", [-float("inf"), -3e38, -1e9, -1e4, -5.0, 0.0, 1e30, float("inf"), float("nan")])
def test_rows_filled_with_a_number(fill):
    """It takes the scores' place, also beside scores that it does not hide. Numbers that are not negative are no masks."""

    def form(q, k, v, mask):
        return attention_forms.products(q, k).masked_fill(mask < 0, fill).softmax(-1) @ v

    q, k, v, mask = operands(torch.float32)
    mask[3] = -1.0
    function = compiled(form)
    with torch.no_grad():
        torch.testing.assert_close(function(q * 30, k, v, mask), form(q * 30, k, v, mask), atol=1e-4, rtol=1e-4, equal_nan=True)
        assert ("attention" in kinds(function, q, k, v, mask)) == (fill < 0)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("name", ["filled_with_infinity", "filled_with_the_lowest", "filled_with_a_large_number", "chosen_by_where", "shown_by_where",
                                  "bias_in_float32"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_a_number_of_a_hidden_key_that_is_none(name, value, rows):
    """Filled scores hide it, as they do in eager; a mask that is added does not."""
    form = attention_forms.FORMS[name]
    q, k, v, mask = operands(torch.float32)
    k[:, :, 5], mask[:, 5] = value, -1.0
    q, mask = q[:, :, :rows], mask[:rows]
    with torch.no_grad():
        got, want = compiled(form)(q, k, v, mask), form(q, k, v, mask)
    torch.testing.assert_close(got, want, atol=3e-6, rtol=3e-6, equal_nan=True)
    assert want.isnan().any() == (name == "bias_in_float32")


def positions_as_transformers_compares_them(rows, keys):
    """Of sequences that may be packed: positions that do not rise by one begin another one."""
    position = torch.arange(rows)[None].expand(2, -1)
    sequence = (torch.diff(position, prepend=position[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    same = sequence[:, None, :, None] == sequence[:, None, None, :]
    return torch.ones((), dtype=torch.bool) & same & (torch.arange(keys)[None, None, None, :] <= torch.arange(rows)[None, None, :, None])


MASKS = {
    "packed": (positions_as_transformers_compares_them, True),
    "packed and added": (lambda n, m: torch.where(positions_as_transformers_compares_them(n, m), 0.0, torch.finfo(torch.float32).min), True),
    "triangle": (lambda n, m: torch.ones(n, m, dtype=torch.bool).tril(), True),
    "triangle that is added": (lambda n, m: torch.full((n, m), float("-inf")).triu(1), True),
    "packed, as PyTorch hands it to cuDNN": (lambda n, m: torch.where(positions_as_transformers_compares_them(n, m), 0.0, -65504.0), True),
    "everything": (lambda n, m: torch.ones(n, m, dtype=torch.bool), True),
    "zeros": (lambda n, m: torch.zeros(n, m), True),
    "window": (lambda n, m: torch.ones(n, m, dtype=torch.bool).tril().triu(-5), False),
    "one more": (lambda n, m: torch.ones(n, m, dtype=torch.bool).tril(1), False),
    "small numbers": (lambda n, m: torch.full((n, m), -3.0).triu(1), False),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_say_no_more_than_a_flag(name):
    make, known = MASKS[name]

    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, make(q.shape[2], k.shape[2]))

    q, k, v, _ = operands(torch.float32)
    function = compiled(attend)
    with torch.no_grad():
        torch.testing.assert_close(function(q, k, v), attend(q, k, v), atol=1e-5, rtol=1e-5)
        assert (kinds(function, q, k, v) == ["attention"]) == known
        for rows in (7, 64):  # dynamic from here on
            q, k, v, _ = operands(torch.float32, rows)
            torch.testing.assert_close(function(q, k, v), attend(q, k, v), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_packages_of_dynamic_rows(rows, tmp_path):
    class Model(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return attention_forms.lower_triangle(q, k, v, mask), attention_forms.filled_with_infinity(q, k, v, mask)

    dim = torch.export.Dim("rows", min=1, max=64)
    example = operands(torch.bfloat16)
    program = torch.export.export(Model(), example, dynamic_shapes=({2: dim}, {2: dim}, {2: dim}, {0: dim, 1: dim}))
    coil.compile(program, tmp_path / "m.coil.pt2")
    arguments = operands(torch.bfloat16, rows, seed=1)
    arguments[3].diagonal().abs_()  # each row sees itself
    for got, want in zip(coil.load(tmp_path / "m.coil.pt2")(*arguments), Model()(*(x.double() for x in arguments))):
        torch.testing.assert_close(got.double(), want, atol=3e-2, rtol=3e-2)


def test_packages_of_other_dimensions_and_dynamic_sizes(tmp_path):
    names = ["three_dimensions_with_a_mask", "softmax_of_four_between_products_of_three", "rows_before_heads", "heads_split_from_columns", "matrices",
             "five_dimensions", "einsum_of_rows_before_heads", "softmax_of_columns", "weights_transposed"]

    class Model(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return tuple(attention_forms.FORMS[name](q * (1 + i / 8), k, v, mask) for i, name in enumerate(names))  # no two have the same scores

    batch, rows = torch.export.Dim("batch", min=1, max=16), torch.export.Dim("rows", min=1, max=300)
    program = torch.export.export(Model(), operands(torch.float32), dynamic_shapes=({0: batch, 2: rows},) * 3 + ({0: rows, 1: rows},))
    coil.compile(program, tmp_path / "m.coil.pt2")
    model = coil.load(tmp_path / "m.coil.pt2")
    assert kinds(model, *operands(torch.float32)).count("attention") == len(names)
    for count, length in ((2, 40), (1, 1), (1, 7), (3, 130)):
        q, k, v, mask = operands(torch.float32, length, seed=2)
        arguments = [x[:1].repeat(count, 1, 1, 1) * torch.arange(1, count + 1).view(-1, 1, 1, 1) for x in (q, k, v)] + [mask]
        for name, got, want in zip(names, model(*arguments), Model()(*(x.double() for x in arguments))):
            torch.testing.assert_close(got.double(), want, atol=1e-4, rtol=1e-4, msg=lambda text: f"{name} of {count} x {length}: {text}")


@pytest.mark.parametrize("kind", ["branch", "loop", "state", "results", "whole"])
def test_who_reads_attention_of_three_dimensions(kind, tmp_path):
    """Its result lies in four: whoever reads it finds the elements, and results of programs have the sizes and strides that they should."""

    def attention(q, k, v):
        return torch.bmm(torch.bmm(q, k.transpose(1, 2)).mul(0.2).softmax(-1), v)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(8, 10, 32))

        def forward(self, condition, q, k, v):
            if kind == "branch":
                return torch.cond(condition, lambda q, k, v: attention(q, k, v), lambda q, k, v: q + v, (q, k, v))
            if kind == "loop":
                return torch.while_loop(lambda i, q: i < 3, lambda i, q: (i + 1, attention(q, k, v)), (torch.zeros((), dtype=torch.int64), q))[1]
            y = attention(q, k, v)
            if kind == "state":
                self.kept.copy_(y)
                q.copy_(y)
                return self.kept + 1, y
            if kind == "results":
                return y, y.view(2, 4, 10, 32), y.transpose(0, 1), y[2:5], y + 1
            return torch.sort(y, -1)[0], torch.fft.rfft(y).abs(), y.cumsum(1), torch.cat([y, q], 1), y @ y.transpose(1, 2)

    arguments = [torch.tensor(True), *(torch.randn(8, 10, 32, generator=torch.Generator().manual_seed(i)) for i in range(3))]
    program = torch.export.export(Model(), tuple(arguments), strict=False)
    coil.compile(program, tmp_path / "m.coil.pt2")
    want = program.module()(*(x.clone() for x in arguments))
    for load in (coil.load, lambda path: torch._inductor.aoti_load_package(str(path))):
        got = load(tmp_path / "m.coil.pt2")(*(x.clone() for x in arguments))
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5, check_stride=kind == "results")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 70])
def test_on_a_gpu(rows, dtype, tmp_path):
    """Emulated: kernels for few queries and for many, and rows that see nothing, or nothing but the lowest of numbers."""
    names = ["softmax_in_float32", "bias_in_float32", "filled_with_infinity", "filled_with_the_lowest", "filled_twice", "chosen_by_where", "shown_by_where",
             "filled_and_biased", "filled_with_a_large_number"]

    def forms(q, k, v, mask):
        q, k, v = [x.to(dtype) for x in (q, k, v)]
        return tuple(attention_forms.FORMS[name](q * (1 + i / 8), k, v, mask).float() for i, name in enumerate(names))  # no two have the same scores

    _, k, v, mask = operands(torch.float32, 70)
    q, mask = torch.randn(2, 4, rows, 32), mask[:rows].clone()
    mask[0] = -torch.rand(70) * 1.5
    package = check(forms, [(q, k, v, mask), (q, k, v, mask.abs() * torch.randn_like(mask).sign())], tmp_path, tolerance=1e-5 if dtype == torch.float32 else 2e-2)
    text = emulated_cuda.kernels_of(package.package)[0]
    assert "attention_" in text and "softmax_max" not in text
