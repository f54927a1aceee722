"""Single operators with gradients at large and odd sizes: what takes many times as long as eager has a wrong algorithm."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
R = torch.randn
RI = torch.randint

def G(*s):
    return R(*s).requires_grad_()

def big(name, fn, args):

    def make():
        return (fn, args())
    make.__name__ = 'big_' + name
    program('large')(make)
big('inv4', lambda a: torch.linalg.inv(a), lambda: ((R(2000, 4, 4) + 4 * torch.eye(4)).requires_grad_(),))
big('solve3', lambda a, b: torch.linalg.solve(a, b), lambda: ((R(2000, 3, 3) + 3 * torch.eye(3)).requires_grad_(), G(2000, 3, 1)))
big('det3', lambda a: torch.linalg.det(a), lambda: (G(2000, 3, 3),))
big('chol6', lambda a: torch.linalg.cholesky(a @ a.mT + torch.eye(6)), lambda: (G(1000, 6, 6),))
big('eigh3', lambda a: torch.linalg.eigh(a + a.mT)[0], lambda: (G(1000, 3, 3),))
big('svd3', lambda a: torch.linalg.svd(a)[1], lambda: (G(1000, 3, 3),))
big('eigh16', lambda a: torch.linalg.eigvalsh(a + a.mT), lambda: (G(50, 16, 16),))
big('qr8', lambda a: torch.linalg.qr(a)[1], lambda: (G(200, 8, 8),))
big('matexp4', lambda a: torch.matrix_exp(a), lambda: (G(500, 4, 4),))
big('cumsum', lambda x: x.cumsum(0), lambda: (G(1000003),))
big('cumsum_d1', lambda x: x.cumsum(1), lambda: (G(300, 301, 17),))
big('cummax', lambda x: x.cummax(1)[0], lambda: (G(500, 1001),))
big('logcumsumexp', lambda x: x.logcumsumexp(1), lambda: (G(100, 1001),))
big('sort', lambda x: x.sort(1)[0], lambda: (G(100, 3001),))
big('sort1d', lambda x: x.sort()[0], lambda: (G(300007),))
big('argsort_i64', lambda x: x.argsort(), lambda: (RI(-2 ** 40, 2 ** 40, (100003,)),))
big('topk', lambda x: x.topk(8, 1)[0], lambda: (G(1000, 1000),))
big('kth', lambda x: x.kthvalue(500, 1)[0], lambda: (G(300, 1001),))
big('median', lambda x: x.median(1)[0], lambda: (G(300, 1001),))
big('unique', lambda x: x.unique(return_inverse=True, return_counts=True), lambda: (RI(0, 5000, (100003,)),))
big('searchsorted', lambda a, v: torch.searchsorted(a, v), lambda: (R(10007).sort()[0], R(100003)))
big('isin', lambda a, b: torch.isin(a, b), lambda: (RI(0, 100000, (50003,)), RI(0, 100000, (3001,))))
big('histc', lambda x: x.histc(101, -3, 3), lambda: (R(300007),))
big('bincount', lambda x: x.bincount(minlength=5001), lambda: (RI(0, 5000, (300007,)),))
big('scatter_amax', lambda x, i: torch.zeros(5001).scatter_reduce(0, i, x, 'amax'), lambda: (G(100003), RI(0, 5000, (100003,))))
big('index_add', lambda x, i: torch.zeros(5001, 33).index_add(0, i, x), lambda: (G(20003, 33), RI(0, 5000, (20003,))))
big('gather', lambda x, i: x.gather(1, i), lambda: (G(300, 3001), RI(0, 3001, (300, 701))))
big('interp_bilinear', lambda x: F.interpolate(x, scale_factor=2, mode='bilinear'), lambda: (G(2, 32, 63, 65),))
big('interp_bicubic', lambda x: F.interpolate(x, size=(131, 99), mode='bicubic'), lambda: (G(2, 8, 63, 65),))
big('grid_sample', lambda x, g: F.grid_sample(x, g, align_corners=False), lambda: (G(2, 16, 63, 65), (torch.rand(2, 63, 65, 2) * 2 - 1).requires_grad_()))
big('convT', lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), lambda: (G(2, 32, 31, 31), G(32, 16, 4, 4)))
big('unfold', lambda x: F.unfold(x, 3, padding=1), lambda: (G(2, 16, 63, 65),))
big('fold', lambda x: F.fold(x, (63, 65), 3, padding=1), lambda: (G(2, 144, 4095),))
big('fft', lambda x: torch.fft.fft(x).abs(), lambda: (G(64, 1024),))
big('rfft_odd', lambda x: torch.fft.rfft(x).abs(), lambda: (G(64, 1001),))
big('fft2', lambda x: torch.fft.fft2(x).real, lambda: (G(8, 128, 128),))
big('stft', lambda x: torch.stft(x, 400, 160, window=torch.hann_window(400), return_complex=True).abs(), lambda: (G(2, 32000),))
big('bag', lambda w, i, o: F.embedding_bag(i, w, o, mode='mean'), lambda: (G(5000, 32), RI(0, 5000, (20003,)), torch.arange(0, 20003, 19)))
big('ctc', lambda x, t: F.ctc_loss(x.log_softmax(-1), t, torch.full((8,), 200), torch.full((8,), 30)), lambda: (G(200, 8, 40), RI(1, 40, (8, 30))))
big('cdist', lambda a, b: torch.cdist(a, b), lambda: (G(501, 33), G(603, 33)))
big('cdist1', lambda a, b: torch.cdist(a, b, p=1), lambda: (G(301, 17), G(203, 17)))
big('pdist', lambda a: torch.pdist(a), lambda: (G(301, 17),))

def lstm():
    m = nn.LSTM(64, 128, batch_first=True)
    return (m, (G(8, 50, 64),))
lstm.__name__ = 'big_lstm'
program('large')(lstm)

def gru():
    m = nn.GRU(64, 128, batch_first=True)
    return (m, (G(8, 50, 64),))
gru.__name__ = 'big_gru'
program('large')(gru)
big('complex_mm', lambda a, b: a @ b, lambda: (torch.randn(128, 128, dtype=torch.cfloat).requires_grad_(), torch.randn(128, 128, dtype=torch.cfloat)))
big('f64_mm', lambda a, b: (a @ b).softmax(-1), lambda: (torch.randn(256, 256, dtype=torch.float64).requires_grad_(), torch.randn(256, 256, dtype=torch.float64)))
big('u8_norm', lambda x: (x.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25, lambda: (RI(0, 256, (8, 224, 224, 3), dtype=torch.uint8),))
big('bool_mask', lambda x, m: (x.masked_fill(m, -1000000000.0).softmax(-1), m.sum(1), m.any(0)), lambda: (G(300, 1001), R(300, 1001) > 0))
big('std', lambda x: x.std(1), lambda: (G(1000, 1001),))
big('var_cols', lambda x: x.var(0), lambda: (G(1001, 1000),))
big('erfinv', lambda x: torch.erfinv(x.tanh()), lambda: (G(300007),))
big('mv', lambda a, b: a @ b, lambda: (G(2048, 2048), G(2048)))
big('einsum_small', lambda a, b: torch.einsum('bij,bjk->bik', a, b), lambda: (G(5000, 4, 4), G(5000, 4, 4)))
big('maxpool3d', lambda x: F.max_pool3d(x, 3, 2, 1), lambda: (G(1, 8, 16, 33, 33),))
big('adapt_max', lambda x: F.adaptive_max_pool2d(x, 7), lambda: (G(4, 32, 56, 56),))
big('gumbel_argmax', lambda x: F.one_hot(x.argmax(-1), 1000).float() @ x.mT[:1000, :5], lambda: (G(300, 1000),))
big('prod', lambda x: x.prod(1), lambda: (G(300, 1001),))
big('lp_norm', lambda x: torch.linalg.vector_norm(x, 3, dim=1), lambda: (G(300, 1001),))
big('renorm', lambda x: torch.renorm(x, 2, 0, 1.0), lambda: (G(1000, 300),))
big('roi_align0', lambda x, b: __import__('torchvision').ops.roi_align(x, [b], 7, 0.25, 0, True), lambda: (R(1, 64, 50, 50), torch.cat([torch.rand(100, 2) * 100, 100 + torch.rand(100, 2) * 90], 1)))
big('quantile', lambda x: x.quantile(torch.tensor([0.1, 0.5, 0.9]), dim=1), lambda: (G(300, 1001),))
