"""On a GPU: sizes, branches and loops that only data decides, and what the host computes, through a package, PyTorch's own loader and torch.compile."""

import pytest

torch = pytest.importorskip("torch")
coil = pytest.importorskip("coil")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from torch import nn


def steps(x, n):
    return torch._higher_order_ops.while_loop(lambda i, x: (i < n[0]) & (x.abs().sum() < 1e6), lambda i, x: (i + 1, x * 1.5 + i),
                                              (torch.zeros((), dtype=torch.int64, device=x.device), x))


def rows(x, mask):
    return x[mask] * 2, mask.nonzero(), x.masked_select(x > 0.5), x[mask].sum(0)


def repeated(x, counts):
    return x.repeat_interleave(counts, 0), torch.unique(counts, return_inverse=True)[1]


def solved(x):
    return torch.linalg.inv(x + 9 * torch.eye(3, device=x.device)) * 2, torch.fft.fft(x.sum(0)).real + 1


def cases():
    torch.manual_seed(0)
    x = torch.randn(200_000, 5)
    yield "rows", rows, [(x, torch.rand(200_000) < part) for part in (0.3, 0.0, 1.0)]
    yield "repeated", repeated, [(x[:1000], torch.randint(0, most, (1000,))) for most in (5, 1)]
    yield "steps", steps, [(x[:300], torch.tensor([n])) for n in (7, 0, 10_000)]
    yield "solved", solved, [(torch.randn(n, 3, 3),) for n in (64, 64)]


CASES = {name: (function, sets) for name, function, sets in cases()}


class Program(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def on_gpu(tensors):
    return tuple(t.cuda() for t in tensors)


def assert_right(found, function, inputs):
    for got, expected in zip(found, function(*inputs), strict=True):
        torch.testing.assert_close(torch.as_tensor(got).to(expected.dtype), expected, atol=1e-4, rtol=1e-4)


@pytest.fixture(scope="module", params=CASES)
def package(request, tmp_path_factory):
    function, sets = CASES[request.param]
    path = str(tmp_path_factory.mktemp("packages") / f"{request.param}.coil.pt2")
    exported = torch.export.export(Program(function), on_gpu(sets[0]))
    coil.compile(exported, target="cuda:sm_%d%d" % torch.cuda.get_device_capability()).save(path)
    return path, function, sets


def test_package(package):
    path, function, sets = package
    model = coil.load(path, device="cuda:0")
    for inputs in map(on_gpu, sets * 2):
        assert_right(model(*inputs), function, inputs)


def test_stock_loader(package):
    path, function, sets = package
    model = torch._inductor.aoti_load_package(path)
    for inputs in map(on_gpu, sets * 2):
        assert_right(model(*inputs), function, inputs)


def test_a_capture_is_refused(package):
    path, function, sets = package
    model, inputs = coil.load(path, device="cuda:0"), on_gpu(sets[0])
    model(*inputs)
    with pytest.raises(Exception, match="COIL-E105"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            model(*inputs)
    torch.cuda.synchronize()
    assert_right(model(*inputs), function, inputs)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", ["rows", "repeated", "steps"])
def test_torch_compile(name, mode):
    function, sets = CASES[name]
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend="coil", mode=mode, fullgraph=True)
        for inputs in map(on_gpu, sets):
            assert_right([r.clone() for r in compiled(*inputs)], function, inputs)


def test_gradients_of_chosen_rows():
    torch.manual_seed(1)
    torch._dynamo.reset()
    net = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1)).cuda()
    x, mask = torch.randn(4000, 5, device="cuda"), torch.rand(4000, device="cuda") < 0.4

    def loss(x, mask):
        return net(x[mask]).square().sum()

    found = []
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for call in (loss, torch.compile(loss, backend="coil", fullgraph=True)):
            given = x.clone().requires_grad_()
            found.append(torch.autograd.grad(call(given, mask), [given, *net.parameters()]))
    for eager, coils in zip(*found, strict=True):
        torch.testing.assert_close(coils, eager, atol=1e-4, rtol=1e-4)
