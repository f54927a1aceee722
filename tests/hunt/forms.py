"""Control flow, writes in place, odd layouts and types, sizes from data, buffers, special functions."""

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
from torch._higher_order_ops import scan, while_loop, associative_scan
from torch._higher_order_ops.map import map as hmap


@program()
def cond_():
    return (lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() - 1, (x,)), (R(3, 4),))


@program()
def while_newton():

    def f(x):

        def c(i, y):
            return (i < 20) & ((y * y - x).abs().max() > 0.0001)

        def b(i, y):
            return (i + 1, (y + x / y) / 2)
        return while_loop(c, b, (torch.tensor(0), x.clone()))
    return (f, (torch.rand(5) + 0.5,))


@program()
def scan_rnn():

    def f(x, w):

        def s(c, x):
            h = torch.tanh(x + c @ w)
            return (h, h * 1)
        return scan(s, torch.zeros(3, 4), x, dim=0)
    return (f, (R(6, 3, 4), R(4, 4)))


@program()
def assoc_scan():

    def f(a, b):
        return associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b), dim=0, combine_mode='generic')
    return (f, (torch.rand(8, 3), R(8, 3)))


@program()
def map_():
    return (lambda x, y: hmap(lambda r, y: (r @ y).relu(), x, y), (R(4, 3, 5), R(5, 2)))


@program()
def inplace_chain():

    def f(x):
        y = x * 2
        y.add_(1).mul_(3)
        y[0].zero_()
        y[:, 1] += x[:, 0]
        y.t_()
        y.clamp_(min=0)
        return (y, y.reshape(-1)[3:5])
    return (f, (G(4, 5),))


@program()
def input_mutation():

    def f(x, b):
        b.mul_(0.9).add_(x.mean(0), alpha=0.1)
        b[0] = 7
        return x - b
    return (f, (R(4, 5), R(5)))


@program()
def alias_outputs():

    def f(x):
        y = x.view(-1)
        return (y, x, x[0], x.t(), y + 1, x.detach())
    return (f, (R(4, 5),))


@program()
def expanded_in():

    def f(x, y):
        return (x + 1, x.sum(1), x * y, x.contiguous().view(-1), x.transpose(0, 1) @ y)
    return (f, (R(4, 1).expand(4, 5), R(5, 8)[::1, ::2].t()))


@program()
def strided_in():

    def f(x):
        return (x.relu(), x.reshape(-1), x.sum(0), x @ x.mT, x.clone(memory_format=torch.preserve_format))
    return (f, (R(8, 10)[::2, 1::3].requires_grad_(),))


@program()
def float64_all():

    def f(x):
        return (x.sin().exp(), x @ x.T, x.softmax(0), F.layer_norm(x, (6,)), torch.erf(x), torch.lgamma(x), x.cumsum(0), x.std(0), torch.special.i0(x), torch.digamma(x), F.gelu(x))
    return (f, (R(5, 6, dtype=torch.float64).requires_grad_(),))


@program()
def half_bf16():

    def f(x, h):
        return (x @ x.T, x.softmax(0), F.layer_norm(x, (6,)), x.cumsum(1), x.std(0), h.float() + x, h * 2.5, h.sum(), h.softmax(-1), F.gelu(h), x.sort(0)[0], h.exp(), x + h)
    return (f, (R(5, 6).bfloat16().requires_grad_(), R(5, 6).half().requires_grad_()))


@program()
def autocast_mix():
    l = nn.Linear(8, 8)

    def f(m, x):
        with torch.autocast('cpu', torch.bfloat16):
            y = m[0](x)
            z = y @ y.T
            return (F.layer_norm(y, (8,)).sum(), z.softmax(-1), F.mse_loss(y.float(), x))
    return (W(f, l), (G(4, 8),))


@program()
def promotion():

    def f(i, b, h, d):
        return (i + 1.5, i / 2, b + 1, b * 2.0, h + i, d * h, torch.where(b, i, 0.5), i ** 2.0, i ** (-1.0), b & True, torch.cat([i.float(), d.float()]), i.mean(dtype=torch.float), b.sum(), b.float().mean(), torch.add(h, 1, alpha=2), h + torch.tensor(1.0, dtype=torch.float64), i.bool(), d.to(torch.int32), h.to(torch.int64))
    return (f, (RI(1, 9, (4,)), R(4) > 0, R(4).half(), R(4, dtype=torch.float64)))


@program()
def item_use():

    def f(x, n):
        k = n.item()
        return (x * k, x[:, :2] + k)
    return (f, (R(4, 5), torch.tensor(3)))


@program()
def item_slice():

    def f(x, n):
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= x.shape[1])
        return x[:, :k].sum()
    return (f, (R(4, 5), torch.tensor(3)))


@program()
def max_len_trim():

    def f(x, l):
        m = torch.arange(x.shape[1])[None] < l[:, None]
        return ((x * m[..., None]).sum(1) / l[:, None], x.masked_fill(~m[..., None], -torch.inf).amax(1))
    return (f, (G(3, 5, 4), torch.tensor([5, 2, 3])))


@program()
def repeat_interleave_data():

    def f(x, d):
        return torch.repeat_interleave(x, d, dim=0)
    return (f, (G(4, 3), torch.tensor([2, 0, 3, 1])))


@program()
def length_regulator():

    def f(x, d):
        e = d.cumsum(1)
        T = 12
        a = (torch.arange(T)[None, None] < e[..., None]) & (torch.arange(T)[None, None] >= (e - d)[..., None])
        return a.float().mT @ x
    return (f, (G(2, 4, 3), RI(0, 4, (2, 4))))


@program()
def split_sizes():

    def f(x):
        a, b, c = x.split([2, 3, 1], 1)
        d, e = x.chunk(2)
        q = torch.tensor_split(x, 4, 1)
        return (a * 2, b.sum(), c, d @ e.T, q[0], torch.hsplit(x, 2)[1], torch.stack(x.unbind(0)[::-1]))
    return (f, (G(4, 6),))


@program()
def einsums():

    def f(a, b, c):
        return (torch.einsum('bij,bjk->bik', a, b), torch.einsum('bij,bjk,bkl->bl', a, b, c), torch.einsum('bii->b', a @ b @ c), torch.einsum('...ij->...ji', a), torch.einsum('bij,bij->', a, a), torch.einsum('bij,ckl->bcil', a, b))
    return (f, (G(2, 3, 4), G(2, 4, 5), G(2, 5, 3)))


@program()
def dict_outputs():

    def f(d):
        return {'a': d['x'] + 1, 'b': [d['y'], (d['x'].sum(), None, 3)]}
    return (f, ({'x': G(3), 'y': R(2)},))


@program()
def buffers_ema():

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.register_buffer('m', torch.zeros(4))
            s.register_buffer('n', torch.tensor(0))
            s.l = nn.Linear(4, 4)

        def forward(s, x):
            y = s.l(x)
            s.m.lerp_(y.detach().mean(0), 0.1)
            s.n += 1
            return (y - s.m) / s.n
    return (M(), (G(3, 4),))


@program()
def kv_cache_write():

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.register_buffer('k', torch.zeros(1, 2, 8, 4))

        def forward(s, x, p):
            s.k[:, :, p] = x
            return F.scaled_dot_product_attention(x, s.k, s.k, attn_mask=torch.arange(8)[None] <= p[:, None])
    return (M(), (R(1, 2, 2, 4), torch.tensor([2, 3])))


@program()
def double_backward():

    def f(x, w):
        y = torch.tanh(x @ w).sum(-1)
        g, = torch.autograd.grad(y.sum(), x, create_graph=True)
        return (g.norm(2, -1) - 1).square().mean()
    return (f, (G(4, 5), G(5, 3)))


@program()
def group_lasso_topk_prune():

    def f(w):
        n = w.flatten(1).norm(dim=1)
        k = n.kthvalue(2)[0]
        return (w * (n > k)[:, None].float(), n.sum())
    return (f, (G(6, 5),))


@program()
def straight_binary():

    def f(x, w):
        return F.linear(x.sign(), (w.sign() - w).detach() + w) * w.abs().mean()
    return (f, (G(3, 4), G(5, 4)))


@program()
def kmeans_steps():

    def f(x, c):
        for _ in range(3):
            a = torch.cdist(x, c).argmin(1)
            o = F.one_hot(a, 4).float()
            c = o.T @ x / o.sum(0)[:, None].clamp_min(1)
        return (c, a)
    return (f, (R(30, 3), R(4, 3)))


@program()
def pca_whiten():

    def f(x):
        x = x - x.mean(0)
        c = x.T @ x / (x.shape[0] - 1)
        l, v = torch.linalg.eigh(c)
        return (x @ v @ torch.diag((l + 1e-05).rsqrt()) @ v.T, torch.cov(x.T), torch.corrcoef(x.T))
    return (f, (G(30, 4),))


@program()
def game_of_life():

    def f(x):
        for _ in range(3):
            n = F.conv2d(F.pad(x, (1, 1, 1, 1), 'circular'), torch.tensor([[[[1.0, 1, 1], [1, 0, 1], [1, 1, 1]]]]))
            x = ((n == 3) | (x == 1) & (n == 2)).float()
        return x
    return (f, ((R(1, 1, 9, 9) > 0).float(),))


@program()
def wavefront_lcs():

    def f(a, b):
        H = torch.zeros(a.shape[0] + 1, b.shape[0] + 1, dtype=torch.long)
        for i in range(a.shape[0]):
            for j in range(b.shape[0]):
                H[i + 1, j + 1] = torch.where(a[i] == b[j], H[i, j] + 1, torch.maximum(H[i, j + 1], H[i + 1, j]))
        return H
    return (f, (RI(3, (4,)), RI(3, (4,))))


@program()
def polynomial_horner():

    def f(x, c):
        y = torch.zeros_like(x)
        for k in c.flip(0):
            y = y * x + k
        return (y, torch.vander(x, 4), torch.linalg.vander(x, N=3))
    return (f, (G(6), G(5)))


@program()
def pooling_by_pack():
    l = nn.Linear(4, 1)

    def f(m, x, mask):
        a = m[0](x)[..., 0].masked_fill(~mask, -1000000000.0).softmax(-1)
        return (torch.bmm(a[:, None], x)[:, 0], a)
    return (W(f, l), (G(2, 5, 4), R(2, 5) > -0.5))


@program()
def swa_ema_params():

    def f(p, q):
        return [torch.lerp(a, b, 0.1) for a, b in zip(p, q)]
    return (f, ([R(3, 4), R(5)], [R(3, 4), R(5)]))


@program()
def foreach_ops():

    def f(a, b):
        n = torch._foreach_norm(a)
        t = torch.stack(n).norm()
        c = (1 / (t + 1e-06)).clamp(max=1)
        return (torch._foreach_mul(a, c), torch._foreach_add(a, b, alpha=0.1), torch._foreach_lerp(a, b, 0.3), torch._foreach_addcdiv(a, a, [x.abs() + 1 for x in b]))
    return (f, ([R(3, 4), R(5)], [R(3, 4), R(5)]))


@program()
def special_fns():

    def f(x):
        s = torch.special
        return (s.erfcx(x), s.i1e(x), s.ndtri(torch.sigmoid(x)), s.xlogy(x.abs(), x.abs()), s.zeta(x.abs() + 1.5, x.abs() + 1), s.polygamma(1, x.abs() + 0.5), s.gammainc(x.abs() + 0.5, x.abs()), s.gammaincc(x.abs() + 0.5, x.abs()), s.multigammaln(x.abs() + 3, 2), torch.sinc(x), s.log_ndtr(x), torch.erfinv(torch.tanh(x)))
    return (f, (R(30),))


@program()
def special_grad():

    def f(x):
        s = torch.special
        return (s.erfcx(x), s.i1e(x), s.ndtri(torch.sigmoid(x)), s.xlogy(x.abs(), x.abs()), s.polygamma(1, x.abs() + 0.5), torch.sinc(x), s.log_ndtr(x), torch.lgamma(x.abs() + 0.5), torch.digamma(x.abs() + 0.5), torch.erfinv(torch.tanh(x)), s.bessel_j0(x), s.i0(x), s.expit(x), s.entr(x.abs()))
    return (f, (G(30),))


@program()
def tensor_methods():

    def f(x):
        return (x.renorm(2, 0, 1.0), x.addcmul(x, x), x.baddbmm(x, x.mT @ x) if False else x.addr(x[:, 0], x[0]), x.kron(x[:1]) if hasattr(x, 'kron') else x, torch.kron(x, x), torch.block_diag(x, x), torch.cartesian_prod(x[0], x[:, 0]), torch.combinations(x[0], 2), x.take(torch.tensor([0, -1])), x.put(torch.tensor([0, 3]), torch.tensor([1.0, 2.0])), torch.cross(x[:, :3], x[:, 1:4], dim=1), x.diag_embed(), x.tril(1), x.trace(), x.index_fill(0, torch.tensor([1]), 2.0), x.index_copy(0, torch.tensor([2, 0]), x[:2]), x.scatter(1, torch.tensor([[0], [1]]), 5.0), x.select_scatter(x[0] * 2, 0, 1), x.slice_scatter(x[:, :2], 1, 1, 3), x.diagonal_scatter(x[0]), torch.take_along_dim(x, x.argsort(1), 1), x.movedim(0, 1), x.swapaxes(0, 1), torch.dstack([x, x]), x.float_power(2), torch.dist(x, x * 2), torch.pdist(x), x.fmod(0.3), x.logit(0.001), x.heaviside(x), x.count_nonzero(0), torch.renorm(x, 1, 1, 0.5), x.bernoulli(0.0), x.fill_diagonal(0) if False else x.clone().fill_diagonal_(3))
    return (f, (R(4, 4),))


@program()
def tensor_methods_grad():

    def f(x):
        return (x.renorm(2, 0, 1.0), torch.kron(x, x), torch.block_diag(x, x), torch.cartesian_prod(x[0], x[:, 0]), x.take(torch.tensor([0, -1])), x.put(torch.tensor([0, 3]), torch.tensor([1.0, 2.0])), torch.cross(x[:, :3], x[:, 1:4], dim=1), x.index_fill(0, torch.tensor([1]), 2.0), x.index_copy(0, torch.tensor([2, 0]), x[:2]), x.select_scatter(x[0] * 2, 0, 1), x.slice_scatter(x[:, :2], 1, 1, 3), torch.take_along_dim(x, x.argsort(1), 1), torch.pdist(x), x.cov(), torch.dist(x, x.T), x.cumprod(1).prod(0), x.prod(1), torch.cdist(x, x.flip(0), p=1.0), torch.cdist(x, x.flip(0), p=3.0), torch.cdist(x, x.flip(0), p=float('inf')))
    return (f, (G(4, 4),))
