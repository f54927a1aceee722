"""Recurrent networks, decoding, attention by other names, mixtures of experts, parametrizations, reinforcement learning, distributions."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
R = torch.randn

def G(*s):
    return R(*s).requires_grad_()

class W(nn.Module):

    def __init__(s, f, *m):
        super().__init__()
        s.f = f
        s.m = nn.ModuleList(m)

    def forward(s, *a):
        return s.f(s.m, *a)


@program()
def lstm_bi():
    return (nn.LSTM(5, 7, 2, batch_first=True, bidirectional=True), (G(3, 6, 5),))


@program()
def lstm_proj():
    return (nn.LSTM(5, 7, 1, proj_size=3), (G(6, 3, 5),))


@program()
def gru_dropless():
    return (nn.GRU(5, 7, 2), (G(6, 3, 5), R(2, 3, 7)))


@program()
def rnn_relu():
    return (nn.RNN(5, 7, 1, nonlinearity='relu'), (G(6, 3, 5),))


@program()
def lstm_packed():
    l = nn.LSTM(5, 7, batch_first=True)

    def f(m, x, n):
        p = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        o, (h, c) = m[0](p)
        return (nn.utils.rnn.pad_packed_sequence(o, batch_first=True, total_length=6)[0], h)
    return (W(f, l), (G(3, 6, 5), torch.tensor([6, 2, 4])))


@program()
def lstm_cells():
    c = nn.LSTMCell(5, 7)

    def f(m, x):
        h = torch.zeros(x.shape[1], 7)
        k = h
        o = []
        for t in range(x.shape[0]):
            h, k = m[0](x[t], (h, k))
            o.append(h)
        return torch.stack(o)
    return (W(f, c), (G(6, 3, 5),))


@program()
def gru_cells():
    c = nn.GRUCell(5, 7)

    def f(m, x):
        h = torch.zeros(x.shape[1], 7)
        for t in range(x.shape[0]):
            h = m[0](x[t], h)
        return h
    return (W(f, c), (G(6, 3, 5),))


@program()
def ctc():

    def f(x, t, il, tl):
        return F.ctc_loss(x.log_softmax(-1), t, il, tl, zero_infinity=True)
    return (f, (G(12, 3, 6), torch.randint(1, 6, (3, 4)), torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2])))


@program()
def ctc_lists():

    def f(x, t):
        return F.ctc_loss(x.log_softmax(-1), t, (12, 12, 12), (4, 4, 4), reduction='none')
    return (f, (G(12, 3, 6), torch.randint(1, 6, (3, 4))))


@program()
def crf_forward():

    def f(e, tr):
        a = e[:, 0]
        for t in range(1, e.shape[1]):
            a = torch.logsumexp(a[:, :, None] + tr[None], 1) + e[:, t]
        return torch.logsumexp(a, -1)
    return (f, (G(3, 7, 5), G(5, 5)))


@program()
def viterbi():

    def f(e, tr):
        a = e[:, 0]
        bp = []
        for t in range(1, e.shape[1]):
            v, i = (a[:, :, None] + tr[None]).max(1)
            a = v + e[:, t]
            bp.append(i)
        best = [a.argmax(-1)]
        for i in reversed(bp):
            best.append(i.gather(1, best[-1][:, None])[:, 0])
        return (torch.stack(best[::-1], 1), a.max(-1).values)
    return (f, (R(3, 7, 5), R(5, 5)))


@program()
def beam_search():
    w = nn.Linear(8, 20)
    e = nn.Embedding(20, 8)

    def f(m, h):
        w, e = m
        B, K = (2, 3)
        s = torch.zeros(B, K)
        s[:, 1:] = -1000000000.0
        toks = torch.zeros(B, K, 1, dtype=torch.long)
        hh = h[:, None].expand(B, K, 8)
        for _ in range(4):
            lp = F.log_softmax(w(hh + e(toks[..., -1])), -1) + s[..., None]
            s, i = lp.view(B, -1).topk(K, -1)
            b = i // 20
            t = i % 20
            toks = torch.cat([toks.gather(1, b[..., None].expand(-1, -1, toks.shape[-1])), t[..., None]], -1)
        return (s, toks)
    return (W(f, w, e), (R(2, 8),))


@program()
def greedy_loop_item():

    def f(x):
        n = 0
        while x.sum().item() < 100 and n < 10:
            x = x * 2
            n += 1
        return (x, n)
    return (f, (torch.rand(5) + 0.1,))


@program()
def mamba_scan():

    def f(x, dt, A, B, C):
        dt = F.softplus(dt)
        dA = torch.exp(dt[..., None] * A)
        dBx = dt[..., None] * B[:, :, None] * x[..., None]
        h = torch.zeros(x.shape[0], x.shape[2], A.shape[1])
        ys = []
        for t in range(x.shape[1]):
            h = dA[:, t] * h + dBx[:, t]
            ys.append((h * C[:, t, None]).sum(-1))
        return torch.stack(ys, 1)
    return (f, (G(2, 8, 4), G(2, 8, 4), -torch.rand(4, 3), R(2, 8, 3), R(2, 8, 3)))


@program()
def rwkv():

    def f(k, v, w, u):
        a = torch.zeros_like(k[:, 0])
        b = a
        o = []
        p = a - 1e+30
        for t in range(k.shape[1]):
            q = torch.maximum(p, u + k[:, t])
            e1 = (p - q).exp()
            e2 = (u + k[:, t] - q).exp()
            o.append((e1 * a + e2 * v[:, t]) / (e1 * b + e2))
            q = torch.maximum(p + w, k[:, t])
            e1 = (p + w - q).exp()
            e2 = (k[:, t] - q).exp()
            a = e1 * a + e2 * v[:, t]
            b = e1 * b + e2
            p = q
        return torch.stack(o, 1)
    return (f, (G(2, 6, 4), G(2, 6, 4), -torch.rand(4), R(4)))


@program()
def linear_attention_chunk():

    def f(q, k, v):
        q = F.elu(q) + 1
        k = F.elu(k) + 1
        kv = torch.einsum('bhnd,bhne->bhnde', k, v).cumsum(2)
        z = 1 / (torch.einsum('bhnd,bhnd->bhn', q, k.cumsum(2)) + 1e-06)
        return torch.einsum('bhnd,bhnde,bhn->bhne', q, kv, z)
    return (f, (G(2, 2, 9, 4), G(2, 2, 9, 4), G(2, 2, 9, 5)))


@program()
def relative_shift():

    def f(x):
        b, h, n, m = x.shape
        x = F.pad(x, (1, 0)).view(b, h, m + 1, n)[:, :, 1:].view_as(x)
        return x.softmax(-1)
    return (f, (G(2, 2, 6, 6),))


@program()
def rotary_complex():

    def f(x):
        fr = 1 / 10000 ** (torch.arange(0, 8, 2) / 8)
        a = torch.outer(torch.arange(x.shape[1]).float(), fr)
        c = torch.polar(torch.ones_like(a), a)
        xc = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(xc * c[None, :, None]).flatten(3)
    return (f, (G(2, 5, 3, 8),))


@program()
def alibi():

    def f(q, k, v):
        n = q.shape[-2]
        b = -(torch.arange(n)[None] - torch.arange(n)[:, None]).abs() * 2.0 ** (-torch.arange(1, 3))[:, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=b[None])
    return (f, (G(1, 2, 7, 8), G(1, 2, 7, 8), G(1, 2, 7, 8)))


@program()
def transformer_nested_mask():
    l = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0), 1)
    return (W(lambda m, x, k: m[0](x, src_key_padding_mask=k), l), (G(2, 5, 8), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()))


@program()
def decoder_layer():
    l = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0)
    return (W(lambda m, x, y: m[0](x, y, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), tgt_is_causal=True), l), (G(2, 5, 8), G(2, 4, 8)))


@program()
def moe_dense_loop():
    g = nn.Linear(8, 4)
    ex = nn.ModuleList((nn.Linear(8, 8) for _ in range(4)))

    def f(m, x):
        p = m[0](x).softmax(-1)
        w, i = p.topk(2, -1)
        o = torch.zeros_like(x)
        for e in range(4):
            hit = i == e
            o = o + m[1][e](x) * (w * hit).sum(-1, keepdim=True)
        return o
    return (W(f, g, ex), (G(10, 8),))


@program()
def moe_index_add():
    g = nn.Linear(8, 4)
    ex = nn.ModuleList((nn.Linear(8, 8) for _ in range(4)))

    def f(m, x):
        p = m[0](x).softmax(-1)
        w, i = p.topk(2, -1)
        o = torch.zeros_like(x)
        for e in range(4):
            r, c = torch.where(i == e)
            o.index_add_(0, r, m[1][e](x[r]) * w[r, c, None])
        return o
    return (W(f, g, ex), (G(10, 8),))


@program()
def moe_sort():
    w = nn.Parameter(R(4, 8, 8))

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.g = nn.Linear(8, 4)
            s.w = w

        def forward(s, x):
            p = s.g(x).softmax(-1)
            v, i = p.max(-1)
            o = i.argsort(stable=True)
            xs = x[o]
            y = torch.einsum('nd,nde->ne', xs, s.w[i[o]])
            out = torch.empty_like(y)
            out[o] = y
            return out * v[:, None]
    return (M(), (G(10, 8),))


@program()
def pad_sequence():

    def f(a, b, c):
        return nn.utils.rnn.pad_sequence([a, b, c], True, -1.0)
    return (f, (G(3, 2), G(5, 2), G(1, 2)))


@program()
def weight_norm_conv():
    m = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3))
    return (m, (G(2, 3, 9),))


@program()
def spectral_norm():
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5))
    m.eval()
    return (m, (G(2, 6),))


@program('train')
def spectral_norm_train():
    m = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5))
    return (m, (G(2, 6),))


@program()
def orthogonal_param():
    m = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6))
    return (m, (G(2, 6),))


@program()
def checkpointing():
    l = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    return (W(lambda m, x: torch.utils.checkpoint.checkpoint(m[0], x, use_reentrant=False) + x, l), (G(3, 4),))


@program()
def custom_function():

    class Q(torch.autograd.Function):

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * (x.abs() < 1)
    return (lambda x: Q.apply(x * 3).sum(-1), (G(3, 4),))


@program()
def vector_quantize():
    e = nn.Embedding(10, 4)

    def f(m, x):
        d = torch.cdist(x, m[0].weight[None].expand(x.shape[0], -1, -1))
        i = d.argmin(-1)
        q = m[0](i)
        return (x + (q - x).detach(), F.mse_loss(q, x.detach()) + 0.25 * F.mse_loss(q.detach(), x), i, torch.bincount(i.flatten(), minlength=10))
    return (W(f, e), (G(2, 6, 4),))


@program()
def gumbel_st():

    def f(x, g):
        y = ((x + g) / 0.5).softmax(-1)
        h = torch.zeros_like(y).scatter_(-1, y.argmax(-1, True), 1.0)
        return h - y.detach() + y
    return (f, (G(3, 5), R(3, 5)))


@program()
def realnvp():
    n = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))

    def f(m, x):
        a, b = x.chunk(2, -1)
        s, t = m[0](a).chunk(2, -1)
        s = torch.tanh(s)
        y = torch.cat([a, b * s.exp() + t], -1)
        return (-0.5 * (y ** 2).sum(-1) + s.sum(-1), y.flip(-1))
    return (W(f, n), (G(5, 4),))


@program()
def spline_flow():

    def f(x, w, h):
        w = w.softmax(-1)
        cw = F.pad(w.cumsum(-1), (1, 0))
        hh = h.softmax(-1)
        ch = F.pad(hh.cumsum(-1), (1, 0))
        i = torch.searchsorted(cw.detach(), x[..., None].detach()).clamp(1, w.shape[-1]) - 1
        g = lambda t: t.gather(-1, i)[..., 0]
        return g(ch) + (x - g(cw)) / g(w) * g(hh)
    return (f, (torch.rand(6), G(6, 5), G(6, 5)))


@program()
def ppo_loss():

    def f(lp, old, adv, v, ret, logits):
        r = (lp - old).exp()
        pg = -torch.min(r * adv, r.clamp(0.8, 1.2) * adv).mean()
        d = torch.distributions.Categorical(logits=logits)
        return pg + 0.5 * F.smooth_l1_loss(v, ret) - 0.01 * d.entropy().mean()
    return (f, (G(20), R(20), R(20), G(20), R(20), G(20, 4)))


@program()
def gae():

    def f(r, v, d):
        a = torch.zeros_like(r[0])
        o = []
        for t in reversed(range(r.shape[0])):
            a = r[t] + 0.99 * v[t + 1] * (1 - d[t]) - v[t] + 0.99 * 0.95 * (1 - d[t]) * a
            o.append(a)
        return torch.stack(o[::-1])
    return (f, (R(8, 3), G(9, 3), (torch.rand(8, 3) > 0.8).float()))


@program()
def sac_tanh_normal():

    def f(mu, ls, n):
        s = ls.clamp(-5, 2).exp()
        u = mu + s * n
        a = torch.tanh(u)
        lp = torch.distributions.Normal(mu, s).log_prob(u) - torch.log(1 - a.pow(2) + 1e-06)
        return (a, lp.sum(-1))
    return (f, (G(5, 2), G(5, 2), R(5, 2)))


@program()
def c51_projection():

    def f(p, r, d):
        z = torch.linspace(-10, 10, 51)
        tz = (r[:, None] + 0.99 * (1 - d[:, None]) * z).clamp(-10, 10)
        b = (tz + 10) / 0.4
        l = b.floor().long()
        u = b.ceil().long()
        m = torch.zeros_like(p)
        off = (torch.arange(p.shape[0]) * 51)[:, None]
        m.view(-1).index_add_(0, (l + off).view(-1), (p * (u.float() - b)).view(-1))
        m.view(-1).index_add_(0, (u + off).view(-1), (p * (b - l.float())).view(-1))
        return m
    return (f, (R(4, 51).softmax(-1), R(4), torch.tensor([0.0, 1, 0, 0])))


@program()
def prioritized_replay():

    def f(p, u, data):
        c = p.cumsum(0)
        i = torch.searchsorted(c, u * c[-1]).clamp_max(p.numel() - 1)
        w = (p.numel() * p[i] / p.sum()) ** (-0.4)
        return (data[i], w / w.max(), i)
    return (f, (torch.rand(50), torch.rand(8), R(50, 3)))


@program()
def distributions():
    D = torch.distributions

    def f(a, b, x):
        A, B = (F.softplus(a) + 0.1, F.softplus(b) + 0.1)
        return (D.Gamma(A, B).log_prob(x), D.Beta(A, B).log_prob(x.clamp(0.01, 0.99)), D.StudentT(A + 1).log_prob(x), D.Dirichlet(A).log_prob(x / x.sum(-1, True)), D.kl_divergence(D.Normal(a, A), D.Normal(b, B)), D.Poisson(A).log_prob(x.floor()), D.Laplace(a, B).cdf(x), D.LogNormal(a, B).log_prob(x), D.MultivariateNormal(a, scale_tril=torch.diag_embed(A)).log_prob(x), D.VonMises(a, B).log_prob(x), D.Weibull(A, B).log_prob(x), D.NegativeBinomial(A, logits=b).log_prob(x.floor()))
    return (f, (G(4, 3), G(4, 3), torch.rand(4, 3) + 0.1))


@program()
def mdn():

    def f(pi, mu, s, y):
        lp = torch.distributions.Normal(mu, s.exp()).log_prob(y[:, None]).sum(-1) + pi.log_softmax(-1)
        return -torch.logsumexp(lp, -1).mean()
    return (f, (G(5, 3), G(5, 3, 2), G(5, 3, 2), R(5, 2)))
