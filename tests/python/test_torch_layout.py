"""Training graphs with their images' channels last (coil.dynamo's _layout, _products and _biases): the same numbers, the strides that tracing says, what the user
gets as eager lays it. PyTorch runs the graphs on the CPU, as what is written for CUDA tensors and as what is written for the CPU; the last tests run coil's."""

import contextlib
import functools
import sys

import pytest
import torch
from torch import nn

import harness

sys.path.insert(0, str(harness.BUILD / "python"))

aten = torch.ops.aten
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def same_strides(a, b):
    return all(size < 2 or x == y for size, x, y in zip(a.shape, a.stride(), b.stride()))


class Checked(torch.fx.Interpreter):
    """Runs a graph and compares each value's strides with those that it was laid out with."""

    def run_node(self, n):
        value = super().run_node(n)
        told = n.meta.get("val")
        if isinstance(value, torch.Tensor) and isinstance(told, torch.Tensor) and n.op == "call_function":
            assert same_strides(value, told), (n.format_node(), value.stride(), told.stride())
        return value


def backend(seen, kinds=("convolutions",), device=CUDA):
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from coil.dynamo import _graph
    from coil.dynamo._decompositions import decompositions

    def compile_one(gm, inputs, kind):
        _graph.settle_results(gm.graph)
        _graph._lay_out(gm, inputs, kinds, device, kind)
        gm.graph.lint()
        seen.extend((kind, node) for node in gm.graph.nodes)

        def call(arguments):
            values = list(arguments)
            arguments.clear()
            return Checked(gm).run(*values)

        call._boxed_call = True
        return call

    return aot_autograd(fw_compiler=functools.partial(compile_one, kind="forward"), bw_compiler=functools.partial(compile_one, kind="backward"),
                        decompositions=decompositions, partition_fn=min_cut_rematerialization_partition)


class Views(nn.Module):
    """Reads of images' memory: reshapes that need rows, slices, two results of one image."""

    def forward(self, x):
        return x.flatten(2).transpose(1, 2), x[:, ::2].reshape(x.shape[0], -1), x.mean((2, 3)), x


class Slices(nn.Module):
    """As GhostNet joins two halves and adds to a slice in place, whose gradient is copied into memory that eager lays channels first."""

    def __init__(self):
        super().__init__()
        self.cheap = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, x):
        cheap = self.cheap(x).relu()
        joined = torch.cat([x, cheap], 1)[:, :16, :, :]
        joined += torch.cat([cheap, x], 1)
        return joined


def conv(*arguments, **options):
    return nn.Conv2d(*arguments, **options)


NETWORKS = {
    "plain": lambda: nn.Sequential(conv(3, 8, 3), nn.ReLU(), conv(8, 16, 3, stride=2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 5)),
    "norms": lambda: nn.Sequential(conv(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.GELU(), conv(8, 8, 1), nn.GroupNorm(2, 8), nn.SiLU(), conv(8, 4, 1, bias=False)),
    "depthwise": lambda: nn.Sequential(conv(3, 12, 1), conv(12, 12, 3, groups=12, padding=1), nn.Hardswish(), conv(12, 6, 1), nn.AdaptiveAvgPool2d(1)),
    "grouped": lambda: nn.Sequential(conv(3, 16, 3), conv(16, 16, 3, groups=4), nn.ReLU(), conv(16, 8, 1)),
    "transposed": lambda: nn.Sequential(conv(3, 8, 3), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.LeakyReLU(), conv(6, 4, 1)),
    "views": lambda: nn.Sequential(conv(3, 8, 3), Views()),
    "slices": lambda: nn.Sequential(conv(3, 8, 3), Slices(), nn.ReLU(), conv(16, 4, 3)),
    "upsampled": lambda: nn.Sequential(conv(3, 8, 1), nn.Upsample(scale_factor=2), nn.PixelShuffle(2), conv(2, 4, 3)),
    "pools": lambda: nn.Sequential(conv(3, 12, 1), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(3, 1, 1, dilation=2), nn.AdaptiveMaxPool2d((4, 3)), conv(12, 4, 1)),
    "volumes": lambda: nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Conv3d(3, 4, (1, 3, 3)), nn.ReLU(), nn.ConvTranspose3d(4, 2, 2)),
    "lines": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.ReLU()),
}


def results(model, x):
    y = model(x)
    tensors = [t for t in (y if isinstance(y, tuple) else (y,))]
    sum(t.float().square().sum() for t in tensors).backward()
    return [t.detach() for t in tensors] + [x.grad, *(p.grad for p in model.parameters())]


def cases(test):
    for name, values in (("size", [(2, 3, 16, 16), (1, 3, 16, 16), (3, 3, 17, 15)]), ("dtype", [torch.float32, torch.bfloat16]), ("name", list(NETWORKS))):
        test = pytest.mark.parametrize(name, values, ids=str)(test)
    return test


def network(name, dtype, size):
    if name == "plain" and size[2] != 16:
        pytest.skip("its last layer counts its inputs")
    if name == "norms" and dtype == torch.bfloat16:
        pytest.skip("PyTorch's gradient of batch norm on the CPU wants one type")
    torch.manual_seed(0)
    return NETWORKS[name]().to(dtype).train()


def check_same(found, expected, dtype):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape and same_strides(ours, theirs)
        assert (ours.float() - theirs.float()).abs().max() <= (1e-4 if dtype == torch.float32 else 6e-2) * theirs.float().abs().max().clamp_min(1e-3)


@contextlib.contextmanager
def biases_behind(model):
    """As PyTorch computes on a GPU: a convolution is rounded before its bias is added. On the CPU it is not, nor in the products that convolutions of
    single pixels are."""
    biased = [m for m in model.modules() if isinstance(m, nn.modules.conv._ConvNd) and m.bias is not None and m.kernel_size != (1, 1)]

    def forward(m, original, x):
        bias, m.bias = m.bias, None
        try:
            y = original(x)
        finally:
            m.bias = bias
        return y + bias.view(-1, *[1] * (y.dim() - 2))

    for m in biased:
        m.forward = functools.partial(forward, m, m.forward)
    try:
        yield
    finally:
        for m in biased:
            del m.forward


def again(model, x, compiler):
    model.zero_grad()
    x.grad = None
    torch._dynamo.reset()
    return results(torch.compile(model, backend=compiler), x)


@pytest.mark.parametrize("device", [CUDA, CPU], ids=str)
@cases
def test_the_same_in_other_strides(name, dtype, size, device):
    model = network(name, dtype, size)
    x = torch.randn(size).to(dtype).requires_grad_()
    with biases_behind(model) if device == CUDA else contextlib.nullcontext():
        expected = results(model, x)
    seen = []
    check_same(again(model, x, backend(seen, device=device)), expected, dtype)
    convolutions = [node for _, node in seen if node.target in (aten.convolution.default, aten.convolution_backward.default)]
    moved = [node for node in convolutions if node.args[0].meta["val"].is_contiguous(memory_format=torch.channels_last)]
    assert bool(moved) == (name not in ("lines", "volumes")), "images have their channels last"
    biased = [node for node in convolutions if (node.args[2] is not None if node.target is aten.convolution.default else node.args[10][2])]
    assert convolutions and bool(biased) == (device == CPU), "coil adds biases to PyTorch's convolutions, and sums their gradients"
    images = [node for _, node in seen if node.target is aten.permute.default and node.args[1] == [0, 3, 1, 2] and node.args[0].args[0].target in (aten.mm.default, aten.addmm.default)]
    assert bool(images) == (device == CUDA and dtype == torch.bfloat16 and name in ("depthwise", "grouped", "upsampled", "transposed", "pools"))


def test_whole_copies_ask_for_no_strides():
    model = network("slices", torch.float32, (2, 3, 16, 16))
    seen = []
    again(model, torch.randn(2, 3, 16, 16, requires_grad=True), backend(seen))
    values = [(node, node.meta.get("val")) for kind, node in seen if kind == "backward" and node.op == "call_function" and node.target is not aten.new_empty_strided.default]
    images = [(node, v) for node, v in values if isinstance(v, torch.Tensor) and v.dim() == 4 and v.shape[0] == 2 and v.shape[1] > 3]
    assert images and all(v.is_contiguous(memory_format=torch.channels_last) or node.target is aten.slice.Tensor for node, v in images)


@cases
def test_of_coil(name, dtype, size):
    import coil  # noqa: F401  registers the backend

    model = network(name, dtype, size)
    x = torch.randn(size).to(dtype).requires_grad_()
    expected = results(model, x)
    check_same(again(model, x, "coil"), expected, dtype)
    if name in ("views", "volumes"):
        return  # (of a result that PyTorch's own gradient of a mean lays out)
    last = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    check_same(again(model, last, "coil")[1:], results(model.to(memory_format=torch.channels_last), last)[1:], dtype)


@pytest.mark.parametrize("dynamic", [False, True])
def test_coil_keeps_images_as_its_convolutions_write_them(dynamic):
    """What the forward program saves is not turned on its way out, whatever the number of images."""
    import coil

    torch._dynamo.reset()
    model = nn.Sequential(conv(4, 16, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), conv(16, 8, 3, bias=False), nn.BatchNorm2d(8))
    x = torch.randn(2, 4, 12, 12).contiguous(memory_format=torch.channels_last)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    compiled = torch.compile(model, backend="coil")
    with coil.profile() as kernels:
        compiled(x)
    names = [k["name"] for k in kernels.kernels()]
    assert names.count("convolution") == 2 and "copy" not in names and "output" not in names, names


def test_nothing_moves_on_cuda_where_convolutions_are_coils():
    seen = []
    torch._dynamo.reset()
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    results(torch.compile(NETWORKS["grouped"](), backend=backend(seen, ())), x)
    assert not any(node.args[0].meta["val"].is_contiguous(memory_format=torch.channels_last) for _, node in seen if node.target is aten.convolution.default)


def test_exact_float32_keeps_its_strides():
    seen = []
    torch._dynamo.reset()
    # The context manager: plain assignments are refused once PyTorch's own test modules were imported, as others of this suite do.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        results(torch.compile(NETWORKS["grouped"](), backend=backend(seen)), torch.randn(2, 3, 16, 16, requires_grad=True))
    assert not any(node.args[0].meta["val"].is_contiguous(memory_format=torch.channels_last) for _, node in seen if node.target is aten.convolution.default)
