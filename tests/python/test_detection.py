"""What torchvision's models for detection end in, as packages, beside torchvision: regions of images, convolutions whose taps move, suppression of boxes."""

import pytest
import torch
import torchvision

import harness  # noqa: F401: finds the package
import coil

ops = torchvision.ops


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def compiled(function, *args, dynamic=None):
    shapes = None if dynamic is None else (tuple(dynamic),)
    return coil.compile(Function(function), args=args, dynamic_shapes=shapes)


def boxes_of(n, size, dtype=torch.float32, seed=0):
    source = torch.Generator().manual_seed(seed)
    first = torch.rand(n, 2, generator=source) * size
    return torch.cat([first, first + torch.rand(n, 2, generator=source) * size / 2], 1).to(dtype)


REGIONS = torch.tensor([[0, 1, 2, 9, 11], [1, 3, 3, 16, 18.5], [0, 0, 0, 19, 19], [1, -6, -3, 5, 4], [0, 15, 15, 40, 30], [1, 7, 7, 7, 7]])


@pytest.mark.parametrize("samples, size, aligned", [(2, (3, 3), True), (3, (7, 2), False), (0, (3, 3), True), (-1, (7, 2), False), (0, (1, 1), False)])
def test_regions(samples, size, aligned):
    x = torch.randn(2, 4, 10, 9)
    n = torch.export.Dim("n", min=1, max=50)
    model = compiled(lambda x, r: ops.roi_align(x, r, size, 0.5, samples, aligned), x, REGIONS, dynamic=(None, {0: n}))
    for regions in (REGIONS, REGIONS[:1], REGIONS.repeat(5, 1)):
        torch.testing.assert_close(model(x, regions), ops.roi_align(x, regions, size, 0.5, samples, aligned), atol=1e-5, rtol=1e-4)


def test_regions_of_no_image_are_refused():
    x = torch.randn(2, 4, 10, 9)
    model = compiled(lambda x, r: ops.roi_align(x, r, 2, 1.0, 2), x, REGIONS)
    wrong = REGIONS.clone()
    wrong[2, 0] = 2
    with pytest.raises(coil.Error, match="COIL-E210"):
        model(x, wrong)


def test_regions_that_are_too_large_for_their_samples_are_named():
    x = torch.randn(2, 4, 10, 9)
    model = compiled(lambda x, r: ops.roi_align(x, r, 2), x, REGIONS)
    wrong = REGIONS.clone()
    wrong[1, 3:] = 1e9
    with pytest.raises(coil.Error, match="COIL-E211: .*more than 1024 pixels each way"):
        model(x, wrong)
    torch.testing.assert_close(model(x, REGIONS), ops.roi_align(x, REGIONS, 2), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("groups, offset_groups, masks, dtype", [(1, 1, True, torch.float32), (2, 1, False, torch.float64), (2, 4, True, torch.float32)])
def test_moved_taps(groups, offset_groups, masks, dtype):
    x, weight, bias = torch.randn(2, 4, 9, 8, dtype=dtype), torch.randn(6, 4 // groups, 3, 2, dtype=dtype), torch.randn(6, dtype=dtype)
    how = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2))
    rows, columns = (9 + 2 - 3) // 2 + 1, 8 + 4 - 3 + 1
    offset = torch.randn(2, offset_groups * 12, rows, columns, dtype=dtype) * 2
    mask = torch.rand(2, offset_groups * 6, rows, columns, dtype=dtype) if masks else None

    def function(x, offset, weight, bias, *mask):
        return ops.deform_conv2d(x, offset, weight, bias, mask=mask[0] if mask else None, **how)

    args = (x, offset, weight, bias, *([mask] if masks else []))
    torch.testing.assert_close(compiled(function, *args)(*args), function(*args), atol=1e-5, rtol=1e-4)


def test_suppression():
    n = torch.export.Dim("n", min=2, max=500)
    model = compiled(lambda b, s: (lambda kept: (kept, b[kept]))(ops.nms(b, s, 0.3)), boxes_of(9, 20), torch.rand(9), dynamic=({0: n}, {0: n}))
    numbers = lambda *args: model(*args)[0]
    for count in (9, 15, 200):
        boxes, scores = boxes_of(count, 20, seed=count), torch.rand(count).mul(8).round()  # equal ones keep their order
        wanted = ops.nms(boxes, scores, 0.3)
        assert torch.equal(numbers(boxes, scores), wanted) and torch.equal(model(boxes, scores)[1], boxes[wanted])
    with pytest.raises(coil.Error, match="COIL-E211"):  # torchvision exports that at least two boxes stay
        model(boxes_of(1, 5).repeat(2, 1), torch.rand(2))
    boxes, scores = boxes_of(6, 5), torch.tensor([0.1, float("nan"), 0.5, float("inf"), float("nan"), -1])
    assert torch.equal(numbers(boxes, scores), ops.nms(boxes, scores, 0.3))


def test_suppression_class_by_class():
    """As torchvision's and Ultralytics' post-processing calls it: boxes of other classes are moved away; the best few of what stays."""
    def function(boxes, scores, classes):
        moved = boxes + (classes * 100).unsqueeze(1).to(boxes)
        kept = ops.nms(moved, scores, 0.5)
        return kept, scores[kept] * 2

    args = boxes_of(60, 10), torch.rand(60), torch.randint(0, 4, (60,))
    for found, wanted in zip(compiled(function, *args)(*args), function(*args)):
        torch.testing.assert_close(found, wanted)


def test_through_torch_compile(fresh_compiles):
    x = torch.randn(2, 4, 10, 9, requires_grad=True)
    call = torch.compile(lambda x: ops.roi_align(x.relu(), REGIONS, 3, 0.5, 2) * 2, backend="coil", fullgraph=True)
    found, wanted = call(x), ops.roi_align(x.relu(), REGIONS, 3, 0.5, 2) * 2
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(wanted.sum(), x), atol=1e-5, rtol=1e-4)


def gradient_of_regions(x, regions, grad, size, samples, aligned):
    return torch.ops.torchvision._roi_align_backward(grad, regions, 0.5, *size, *x.shape, samples, aligned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples, size, aligned", [(2, (3, 3), True), (3, (7, 2), False), (0, (3, 3), True), (-1, (7, 2), False), (1, (1, 1), True)])
def test_gradients_of_regions(samples, size, aligned, dtype):
    torch.manual_seed(0)
    x, regions = torch.randn(2, 4, 10, 9, dtype=dtype), REGIONS.to(dtype)
    n = torch.export.Dim("n", min=1, max=50)
    model = compiled(lambda x, r, g: gradient_of_regions(x, r, g, size, samples, aligned), x, regions, torch.randn(len(regions), 4, *size, dtype=dtype), dynamic=(None, {0: n}, {0: n}))
    for chosen in (regions, regions[3:4], regions.repeat(5, 1)):
        grad = torch.randn(len(chosen), 4, *size, dtype=dtype)
        torch.testing.assert_close(model(x, chosen, grad), gradient_of_regions(x, chosen, grad, size, samples, aligned))


def test_regions_are_trained_through_torch_compile():
    torch.manual_seed(0)
    x, regions = torch.randn(2, 3, 12, 12), REGIONS[:3]
    function = lambda x, w: (ops.roi_align(x * w, regions, (2, 2), 0.5, 2, True) ** 2).sum()
    found, expected = (torch.autograd.grad(f(a, b), (a, b)) for f, a, b in
                       ((f, x.clone().requires_grad_(), torch.ones(3, 1, 1, requires_grad=True)) for f in (torch.compile(function, backend="coil", fullgraph=True), function)))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert not any("roi_align" in row for row in coil.compile_stats().fallbacks)


# ---- bins of whole pixels, and of channels of their own

def whole_pixels(regions):
    """Regions whose edges lie between halves after the scale of 0.5, where a rounding decides."""
    return torch.cat([regions, torch.tensor([[1, 1.0, 3.0, 7.0, 5.0], [0, 30, 30, 40, 40]])])


POOLED = {
    "roi_pool": lambda x, r: torch.ops.torchvision.roi_pool(x, r, 0.5, 3, 2),
    "ps_roi_pool": lambda x, r: torch.ops.torchvision.ps_roi_pool(x, r, 0.5, 3, 2),
    "ps_roi_align": lambda x, r: torch.ops.torchvision.ps_roi_align(x, r, 0.5, 3, 2, 2),
    "ps_roi_align_by_size": lambda x, r: torch.ops.torchvision.ps_roi_align(x, r, 0.5, 3, 2, -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", POOLED)
def test_pooled_regions(name, dtype):
    torch.manual_seed(0)
    x, regions = torch.randn(2, 12, 10, 9, dtype=dtype), whole_pixels(REGIONS).to(dtype)
    x[0, 0, 2:5] = float("nan")
    x[1, 1, 3] = float("-inf")
    n = torch.export.Dim("n", min=1, max=50)
    model = compiled(POOLED[name], x, regions, dynamic=(None, {0: n}))
    for chosen in (regions, regions[:1], regions.repeat(3, 1), regions[-1:].repeat(2, 1)):
        for found, wanted in zip(model(x, chosen), POOLED[name](x, chosen), strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("name", POOLED)
def test_pooled_regions_are_trained(name):
    torch.manual_seed(0)
    x, regions = torch.randn(2, 12, 10, 9), whole_pixels(REGIONS)
    function = lambda x: (POOLED[name](x.tanh(), regions)[0].nan_to_num() ** 2).sum()
    found, wanted = (torch.autograd.grad(f(leaf), leaf)[0] for f in (torch.compile(function, backend="coil", fullgraph=True), function) for leaf in [x.clone().requires_grad_()])
    torch.testing.assert_close(found, wanted)
    assert not any("roi" in row for row in coil.compile_stats().fallbacks)


@pytest.mark.parametrize("groups, offset_groups, masks, dtype", [(1, 1, True, torch.float32), (2, 1, False, torch.float64), (2, 4, True, torch.float64), (1, 2, True, torch.bfloat16)])
def test_gradients_of_moved_taps(groups, offset_groups, masks, dtype):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 4, 9, 8, dtype=dtype), torch.randn(6, 4 // groups, 3, 2, dtype=dtype), torch.randn(6, dtype=dtype)
    rows, columns = (9 + 2 - 3) // 2 + 1, 8 + 4 - 3 + 1
    offset = torch.randn(2, offset_groups * 12, rows, columns, dtype=dtype) * 2
    mask = torch.rand(2, offset_groups * 6, rows, columns, dtype=dtype) if masks else torch.zeros(2, 1, dtype=dtype)
    grad = torch.randn(2, 6, rows, columns, dtype=dtype)
    function = lambda *args: torch.ops.torchvision._deform_conv2d_backward(*args, 2, 1, 1, 2, 1, 2, groups, offset_groups, masks)
    args = (grad, x, weight, offset, mask, bias)
    exact = function(*(t.double() for t in args))
    for number, (found, wanted) in enumerate(zip(compiled(function, *args)(*args), exact, strict=True)):
        if number == 3 and not masks:
            continue
        tolerance = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 2e-2}[dtype]
        torch.testing.assert_close(found.double(), wanted, atol=tolerance * wanted.abs().max().item(), rtol=tolerance)


def test_moved_taps_are_trained_through_torch_compile():
    torch.manual_seed(0)
    tensors = [torch.randn(1, 4, 9, 8), torch.randn(1, 18, 9, 8), torch.randn(6, 4, 3, 3), torch.rand(1, 9, 9, 8)]
    function = lambda x, offset, weight, mask: ops.deform_conv2d(x, offset, weight, padding=1, mask=mask).square().sum()
    call = torch.compile(function, backend="coil", fullgraph=True)
    found, wanted = (torch.autograd.grad(f(*leaves), leaves) for f in (call, function) for leaves in [[t.clone().requires_grad_() for t in tensors]])
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    assert not any("deform" in row for row in coil.compile_stats().fallbacks)
