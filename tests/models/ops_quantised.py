"""Quantising and dequantising: PyTorch's decomposed operators, torchao's affine ones, fake quantisation, integer products."""

import torch

from case import BF16, F16, F32, F64, I32, I64, I8, U8, Lazy, distinct, rand, registry, special

PROGRAMS, add = registry(__file__)


def op(name, function, inputs, **options):
    def made():
        import torch.ao.quantization.fx._decomposed  # noqa: F401  registers quantized_decomposed

        return inputs()

    add(f"quantised_{name}", function, made, **options)


def affine(name, function, inputs, **options):
    def made():
        import torchao.quantization  # noqa: F401  registers torchao

        return inputs()

    add(f"quantised_{name}", function, made, **options)


Q = torch.ops.quantized_decomposed
AO = torch.ops.torchao
LEVELS = {U8: (0, 255), I8: (-128, 127), torch.int16: (-32768, 32767), I32: (-(2**31), 2**31 - 1)}


def halves(dtype=F32):
    """Where rounding half to even shows: multiples of a quarter."""
    return (torch.arange(-1200, 1200) / 4).to(dtype)


def per_tensor(dtype, zero, scale, out=None):
    low, high = LEVELS[dtype]

    def function(x):
        q = Q.quantize_per_tensor.default(x, scale, zero, low, high, dtype)
        return q, Q.dequantize_per_tensor.default(q, scale, zero, low, high, dtype, out_dtype=out)

    return function


op("per_tensor_u8", per_tensor(U8, 147, 0.017096083611249924), lambda: (rand(5, 37),))
op("per_tensor_halves", per_tensor(I8, -3, 1.0), lambda: (halves(),))
op("per_tensor_halves_scaled", per_tensor(U8, 128, 0.5), lambda: (halves(),))
op("per_tensor_i16", per_tensor(torch.int16, 11, 1 / 3000), lambda: (rand(4, 9),))
op("per_tensor_i32", per_tensor(I32, 5, 1e-6), lambda: (rand(4, 9),))
op("per_tensor_narrow", lambda x: Q.quantize_per_tensor.default(x, 0.1, 2, -7, 7, I8), lambda: (rand(6, 11),))
op("per_tensor_bf16", per_tensor(I8, 7, 0.031, BF16), lambda: (rand(5, 33, dtype=BF16),))
op("per_tensor_f16", per_tensor(U8, 100, 0.013, F16), lambda: (rand(5, 33, dtype=F16),))
op("per_tensor_dynamic_size", per_tensor(U8, 3, 0.02), lambda: (rand(4, 6),), dynamic=({0: torch.export.Dim("n", min=1, max=64)},),
   sets={"one": lambda: (rand(1, 6),), "more": lambda: (rand(17, 6),)})


def tensor_parameters(x, scale, zero):
    q = Q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, U8)
    return q, Q.dequantize_per_tensor.tensor(q, scale, zero, 0, 255, U8)


op("per_tensor_of_tensors", tensor_parameters, lambda: (rand(7, 19), torch.tensor([0.0123456789], dtype=F64), torch.tensor([91], dtype=I64)))


def learnable(x, scale, zero, scales, zeros):
    return (torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, 0, 255, 0.5),
            torch._fake_quantize_learnable_per_channel_affine(x, scales, zeros, 1, -128, 127, 1.0))


for zero in (3.0, 3.5, 4.5, -7.2, 300.0):
    op(f"learnable_{zero}", learnable, lambda zero=zero: (rand(3, 4, 5) * 9, torch.tensor([0.1]), torch.tensor([zero]), torch.rand(4) + 0.05, torch.tensor([zero, 2.5, -1.5, 500])))


class TensorBounds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in {"scale": 0.02, "zero": 3, "low": -100, "high": 99}.items():
            self.register_buffer(name, torch.tensor(value))

    def forward(self, x):
        q = Q.quantize_per_tensor.tensor2(x, self.scale, self.zero, self.low, self.high, I8)
        return q, Q.dequantize_per_tensor.tensor2(q, self.scale, self.zero, self.low, self.high, I8)


op("per_tensor_of_tensors2", TensorBounds, lambda: (rand(7, 19, low=-4, high=4),))


def chosen(name, low, high, dtype):
    def function(x):
        scale, zero = getattr(Q, name).tensor(x, low, high, 0.000244140625, dtype)
        q = Q.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
        return scale, zero, q, Q.dequantize_per_tensor.tensor(q, scale, zero, low, high, dtype)

    return function


op("choose", chosen("choose_qparams", 0, 255, U8), lambda: (rand(6, 35),))
op("choose_i8", chosen("choose_qparams", -128, 127, I8), lambda: (rand(6, 35) + 3,))
op("choose_negative", chosen("choose_qparams", -128, 127, I8), lambda: (rand(6, 35, low=-9, high=-2),))
op("choose_zeros", chosen("choose_qparams", 0, 255, U8), lambda: (torch.zeros(3, 5),))
op("choose_bf16", lambda x: chosen("choose_qparams", 0, 255, U8)(x)[3], lambda: (rand(6, 35, dtype=BF16),), tolerance=2e-2)
op("choose_symmetric", chosen("choose_qparams_symmetric", -127, 127, I8), lambda: (rand(6, 35),))
op("choose_symmetric_u8", chosen("choose_qparams_symmetric", 0, 255, U8), lambda: (rand(6, 35),))


def per_channel(axis, zero_type=I64, out=None):
    def function(x, scale, zero):
        q = Q.quantize_per_channel.default(x, scale, zero, axis, -128, 127, I8)
        return q, Q.dequantize_per_channel.default(q, scale, zero, axis, -128, 127, I8, out_dtype=out), Q.dequantize_per_channel.default(q, scale, None, axis, -128, 127, I8)

    return function


op("per_channel", per_channel(0), lambda: (rand(6, 35), rand(6, low=0.01, high=0.05), rand(6, dtype=I64, low=-20, high=20)))
op("per_channel_inner", per_channel(1), lambda: (rand(3, 6, 5, 4), rand(6, low=0.01, high=0.05), rand(6, dtype=I32, low=-20, high=20)))
op("per_channel_f64", per_channel(2, out=BF16), lambda: (rand(3, 6, 5), rand(5, dtype=F64, low=0.01, high=0.05), rand(5, dtype=I64, low=-20, high=20)))
op("per_channel_bf16", per_channel(0), lambda: (rand(6, 35, dtype=BF16), rand(6, low=0.01, high=0.05), torch.zeros(6, dtype=I64)))


def per_token(choose):
    def function(x):
        scale, zero = getattr(Q, choose).default(x, I8)
        q = Q.quantize_per_token.default(x, scale, zero, -128, 127, I8)
        return q, Q.dequantize_per_token.default(q, scale, zero, -128, 127, I8, F32)

    return function


op("per_token", per_token("choose_qparams_per_token"), lambda: (rand(2, 5, 33),))
op("per_token_asymmetric", per_token("choose_qparams_per_token_asymmetric"), lambda: (rand(2, 5, 33) + 1,))
op("per_token_asymmetric_parameters", lambda x: Q.choose_qparams_per_token_asymmetric.default(x, I8), lambda: (rand(5, 33) * 3,))


def grouped(x, scale, zero):
    q = Q.quantize_per_channel_group.default(x, scale, zero, -8, 7, I8, 16)
    return q, Q.dequantize_per_channel_group.default(q, scale, zero, -8, 7, I8, 16, F32), Q.dequantize_per_channel_group.default(q, scale, None, -8, 7, I8, 16, F32)


op("groups", grouped, lambda: (rand(6, 48), rand(6, 3, low=0.1, high=0.4), rand(6, 3, dtype=I32, low=-3, high=3)))
op("groups_f32_zeros", grouped, lambda: (rand(6, 48), rand(6, 3, low=0.1, high=0.4), rand(6, 3, dtype=I32, low=-3, high=3).float()))


def affine_round_trip(block, mapping, dtype, low, high, keepdim=False, **options):
    def function(x):
        scale, zero = AO.choose_qparams_affine.default(x, mapping, block, dtype, low, high, options.get("eps"), options.get("scale_dtype"), options.get("zero_dtype"), keepdim)
        q = AO.quantize_affine.default(x, block, scale, zero, dtype, low, high)
        return scale, zero, q, AO.dequantize_affine.default(q, block, scale, zero, dtype, low, high, output_dtype=options.get("out", F32))

    return function


affine("affine_rows", affine_round_trip([1, 33], "SYMMETRIC", I8, -128, 127, True, eps=1.1920928955078125e-07, scale_dtype=F32, zero_dtype=I8), lambda: (rand(5, 33),))
affine("affine_rows_asymmetric", affine_round_trip([1, 33], "ASYMMETRIC", I8, -128, 127, zero_dtype=I8), lambda: (rand(5, 33) + 2,))
affine("affine_groups", affine_round_trip([1, 16], "ASYMMETRIC", U8, 0, 15), lambda: (rand(5, 48),))
affine("affine_groups_symmetric", affine_round_trip([1, 16], "SYMMETRIC_NO_CLIPPING_ERR", I8, -8, 7, zero_dtype=I32), lambda: (rand(5, 48),))
affine("affine_blocks", affine_round_trip([3, 3, 5, 2], "ASYMMETRIC", I8, None, None), lambda: (rand(3, 6, 10, 10),))
affine("affine_all", affine_round_trip([5, 33], "ASYMMETRIC", I8, -128, 127), lambda: (rand(5, 33),))
affine("affine_bf16", lambda x: affine_round_trip([1, 16], "SYMMETRIC", I8, -128, 127, zero_dtype=I32, out=BF16)(x)[3], lambda: (rand(5, 48, dtype=BF16),))

op("fake_per_tensor", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.07, 11, 0, 255), lambda: (rand(5, 70, low=-9, high=20),))
op("fake_per_tensor_halves", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.5, 100, 0, 255), lambda: (halves(),))
op("fake_per_tensor_tensors", lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -128, 127),
   lambda: (rand(5, 70), torch.tensor(0.021), torch.tensor(-5, dtype=I32)))
op("fake_special", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.07, 11, 0, 255), lambda: (special(),))
op("fake_per_channel", lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127),
   lambda: (rand(3, 6, 9), rand(6, low=0.01, high=0.05), rand(6, dtype=I32, low=-20, high=20)))
op("fake_mask", lambda x: torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.01, 3, -128, 127), lambda: (rand(5, 70),))


def levels(*shape, dtype=I8):
    low, high = LEVELS[dtype]
    return rand(*shape, dtype=dtype, low=low, high=high + 1)


op("int_mm", torch._int_mm, lambda: (levels(33, 64), levels(64, 24)))
op("int_mm_weight", torch._int_mm, lambda: (levels(1, 64), levels(24, 64).t()))
op("int_mm_u8", torch._int_mm, lambda: (levels(33, 64, dtype=U8), levels(64, 24)))
op("int8_weight", torch._weight_int8pack_mm, lambda: (rand(5, 64), levels(32, 64), rand(32, low=0.01, high=0.02)))
op("int8_weight_bf16", torch._weight_int8pack_mm, lambda: (rand(5, 64, dtype=BF16), levels(32, 64), rand(32, dtype=BF16, low=0.01, high=0.02)))


class QuantisedConv(torch.nn.Module):
    """A convolution of dequantised numbers with a quantised result. All scales are powers of two and all numbers small, so that eager's sums of
    floats are exact: results must be equal, to the bit."""

    def __init__(self, channels, filters, kernel, zero=0, dtype=U8, groups=1, per_channel=True, bias=True, from_bytes=False, **options):
        super().__init__()
        import torch.ao.quantization.fx._decomposed  # noqa: F401

        dims = len(kernel)
        self.zero, self.dtype, self.from_bytes, self.options = zero, dtype, from_bytes, {**options, "groups": groups}
        self.convolve = (torch.nn.functional.conv1d, torch.nn.functional.conv2d)[dims - 1]
        self.register_buffer("weight", levels(filters, channels // groups, *kernel))
        self.register_buffer("scales", 2.0 ** -torch.randint(6, 10, (filters,)) if per_channel else None)
        self.register_buffer("zeros", torch.zeros(filters, dtype=I64))
        self.register_buffer("bias", torch.randint(-64, 64, (filters,)) / 16 if bias else None)

    def forward(self, x):
        low, high = LEVELS[self.dtype]
        if not self.from_bytes:
            x = Q.quantize_per_tensor.default(x, 0.0625, self.zero, low, high, self.dtype)
        x = Q.dequantize_per_tensor.default(x, 0.0625, self.zero, low, high, self.dtype)
        if self.scales is None:
            w = Q.dequantize_per_tensor.default(self.weight, 0.0078125, 0, -128, 127, I8)
        else:
            w = Q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, -128, 127, I8)
        y = torch.relu(self.convolve(x, w, self.bias, **self.options))
        return y, Q.quantize_per_tensor.default(y, 0.5, 3, low, high, self.dtype)


def conv(name, channels, filters, kernel, size, batch=2, dynamic=False, **options):
    def function():
        return QuantisedConv(channels, filters, kernel, **options)

    def images(n):
        if options.get("from_bytes"):
            return (levels(n, channels, *size, dtype=options.get("dtype", U8)),)
        return (rand(n, channels, *size, low=-9, high=9),)

    dims = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    sets = {f"b{n}": lambda n=n: images(n) for n in (1, 3, 10)} if dynamic else None
    op(f"conv_{name}", Lazy(function), lambda: images(batch), dynamic=dims, sets=sets, tolerance=0.0)


conv("1x1", 40, 33, (1, 1), (7, 9))
conv("1x1_few_filters", 70, 9, (1, 1), (14, 14), zero=131)
conv("1x1_strided", 24, 40, (1, 1), (9, 13), stride=2, zero=7, dtype=I8)
conv("3x3", 24, 40, (3, 3), (13, 11), padding=1)
conv("3x3_zero", 24, 40, (3, 3), (13, 11), padding=1, zero=131)
conv("3x3_signed", 24, 40, (3, 3), (13, 11), padding=1, zero=-17, dtype=I8)
conv("3x3_signed_lowest", 16, 20, (3, 3), (8, 8), padding=(0, 2), zero=-128, dtype=I8)
conv("3x3_strided", 17, 30, (3, 3), (15, 14), padding=1, stride=2, zero=90)
conv("3x3_dilated", 16, 16, (3, 3), (15, 14), padding=(2, 3), dilation=(2, 3), zero=255)
conv("3x3_same", 8, 16, (3, 4), (9, 10), padding="same", zero=200)
conv("3x3_many_channels", 130, 72, (3, 3), (7, 7), padding=1, zero=128)
conv("first_layer", 3, 64, (7, 7), (33, 31), batch=1, padding=3, stride=2, zero=127)
conv("of_one_channel", 1, 16, (5, 5), (20, 17), padding=2, zero=100)
conv("of_bytes", 5, 12, (3, 3), (9, 8), padding=1, zero=60, from_bytes=True)
conv("of_bytes_one_channel", 1, 12, (3, 3), (9, 8), padding=1, zero=-60, from_bytes=True, dtype=I8)
conv("by_tensor", 16, 24, (3, 3), (9, 8), padding=1, zero=60, per_channel=False, bias=False)
conv("groups", 24, 40, (3, 3), (10, 11), padding=2, groups=4, zero=30)
conv("groups_signed", 96, 64, (3, 3), (10, 11), padding=1, groups=2, zero=30, dtype=I8)
conv("depthwise", 40, 40, (3, 3), (13, 11), padding=1, groups=40, zero=131)
conv("depthwise_signed", 24, 24, (3, 3), (9, 20), padding=1, groups=24, zero=-5, dtype=I8)
conv("depthwise_strided", 70, 70, (3, 3), (18, 23), padding=1, stride=2, groups=70, zero=11)
conv("depthwise_5x5", 33, 33, (5, 5), (14, 14), padding=2, groups=33, zero=255)
conv("depthwise_5x5_strided", 16, 16, (5, 5), (17, 16), padding=2, stride=2, groups=16, zero=77, dtype=I8)
conv("depthwise_dilated", 19, 19, (3, 2), (17, 16), padding=(4, 1), dilation=(2, 3), groups=19, zero=8)
conv("depthwise_two_filters", 12, 24, (3, 3), (9, 9), padding=1, groups=12, zero=8)
conv("dynamic_batch", 24, 40, (3, 3), (10, 9), padding=1, zero=99, dynamic=True)
conv("depthwise_dynamic_batch", 24, 24, (3, 3), (10, 9), padding=1, zero=99, groups=24, dynamic=True)
conv("lines", 20, 36, (5,), (40,), padding=2, zero=140)
conv("lines_depthwise", 20, 20, (3,), (40,), padding=1, groups=20, zero=-40, dtype=I8)


class TurnedConv(torch.nn.Module):
    """A transposed convolution with stride 1."""

    def __init__(self):
        super().__init__()
        self.conv = QuantisedConv(12, 20, (3, 3), zero=33, per_channel=False)

    def forward(self, x):
        x = Q.dequantize_per_tensor.default(Q.quantize_per_tensor.default(x, 0.0625, 33, 0, 255, U8), 0.0625, 33, 0, 255, U8)
        w = Q.dequantize_per_tensor.default(self.conv.weight, 0.0078125, 0, -128, 127, I8)
        return torch.nn.functional.conv_transpose2d(x, w, padding=1)


op("conv_turned", TurnedConv, lambda: (rand(2, 20, 9, 8, low=-9, high=9),), tolerance=0.0)


class ZeroOfData(torch.nn.Module):
    """A zero point that only a tensor says, with padding: stays a convolution of floats."""

    def __init__(self):
        super().__init__()
        self.conv = QuantisedConv(8, 16, (3, 3), padding=1)

    def forward(self, x, scale, zero):
        x = Q.dequantize_per_tensor.tensor(Q.quantize_per_tensor.tensor(x, scale, zero, 0, 255, U8), scale, zero, 0, 255, U8)
        w = Q.dequantize_per_channel.default(self.conv.weight, self.conv.scales, self.conv.zeros, 0, -128, 127, I8)
        return torch.nn.functional.conv2d(x, w, self.conv.bias, padding=1)


op("conv_zero_of_data", ZeroOfData, lambda: (rand(2, 8, 9, 9), torch.tensor(0.0625), torch.tensor(91)))
