"""Gradient operators as a joint graph has them that nobody took apart: each beside eager, with odd sizes, numbers that are not finite, and nothing."""

import torch

from case import BF16, F16, F32, F64, rand, registry, special

PROGRAMS, op = registry(__file__)
aten = torch.ops.aten
number = lambda dtype=F32: rand(1, dtype=dtype).squeeze()
block = lambda sizes, dtype=F32: rand(*sizes, dtype=dtype) if sizes else number(dtype)

# name: the operator of a gradient and of the argument, or the result, of an activation
ACTIVATIONS = {
    "tanh": lambda g, x: aten.tanh_backward(g, x.tanh()),
    "sigmoid": lambda g, x: aten.sigmoid_backward(g, x.sigmoid()),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0.5),
    "relu": lambda g, x: aten.threshold_backward(g, x, 0),
    "gelu": lambda g, x: aten.gelu_backward(g, x),
    "gelu_tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "mish": aten.mish_backward,
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2, 10),
    "elu": lambda g, x: aten.elu_backward(g, 1.5, 1.25, 0.75, False, x),
    "elu_of_result": lambda g, x: aten.elu_backward(g, 1.5, 1.25, 0.75, True, x.clamp_min(-1)),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 2.5),
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardswish": aten.hardswish_backward,
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "log_sigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, (-x.abs()).exp()),
    "logit": lambda g, x: aten.logit_backward(g, x),
    "logit_eps": lambda g, x: aten.logit_backward(g, x, 0.1),
    "rrelu": lambda g, x: aten.rrelu_with_noise_backward(g, x, x.abs(), 0.1, 0.3, False, False),
    "rrelu_training": lambda g, x: aten.rrelu_with_noise_backward(g, x, x.abs(), 0.1, 0.3, True, False),
    "prelu": lambda g, x: aten._prelu_kernel_backward(g, x, x.new_full([1], 0.25)),
    "glu": lambda g, x: aten.glu_backward(g, torch.stack([x, x.flip(0)]).flatten(), 0),
}
all_activations = lambda g, x: tuple(function(g, x) for function in ACTIVATIONS.values())
op("gradients_of_activations", all_activations, lambda: (rand(133), rand(133)))
op("gradients_of_activations_special", all_activations, lambda: (rand(19), special()))
op("gradients_of_activations_nothing", all_activations, lambda: (rand(0), rand(0)))
for word, dtype in (("bf16", BF16), ("f16", F16), ("f64", F64)):
    op(f"gradients_of_activations_{word}", all_activations, lambda dtype=dtype: (rand(133, dtype=dtype), rand(133, dtype=dtype)))
op("gradient_glu_strided", lambda g, x: aten.glu_backward(g, x.transpose(1, 2), 1), lambda: (rand(3, 5, 7), rand(3, 7, 10)))
op("gradient_prelu_channels", lambda g, x, w: aten._prelu_kernel_backward(g, x, w.view(1, 5, 1)), lambda: (rand(3, 5, 7), rand(3, 5, 7), rand(5)))
op("gradient_tanh_complex", lambda g, x: (aten.tanh_backward(g, x), aten.sigmoid_backward(g, x)),
   lambda: (torch.complex(rand(5, 3), rand(5, 3)), torch.complex(rand(5, 3), rand(5, 3))), tolerance=1e-5)

# Losses: `reduction` 0 has a gradient for each element.
LOSSES = {
    "mse": lambda g, x, t, r: aten.mse_loss_backward(g, x, t, r),
    "smooth_l1": lambda g, x, t, r: aten.smooth_l1_loss_backward(g, x, t, r, 0.5),
    "smooth_l1_sharp": lambda g, x, t, r: aten.smooth_l1_loss_backward(g, x, t, r, 0.0),
    "huber": lambda g, x, t, r: aten.huber_loss_backward(g, x, t, r, 0.75),
    "soft_margin": lambda g, x, t, r: aten.soft_margin_loss_backward(g, x, t.sign(), r),
    "bce": lambda g, x, t, r: aten.binary_cross_entropy_backward(g, x.sigmoid(), t.sigmoid(), None, r),
    "bce_weighted": lambda g, x, t, r: aten.binary_cross_entropy_backward(g, x.sigmoid(), t.sigmoid(), x.abs(), r),
}
all_losses = lambda each, whole, x, t: tuple(f(each if r == 0 else whole, x, t, r) for f in LOSSES.values() for r in (0, 1, 2))
for word, dtype in (("f32", F32), ("bf16", BF16), ("f16", F16), ("f64", F64)):
    op(f"gradients_of_losses_{word}", all_losses, lambda dtype=dtype: (rand(5, 7, dtype=dtype), number(dtype), rand(5, 7, dtype=dtype), rand(5, 7, dtype=dtype)),
       tolerance=5e-2 if dtype is BF16 else None)  # eager's own quotient of bce is as far off
# Of NaN, PyTorch's decompositions of smooth_l1 and soft_margin are numbers and its kernels give NaN.
without = lambda *words: lambda each, whole, x, t: tuple(f(each if r == 0 else whole, x, t, r) for n, f in LOSSES.items() if not n.startswith(words) for r in (0, 1, 2))
op("gradients_of_losses_special", without("bce", "smooth_l1", "soft_margin"), lambda: (rand(19), number(), special(), rand(19)))
op("gradients_of_losses_infinite", without("bce"), lambda: (rand(19), number(), special().nan_to_num(0.25, float("inf"), -float("inf")), rand(19)))
op("gradients_of_losses_nothing", lambda g, x, t: tuple(f(g, x, t, 0) for f in LOSSES.values()), lambda: (rand(0, 3), rand(0, 3), rand(0, 3)))


def classes(*sizes, count=7, ignored=0.3):
    """Classes, some of them -100, which is none."""
    return torch.where(torch.rand(*sizes) < ignored, -100, torch.randint(count, sizes))


def of_classes(name):
    function = getattr(aten, name)
    return lambda each, whole, x, t, w, total: tuple(function(whole if r else each, x, t, weight, r, -100, total) for weight in (None, w) for r in (0, 1, 2))


for name, sizes in (("nll_loss_backward", (5,)), ("nll_loss2d_backward", (2, 3, 5))):
    op(f"gradient_{name}", of_classes(name),
       lambda sizes=sizes: (rand(*sizes), number(), rand(sizes[0], 7, *sizes[1:]), classes(*sizes), rand(7, low=0.5, high=2), torch.tensor(3.5)))
op("gradient_nll_single", lambda g, x, t, total: aten.nll_loss_backward(g, x, t, None, 1, -100, total),
   lambda: (number(), rand(7), torch.tensor(3), torch.tensor(1.0)))
op("gradient_nll_bf16", lambda g, x, t, total: aten.nll_loss_backward(g, x, t, None, 1, -100, total),
   lambda: (number(BF16), rand(5, 7, dtype=BF16), classes(5), torch.tensor(3.5, dtype=BF16)))
op("gradient_multi_margin", lambda each, whole, x, t, w: tuple(
    aten.multi_margin_loss_backward(whole if r else each, x, t, p, 0.75, weight, r) for r in (0, 1, 2) for p in (1, 2) for weight in (None, w)),
   lambda: (rand(5), number(), rand(5, 7), classes(5, ignored=0), rand(7, low=0.5, high=2)))
op("gradient_multilabel_margin", lambda each, whole, x, t: tuple(
    aten.multilabel_margin_loss_backward(whole if r else each, x, t, r, aten.multilabel_margin_loss_forward(x, t, r)[1]) for r in (0, 1, 2)),
   lambda: (rand(5), number(), rand(5, 7), torch.where(torch.rand(5, 7) < 0.2, -1, torch.randint(7, (5, 7)))))
op("gradient_multilabel_margin_single",
   lambda g, x, t: aten.multilabel_margin_loss_backward(g, x, t, 1, aten.multilabel_margin_loss_forward(x, t, 1)[1]),
   lambda: (number(), rand(4), torch.tensor([2, 0, -1, 1])))

# Parts of a tensor
PARTS = {
    "select": ((3, 7), lambda g: aten.select_backward(g, [3, 5, 7], 1, -2)),
    "select_front": ((3, 7), lambda g: aten.select_backward(g, [3, 5, 7], -2, 3)),
    "slice": ((3, 2, 7), lambda g: aten.slice_backward(g, [3, 5, 7], 1, 1, 4, 2)),
    "slice_end": ((3, 2, 7), lambda g: aten.slice_backward(g, [3, 5, 7], 1, -2, 9223372036854775807, 1)),
    "slice_none": ((3, 0, 7), lambda g: aten.slice_backward(g, [3, 5, 7], 1, 2, 2, 1)),
    "diagonal": ((7, 3), lambda g: aten.diagonal_backward(g, [4, 7, 5], 2, 0, 2)),
    "diagonal_below": ((7, 3), lambda g: aten.diagonal_backward(g, [4, 7, 5], -1, 0, -1)),
    "trace": ((), lambda g: aten.trace_backward(g, [4, 6])),
}
all_parts = lambda *gs: tuple(function(g) for g, (_, function) in zip(gs, PARTS.values()))
op("gradients_of_parts", all_parts, lambda: tuple(block(sizes) for sizes, _ in PARTS.values()))
op("gradients_of_parts_bf16", all_parts, lambda: tuple(block(sizes, BF16) for sizes, _ in PARTS.values()))
op("gradients_of_parts_complex", all_parts, lambda: tuple(torch.complex(block(sizes), block(sizes)) for sizes, _ in PARTS.values()))
op("gradient_chosen", lambda g, x: (aten.value_selecting_reduction_backward(g, 1, x.max(1)[1], [3, 5, 7], False),
                                    aten.value_selecting_reduction_backward(g.unsqueeze(1), 1, x.max(1, True)[1], [3, 5, 7], True)),
   lambda: (rand(3, 7), rand(3, 5, 7)))

# Norms
op("gradient_weight_norm", lambda g, v, s: aten._weight_norm_interface_backward(g, v, s, aten._weight_norm_interface(v, s, 0)[1], 0),
   lambda: (rand(5, 3, 7), rand(5, 3, 7), rand(5, 1, 1)))
op("gradient_weight_norm_last", lambda g, v, s: aten._weight_norm_interface_backward(g, v, s, aten._weight_norm_interface(v, s, 1)[1], 1),
   lambda: (rand(5, 7), rand(5, 7), rand(1, 7)))

# Writes into zeros
WRITES = {
    "gather": lambda g, x, i: aten.gather_backward(g, x, 1, i, False),
    "cummax": lambda g, x, i: aten.cummaxmin_backward(g[:, :4], x[:, :4], x[:, :4].cummax(1)[1], 1),
    "index_select": lambda g, x, i: aten.index_select_backward(g, [3, 9, 7], -2, i[0, :, 0]),
    "masked_select": lambda g, x, i: aten.masked_select_backward(g.flatten(), x, x > 0.5),
}
for name, function in WRITES.items():
    op(f"gradient_{name}", function, lambda: (rand(3, 6, 7), rand(3, 9, 7), torch.randint(9, (3, 6, 7))))

# Resizing: (sizes of the image, of the result, factor or None)
IMAGES = {1: [((9,), (20,), None), ((20,), (7,), None), ((1,), (5,), None), ((6,), (1,), None), ((7,), (15,), 2.2)],
          2: [((9, 5), (20, 15), None), ((20, 11), (7, 11), None), ((1, 4), (5, 8), None), ((6, 3), (1, 1), None), ((4, 7), (8, 15), 2.15), ((31, 30), (3, 2), None)],
          3: [((3, 5, 4), (7, 5, 2), None), ((4, 4, 2), (8, 8, 4), None)]}
FILTERS = [("upsample_nearest", (1, 2, 3), ()), ("_upsample_nearest_exact", (1, 2, 3), ()), ("upsample_linear", (1,), (True, False)),
           ("upsample_bilinear", (2,), (True, False)), ("upsample_trilinear", (3,), (True, False)), ("upsample_bicubic", (2,), (True, False))]
for name, all_dims, corners in FILTERS:
    for dims in all_dims:
        def resized(*grads, f=getattr(aten, f"{name}{dims}d_backward"), dims=dims, corners=corners):
            return tuple(f(g, list(result), [2, 3, *image], *([] if align is None else [align]), *([factor] * dims))
                         for g, (image, result, factor) in zip(grads, IMAGES[dims]) for align in corners or (None,))

        op(f"gradients_of_{name}{dims}d", resized, lambda dims=dims: tuple(rand(2, 3, *result) for _, result, _ in IMAGES[dims]))
for name in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
    op(f"gradients_of_{name}", lambda *grads, f=getattr(aten, f"{name}_backward"): tuple(
        f(g, list(result), [2, 3, *image], align, *([factor] * 2)) for g, (image, result, factor) in zip(grads, IMAGES[2]) for align in (True, False)),
       lambda: tuple(rand(2, 3, *result) for _, result, _ in IMAGES[2]))

# Bags: (mode, padding, the last offset is the end)
BAGS = [(0, -1, False), (1, -1, False), (1, 3, True), (2, -1, False), (2, 3, False), (0, 3, True)]


def bags(grad, table, indices, offsets, weights):
    found = []
    for mode, padding, closed in BAGS:
        given = torch.cat([offsets, offsets.new_full([1], indices.numel())]) if closed else offsets
        sample = weights if mode == 0 else None
        _, bag, sizes, largest = aten._embedding_bag(table, indices, given, False, mode, False, sample, closed, padding)
        for by_frequency in (False, True) if mode < 2 else (False,):
            found.append(aten._embedding_bag_backward(grad, indices, given, bag, sizes, largest, 11, by_frequency, mode, False, sample, padding))
        if mode == 0:
            found.append(aten._embedding_bag_per_sample_weights_backward(grad, table, indices, given, bag, mode, padding))
    return tuple(found)


op("gradients_of_bags", bags, lambda: (rand(4, 5), rand(11, 5), torch.randint(11, (17,)), torch.tensor([0, 5, 5, 9]), rand(17)))
op("gradient_upsample_bf16", lambda g: (aten.upsample_bilinear2d_backward(g, [15, 9], [2, 3, 6, 5], False), aten.upsample_nearest2d_backward(g, [15, 9], [2, 3, 6, 5])),
   lambda: (rand(2, 3, 15, 9, dtype=BF16),), tolerance=4e-2)
