"""Resizing, sampling, convolutions, pooling, detection, sound, fake quantisation."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
R = torch.randn

def G(*s):
    return R(*s).requires_grad_()
from sequences import W
RI = torch.randint
for mode in ('nearest', 'nearest-exact', 'bilinear', 'bicubic', 'area'):
    for ac in (None,) if mode in ('nearest', 'nearest-exact', 'area') else (False, True):

        def make(mode=mode, ac=ac):
            return (lambda x: (F.interpolate(x, size=(7, 11), mode=mode, align_corners=ac), F.interpolate(x, scale_factor=1.7, mode=mode, align_corners=ac), F.interpolate(x, size=(3, 2), mode=mode, align_corners=ac)), (G(2, 3, 5, 6),))
        make.__name__ = f'interp_{mode}_{ac}'.replace('-', '_')
        program()(make)


@program()
def interp3():
    return (lambda x: (F.interpolate(x, scale_factor=2, mode='trilinear'), F.interpolate(x, size=(3, 5, 2), mode='nearest')), (G(1, 2, 3, 4, 5),))


@program()
def interp1():
    return (lambda x: (F.interpolate(x, scale_factor=2.5, mode='linear'), F.interpolate(x, size=3, mode='nearest')), (G(1, 2, 9),))


@program()
def interp_aa():
    return (lambda x: (F.interpolate(x, size=(4, 3), mode='bilinear', antialias=True), F.interpolate(x, size=(3, 4), mode='bicubic', antialias=True)), (G(1, 2, 9, 8),))


@program()
def interp_uint8():
    return (lambda x: (F.interpolate(x, size=(3, 5), mode='nearest'), F.interpolate(x, size=(13, 14), mode='nearest')), (RI(0, 256, (1, 3, 9, 8), dtype=torch.uint8),))
for mode in ('bilinear', 'nearest', 'bicubic'):
    for pad in ('zeros', 'border', 'reflection'):

        def make(mode=mode, pad=pad):
            return (lambda x, g: (F.grid_sample(x, g, mode, pad, False), F.grid_sample(x, g, mode, pad, True)), (G(2, 3, 5, 6), R(2, 4, 7, 2).requires_grad_()))
        make.__name__ = f'grid_{mode}_{pad}'
        program()(make)


@program()
def grid3d():
    return (lambda x, g: F.grid_sample(x, g, align_corners=False), (G(1, 2, 3, 4, 5), G(1, 2, 3, 4, 3)))


@program()
def affine_stn():
    return (lambda x, t: F.grid_sample(x, F.affine_grid(t, (2, 3, 6, 5), align_corners=False), align_corners=False), (G(2, 3, 5, 6), G(2, 2, 3)))


@program()
def conv_transposes():
    a = nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2)
    b = nn.ConvTranspose1d(6, 2, 4, 3, dilation=2)
    c = nn.ConvTranspose3d(2, 2, 2, 2)

    def f(m, x):
        y = m[0](x)
        z = m[1](y.flatten(2))
        return (y, z, m[2](y[:, :4].reshape(1, 2, 2, 8, 8)[..., :5]))
    return (W(f, a, b, c), (G(1, 4, 4, 4),))


@program()
def conv_odd():
    a = nn.Conv2d(4, 8, 3, 2, 'valid', dilation=2, groups=4)
    b = nn.Conv2d(8, 4, (1, 5), padding='same', padding_mode='reflect')
    c = nn.Conv2d(4, 4, 3, padding=1, padding_mode='circular')
    d = nn.Conv2d(4, 3, (3, 1), padding=(1, 0), padding_mode='replicate')
    return (W(lambda m, x: m[3](m[2](m[1](m[0](x)))), a, b, c, d), (G(2, 4, 15, 17),))


@program()
def conv3d_1d():
    a = nn.Conv3d(2, 3, (1, 3, 3), (1, 2, 1), (0, 1, 1))
    b = nn.Conv1d(3, 5, 3, groups=1, bias=False)
    return (W(lambda m, x: m[1](m[0](x).mean((-1, -2))), a, b), (G(2, 2, 5, 6, 7),))


@program()
def conv_unbatched():
    a = nn.Conv2d(3, 4, 3)
    return (W(lambda m, x: m[0](x), a), (G(3, 8, 9),))


@program()
def conv_f64():
    return (nn.Conv2d(3, 4, 3).double(), (R(1, 3, 8, 9, dtype=torch.float64).requires_grad_(),))


@program()
def fold_unfold():

    def f(x):
        u = F.unfold(x, 3, dilation=1, padding=1, stride=2)
        return (u, F.fold(u, (8, 9), 3, padding=1, stride=2))
    return (f, (G(2, 3, 8, 9),))


@program()
def involution():
    k = nn.Conv2d(4, 9 * 2, 1)

    def f(m, x):
        w = m[0](x).view(2, 2, 1, 9, 6, 6)
        u = F.unfold(x, 3, padding=1).view(2, 2, 2, 9, 6, 6)
        return (w * u).sum(3).view(2, 4, 6, 6)
    return (W(f, k), (G(2, 4, 6, 6),))


@program()
def dynamic_conv():

    def f(x, w):
        B = x.shape[0]
        return F.conv2d(x.reshape(1, -1, *x.shape[2:]), w.reshape(-1, *w.shape[2:]), padding=1, groups=B).view(B, -1, *x.shape[2:])
    return (f, (G(3, 2, 6, 5), G(3, 4, 2, 3, 3)))


@program()
def pools():

    def f(x):
        a, i = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        return (a, F.max_unpool2d(a, i, 3, 2, 1, output_size=x.shape[-2:]), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (2, 5)), F.lp_pool2d(x.abs() + 0.1, 2, 2), F.max_pool2d(x, 2, dilation=2), F.avg_pool2d(x, 2, divisor_override=3), F.avg_pool1d(x[0], 3), F.adaptive_avg_pool1d(x[0], 3), F.max_pool3d(x[None], 2), F.adaptive_avg_pool3d(x[None], (1, 3, 2)))
    return (f, (G(2, 3, 9, 10),))


@program()
def norms():
    ms = [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LocalResponseNorm(3), nn.LayerNorm((5, 6)), nn.RMSNorm(6)]

    def f(m, x):
        return [k(x) for k in m]
    return (W(f, *ms), (G(2, 4, 5, 6),))


@program()
def batchnorm_none():
    return (lambda x: F.batch_norm(x, None, None, training=True), (G(4, 3, 5),))


@program()
def activations():

    def f(x):
        return [g(x) for g in (F.gelu, F.silu, F.mish, F.elu, F.selu, F.celu, F.softsign, F.tanhshrink, F.softshrink, F.hardshrink, F.hardtanh, F.hardsigmoid, F.hardswish, F.logsigmoid, F.relu6, F.leaky_relu, F.softplus)] + [F.glu(x), F.prelu(x, torch.tensor([0.2])), F.threshold(x, 0.1, 0.3), F.gelu(x, approximate='tanh'), F.normalize(x, 3.0, -1), F.softmin(x, 0), F.rrelu(x, training=False)]
    return (f, (G(5, 8),))


@program()
def pixel_things():
    return (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2), F.pad(x, (1, 2, 0, 1), 'reflect'), F.pad(x, (1, 2, 3, 0), 'circular'), F.pad(x, (-1, 2)), F.pad(x, (1, 1, 1, 1, 1, 0), value=3.0)), (G(2, 8, 4, 6),))


@program()
def image_uint8():

    def f(x):
        y = x.permute(0, 3, 1, 2).float() / 255
        y = (y - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        z = (y * 255).clamp(0, 255).round().to(torch.uint8)
        return (y, z, x.float().mean(), x // 2 + x % 3, x.sum(), x.max())
    return (f, (RI(0, 256, (2, 7, 5, 3), dtype=torch.uint8),))


@program()
def sobel_canny():

    def f(x):
        k = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
        gx = F.conv2d(x, k[None, None], padding=1)
        gy = F.conv2d(x, k.T[None, None], padding=1)
        m = torch.hypot(gx, gy)
        a = torch.atan2(gy, gx)
        b = (a / (math.pi / 4)).round() % 4
        nms = torch.where(m >= F.max_pool2d(m, 3, 1, 1), m, 0)
        return (nms, b)
    return (f, (R(1, 1, 9, 10),))


@program()
def ssim_gauss():

    def f(a, b):
        g = torch.exp(-(torch.arange(5.0) - 2) ** 2 / 4)
        w = g[:, None] * g / g.sum() ** 2
        w = w[None, None].expand(3, 1, 5, 5)
        c = lambda t: F.conv2d(t, w, groups=3)
        ma, mb = (c(a), c(b))
        va, vb, cv = (c(a * a) - ma ** 2, c(b * b) - mb ** 2, c(a * b) - ma * mb)
        return ((2 * ma * mb + 0.0001) * (2 * cv + 0.0009) / ((ma ** 2 + mb ** 2 + 0.0001) * (va + vb + 0.0009))).mean()
    return (f, (torch.rand(2, 3, 9, 9).requires_grad_(), torch.rand(2, 3, 9, 9)))


@program()
def optical_warp_corr():

    def f(a, b, fl):
        B, C, H, Wd = a.shape
        ys, xs = torch.meshgrid(torch.arange(H.__index__() if False else H), torch.arange(Wd), indexing='ij')
        g = torch.stack([xs, ys]).float()[None] + fl
        g = torch.stack([2 * g[:, 0] / (Wd - 1) - 1, 2 * g[:, 1] / (H - 1) - 1], -1)
        w = F.grid_sample(b, g, align_corners=True)
        c = torch.einsum('bchw,bcxy->bhwxy', a, w) / C ** 0.5
        return (w, F.avg_pool2d(c.flatten(0, 2)[:, None], 2))
    return (f, (G(1, 3, 5, 6), G(1, 3, 5, 6), G(1, 2, 5, 6)))


@program()
def deformable_manual():
    import torchvision

    def f(x, o, w, m):
        return torchvision.ops.deform_conv2d(x, o, w, padding=1, mask=m.sigmoid())
    return (f, (G(1, 4, 6, 7), G(1, 18, 6, 7), G(3, 4, 3, 3), G(1, 9, 6, 7)))


@program()
def roi_align_adaptive():
    import torchvision

    def f(x, b):
        return (torchvision.ops.roi_align(x, [b], (3, 3), 0.5, -1, True), torchvision.ops.roi_align(x, [b], 3, 0.25, 0))
    return (f, (G(1, 4, 12, 14), torch.tensor([[0.0, 0, 10, 9], [3, 2, 20, 22], [5, 5, 5, 5]])))


@program()
def roi_pools():
    import torchvision
    o = torchvision.ops

    def f(x, y, b):
        return (o.roi_pool(x, b, 3, 0.5), o.ps_roi_align(y, b, 2, 0.5, 2), o.ps_roi_pool(y, b, 2, 0.5), o.roi_align(x, b, 2, 0.5, 2))
    return (f, (G(1, 4, 12, 14), G(1, 8, 12, 14), torch.tensor([[0.0, 0, 0, 10, 9], [0, 3, 2, 20, 22]])))


@program()
def boxes():
    import torchvision
    o = torchvision.ops

    def f(a, b):
        return (o.box_iou(a, b), o.generalized_box_iou(a, b), o.box_convert(a, 'xyxy', 'cxcywh'), o.clip_boxes_to_image(a, (8, 8)), o.box_area(a), o.distance_box_iou(a, b), o.complete_box_iou(a, b))
    x = torch.rand(5, 2) * 8
    y = torch.rand(6, 2) * 8
    return (f, (torch.cat([x, x + torch.rand(5, 2) * 5], 1).requires_grad_(), torch.cat([y, y + torch.rand(6, 2) * 5], 1)))


@program()
def nms_batched():
    import torchvision

    def f(b, s, i):
        k = torchvision.ops.batched_nms(b, s, i, 0.5)
        return (k, b[k])
    x = torch.rand(20, 2) * 8
    return (f, (torch.cat([x, x + torch.rand(20, 2) * 5], 1), torch.rand(20), RI(3, (20,))))


@program()
def detr_matching_cost():
    import torchvision

    def f(l, b, t, tb):
        c = -l.softmax(-1)[:, t] + 5 * torch.cdist(b, tb, p=1) - 2 * torchvision.ops.generalized_box_iou(torchvision.ops.box_convert(b, 'cxcywh', 'xyxy'), torchvision.ops.box_convert(tb, 'cxcywh', 'xyxy'))
        return c
    return (f, (G(10, 5), torch.rand(10, 4).requires_grad_(), torch.tensor([0, 3, 1]), torch.rand(3, 4)))


@program()
def stft_round():

    def f(x):
        w = torch.hann_window(16)
        s = torch.stft(x, 16, 4, window=w, return_complex=True)
        return (s.abs(), torch.istft(s, 16, 4, window=w, length=x.shape[-1]))
    return (f, (G(2, 64),))


@program()
def mel():
    fb = torch.rand(9, 5)

    def f(x):
        s = torch.stft(x, 16, 4, window=torch.hamming_window(16), center=True, pad_mode='reflect', return_complex=True).abs() ** 2
        m = (s.mT @ fb).clamp_min(1e-05).log10()
        return (m - m.mean(1, True)) / (m.std(1, keepdim=True) + 1e-05)
    return (f, (G(2, 64),))


@program()
def fftconv():

    def f(x, k):
        n = x.shape[-1] + k.shape[-1] - 1
        return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(k, n), n)[..., :x.shape[-1]]
    return (f, (G(2, 3, 30), G(3, 30)))


@program()
def hilbert_env():

    def f(x):
        X = torch.fft.fft(x)
        n = x.shape[-1]
        h = torch.zeros(n)
        h[0] = 1
        h[1:(n + 1) // 2] = 2
        a = torch.fft.ifft(X * h)
        return (a.abs(), a.angle(), torch.fft.fftshift(X).abs())
    return (f, (G(2, 31),))


@program()
def dct():

    def f(x):
        n = x.shape[-1]
        v = torch.cat([x[..., ::2], x[..., 1::2].flip(-1)], -1)
        V = torch.fft.fft(v)
        k = -torch.arange(n) * math.pi / (2 * n)
        return (V * torch.exp(1j * k)).real
    return (f, (G(3, 16),))


@program()
def iir_biquad():

    def f(x, c):
        y = []
        a = torch.zeros(x.shape[0])
        b = a
        for t in range(x.shape[1]):
            o = c[0] * x[:, t] + a
            a = c[1] * x[:, t] - c[2] * o + b
            b = c[3] * x[:, t] - c[4] * o
            y.append(o)
        return torch.stack(y, 1)
    return (f, (G(3, 12), G(5)))


@program()
def haar_dwt():

    def f(x):
        a, b = (x[..., ::2], x[..., 1::2])
        l, h = ((a + b) / 2 ** 0.5, (a - b) / 2 ** 0.5)
        return (torch.stack([(l + h) / 2 ** 0.5, (l - h) / 2 ** 0.5], -1).flatten(-2), l, h)
    return (f, (G(2, 3, 8),))


@program()
def fake_quant():

    def f(x, s):
        return (torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255), torch.fake_quantize_per_channel_affine(x, s, torch.zeros(4, dtype=torch.int32), 0, -128, 127))
    return (f, (G(4, 5), torch.rand(4) + 0.01))


@program()
def fake_quant_learnable():

    def f(x, s, z):
        return torch._fake_quantize_learnable_per_tensor_affine(x, s, z, 0, 255, 1.0)
    return (f, (G(4, 5), torch.tensor([0.1]).requires_grad_(), torch.tensor([3.0]).requires_grad_()))


@program()
def fake_quant_learnable_ch():

    def f(x, s, z):
        return torch._fake_quantize_learnable_per_channel_affine(x, s, z, 0, -128, 127, 1.0)
    return (f, (G(4, 5), (torch.rand(4) + 0.05).requires_grad_(), torch.zeros(4).requires_grad_()))


@program()
def lsq_manual():

    def f(x, s):
        q = (x / s).clamp(-8, 7)
        r = q.round()
        return ((r - q).detach() + q) * s
    return (f, (G(4, 5), torch.tensor(0.2).requires_grad_()))


@program('train')
def qat_moving():
    m = torch.ao.quantization.FakeQuantize(observer=torch.ao.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255)
    return (m, (G(4, 5),))


@program('train')
def qat_fused():
    m = torch.ao.quantization.FusedMovingAvgObsFakeQuantize()
    return (m, (G(4, 5),))


@program()
def dynamic_quant_manual():

    def f(x, w):
        s = x.abs().amax(-1, True) / 127
        q = (x / s).round().clamp(-128, 127).to(torch.int8)
        y = torch._int_mm(q, w)
        return y.float() * s
    return (f, (R(32, 16), RI(-128, 127, (16, 8), dtype=torch.int8)))
