"""Graphs, recommenders, counting, sorting, losses, point clouds, whole numbers, and values at the edges of their types."""

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


@program()
def gcn():
    l = nn.Linear(6, 4)

    def f(m, x, ei):
        s, d = ei
        deg = torch.zeros(x.shape[0]).scatter_add_(0, d, torch.ones_like(d, dtype=torch.float)).clamp_min(1).rsqrt()
        y = m[0](x)
        return torch.zeros_like(y).index_add(0, d, y[s] * (deg[s] * deg[d])[:, None])
    return (W(f, l), (G(12, 6), RI(12, (2, 40))))


@program()
def gat():
    l = nn.Linear(6, 8)
    a = nn.Linear(16, 1)

    def f(m, x, ei):
        s, d = ei
        h = m[0](x)
        e = F.leaky_relu(m[1](torch.cat([h[s], h[d]], -1)))[:, 0]
        mx = torch.full((x.shape[0],), -torch.inf).scatter_reduce(0, d, e, 'amax')
        w = (e - mx[d]).exp()
        z = torch.zeros(x.shape[0]).index_add(0, d, w)
        return torch.zeros_like(h).index_add(0, d, h[s] * (w / z[d])[:, None])
    return (W(f, l, a), (G(12, 6), RI(12, (2, 40))))


@program()
def pna():

    def f(x, ei):
        s, d = ei
        ix = d[:, None].expand(-1, x.shape[1])
        o = [torch.zeros_like(x).scatter_reduce(0, ix, x[s], r, include_self=False) for r in ('mean', 'amax', 'amin', 'sum', 'prod')]
        return torch.cat(o, -1)
    return (f, (G(12, 6), RI(12, (2, 40))))


@program()
def segment_softmax_csr():

    def f(x, off):
        return (torch.segment_reduce(x, 'max', offsets=off), torch.segment_reduce(x, 'sum', offsets=off))
    return (f, (G(20, 3), torch.tensor([0, 4, 4, 11, 20])))


@program()
def graph_pool_topk():

    def f(x, b, sc):
        p, i = (sc * 1).topk(5)
        return (x[i] * torch.tanh(p)[:, None], torch.zeros(3, x.shape[1]).index_add(0, b[i], x[i]))
    return (f, (G(12, 4), RI(3, (12,)).sort().values, G(12)))


@program()
def sparse_coo_mm():

    def f(ix, v, x):
        return torch.sparse.mm(torch.sparse_coo_tensor(ix, v, (6, 6)), x)
    return (f, (RI(6, (2, 10)), R(10), R(6, 3)))


@program()
def recsys_dlrm():
    es = nn.ModuleList((nn.EmbeddingBag(50, 4, mode='sum') for _ in range(3)))
    b = nn.Linear(5, 4)
    t = nn.Linear(10, 1)

    def f(m, d, ix, off):
        x = [m[1](d).relu()] + [e(ix[i], off[i]) for i, e in enumerate(m[0])]
        z = torch.stack(x, 1)
        k = z @ z.mT
        li, lj = torch.tril_indices(4, 4, -1)
        return m[2](torch.cat([x[0], k[:, li, lj]], 1)).sigmoid()
    return (W(f, es, b, t), (R(3, 5), RI(50, (3, 9)), torch.tensor([[0, 3, 6], [0, 0, 5], [0, 4, 9]])))


@program()
def bag_mean_max():
    a, b = (nn.EmbeddingBag(20, 4, mode='mean', padding_idx=0), nn.EmbeddingBag(20, 4, mode='max', padding_idx=0))
    return (W(lambda m, i, o: (m[0](i, o), m[1](i, o)), a, b), (RI(20, (11,)), torch.tensor([0, 3, 3, 7])))


@program()
def bag_weighted_last():
    a = nn.EmbeddingBag(20, 4, mode='sum', include_last_offset=True)
    return (W(lambda m, i, o, w: m[0](i, o, w), a), (RI(20, (11,)), torch.tensor([0, 3, 3, 7, 11]), G(11)))


@program()
def bag_2d_freq():
    a = nn.EmbeddingBag(20, 4, mode='mean', scale_grad_by_freq=True)
    return (W(lambda m, i: m[0](i), a), (RI(20, (4, 5)),))


@program()
def embedding_freq_maxnorm():
    a = nn.Embedding(20, 4, padding_idx=2, scale_grad_by_freq=True)
    return (W(lambda m, i: m[0](i), a), (RI(20, (4, 5)),))


@program()
def embedding_renorm():
    a = nn.Embedding(20, 4, max_norm=1.0)
    return (W(lambda m, i: m[0](i), a), (RI(20, (4, 5)),))


@program()
def embedding_sparse():
    a = nn.Embedding(20, 4, sparse=True)
    return (W(lambda m, i: m[0](i), a), (RI(20, (4, 5)),))


@program()
def field_fm():
    e = nn.Embedding(30, 4)

    def f(m, i):
        v = m[0](i)
        return 0.5 * (v.sum(1) ** 2 - (v ** 2).sum(1)).sum(-1)
    return (W(f, e), (RI(30, (5, 6)),))


@program()
def histogram_things():

    def f(x):
        return (torch.histc(x, 10, -2, 2), torch.bucketize(x, torch.linspace(-2, 2, 9)), torch.bincount((x * 3).long().clamp(0, 9).flatten(), minlength=10), torch.histogram(x, 5, range=(-1.0, 1.0))[0])
    return (f, (R(7, 9),))


@program()
def histogramdd():
    return (lambda x: torch.histogramdd(x, [3, 4], range=[-1.0, 1.0, -2.0, 2.0])[0], (R(30, 2),))


@program()
def unique_all():

    def f(x):
        return (torch.unique(x, return_inverse=True, return_counts=True), torch.unique_consecutive(x))
    return (f, (RI(5, (20,)),))


@program()
def unique_rows():
    return (lambda x: torch.unique(x, dim=0, return_inverse=True), (RI(2, (20, 3)),))


@program()
def unique_embed():
    e = nn.Embedding(20, 4)

    def f(m, i):
        u, inv = torch.unique(i, return_inverse=True)
        return m[0](u)[inv]
    return (W(f, e), (RI(20, (4, 5)),))


@program()
def nonzero_gather():

    def f(x):
        i = torch.nonzero(x > 0)[:, 0]
        return (x[i].sum(), x[x > 0], i.shape[0])
    return (f, (R(20),))


@program()
def masked_ops():

    def f(x, m):
        return (x.masked_fill(m, -1), x.masked_scatter(m, x * 2), torch.where(m, x, x.new_zeros(())), torch.masked_select(x, m))
    return (f, (R(4, 5), R(4, 5) > 0))


@program()
def masked_grad():

    def f(x, m):
        return (torch.masked_select(x, m) * 2, x[m].sum(), (x * m)[m.any(-1)])
    return (f, (G(4, 5), R(4, 5) > 0))


@program()
def boolean_assign():

    def f(x, m):
        y = x.clone()
        y[m] = 0.0
        y[m.any(1)] *= 2
        y[:, [0, 2]] = y[:, [2, 0]]
        return y
    return (f, (R(4, 5), R(4, 5) > 0.5))


@program()
def index_put_many():

    def f(x, i, j, v):
        y = x.clone()
        y[i, j] = v
        y.index_put_((i,), v[:, None].expand(-1, 5), accumulate=True)
        y[..., -1] += 1
        y[i, :2] = v[:, None]
        return y
    return (f, (R(6, 5), torch.tensor([0, 3, 1]), torch.tensor([1, 4, 2]), R(3)))


@program()
def negative_steps():

    def f(x):
        return (x.flip(0)[::2], x[-3:, ::3], x.roll((1, -2), (0, 1)), torch.rot90(x, 1, (0, 1)), x.unfold(1, 3, 2).sum(-1))
    return (f, (G(6, 9),))


@program()
def scans():

    def f(x):
        return (x.cumsum(0), x.cumprod(1), torch.logcumsumexp(x, 1), x.cummax(1)[0], x.cummin(0)[0], x.diff(dim=1), torch.trapezoid(x), torch.cumulative_trapezoid(x, dim=0))
    return (f, (G(7, 9),))


@program()
def orders():

    def f(x):
        return (x.sort(0, descending=True), x.topk(3, 1, largest=False), x.kthvalue(2, 1), x.median(0), x.mode(1), x.quantile(torch.tensor([0.1, 0.5])), x.nanmedian(), x.msort(), torch.aminmax(x, dim=1))
    return (f, (R(7, 9),))


@program()
def orders_grad():

    def f(x):
        return (x.sort(0, descending=True)[0], x.topk(3, 1, largest=False)[0], x.kthvalue(2, 1)[0], x.median(0)[0], x.quantile(0.3, dim=1), x.nanquantile(0.5, dim=0), torch.aminmax(x, dim=1), x.max(), x.amax(0))
    return (f, (G(7, 9),))


@program()
def soft_rank_ties():

    def f(x):
        r = x.argsort(-1).argsort(-1)
        return (r.float(), (x[:, :, None] > x[:, None]).float().sum(-1), torch.argsort(x, stable=True, descending=True))
    return (f, (RI(4, (3, 8)).float(),))


@program()
def losses():

    def f(x, y, t, b):
        return (F.cross_entropy(x, t, label_smoothing=0.1), F.cross_entropy(x, t, weight=torch.arange(1.0, 6), ignore_index=2), F.nll_loss(x.log_softmax(1), t, reduction='sum'), F.multi_margin_loss(x, t), F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0, 0]]).repeat(4, 1)), F.binary_cross_entropy_with_logits(x, b, pos_weight=torch.ones(5) * 2), F.kl_div(x.log_softmax(1), y.softmax(1), reduction='batchmean'), F.huber_loss(x, y, delta=0.3), F.soft_margin_loss(x, b * 2 - 1), F.triplet_margin_loss(x, y, x.flip(0)), F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1])), F.poisson_nll_loss(x, y.abs()), F.margin_ranking_loss(x, y, torch.ones(4, 5)), F.hinge_embedding_loss(x, b * 2 - 1))
    return (f, (G(4, 5), R(4, 5), RI(5, (4,)), (R(4, 5) > 0).float()))


@program()
def gaussian_nll():
    return (lambda a, b, v: F.gaussian_nll_loss(a, b, v.exp()), (G(4, 5), R(4, 5), G(4, 5)))


@program()
def info_nce():

    def f(a, b):
        a, b = (F.normalize(a), F.normalize(b))
        l = a @ b.T / 0.07
        t = torch.arange(a.shape[0])
        return (F.cross_entropy(l, t) + F.cross_entropy(l.T, t)) / 2
    return (f, (G(6, 8), G(6, 8)))


@program()
def supcon_mask():

    def f(x, y):
        x = F.normalize(x)
        l = x @ x.T / 0.1
        m = (y[:, None] == y[None]) & ~torch.eye(len(y), dtype=torch.bool)
        l = l - torch.diag_embed(torch.full((len(y),), torch.inf))
        lp = l.log_softmax(1)
        return -(torch.where(m, lp, 0).sum(1) / m.sum(1).clamp_min(1)).mean()
    return (f, (G(8, 4), RI(3, (8,))))


@program()
def barlow():

    def f(a, b):
        a = (a - a.mean(0)) / a.std(0)
        b = (b - b.mean(0)) / b.std(0)
        c = a.T @ b / a.shape[0]
        return (c.diagonal() - 1).square().sum() + 0.01 * (c.square().sum() - c.diagonal().square().sum())
    return (f, (G(9, 4), G(9, 4)))


@program()
def lovasz():

    def f(l, t):
        e = (1 - l * (2 * t - 1)).relu()
        s, i = e.sort(descending=True)
        g = t[i]
        n = g.sum()
        inter = n - g.cumsum(0)
        un = n + (1 - g).cumsum(0)
        j = 1 - inter / un
        j = torch.cat([j[:1], j[1:] - j[:-1]])
        return (s * j).sum()
    return (f, (G(30), (R(30) > 0).float()))


@program()
def dice_focal():

    def f(x, t):
        p = x.sigmoid()
        d = 1 - (2 * (p * t).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + 1)
        fl = ((1 - p) ** 2 * t * F.logsigmoid(x)).neg().mean()
        return d.mean() + fl
    return (f, (G(2, 1, 8, 8), (R(2, 1, 8, 8) > 0).float()))


@program()
def chamfer_fps_knn():

    def f(a, b):
        d = torch.cdist(a, b)
        k = d.topk(3, -1, largest=False)
        nb = torch.gather(b[:, None].expand(-1, a.shape[1], -1, -1), 2, k.indices[..., None].expand(-1, -1, -1, 3))
        idx = [torch.zeros(a.shape[0], dtype=torch.long)]
        dist = torch.full(a.shape[:2], torch.inf)
        for _ in range(3):
            c = a.gather(1, idx[-1][:, None, None].expand(-1, 1, 3))
            dist = torch.minimum(dist, (a - c).square().sum(-1))
            idx.append(dist.argmax(-1))
        return (d.min(1)[0].mean() + d.min(2)[0].mean(), (nb - a[:, :, None]).norm(dim=-1), torch.stack(idx, 1))
    return (f, (G(2, 10, 3), G(2, 12, 3)))


@program()
def voxelize():

    def f(p, ft):
        v = (p * 4).floor().long().clamp(0, 3)
        k = v[:, 0] * 16 + v[:, 1] * 4 + v[:, 2]
        s = torch.zeros(64, ft.shape[1]).index_add_(0, k, ft)
        c = torch.bincount(k, minlength=64)
        return (s / c.clamp_min(1)[:, None], ft - (s / c.clamp_min(1)[:, None])[k])
    return (f, (torch.rand(30, 3), G(30, 4)))


@program()
def nerf_render():

    def f(s, c, z):
        d = z[:, 1:] - z[:, :-1]
        d = torch.cat([d, torch.full_like(d[:, :1], 10000000000.0)], 1)
        a = 1 - torch.exp(-s.relu() * d)
        T = torch.cumprod(torch.cat([torch.ones_like(a[:, :1]), 1 - a + 1e-10], 1), 1)[:, :-1]
        w = a * T
        return ((w[..., None] * c.sigmoid()).sum(1), (w * z).sum(1))
    return (f, (G(5, 8), G(5, 8, 3), torch.rand(5, 8).sort(-1)[0]))


@program()
def hashgrid():
    t = nn.Parameter(R(64, 2))

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.t = t

        def forward(s, x):
            p = x * 8
            i = p.floor().long()
            fr = p - i
            o = 0
            for k in range(8):
                c = torch.tensor([k & 1, k >> 1 & 1, k >> 2])
                q = i + c
                h = q[:, 0] * 1 ^ q[:, 1] * 2654435761 ^ q[:, 2] * 805459861
                w = torch.where(c.bool(), fr, 1 - fr).prod(-1)
                o = o + s.t[h % 64] * w[:, None]
            return o
    return (M(), (torch.rand(9, 3).requires_grad_(),))


@program()
def levenshtein():

    def f(a, b):
        n, m = (a.shape[0], b.shape[0])
        d = torch.arange(m + 1)
        for i in range(n):
            s = d + 1
            t = torch.cat([d[:1] + 1, torch.minimum(s[1:], d[:-1] + (b != a[i]).long())])
            d = torch.cummin(t - torch.arange(m + 1), 0)[0] + torch.arange(m + 1)
        return d[-1]
    return (f, (RI(4, (6,)), RI(4, (7,))))


@program()
def dtw():

    def f(c):
        n, m = c.shape
        D = [[torch.tensor(float('inf'))] * (m + 1) for _ in range(n + 1)]
        D[0][0] = torch.tensor(0.0)
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                D[i][j] = c[i - 1, j - 1] - 0.1 * torch.logsumexp(-torch.stack([D[i - 1][j], D[i][j - 1], D[i - 1][j - 1]]) / 0.1, 0) * 1
        return D[n][m]
    return (f, (torch.rand(4, 5).requires_grad_(),))


@program()
def bitops():

    def f(a, b):
        return (a & b, a | b, a ^ b, ~a, a << 2, a >> 1, torch.bitwise_left_shift(b, 1), a[:, None] >> torch.arange(8) & 1, torch.gcd(a, b), torch.lcm(a, b), torch.isin(a, b))
    return (f, (RI(100, (6,)), RI(1, 100, (6,))))


@program()
def integer_math():

    def f(a, b):
        return (a // b, a % b, torch.remainder(a, b), torch.fmod(a, b), torch.div(a, b, rounding_mode='trunc'), a / b, a ** 2, a.to(torch.uint8) + 200, a.to(torch.int8) * 3, a.clamp(-3, 4), a.float().div(b, rounding_mode='floor'), torch.floor_divide(a, b))
    return (f, (RI(-100, 100, (8,)), torch.tensor([3, -3, 7, -7, 1, -1, 5, 2])))


@program()
def nan_inf():
    x = torch.tensor([float('nan'), float('inf'), -float('inf'), 0.0, -0.0, 1e+38, -1e+38, 1e-45])

    def f(x):
        return (x.softmax(0), x.max(), x.amax(), x.argmax(), x.sort()[0], x.topk(3)[0], x.nansum(), x.nan_to_num(), torch.maximum(x, x.flip(0)), torch.fmax(x, x.flip(0)), x.sign(), x.clamp(-1, 1), x.relu(), x.cummax(0)[0], x.std(), x.var(), x.mean(), torch.logsumexp(x, 0), x.isfinite(), x.signbit(), torch.hypot(x, x), x.atan2(x.flip(0)), F.gelu(x), F.softplus(x), F.mish(x), F.hardswish(x), torch.special.logit(x), x.median(), x.nanmean(), x.round(), x.frac(), x.exp2(), x.log1p(), torch.nextafter(x, x.flip(0)), torch.copysign(x, x.flip(0)), torch.logaddexp(x, x.flip(0)), x.unique().shape[0] if False else x.isnan().sum())
    return (f, (x,))


@program()
def empties():

    def f(x, y):
        return (x.sum(), x.mean(1), x @ y, torch.cat([x, x]), x.softmax(-1), x.std(1), x.cumsum(0), F.layer_norm(x, (5,)), x.prod(), x.any(), x.sort()[0], F.linear(x, y.T), x.norm(), F.cross_entropy(x, torch.zeros(0, dtype=torch.long)), x.flatten(), torch.einsum('ij,jk->ik', x, y), x.t())
    return (f, (R(0, 5), R(5, 3)))


@program()
def scalars0d():

    def f(x, y):
        return (x + y, x.sum(), x.max(), x.argmax(), x.sort()[0], x.cumsum(0), x.softmax(0), x.topk(1)[0], x.unsqueeze(0).expand(3), x.unique(), x.std(unbiased=False), x.mean(), x.norm(), x * torch.tensor([1, 2]), x.repeat(2), x.view(1, 1), x.flatten(), x.logsumexp(0), x.median(), x.flip(0) if False else x.neg())
    return (f, (R(()), R(())))


@program()
def overflowing_std():
    return (lambda x: (x.std(), x.var(0), x.std(1), torch.var_mean(x, 1), F.layer_norm(x, (6,))), (R(5, 6) * 1e+25,))
