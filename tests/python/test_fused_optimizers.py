"""The fused optimizers and the gradients' scaler in packages and graphs, beside eager; and a training step that is one program."""

import collections

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import coil

# Eager's loops over what is left of a vector round otherwise in 16 bits.
SHAPES = [(8, 16), (64,), (0,)]
FULL = [(3, 4), (), (0,), (7, 3)]
ADAM = dict(lr=0.01, beta1=0.9, beta2=0.99, eps=1e-8)


class Step(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def state(dtype=torch.float32, amsgrad=True, extra=()):
    torch.manual_seed(0)
    params = [torch.randn(s).to(dtype) for s in (FULL if dtype.itemsize > 2 else SHAPES)]
    params[-1] = params[-1].t() if params[-1].dim() == 2 else params[-1]
    lists = [[torch.rand_like(p) for p in params] for _ in range(4)]
    if not amsgrad:
        lists[3] = []
    return (params, *lists, [torch.tensor(3.0 + i) for i, _ in enumerate(params)], *(e.clone() for e in extra))


def compare(function, make, doors=("package", "functional", "compile")):
    """`make` gives arguments that may be written to."""
    theirs = make()
    wanted = function(*theirs)
    for door in doors:
        ours = make()
        if door == "compile":
            torch._dynamo.reset()
            before = collections.Counter(coil.compile_stats().fallbacks)
            got = torch.compile(function, backend="coil")(*ours)
            assert not collections.Counter(coil.compile_stats().fallbacks) - before
        else:
            program = torch.export.export(Step(function), make(), strict=False)
            got = coil.compile(program.run_decompositions({}) if door == "functional" else program)(*ours)
        torch.testing.assert_close((got, ours), (wanted, theirs), equal_nan=True, msg=lambda text, d=door: f"{d}: {text}")


@pytest.fixture
def exported():
    """PyTorch has no fake kernels of these; a user who registers them can export them."""
    library = torch.library.Library("aten", "IMPL")
    for name in ("_fused_sgd_", "_fused_adagrad_", "_fused_adam_.tensor_lr", "_fused_adamw_.tensor_lr"):
        packet, _, overload = name.partition(".")
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(getattr(getattr(torch.ops.aten, packet), overload or "default"), lambda *args, **kwargs: None, "Meta")
    yield
    library._destroy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam(name, dtype):
    step = getattr(torch, f"_fused_{name}_")

    def plain(params, grads, means, squares, largest, steps):
        step(params, grads, means, squares, largest, steps, weight_decay=0.0, amsgrad=False, maximize=False, **ADAM)
        return params[0] * 2

    def with_all(params, grads, means, squares, largest, steps):
        step(params, grads, means, squares, largest, steps, weight_decay=0.1, amsgrad=True, maximize=True, **ADAM)
        return params[0] * 2

    compare(plain, lambda: state(dtype, amsgrad=False), ["package"])  # PyTorch's functionalisation fails for an empty list
    compare(with_all, lambda: state(dtype), ["package", "functional", "compile"] if dtype == torch.float32 else ["package"])


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_scaled_gradients(found):
    """They are unscaled where they lie; a step that overflowed changes nothing."""
    def step(params, grads, means, squares, largest, steps, scale, overflow):
        torch._fused_adamw_(params, grads, means, squares, largest, steps, weight_decay=0.1, amsgrad=True, maximize=False,
                            grad_scale=scale, found_inf=overflow, **ADAM)
        return grads[0] + 1

    def make():
        values = state(extra=(torch.tensor(4.0), torch.tensor([found])))
        if found:
            values[1][0][0] = float("nan")
        return values

    compare(step, make)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rate_in_a_tensor(exported, dtype):
    def step(params, grads, means, squares, largest, steps, rate):
        torch._fused_adamw_(params, grads, means, squares, largest, steps, lr=rate, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, amsgrad=True,
                            maximize=False)
        return params[0] * 2

    compare(step, lambda: state(dtype, extra=(torch.tensor(0.01),)), ["package"])


@pytest.mark.parametrize("momentum, nesterov, first", [(0.0, False, False), (0.9, True, False), (0.9, False, True)])
def test_sgd(exported, momentum, nesterov, first):
    def step(params, grads, means, *rest):
        torch._fused_sgd_(params, grads, means if momentum else [], weight_decay=0.1, momentum=momentum, lr=0.01, dampening=0.0 if nesterov else 0.1,
                          nesterov=nesterov, maximize=first, is_first_step=first)
        return params[0] * 2

    for dtype in (torch.float32, torch.bfloat16):
        compare(step, lambda: state(dtype), ["package"])


def test_adagrad(exported):
    def step(params, grads, sums, squares, largest, steps):
        torch._fused_adagrad_(params, grads, sums, steps, lr=0.01, lr_decay=0.1, weight_decay=0.1, eps=1e-10, maximize=True)
        return params[0] * 2

    compare(step, state, ["package"])


@pytest.mark.parametrize("value", [1.0, float("inf"), float("nan")])
def test_unscale(value):
    def unscale(grads, found, scale):
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        return grads[0] + 1

    for dtype in (torch.float32, torch.bfloat16):
        compare(unscale, lambda: ([torch.full((3, 4), 8.0, dtype=dtype), torch.tensor([value, 2.0], dtype=dtype), torch.zeros(0, dtype=dtype)],
                                  torch.zeros(1), torch.tensor(0.25)))


def test_update_of_the_scale():
    def update(scales, counts, found):
        return [torch._amp_update_scale_(scale, count, overflow, 2.0, 0.5, 2) * 1 for scale, count, overflow in zip(scales, counts, found)]

    def make():
        cases = [(4.0, 0, 0.0), (4.0, 1, 0.0), (3e38, 1, 0.0), (4.0, 1, 1.0)]
        return ([torch.full((1,) * (i % 2), s) for i, (s, _, _) in enumerate(cases)],
                [torch.full((1,) * (i % 2), c, dtype=torch.int32) for i, (_, c, _) in enumerate(cases)], [torch.tensor([f]) for *_, f in cases])

    compare(update, make)


class Trained(nn.Module):
    """A network with its optimizer and its scaler; a call is a step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.names = [name for name, _ in net.named_parameters()]
        for i, p in enumerate(net.parameters()):
            self.register_buffer(f"param_{i}", p.detach().clone())
            for part in ("mean", "square", "largest"):
                self.register_buffer(f"{part}_{i}", torch.zeros_like(p))
            self.register_buffer(f"steps_{i}", torch.zeros(()))
        self.register_buffer("scale", torch.tensor(1024.0))
        self.register_buffer("growth", torch.zeros((), dtype=torch.int32))

        def loss_of(values, x, target, scale):
            loss = nn.functional.cross_entropy(torch.func.functional_call(net, dict(zip(self.names, values)), (x,)), target)
            return loss * scale, loss

        trace = make_fx(torch.func.grad(loss_of, has_aux=True), torch._decomp.core_aten_decompositions())
        self.gradients = trace(self.all_of("param"), torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64), self.scale)

    def all_of(self, part):
        return [getattr(self, f"{part}_{i}") for i, _ in enumerate(self.names)]

    def forward(self, x, target):
        params, steps = self.all_of("param"), self.all_of("steps")
        grads, loss = self.gradients(params, x, target, self.scale)
        found = torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, self.scale.reciprocal())
        torch._foreach_add_(steps, 1)
        torch._foreach_sub_(steps, found[0])
        torch._fused_adamw_(params, grads, self.all_of("mean"), self.all_of("square"), self.all_of("largest"), steps, weight_decay=0.1, amsgrad=True,
                            maximize=False, found_inf=found, **ADAM)
        torch._amp_update_scale_(self.scale, self.growth, found, 2.0, 0.5, 2)
        return loss


@pytest.mark.parametrize("functional", [False, True])
def test_a_step_is_one_program(functional):
    def batch(step):
        torch.manual_seed(step)
        return torch.randn(6, 4) * (float("inf") if step == 2 else 1), torch.randint(0, 3, (6,))

    ours, eager = Trained(), Trained()
    program = torch.export.export(ours, batch(0), strict=False)
    model = coil.compile(program.run_decompositions({}) if functional else program)
    for step in range(5):
        torch.testing.assert_close(model(*batch(step)), eager(*batch(step)), equal_nan=True)
    assert eager.scale != 1024 and int(eager.steps_0) == 4
