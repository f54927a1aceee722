"""Programs of tutorials and small repositories, written anew: generation, diffusion, self-supervision, routing, gates, state spaces."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W

RI = torch.randint


def layers(*sizes):
    return nn.Sequential(*[m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.GELU())][:-1])


@program()
def nano_gpt_cached():
    """A prompt, then tokens one by one with keys and values that grow."""

    def block(m, x, past):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in m[1](m[0](x)).chunk(3, -1))
        if past is not None:
            k, v = (torch.cat(p, 2) for p in zip(past, (k, v)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + m[2](y.transpose(1, 2).flatten(2))
        return x + m[4](F.gelu(m[3](x), approximate="tanh")), (k, v)

    def f(m, tokens):
        past, out, x = None, [], tokens
        for _ in range(4):
            at = 0 if past is None else past[0].shape[2]
            h = m[0](x) + m[1](torch.arange(at, at + x.shape[1]))
            h, past = block(m[2:], h, past)
            logits = h[:, -1] @ m[0].weight.T
            x = logits.argmax(-1, keepdim=True)
            out.append(logits)
        return torch.stack(out, 1), past

    return W(f, nn.Embedding(30, 16), nn.Embedding(20, 16), nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(32, 16)), (RI(0, 30, (2, 5)),)


@program()
def ddpm_loss():
    def f(m, x, noise, t):
        beta = torch.linspace(1e-4, 0.02, 100)
        kept = (1 - beta).cumprod(0)[t][:, None, None, None]
        noisy = kept.sqrt() * x + (1 - kept).sqrt() * noise
        half = torch.exp(-math.log(10000) * torch.arange(4) / 4)
        angles = t[:, None] * half
        time = m[0](torch.cat([angles.sin(), angles.cos()], -1))
        h = F.silu(m[1](m[2](noisy)) + time[:, :, None, None])
        return F.mse_loss(m[3](F.interpolate(F.avg_pool2d(h, 2), scale_factor=2.0)) + m[3](h), noise)

    return W(f, nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)), (G(4, 3, 8, 8), R(4, 3, 8, 8), RI(0, 100, (4,)))


@program()
def ddim_loop():
    def f(m, x):
        kept = (1 - torch.linspace(1e-4, 0.02, 50, dtype=torch.float64)).cumprod(0).float()
        for t, before in ((40, 30), (30, 20), (20, 0)):
            noise = m[0](torch.cat([x, torch.full_like(x[:, :1], t / 50)], 1))
            clean = ((x - (1 - kept[t]).sqrt() * noise) / kept[t].sqrt()).clamp(-1, 1)
            x = kept[before].sqrt() * clean + (1 - kept[before]).sqrt() * noise
        return x

    return W(f, nn.Conv2d(4, 3, 3, padding=1)), (G(2, 3, 7, 9),)


class Codebook(nn.Module):
    """VQ-VAE's: nearest codes, gradients straight through, moving averages of what is assigned."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", R(12, 6))
        self.register_buffer("counts", torch.ones(12))
        self.register_buffer("sums", self.codes.clone())
        self.inner, self.outer = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, x):
        z = self.inner(x)
        flat = z.flatten(0, -2)
        nearest = (flat.square().sum(1, keepdim=True) - 2 * flat @ self.codes.T + self.codes.square().sum(1)).argmin(1)
        hot = F.one_hot(nearest, 12).to(flat.dtype)
        q = self.codes[nearest].view_as(z)
        if self.training:
            with torch.no_grad():
                self.counts.mul_(0.9).add_(hot.sum(0), alpha=0.1)
                self.sums.mul_(0.9).add_(hot.T @ flat, alpha=0.1)
                total = self.counts.sum()
                self.codes.copy_(self.sums / ((self.counts + 1e-5) / (total + 12e-5) * total)[:, None])
        use = hot.mean(0)
        return self.outer(z + (q - z).detach()), 0.25 * F.mse_loss(z, q.detach()), torch.exp(-(use * (use + 1e-10).log()).sum())


@program("train")
def vq_vae_ema():
    return Codebook(), (G(3, 7, 5),)


@program()
def simclr_two_views():
    def f(m, x, shift):
        views = torch.cat([x, x.roll(1, -1) * 1.1 + shift])
        z = F.normalize(m[0](views), dim=1)
        near = z @ z.T
        off = ~torch.eye(len(z), dtype=torch.bool)
        near = near[off].view(len(z), -1)
        n = len(x)
        target = torch.cat([torch.arange(n) + n - 1, torch.arange(n)])
        return F.cross_entropy(near / 0.5, target)

    return W(f, layers(6, 16, 8)), (G(5, 6), R(6))


@program()
def moco_queue():
    """A ring buffer of keys that the call writes to."""

    class Queue(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key = nn.Linear(6, 4), nn.Linear(6, 4)
            for p in self.key.parameters():
                p.requires_grad_(False)
            self.register_buffer("queue", F.normalize(R(4, 12), dim=0))
            self.register_buffer("at", torch.zeros((), dtype=torch.long))

        def forward(self, a, b):
            q = F.normalize(self.query(a), dim=1)
            with torch.no_grad():
                for ours, theirs in zip(self.key.parameters(), self.query.parameters()):
                    ours.mul_(0.99).add_(theirs, alpha=0.01)
                k = F.normalize(self.key(b), dim=1)
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone()], 1) / 0.07
            places = (self.at + torch.arange(len(k))) % 12
            self.queue[:, places] = k.T
            self.at.add_(len(k)).remainder_(12)
            return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long)), self.queue.sum(), self.at + 0

    return Queue(), (G(5, 6), R(5, 6))


@program()
def tacotron_attention():
    """A decoder with location-sensitive attention, step by step."""

    def f(m, memory, lengths, frames):
        keys = m[0](memory)
        hidden = cell = memory.new_zeros(memory.shape[0], 8)
        weights = summed = memory.new_zeros(memory.shape[:2])
        padding = torch.arange(memory.shape[1])[None] >= lengths[:, None]
        out, aligned = [], []
        context = memory.new_zeros(memory.shape[0], memory.shape[2])
        for t in range(frames.shape[1]):
            hidden, cell = m[1](torch.cat([frames[:, t], context], -1), (hidden, cell))
            places = m[2](torch.stack([weights, summed], 1)).transpose(1, 2)
            energies = m[4](torch.tanh(keys + m[3](hidden)[:, None] + places)).squeeze(-1)
            weights = energies.masked_fill(padding, -torch.inf).softmax(-1)
            summed = summed + weights
            context = torch.bmm(weights[:, None], memory).squeeze(1)
            out.append(m[5](torch.cat([hidden, context], -1)))
            aligned.append(weights)
        return torch.stack(out, 1), torch.stack(aligned, 1)

    return W(f, nn.Linear(6, 8), nn.LSTMCell(11, 8), nn.Conv1d(2, 8, 5, padding=2), nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(14, 6)), (G(3, 7, 6), torch.tensor([7, 5, 2]), R(3, 4, 5))


@program()
def ctc_speech():
    def f(m, wave, targets, lengths, sizes):
        x = torch.stft(wave, 32, 8, window=torch.hann_window(32), return_complex=True).abs().square().clamp_min(1e-6).log()
        x = F.relu(m[0](x)).transpose(1, 2)
        x, _ = m[1](x)
        return F.ctc_loss(m[2](x).log_softmax(-1).transpose(0, 1), targets, (lengths // 16 + 1).clamp_max(x.shape[1]), sizes, zero_infinity=True)

    return W(f, nn.Conv1d(17, 12, 3, 2, 1), nn.GRU(12, 8, batch_first=True, bidirectional=True), nn.Linear(16, 9)), (R(3, 320), RI(1, 9, (3, 6)), torch.tensor([320, 256, 128]), torch.tensor([6, 4, 2]))


@program()
def capsule_routing():
    def f(m, x, w):
        votes = torch.einsum("bid,ijdk->bijk", x, w)
        b = torch.zeros(votes.shape[:3])
        for i in range(3):
            c = b.softmax(2)[..., None]
            s = (c * (votes if i == 2 else votes.detach())).sum(1)
            n = s.square().sum(-1, keepdim=True)
            v = n / (1 + n) * s / (n + 1e-8).sqrt()
            if i < 2:
                b = b + (votes.detach() * v[:, None].detach()).sum(-1)
        lengths = v.norm(dim=-1)
        return lengths, m[0](v.flatten(1))

    return W(f, nn.Linear(20, 3)), (G(3, 6, 4), G(6, 4, 4, 5))


@program()
def hopfield_updates():
    def f(x, patterns):
        for _ in range(3):
            x = (2.0 * F.normalize(x, dim=-1) @ F.normalize(patterns, dim=-1).T).softmax(-1) @ patterns
        signs = torch.sign(patterns)
        w = (signs.T @ signs).fill_diagonal_(0) / len(signs)
        s = torch.where(x >= 0, 1.0, -1.0)
        for _ in range(2):
            s = torch.where(s @ w >= 0, 1.0, -1.0)
        return x, -0.5 * torch.einsum("bi,ij,bj->b", s, w, s)

    return f, (G(3, 8), G(5, 8))


@program()
def deep_sets_ragged():
    def f(m, x, set_of):
        h = m[0](x)
        pooled = torch.zeros(4, h.shape[1]).index_add(0, set_of, h)
        n = torch.bincount(set_of, minlength=4).clamp_min(1)
        top = torch.full((4, h.shape[1]), -torch.inf).scatter_reduce(0, set_of[:, None].expand_as(h), h, "amax")
        return m[1](torch.cat([pooled / n[:, None], torch.where(top.isfinite(), top, 0.0)], 1))

    return W(f, layers(3, 16, 8), layers(16, 16, 2)), (G(11, 3), torch.tensor([0, 0, 1, 3, 3, 3, 3, 1, 0, 0, 3]))


@program()
def moe_top2_capacity():
    """Switch-like routing: places by a running count, tokens beyond an expert's capacity are dropped."""

    def f(m, x, up, down):
        gates = m[0](x).softmax(-1)
        weight, expert = gates.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        hot = F.one_hot(expert.T.reshape(-1), 4)
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        kept = place < 5
        token = torch.arange(x.shape[0]).repeat(2)
        slots = torch.where(kept, expert.T.reshape(-1) * 5 + place, 20)
        table = x.new_zeros(21, x.shape[1]).index_copy(0, slots, x[token])[:20].view(4, 5, -1)
        y = torch.bmm(F.silu(torch.bmm(table, up)), down).view(20, -1)
        y = torch.cat([y, y.new_zeros(1, y.shape[1])])
        share = F.one_hot(expert[:, 0], 4).float().mean(0)
        return (y[slots] * weight.T.reshape(-1, 1)).view(2, *x.shape).sum(0), 4 * (gates.mean(0) * share).sum()

    return W(f, nn.Linear(6, 4)), (G(12, 6), G(4, 6, 8), G(4, 8, 6))


@program()
def s4d_kernel():
    def f(m, u, log_dt, log_real, imaginary, c):
        dt = log_dt.exp()
        a = torch.complex(-log_real.exp(), imaginary)
        step = a * dt[:, None]
        powers = torch.exp(step[..., None] * torch.arange(u.shape[-1]))
        k = 2 * torch.einsum("hn,hnl->hl", torch.view_as_complex(c) * (torch.exp(step) - 1) / a, powers).real
        n = u.shape[-1]
        y = torch.fft.irfft(torch.fft.rfft(k, 2 * n) * torch.fft.rfft(u, 2 * n), 2 * n)[..., :n]
        return m[0](F.gelu(y).transpose(1, 2))

    return W(f, nn.Linear(4, 6)), (G(2, 4, 17), G(4), G(4, 3), G(4, 3), G(4, 3, 2))


@program()
def mlstm_matrix_memory():
    """xLSTM's: exponential gates kept in range by a running maximum."""

    def f(q, k, v, i, g):
        c = q.new_zeros(q.shape[0], q.shape[-1], v.shape[-1])
        n = q.new_zeros(q.shape[0], q.shape[-1])
        top = q.new_zeros(q.shape[0])
        out = []
        for t in range(q.shape[1]):
            log_f = F.logsigmoid(g[:, t])
            new = torch.maximum(log_f + top, i[:, t])
            a, b = torch.exp(log_f + top - new)[:, None], torch.exp(i[:, t] - new)[:, None]
            c = a[..., None] * c + b[..., None] * (k[:, t, :, None] * v[:, t, None])
            n = a * n + b * k[:, t]
            down = torch.maximum((n * q[:, t]).sum(-1).abs(), torch.exp(-new))
            out.append(torch.einsum("bk,bkv->bv", q[:, t], c) / down[:, None])
            top = new
        return torch.stack(out, 1), top

    return f, (G(2, 6, 4), G(2, 6, 4), G(2, 6, 5), G(2, 6), G(2, 6))


@program()
def hyena_filter():
    def f(m, x, decay):
        v, a, b = m[1](m[0](x).transpose(1, 2))[..., : x.shape[1]].chunk(3, 1)
        t = torch.linspace(0, 1, x.shape[1])[:, None]
        z = torch.cat([t, torch.sin(2 * math.pi * t * torch.arange(1, 4)), torch.cos(2 * math.pi * t * torch.arange(1, 4))], 1)
        k = (m[2](z) * torch.exp(-t * decay.abs())).T
        n = 2 * x.shape[1]
        for gate in (a, b):
            v = v * gate
            v = torch.fft.irfft(torch.fft.rfft(v.float(), n=n) * torch.fft.rfft(k, n=n), n=n)[..., : x.shape[1]] + v
        return m[3](v.transpose(1, 2))

    return W(f, nn.Linear(5, 12), nn.Conv1d(12, 12, 3, padding=2, groups=12), layers(7, 16, 4), nn.Linear(4, 5)), (G(2, 9, 5), G(4))


@program()
def griffin_gates():
    def f(m, x, a):
        r, i = torch.sigmoid(m[0](x)), torch.sigmoid(m[1](x))
        log_a = -8 * r * F.softplus(a)
        rate = log_a.exp()
        gated = torch.sqrt(1 - (2 * log_a).exp() + 1e-6) * (i * x)
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = rate[:, t] * h + gated[:, t]
            out.append(h)
        return torch.stack(out, 1) * F.gelu(m[2](x))

    return W(f, nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)), (G(2, 7, 6), G(6))


@program()
def delta_rule():
    def f(q, k, v, beta):
        k = F.normalize(k, dim=-1)
        s, out = q.new_zeros(q.shape[0], k.shape[-1], v.shape[-1]), []
        for t in range(q.shape[1]):
            old = torch.einsum("bkv,bk->bv", s, k[:, t])
            s = s + torch.einsum("bk,bv->bkv", k[:, t], beta[:, t, None].sigmoid() * (v[:, t] - old))
            out.append(torch.einsum("bkv,bk->bv", s, q[:, t]))
        return torch.stack(out, 1), s

    return f, (G(2, 6, 4), G(2, 6, 4), G(2, 6, 5), G(2, 6))


@program()
def pointer_network():
    def f(m, x):
        memory, (h, c) = m[0](x)
        h, c, seen, out, tour = h[0], c[0], torch.zeros(x.shape[:2], dtype=torch.bool), [], []
        step = x.new_zeros(x.shape[0], x.shape[2])
        for _ in range(x.shape[1]):
            h, c = m[1](step, (h, c))
            scores = m[3](torch.tanh(memory + m[2](h)[:, None])).squeeze(-1).masked_fill(seen, -1e9)
            chosen = scores.argmax(-1)
            seen = seen.scatter(1, chosen[:, None], True)
            step = x[torch.arange(len(x)), chosen]
            out.append(scores.log_softmax(-1).gather(1, chosen[:, None]))
            tour.append(chosen)
        return torch.cat(out, 1), torch.stack(tour, 1)

    return W(f, nn.LSTM(2, 8, batch_first=True), nn.LSTMCell(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)), (G(3, 5, 2),)


@program()
def set_transformer():
    def f(m, x, seeds, mask):
        y, _ = m[0](x, x, x, key_padding_mask=mask, need_weights=False)
        y = m[2](x + y)
        pooled, weights = m[1](seeds.expand(len(x), -1, -1), y, y, key_padding_mask=mask)
        return pooled, weights

    return W(f, nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 4, batch_first=True), nn.LayerNorm(8)), (G(3, 6, 8), G(1, 2, 8), torch.arange(6)[None] >= torch.tensor([[6], [3], [1]]))


@program("train", "random")
def transformer_seq2seq():
    m = nn.Transformer(16, 2, 1, 1, 32, dropout=0.1, batch_first=True)

    def f(m, a, b, pad):
        return m[0](a, b, tgt_mask=nn.Transformer.generate_square_subsequent_mask(b.shape[1]), src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_is_causal=True)

    return W(f, m), (G(2, 6, 16), G(2, 5, 16), torch.arange(6)[None] >= torch.tensor([[6], [4]]))
