"""Training graphs' convolutions with windows side by side, written as products of patches: the rewritten graph beside eager's convolution."""

import itertools

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from coil.dynamo._patches import write_patches
from coil.dynamo._support import torch_nodes
from test_traced_on_gpu import traced

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
WINDOW, COUNTS = [3, 2, 4], [5, 3, 2]
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    monkeypatch.setattr("coil.dynamo._patches.convolutions_in_tf32", lambda: False)


def operands(dims, transposed, last, behind, dtype, channels=6):
    """Of a convolution from `channels` to 8. `behind`: the image has pixels behind the last window."""
    torch.manual_seed(dims)
    window, counts = WINDOW[:dims], COUNTS[:dims]
    image = [2, channels, *(counts if transposed else (n * k + (k - 1 if behind else 0) for n, k in zip(counts, window)))]
    tensors = [torch.randn(image).to(dtype), torch.randn([channels, 8, *window] if transposed else [8, channels, *window]).to(dtype)]
    return [t.contiguous(memory_format=LAST[dims]) if last else t for t in tensors], (window, [0] * dims, [1] * dims, transposed, [0] * dims, 1)


def rewritten(function, tensors):
    gm = make_fx(function, tracing_mode="fake")(*tensors)
    write_patches(gm.graph)
    gm.recompile()
    return gm, [n for n in gm.graph.nodes if n.target in CONVOLUTIONS]


def compare(function, tensors):
    gm, left = rewritten(function, tensors)
    assert not left
    for found, wanted in zip(gm(*tensors), function(*tensors), strict=True):
        assert (found is None) == (wanted is None)
        if wanted is not None:
            assert found.stride() == wanted.stride()
            error = (found.double() - wanted.double()).norm() / wanted.double().norm()
            assert found.dtype == wanted.dtype and error < (1e-2 if wanted.dtype == torch.bfloat16 else 1e-5)


FORMS = [(dims, transposed, last, behind) for dims, transposed, last, behind in itertools.product((1, 2, 3), (False, True), (False, True), (False, True))
         if not (last and dims == 1) and not (behind and transposed)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dims, transposed, last, behind", FORMS)
def test_results_and_gradients(dims, transposed, last, behind, dtype):
    tensors, parameters = operands(dims, transposed, last, behind, dtype)
    bias = torch.randn(8).to(dtype)
    compare(lambda x, w, b: (aten.convolution(x, w, b, *parameters), aten.convolution(x, w, None, *parameters)), [*tensors, bias])
    gradient = torch.randn_like(aten.convolution(*tensors, None, *parameters))
    compare(lambda g, x, w: aten.convolution_backward(g, x, w, [8], *parameters, [True, True, True]), [gradient, *tensors])
    compare(lambda g, x, w: aten.convolution_backward(g, x, w, None, *parameters, [False, True, False]), [gradient, *tensors])


@pytest.mark.parametrize("channels", [1, 3])
def test_few_channels(channels):
    tensors, parameters = operands(2, False, True, False, torch.float32, channels)
    compare(lambda x, w: (aten.convolution(x, w, None, *parameters),), tensors)


@pytest.mark.parametrize("change", [{0: [1, 1]}, {1: [1, 0]}, {2: [2, 1]}, {0: [4, 2]}])
def test_windows_that_share_pixels_stay(change):
    tensors, parameters = operands(2, False, False, False, torch.float32)
    parameters = tuple(change.get(i, p) for i, p in enumerate(parameters))
    _, left = rewritten(lambda x, w: (aten.convolution(x, w, None, *parameters),), tensors)
    assert len(left) == 1


def test_products_that_round_more_than_the_convolution_are_not_taken(monkeypatch):
    tensors, parameters = operands(2, False, False, False, torch.float32)
    monkeypatch.setattr("coil.dynamo._patches.products_in_tf32", lambda: True)
    _, left = rewritten(lambda x, w: (aten.convolution(x, w, None, *parameters),), tensors)
    assert len(left) == 1


@pytest.mark.parametrize("dtype, inner, outer, groups, own", [
    (torch.bfloat16, 1, 2, 6, True), (torch.float32, 1, 2, 6, True), (torch.float32, 1, 1, 6, False), (torch.bfloat16, 1, 1, 6, False),
    (torch.float32, 4, 4, 3, True), (torch.bfloat16, 4, 4, 3, False), (torch.float32, 4, 8, 1, False)])
def test_groups_that_pytorch_computes_one_by_one_are_coils(dtype, inner, outer, groups, own, monkeypatch):
    monkeypatch.setattr("coil.dynamo._support.convolutions_in_tf32", lambda: False)
    x, w = torch.randn(2, inner * groups, 6, 6, dtype=dtype), torch.randn(outer * groups, inner, 3, 3, dtype=dtype)
    parameters = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    gm = traced(lambda x, w: aten.convolution_backward(aten.convolution(x, w, None, *parameters), x, w, None, *parameters, [True, True, False])[:2], x, w)
    gm.graph.eliminate_dead_code()  # as in AOTAutograd's graphs nobody reads a gradient that is None
    kept = torch_nodes(gm.graph, torch.device("cuda", 0), of_pytorch=("convolutions",))
    assert [reason for node, reason in kept.items() if node.target in CONVOLUTIONS] == ([] if own else ["training takes PyTorch's convolutions"] * 2)
