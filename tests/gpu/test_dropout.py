"""Dropout through torch.compile on a GPU: eager's masks to the bit, drawn inside coil's kernels, and PyTorch's generator where eager leaves it."""

import pytest

torch = pytest.importorskip("torch")
coil = pytest.importorskip("coil")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

import torch.nn.functional as F

from coil.dynamo import _generator

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
SIZES = [(16,), (1,), (333, 3), (334,), (7, 2), (1023, 1021), (8, 512, 768), (3, 1 << 20), (3, 5, 7, 11), (4, 4096, 513)]


def both(function, *inputs, seed=7, offset=0, **options):
    """Results, gradients and the generator's offset: eager's, then coil's."""
    torch._dynamo.reset()
    found = []
    for run in (function, torch.compile(function, backend="coil", dynamic=False, **options)):
        torch.manual_seed(seed)
        torch.rand(offset, device="cuda") if offset else None
        given = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.is_floating_point()) for x in inputs]
        results = run(*given)
        results = results if isinstance(results, tuple) else (results,)
        sum((r.float() ** 2).sum() for r in results if r.is_floating_point()).backward()
        found.append((*results, *(x.grad for x in given), torch.tensor(torch.cuda.default_generators[0].get_offset())))
    return found


def assert_equal(found, masks_only=False):
    """`masks_only`: what is not 0 is rounded in one place only, in eager's kernels after each operator."""
    for eager, coils in zip(*found):
        if masks_only and eager is not None and eager.is_floating_point():
            assert torch.equal(eager == 0, coils == 0), (eager.shape, ((eager == 0) != (coils == 0)).sum())
            torch.testing.assert_close(eager, coils, atol=3e-2 if eager.dtype == torch.bfloat16 else 1e-5, rtol=3e-2 if eager.dtype == torch.bfloat16 else 1e-5)
        else:
            assert eager is coils is None or torch.equal(eager, coils), (eager.shape, (eager != coils).sum())


@pytest.mark.parametrize("dtype", DTYPES)
def test_coil_draws_as_this_pytorch_does(dtype):
    assert _generator.known(dtype, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_masks_are_eagers(sizes, dtype):
    x = torch.randn(sizes, device="cuda", dtype=dtype)
    before = coil.compile_stats().fallback_operators
    assert_equal(both(lambda x: F.dropout(x, 0.1), x, offset=1000))
    assert coil.compile_stats().fallback_operators == before


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 5, 2**64 - 1])
def test_several_with_other_numbers_between(seed):
    def function(x, y):
        x = F.dropout(x, 0.3)
        noise = torch.randn_like(y)
        y = F.dropout(y, 0.5) + F.dropout(noise, 0.25)
        return F.dropout(x, 0.7), y

    assert_equal(both(function, torch.randn(64, 100, device="cuda"), torch.randn(17, 31, device="cuda", dtype=torch.bfloat16), seed=seed), masks_only=True)


@pytest.mark.parametrize("format", [torch.channels_last, "transposed", "gaps"])
def test_other_orders_in_memory(format):
    x = torch.randn(4, 8, 6, 10, device="cuda")
    x = x.transpose(1, 3) if format == "transposed" else x[..., ::2] if format == "gaps" else x.to(memory_format=format)
    assert_equal(both(lambda x: F.dropout(x, 0.4), x))


def test_whole_and_no_dropout():
    x = torch.randn(100, 7, device="cuda")
    assert_equal(both(lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(x, 0.5, training=False), F.dropout(x[:0], 0.5)), x))


def test_a_layer_and_many_calls():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True, device="cuda")
    x = torch.randn(4, 32, 64, device="cuda")
    found = []
    for run in (layer, torch.compile(layer, backend="coil")):
        torch.manual_seed(3)
        found.append([run(x).detach() for _ in range(3)])
    for eager, coils in zip(*found):
        torch.testing.assert_close(eager, coils, atol=2e-4, rtol=1e-4)  # another mask would change whole numbers
    assert not torch.equal(found[1][0], found[1][1])


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_modes(mode):
    x = torch.randn(64, 128, device="cuda")
    assert_equal(both(lambda x: F.dropout(x * 2, 0.2), x, mode=mode), masks_only=True)


def test_a_graph_that_the_user_records():
    """Other masks in each replay, and the same again from the same seed."""
    torch._dynamo.reset()
    run, x = torch.compile(lambda x: F.dropout(x, 0.5), backend="coil"), torch.ones(4096, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        run(x), run(x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = run(x)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        graph.replay()
        results.append(y.clone())
        graph.replay()
        assert not torch.equal(y, results[-1])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    assert all(0.4 < (r != 0).float().mean() < 0.6 for r in results)
