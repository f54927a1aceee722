"""Whole quantised models: PT2E's static and dynamic quantisation for two backends, and torchao's weight-only and dynamic linear layers.

A quantised number may land on its neighbour where a float before it differs in the last place, so outputs are compared with a tolerance.
"""

import torch
import torch.nn.functional as F
from torch import nn

from case import Case, Program, rand

PROGRAMS = []


def model(*forms):
    def add(make):
        PROGRAMS.append(Program(f"quantised_{make.__name__}", make, "model", __file__, forms or ("aten", "core")))
        return make

    return add


def x86(dynamic):
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer, get_default_x86_inductor_quantization_config

    return X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config(is_dynamic=dynamic))


def xnnpack(dynamic):
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic))


def pt2e(module, args, quantizer, calibration=None):
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(module.eval(), args, strict=True).module(), quantizer)
    for sample in calibration or [args]:
        prepared(*sample)
    return convert_pt2e(prepared)


def torchao(module, config):
    import torchao.quantization

    torchao.quantization.quantize_(module.eval(), config(torchao.quantization))
    return module


class Mlp(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), nn.Linear(width, 32)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def transformer():
    return nn.Sequential(Block(), Block(), nn.LayerNorm(64), nn.Linear(64, 48))


class Residual(nn.Module):
    """Convolutions of several kinds, a residual and a pooled head."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24)
        self.a, self.b = nn.Conv2d(24, 24, 3, padding=1), nn.Conv2d(24, 24, 1)
        self.depthwise, self.grouped = nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.Conv2d(24, 40, 3, padding=2, dilation=2, groups=4)
        self.head = nn.Linear(40, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(x + self.b(F.relu(self.a(x))))
        x = F.relu(self.grouped(F.relu(self.depthwise(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def static(module, args, quantizer, tolerance=2e-2):
    return Case(pt2e(module, args, quantizer, [args, tuple(a * 0.7 for a in args)]), args, tolerance=tolerance)


@model()
def mlp_static():
    return static(Mlp(), (rand(9, 128),), x86(False))


@model()
def mlp_dynamic():
    return static(Mlp(), (rand(9, 128),), x86(True))


@model()
def mlp_static_xnnpack():
    return static(Mlp(), (rand(9, 128),), xnnpack(False))


@model()
def mlp_dynamic_xnnpack():
    return static(Mlp(), (rand(9, 128),), xnnpack(True))


@model()
def conv_static():
    return static(Residual(), (rand(2, 3, 21, 18),), x86(False))


@model()
def conv_static_xnnpack():
    return static(Residual(), (rand(2, 3, 21, 18),), xnnpack(False))


@model("aten")
def resnet18_static():
    import torchvision

    return static(torchvision.models.resnet18(), (rand(1, 3, 64, 64),), x86(False), tolerance=5e-2)


@model()
def transformer_static():
    return static(transformer(), (rand(2, 17, 64),), x86(False), tolerance=5e-2)


@model()
def transformer_dynamic():
    return static(transformer(), (rand(2, 17, 64),), x86(True), tolerance=5e-2)


@model("core")
def mlp_int8_weights():
    return Case(torchao(Mlp(), lambda q: q.Int8WeightOnlyConfig()), (rand(5, 128),), tolerance=1e-3)


@model("core")
def mlp_int8_dynamic():
    return Case(torchao(Mlp(), lambda q: q.Int8DynamicActivationInt8WeightConfig()), (rand(5, 128),), tolerance=2e-2)


@model("core")
def mlp_int4_weights():
    return Case(torchao(Mlp(), lambda q: q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32))), (rand(5, 128),), tolerance=1e-3)


@model("core")
def mlp_int4_dynamic():
    config = lambda q: q.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=q.PerGroup(32))
    return Case(torchao(Mlp(), config), (rand(5, 128),), tolerance=2e-2)


@model("core")
def transformer_int8_weights():
    return Case(torchao(transformer(), lambda q: q.Int8WeightOnlyConfig()), (rand(2, 17, 64),), tolerance=1e-3)


def half(dtype, config):
    """Weight-only, with activations of 16 bits and a dynamic batch; against eager of that dtype, which rounds more often."""
    batch = torch.export.Dim("batch", min=1, max=64)
    sets = {f"b{b}": (rand(b, 128, dtype=dtype),) for b in (1, 2, 3, 5, 17, 40)}
    return Case(torchao(Mlp().to(dtype), config), (rand(6, 128, dtype=dtype),), dynamic={"x": {0: batch}}, inputs=sets)


def int4_groups(q):
    return q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32))


def int8_asymmetric(q):
    return q.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=q.PerGroup(64), mapping_type=q.MappingType.ASYMMETRIC)


@model("core")
def mlp_int8_weights_bf16():
    return half(torch.bfloat16, lambda q: q.Int8WeightOnlyConfig())


@model("core")
def mlp_int4_weights_bf16():
    return half(torch.bfloat16, int4_groups)


@model("core")
def mlp_int4_weights_f16():
    return half(torch.float16, int4_groups)


@model("core")
def mlp_int8_asymmetric_weights_bf16():
    return half(torch.bfloat16, int8_asymmetric)
