"""torch.compile(backend="coil"): results and gradients of convolutions, pools, norms, attention and embeddings beside eager; none may stay in PyTorch."""

import pytest
import torch
import torch.nn.functional as F

from compiled_beside_eager import nothing_in_torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")

F32, BF16 = torch.float32, torch.bfloat16


def check(function, *tensors, tolerance=1e-5, **options):
    """Results, and gradients of all floating arguments for a random gradient of the result: values, dtypes and strides."""
    def run(f):
        arguments = [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]
        y = f(*arguments)
        torch.manual_seed(1)
        y.backward(torch.randn_like(y))
        return [y.detach(), *[a.grad for a in arguments if a.grad is not None]]

    for ours, theirs in zip(run(torch.compile(function, backend="coil", **options)), run(function), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        error = (ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-6)
        assert error <= tolerance, f"{tuple(ours.shape)}: {error:.1e}"
    nothing_in_torch()


# (dims, images, channels in, out, groups, kernel, stride, padding, dilation, dtype, channels last)
CONVOLUTIONS = [
    (2, 2, 3, 40, 1, 3, 1, 1, 1, F32, False), (2, 2, 40, 36, 1, 3, 2, 1, 1, F32, False), (2, 5, 8, 33, 1, 1, 1, 0, 1, F32, True), (2, 1, 4, 6, 2, 5, 3, 2, 1, F32, False),
    (2, 3, 4, 4, 4, 3, 2, 1, 1, F32, True), (2, 3, 4, 4, 4, 3, 1, 2, 2, F32, False), (2, 2, 8, 5, 1, 4, 4, 0, 1, F32, False), (2, 4, 16, 16, 1, 3, 2, 1, 1, BF16, False),
    (1, 2, 4, 6, 2, 3, 2, 1, 1, F32, False), (1, 3, 5, 7, 1, 3, 1, 0, 2, F32, False), (3, 2, 3, 5, 1, 3, 2, 1, 1, F32, False), (3, 1, 4, 6, 2, 3, 1, 1, 1, F32, False),
    (2, 2, 3, 4, 1, 3, 2, 1, 1, torch.float64, False),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=["-".join(map(str, c)).replace("torch.", "") for c in CONVOLUTIONS])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_convolution(case, transposed):
    dims, images, into, out, groups, kernel, stride, padding, dilation, dtype, last = case
    x = torch.randn(images, into, *[(13,), (9, 11), (5, 6, 7)][dims - 1], dtype=dtype)
    w = torch.randn(*((into, out // groups) if transposed else (out, into // groups)), *[kernel] * dims, dtype=dtype)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        options["output_padding"] = int(stride > 1)
    convolve = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    x = x.to(memory_format=torch.channels_last) if last else x
    check(lambda x, w, b: convolve(x, w, b, **options), x, w, torch.randn(out, dtype=dtype), tolerance=2e-2 if dtype == BF16 else 1e-5)


# (channels in, out, groups, kernel, stride, padding, dilation, dtype, channels last) on images of 41 x 43 pixels, which few channels a group are worth a way of their own for
NARROW_GROUPS = [(24, 24, 6, 3, 1, 1, 1, F32, True), (16, 32, 8, 3, 2, 1, 1, F32, True), (24, 12, 4, 5, 1, 2, 1, F32, False), (16, 16, 2, 3, 1, 2, 2, F32, True),
                 (8, 8, 2, 9, 1, 4, 1, F32, True), (32, 32, 8, 3, 1, 1, 1, BF16, True), (16, 16, 4, (3, 1), 1, (1, 0), 1, F32, False), (12, 12, 12, 7, 2, 3, 1, F32, True)]


@pytest.mark.parametrize("case", NARROW_GROUPS, ids=["-".join(map(str, c)).replace("torch.", "") for c in NARROW_GROUPS])
def test_convolution_of_narrow_groups(case):
    into, out, groups, kernel, stride, padding, dilation, dtype, last = case
    torch.manual_seed(0)
    kernels = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    x, w = torch.randn(3, into, 41, 43, dtype=dtype), torch.randn(out, into // groups, *kernels, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    check(lambda x, w: F.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups), x, w, tolerance=2e-2 if dtype == BF16 else 1e-5)


def test_sum_of_a_bias_keeps_its_digits():
    """As near to the sum in double precision as eager's, whether its terms lie together or not."""
    torch.manual_seed(0)
    g, x, w = torch.randn(2, 4, 22, 22, 2), torch.randn(2, 2, 4, 4), torch.randn(2, 2, 4, 5)

    def of_bias(grad, x, w):
        return torch.ops.aten.convolution_backward(grad, x, w, [4], [3, 2], [1, 2], [4, 4], True, [2, 3], 2, [False, False, True])[2]

    for terms in (lambda g: g[..., 0].contiguous(), lambda g: g[..., 0], lambda g: g[..., 0] - g[..., 1]):
        exact = of_bias(terms(g.double()), x.double(), w.double())
        ours = torch.compile(lambda g, x, w: of_bias(terms(g), x, w), backend="coil")(g, x, w)
        assert (ours - exact).abs().max() <= 2e-5, terms
    nothing_in_torch()


def test_lazily_conjugated_windows():
    """What the backward pass gets of stft shares memory and is conjugated lazily."""
    x, w = torch.randn(2, 100, dtype=torch.complex64), torch.randn(16, dtype=torch.complex64)
    found = []
    for backend in ("coil", "eager"):
        given = [t.clone().requires_grad_() for t in (x, w)]
        f = torch.compile(lambda x, w: torch.stft(x, n_fft=16, hop_length=4, window=w, return_complex=True), backend=backend)
        f(*given).abs().square().sum().backward()
        found.append([t.grad for t in given])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-3)


def test_convolution_of_a_dynamic_batch():
    compiled = torch.compile(lambda x, w: F.conv2d(x, w, stride=2, padding=1).relu(), backend="coil", dynamic=True)
    for images in (2, 7):
        x, w = torch.randn(images, 6, 9, 9, requires_grad=True), torch.randn(8, 6, 3, 3, requires_grad=True)
        compiled(x, w).square().sum().backward()
        a, b = x.detach().clone().requires_grad_(), w.detach().clone().requires_grad_()
        F.conv2d(a, b, stride=2, padding=1).relu().square().sum().backward()
        torch.testing.assert_close(x.grad, a.grad, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(w.grad, b.grad, atol=1e-3, rtol=1e-4)
    nothing_in_torch()


def test_weights_that_change_between_calls():
    """Also through .data, which no version counter tells."""
    x, w = torch.randn(1, 3, 6, 6), torch.nn.Parameter(torch.randn(4, 3, 3, 3))
    compiled = torch.compile(lambda x: F.conv2d(x, w), backend="coil")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), F.conv2d(x, w), atol=1e-4, rtol=1e-4)
            w.data.mul_(-2)


@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, 2, 1, 0, 2), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    lambda x: F.adaptive_avg_pool2d(x, (1, 1)), lambda x: F.adaptive_avg_pool2d(x, (3, 4)), lambda x: F.max_pool1d(x.flatten(2), 3), lambda x: F.avg_pool1d(x.flatten(2), 3),
    lambda x: F.adaptive_max_pool2d(x, (2, 3)), lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=(5, 6), mode="bilinear"),
], ids=range(11))
def test_pool(pool):
    check(pool, torch.randn(2, 3, 7, 9))


@pytest.mark.parametrize("dtype", [F32, BF16, torch.float64], ids=str)
def test_logsigmoid(dtype):
    check(lambda x: -F.logsigmoid(x), torch.randn(5, 33, dtype=dtype) * 8, tolerance=1e-2 if dtype == BF16 else 1e-6)


def test_fractional_pool():
    places = torch.rand(2, 3, 2), torch.rand(2, 3, 3)
    check(lambda x: F.fractional_max_pool2d(x, 2, output_size=(3, 4), _random_samples=places[0]), torch.randn(2, 3, 7, 9))
    check(lambda x: F.fractional_max_pool3d(x, 2, output_size=(3, 4, 2), _random_samples=places[1]), torch.randn(2, 3, 7, 9, 5))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("masking", ["none", "causal", "bool", "float"])
def test_attention(masking, dtype):
    mask = {"bool": torch.rand(2, 1, 10, 12) > 0.3, "float": torch.randn(10, 12, dtype=dtype)}.get(masking)
    if masking == "bool":
        mask[0, 0, 3] = True
    q, k, v = (torch.randn(2, 3, n, 16, dtype=dtype) for n in (10, 12, 12))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=masking == "causal"), q, k, v, tolerance=3e-2 if dtype == BF16 else 1e-5)


@pytest.mark.parametrize("norm", [
    lambda x, w, b: F.batch_norm(x, torch.zeros(6), torch.ones(6), w, b, training=True), lambda x, w, b: F.group_norm(x, 3, w, b),
    lambda x, w, b: F.layer_norm(x.transpose(1, 3), (6,), w, b), lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    lambda x, w, b: torch.ops.aten._batch_norm_with_update(x, w, b, torch.zeros(6), torch.ones(6), 0.1, 1e-5)[0],
], ids=["batch", "group", "layer", "instance", "with update"])
def test_norm(norm):
    check(norm, torch.randn(3, 6, 5, 4), torch.rand(6) + 0.5, torch.randn(6), tolerance=1e-4)


@pytest.mark.parametrize("rows", [10, 5000])
def test_embedding(rows):
    check(lambda table: F.embedding(torch.tensor([[1, 2, 2, 0], [7, 9, 1, 2]]), table, padding_idx=2), torch.randn(rows, 8))


def test_rows_of_a_table_in_any_number():
    """Gradients of picked rows, which are added to 700 of them: none, a few, many of one kind."""
    table = torch.randn(700, 3, requires_grad=True)
    compiled = torch.compile(lambda t, i: (t[i] ** 2).sum() + F.embedding(i % 700, t).cos().sum(), backend="coil", dynamic=True)
    for rows in (torch.randint(-700, 700, (300,)), torch.randint(0, 3, (2000,)), torch.randint(-700, 700, (17,)), torch.zeros(0, dtype=torch.int64)):
        ours, = torch.autograd.grad(compiled(table, rows), table)
        theirs, = torch.autograd.grad((table[rows] ** 2).sum() + F.embedding(rows % 700, table).cos().sum(), table)
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_statistics_of_batch_norm_are_eagers():
    import copy

    ours = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
    theirs, x = copy.deepcopy(ours), torch.randn(4, 3, 10, 10)
    compiled = torch.compile(ours, backend="coil")
    for _ in range(3):
        compiled(x).square().mean().backward()
        theirs(x).square().mean().backward()
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    nothing_in_torch()


try:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
except ImportError:  # PyTorch has it since 2.14
    LinearCrossEntropyOptions = None


@pytest.mark.skipif(LinearCrossEntropyOptions is None, reason="this PyTorch has no chunked linear_cross_entropy")
@pytest.mark.parametrize("target, reduction, dtype", [("classes", "mean", F32), ("some ignored", "sum", F32), ("some ignored", "none", F32), ("all ignored", "mean", F32),
                                                      ("shares", "mean", F32), ("shares", "none", F32), ("some ignored", "mean", torch.float64), ("shares", "sum", BF16)])
def test_linear_cross_entropy_in_chunks(target, reduction, dtype):
    """The operator of the sum and the mean gives its gradients beside the loss: all of them, and some."""
    torch.manual_seed(3)
    x, w, b = (torch.randn(*sizes, dtype=dtype) for sizes in ((10, 6), (9, 6), (9,)))
    t = torch.randint(0, 9, (10,)) if target != "shares" else torch.rand(10, 9, dtype=dtype).softmax(1)
    if "ignored" in target:
        t[:: 1 if target == "all ignored" else 3] = 4
    options = {"reduction": reduction, "options": LinearCrossEntropyOptions(batch_chunk_size=4, allow_retain_graph=True)}
    if target != "shares":
        options["ignore_index"] = 4

    def gradients(f, tensors, fixed):
        given = [v.clone().requires_grad_(i not in fixed) for i, v in enumerate(tensors)]
        loss = f(*given)
        loss.backward(torch.arange(1.0, loss.numel() + 1, dtype=loss.dtype).reshape(loss.shape))
        return [loss.detach(), *[v.grad for v in given if v.grad is not None]]

    def plain(x, w):
        return F.linear_cross_entropy(x, w, t, **options)

    def with_all(x, w, b):
        return F.linear_cross_entropy(x, w, t, linear_bias=b, weight=b.detach().abs() + 0.5, **options)

    for f, tensors, fixed in ((plain, (x, w), (0,)), (with_all, (x, w, b), ()), (with_all, (x, w, b), (1,))):
        theirs, ours = gradients(f, tensors, fixed), gradients(torch.compile(f, backend="coil", fullgraph=True), tensors, fixed)
        for mine, right in zip(ours, theirs, strict=True):
            assert mine.dtype == right.dtype and mine.shape == right.shape
            torch.testing.assert_close(mine, right, rtol=5e-2 if dtype == BF16 else 1e-5, atol=5e-2 if dtype == BF16 else 1e-5, equal_nan=True)
        nothing_in_torch()
