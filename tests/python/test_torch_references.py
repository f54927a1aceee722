"""Operators of training that are taken apart before coil sees them (python/coil/dynamo/_references.py): as eager computes them, in one program."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import coil

LIMIT = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-14}
TYPES = [pytest.param(t, id=str(t)[6:]) for t in (torch.float32, torch.float16, torch.bfloat16)]


def gradients(function, tensors):
    tensors = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in tensors]
    result = function(*tensors)
    weight = torch.cos(torch.arange(result.numel(), dtype=torch.float64)).view(result.shape).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, [t for t in tensors if t.requires_grad], weight)]


def check(function, *sets, dynamic=False):
    """Results and gradients of each set of tensors, all by coil, as near to eager's as the type is exact."""
    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled = torch.compile(function, backend="coil", dynamic=dynamic)
    for tensors in sets:
        for found, wanted in zip(gradients(compiled, tensors), gradients(function, tensors), strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            error = (found.double() - wanted.double()).abs().max() if found.numel() else 0
            assert error <= LIMIT[found.dtype] * max(1.0, float(wanted.abs().max()) if found.numel() else 1), error
    assert coil.compile_stats().fallbacks == {}


def table(dtype, rows=9, width=5):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows * width)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)  # eager sums 16-bit numbers in 16 bits
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_likelihoods(reduction, dtype):
    """Of rows, of one row, of pixels; with weights; with targets that do not count, all of them too."""
    for sizes, weighted, ignored in itertools.product([(5, 7), (7,), (2, 5, 3), (2, 4, 3, 6)], (False, True), (-100, 2)):
        classes, targets = sizes[0 if len(sizes) == 1 else 1], sizes[:1] * (len(sizes) > 1) + sizes[2:]
        target = torch.randint(0, classes, targets, generator=torch.Generator().manual_seed(classes))
        weight = torch.linspace(0.1, 1, classes).to(dtype) if weighted else None
        check(lambda x: F.nll_loss(x, target, weight, reduction=reduction, ignore_index=ignored), [table(dtype, classes, 144)[:, : torch.Size(sizes).numel() // classes].reshape(sizes)])
    nothing = torch.full((5,), 3)
    check(lambda x: F.nll_loss(x, nothing, reduction="sum", ignore_index=3), [table(dtype, 5, 7)])


def test_the_gradient_of_a_likelihood_keeps_no_table():
    """What the forward graph hands over is the logarithms and a number, not a second table of their size."""
    kept = []
    target = torch.randint(0, 300, (40,))
    compiled = torch.compile(lambda x: F.cross_entropy(x * 2, target), backend="coil")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        compiled(table(torch.float32, 40, 300).requires_grad_())
    assert sum(t.numel() >= 40 * 300 for t in kept) <= 1, [t.shape for t in kept]


def test_logarithms_are_computed_anew():
    """The backward graph has the logits in 16 bits, and two numbers a row: no table in float32."""
    kept = []
    weight, target = table(torch.float32, 300, 8).requires_grad_(), torch.randint(0, 300, (40,))

    def loss(x, weight):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(F.linear(x, weight), target)

    compiled = torch.compile(loss, backend="coil")
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        compiled(table(torch.float32, 40, 8), weight)
    assert [t.dtype for t in kept if t.numel() >= 40 * 300] == [torch.bfloat16], [(t.shape, t.dtype) for t in kept]


@pytest.mark.parametrize("dtype", TYPES)
def test_logarithms_of_softmax(dtype):
    for shape, dim in (((5, 7), 1), ((5, 7), 0), ((7,), 0), ((2, 3, 4), 1), ((3, 1), 1)):
        check(lambda x: x.log_softmax(dim), [table(dtype, 1, torch.Size(shape).numel()).view(shape)])
        check(lambda x: x.log_softmax(dim, dtype=torch.float32) * 2, [table(dtype, 1, torch.Size(shape).numel()).view(shape)])
    rows = torch.tensor([[0.0, float("-inf"), 1.0], [float("-inf")] * 3, [float("inf"), 0, 1], [float("nan"), 0, 1]], dtype=dtype)
    for x in (rows, torch.empty(3, 0, dtype=dtype), torch.empty(0, 3, dtype=dtype), torch.tensor(2.0, dtype=dtype)):
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(lambda x: x.log_softmax(-1), backend="coil")(x), x.log_softmax(-1), equal_nan=True)


@pytest.mark.parametrize("dtype", [*TYPES, pytest.param(torch.float64, id="float64")])
def test_running_products(dtype):
    """Of rows without zeros, with one, with several, of zeros alone."""
    x = table(dtype, 6, 5)
    x[1, 2] = x[2, 0] = x[2, 3] = x[3, 4] = 0
    x[4] = 0
    for dim in (0, 1, -1):
        check(lambda x: x.cumprod(dim), [x])
        check(lambda x: torch.cumprod(x * 2, dim=dim), [x[:1]])
    check(lambda x: x.cumprod(0), [x[0]], [x[1]])
    check(lambda x: x.cumprod(1), [x], [x[:, :3]], [x[:2, :4]], dynamic=True)
    check(lambda x: x.cumprod(0, dtype=torch.float64).to(x.dtype), [x[0]])


BAGS = {"usual": ([1, 8, 2, 5, 2, 7, 2], [0, 3, 3, 6]), "one": ([4], [0]), "no index": ([], [0, 0]), "empty last": ([3, 3, 1], [0, 2, 3])}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode, dtype):
    for (indices, offsets), kind, padding in itertools.product(BAGS.values(), (torch.int64, torch.int32), (None, 2)):
        bags = torch.tensor(indices, dtype=kind), torch.tensor(offsets, dtype=kind)
        check(lambda w: F.embedding_bag(bags[0], w, bags[1], mode=mode, padding_idx=padding), [table(dtype)])


@pytest.mark.parametrize("dtype", TYPES)
def test_weighted_bags(dtype):
    indices, offsets = (torch.tensor(v) for v in BAGS["usual"])
    ends = torch.cat([offsets, torch.tensor([7])])
    for padding in (None, 2):
        check(lambda w, s: F.embedding_bag(indices, w, offsets, mode="sum", per_sample_weights=s, padding_idx=padding), [table(dtype), table(dtype, 7, 1)[:, 0]])
    check(lambda w: F.embedding_bag(indices, w, ends, mode="mean", include_last_offset=True), [table(dtype)])
    check(lambda w: F.embedding_bag(indices, w, offsets, mode="sum", scale_grad_by_freq=True), [table(dtype)])
    check(lambda w: F.embedding_bag(indices[:6].view(2, 3), w, mode="max"), [table(dtype, 9, 1)])


def test_bags_of_other_sizes():
    sets = [[table(torch.float32), torch.arange(n) * 7 % 9, torch.arange(0, n, 3)] for n in (7, 12, 20)]
    for mode in ("sum", "mean", "max"):
        check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), *sets, dynamic=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_weight_norms(dtype):
    for shape, dim in (((5, 3, 2), 0), ((1, 7), 0), ((4, 3, 3), 2), ((6, 1), 1), ((3,), 0)):
        v = table(dtype, 1, torch.Size(shape).numel()).view(shape)
        g = torch.rand([n if d == dim else 1 for d, n in enumerate(shape)]).add(0.5).to(dtype)
        check(lambda v, g: torch._weight_norm(v, g, dim), [v, g])
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(3, 4, 3).to(dtype))
    check(lambda x: layer(x), [table(dtype, 6, 9).view(2, 3, 9)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_antialiased_sizes(mode, dtype):
    # Not to a width of one: there eager (PyTorch 2.15) gives every row the numbers of the first.
    for size, out, corners in (((7, 9), (3, 4), False), ((4, 4), (9, 5), False), ((1, 8), (1, 3), False), ((6, 5), (4, 7), True)):
        check(lambda x: F.interpolate(x, size=out, mode=mode, antialias=True, align_corners=corners), [table(dtype, 6, size[0] * size[1]).view(2, 3, *size)])
    check(lambda x: F.interpolate(x, scale_factor=0.6, mode=mode, antialias=True), [table(dtype, 2, 70).view(1, 2, 10, 7)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=lambda t: str(t)[6:])
def test_numbers_that_follow_from_sizes(dtype):
    """A batch norm's correction of the variance, and a product and a quotient of the user's, where the sizes are not known."""
    norm = torch.nn.BatchNorm1d(5, dtype=dtype)
    sets = [torch.randn(n, 5, generator=torch.Generator().manual_seed(n)).to(dtype) for n in (4, 7, 12)]

    def run(x):
        return norm(x) * (x.shape[0] / 3) + x / (x.shape[0] ** 0.5) - (x.shape[0] / 7)

    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled = torch.compile(run, backend="coil", dynamic=True)
    for x in sets:
        state = {name: value.clone() for name, value in norm.state_dict().items()}
        found, seen = compiled(x), {name: value.clone() for name, value in norm.state_dict().items()}
        norm.load_state_dict(state)
        wanted = run(x)
        rough = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(found, wanted, **rough)
        torch.testing.assert_close(seen, dict(norm.state_dict()), **rough)
    assert coil.compile_stats().fallbacks == {}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("norm", ["group", "layer", "batch"])
def test_norms_in_autocast(norm, dynamic):
    """Their weights are of 32 bits, images of 16; statistics are eager's as well, and all of it is coil's."""
    torch._dynamo.reset()
    coil.reset_compile_stats()
    torch.manual_seed(0)
    layer = {"group": torch.nn.GroupNorm(2, 8), "layer": torch.nn.GroupNorm(1, 8), "batch": torch.nn.BatchNorm2d(8)}[norm]
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), layer, torch.nn.SiLU(), torch.nn.Conv2d(8, 3, 1))
    compiled = torch.compile(module, backend="coil", dynamic=dynamic)

    def run(call, x):
        x = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            y = call(x)
        return [y, *torch.autograd.grad((y.float() * torch.arange(3.0).view(3, 1, 1)).sum(), [x, *module.parameters()])]

    for rows in (6, 9) if dynamic else (6,):
        x = torch.randn(2, 3, rows, 5) + 3
        for found, wanted in zip(run(compiled, x), run(module, x), strict=True):
            assert found.dtype == wanted.dtype
            assert float((found - wanted).norm()) <= 0.02 * float(wanted.norm()) + 1e-3 * wanted.numel() ** 0.5
    assert coil.compile_stats().fallbacks == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("function", [torch.linalg.det, lambda x: torch.linalg.slogdet(x)[1], lambda x: torch.logdet(x @ x.mH).real], ids=["det", "slogdet", "logdet"])
def test_determinants(function, dtype):
    """The gradients are given factors: of the transposed matrix, where it lies row by row and is real."""
    for shape in ((3, 3), (2, 4, 4), (1, 1)):
        for turn in (lambda x: x, lambda x: x.mT):
            x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(shape[-1]))
            results = []
            torch._dynamo.reset()
            for form in (torch.compile(function, backend="coil"), function):
                leaf = turn(x.clone()).requires_grad_()
                y = form(leaf)
                results.append((y.detach(), *torch.autograd.grad(y.abs().sum() * 3, leaf)))
            for found, wanted in zip(*results, strict=True):
                torch.testing.assert_close(found, wanted)
