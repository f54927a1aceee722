"""Methods as papers' code has them: agents, preferences, language models' decoding and training, images, physics, transforms, loops as operators."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from torch.func import functional_call, hessian, jacfwd, jacrev, jvp, vjp, vmap
from tutorials import layers

RI = torch.randint


# ---- agents and preferences

@program()
def twin_critics():
    """SAC's and TD3's targets, a learnt temperature, CQL's penalty and IQL's expectile."""
    def f(m, s, a, r, after, noise, log_alpha):
        mean, log_std = m[0](after).chunk(2, -1)
        raw = mean + log_std.clamp(-5, 2).exp() * noise
        act = torch.tanh(raw)
        log_p = (-0.5 * noise.square() - log_std.clamp(-5, 2) - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)
        smooth = (act + (noise * 0.2).clamp(-0.5, 0.5)).clamp(-1, 1)
        with torch.no_grad():
            y = r + 0.9 * (torch.min(*(q(torch.cat([after, smooth], -1)).squeeze(-1) for q in m[1:3])) - log_alpha.exp() * log_p)
        qs = [q(torch.cat([s, a], -1)).squeeze(-1) for q in m[1:3]]
        others = torch.stack([m[1](torch.cat([s, a + 0.1 * k], -1)).squeeze(-1) for k in range(3)])
        u = y - qs[1]
        return sum(F.huber_loss(q, y) for q in qs), (torch.logsumexp(others, 0) - qs[0]).mean(), (torch.abs(0.7 - (u < 0).float()) * u.square()).mean(), -(log_alpha.exp() * (log_p.detach() - 2)).mean()

    return W(f, layers(4, 8, 4), layers(6, 8, 1), layers(6, 8, 1)), (R(5, 4), R(5, 2), R(5), R(5, 4), R(5, 2), G(1))


@program()
def mixed_agents():
    """QMIX: a network whose weights a second one makes, absolute values for monotony."""
    def f(m, observations, state, actions, mask):
        h = torch.zeros(observations.shape[0] * 3, 6)
        values = []
        for t in range(observations.shape[1]):
            h = m[1](F.relu(m[0](observations[:, t].flatten(0, 1))), h)
            q = m[2](h).view(-1, 3, 4).masked_fill(~mask[:, t], -9999999)
            values.append(q.gather(-1, actions[:, t, :, None]).squeeze(-1))
        q = torch.stack(values, 1)
        w1, b1 = m[3](state).abs().unflatten(-1, (3, 5)), m[4](state)
        hidden = F.elu((q[:, :, None] @ w1).squeeze(2) + b1)
        return (hidden * m[5](state).abs()).sum(-1) + m[6](state).squeeze(-1)

    mask = torch.rand(2, 4, 3, 4) > 0.3
    return W(f, nn.Linear(5, 6), nn.GRUCell(6, 6), nn.Linear(6, 4), nn.Linear(7, 15), nn.Linear(7, 5), nn.Linear(7, 5), layers(7, 5, 1)), (G(2, 4, 3, 5), R(2, 4, 7), RI(0, 4, (2, 4, 3)), mask)


@program()
def values_in_two_bins():
    """MuZero's and Dreamer's: symlog, two-hot targets, the expectation back, and latents of 4 classes by straight-through."""
    def f(m, x, reward):
        bins = torch.linspace(-3, 3, 13)
        y = torch.sign(reward) * torch.log1p(reward.abs())
        y = y.clamp(-3, 3)
        above = torch.searchsorted(bins, y).clamp(1, 12)
        low, high = bins[above - 1], bins[above]
        w = (y - low) / (high - low)
        target = torch.zeros(len(x), 13).scatter(1, (above - 1)[:, None], (1 - w)[:, None]).scatter_add(1, above[:, None], w[:, None])
        logits = m[0](x)
        loss = -(target * logits.log_softmax(-1)).sum(-1)
        mean = (logits.softmax(-1) * bins).sum(-1)
        back = torch.sign(mean) * torch.expm1(mean.abs())
        prior, posterior = m[1](x).unflatten(-1, (2, 3, 4)).softmax(-1).mul(0.99).add(0.01 / 4).unbind(1)
        kl = lambda p, q: (p * (p.log() - q.log())).sum((-1, -2)).clamp_min(1.0)
        return loss, back, kl(posterior.detach(), prior) + 0.1 * kl(posterior, prior.detach())

    return W(f, layers(5, 8, 13), layers(5, 24)), (G(4, 5), R(4) * 9)


@program()
def preferences():
    """Log-probabilities of answers, then DPO, IPO, KTO, ORPO, SimPO and a reward model's pairs with margins."""
    def f(m, tokens, answer, reference):
        logits = m[1](m[0](tokens))[:, :-1]
        each = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        mask = answer[:, 1:]
        total, count = (each * mask).sum(-1), mask.sum(-1).clamp_min(1)
        (won, lost), (won_ref, lost_ref) = total.chunk(2), reference.chunk(2)
        margin = (won - won_ref) - (lost - lost_ref)
        mean_won, mean_lost = (total / count).chunk(2)
        odds = (mean_won - mean_lost) - (torch.log1p(-mean_won.exp().clamp_max(1 - 1e-6)) - torch.log1p(-mean_lost.exp().clamp_max(1 - 1e-6)))
        kl = (total - reference).mean().clamp_min(0).detach()
        return (-F.logsigmoid(0.1 * margin) * 0.9 - F.logsigmoid(-0.1 * margin) * 0.1, (margin - 5).square(), 1 - torch.sigmoid(0.1 * (won - won_ref - kl)), -F.logsigmoid(odds),
                -F.logsigmoid(2 * (mean_won - mean_lost) - 0.5))

    tokens = RI(0, 9, (4, 7))
    return W(f, nn.Embedding(9, 5), nn.Linear(5, 9)), (tokens, torch.arange(7)[None] >= torch.tensor([2, 3, 4, 6])[:, None], -R(4).abs() * 9)


@program()
def groups_of_answers():
    """GRPO: rewards whitened in groups, clipped ratios of tokens, an unbiased KL, entropy, masked means."""
    def f(m, tokens, mask, old, reference, reward):
        groups = reward.view(-1, 3)
        advantage = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        logits = m[1](m[0](tokens)[:, :-1]) / 0.9
        logp = logits.gather(-1, tokens[:, 1:, None]).squeeze(-1) - logits.logsumexp(-1)
        p = logits.softmax(-1)
        entropy = torch.logsumexp(logits, -1) - (p * logits).sum(-1)
        ratio = (logp - old).exp()
        policy = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        d = reference - logp
        loss = policy + 0.04 * (d.exp() - d - 1) - 0.01 * entropy
        clipped = ((ratio < 0.8) & (advantage < 0)) | ((ratio > 1.28) & (advantage > 0))
        return (loss * mask).sum() / mask.sum(), ((loss * mask).sum(1) / mask.sum(1).clamp(min=1)).mean(), (clipped * mask).sum() / mask.sum()

    return W(f, nn.Embedding(9, 5), nn.Linear(5, 9)), (RI(0, 9, (6, 5)), (torch.rand(6, 4) > 0.3).float(), -R(6, 4).abs(), -R(6, 4).abs(), R(6))


# ---- language models

@program()
def drawn_tokens():
    """Penalties of repetition, top-k, top-p, min-p and typical sampling, with noise that is given."""
    def f(logits, tokens, noise):
        seen = logits.gather(1, tokens)
        logits = logits.scatter(1, tokens, torch.where(seen < 0, seen * 1.3, seen / 1.3))
        counts = torch.zeros_like(logits).scatter_add(1, tokens, torch.ones_like(seen))
        logits = (logits - 0.2 * counts - 0.1 * (counts > 0)) / 0.8
        logits = logits.masked_fill(logits < logits.topk(8, -1).values[:, -1:], float("-inf"))
        order = logits.sort(-1, descending=True)
        mass = order.values.softmax(-1).cumsum(-1)
        drop = (mass > 0.9).roll(1, -1)
        drop[:, 0] = False
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, order.indices, drop), float("-inf"))
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), float("-inf"))
        entropy = -torch.nansum(p * p.log(), -1, keepdim=True)
        return (logits - (-noise.log()).log()).argmax(-1), p, (-p.log() - entropy).abs().nan_to_num(posinf=9.0)

    return f, (R(3, 20) * 3, RI(0, 20, (3, 6)), torch.rand(3, 20).clamp_min(1e-6))


@program()
def speculation():
    """Drafts that are accepted by the ratio of probabilities, and the corrected distribution where one is not."""
    def f(draft, target, tokens, u, v):
        p, q = draft.softmax(-1), target.softmax(-1)
        n = tokens.shape[1]
        ratio = (q[:, :n].gather(-1, tokens[..., None]) / p.gather(-1, tokens[..., None])).squeeze(-1)
        accepted = (u < ratio).int().cumprod(1).sum(1)
        rest = torch.cat([(q[:, :n] - p).clamp_min(0), q[:, n:]], 1)
        rest = rest / rest.sum(-1, keepdim=True).clamp_min(1e-9)
        at = rest[torch.arange(len(u)), accepted]
        extra = torch.searchsorted(at.cumsum(-1), v[:, None]).clamp_max(at.shape[-1] - 1)
        out = torch.where(torch.arange(n + 1)[None] < accepted[:, None], F.pad(tokens, (0, 1)), -1)
        return out.scatter(1, accepted[:, None], extra), accepted

    return f, (R(3, 4, 7), R(3, 5, 7), RI(0, 7, (3, 4)), torch.rand(3, 4), torch.rand(3))


@program()
def cache_of_bytes():
    """Keys and values in int8 with scales, written at a position, read with a window, YaRN's frequencies, soft caps."""
    def f(q, k, v, keys, key_scales, values, value_scales, position):
        half = 4
        base = 10000 ** (torch.arange(0, half) / half)
        blend = ((torch.arange(half) - 1) / 2).clamp(0, 1)
        angle = position[:, None] * (1 / base * (1 - blend) + 1 / (8 * base) * blend)
        cos, sin = (t * (0.1 * math.log(8) + 1) for t in (angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)))
        turn = lambda t: t * cos + torch.cat([-t[..., half:], t[..., :half]], -1) * sin
        q, k = turn(q), turn(k)
        for cache, scales, new in ((keys, key_scales, k), (values, value_scales, v)):
            s = new.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 127
            cache.index_copy_(2, position, (new / s).round().to(torch.int8))
            scales.index_copy_(2, position, s)
        score = 20 * torch.tanh(q @ (keys.float() * key_scales).mT / 8**0.5 / 20)
        at = torch.arange(keys.shape[2])
        allowed = (at[None] <= position[:, None]) & (at[None] > position[:, None] - 4)
        return score.masked_fill(~allowed, torch.finfo(score.dtype).min).softmax(-1) @ (values.float() * value_scales)

    return f, (R(1, 2, 2, 8), R(1, 2, 2, 8), R(1, 2, 2, 8), RI(-9, 9, (1, 2, 7, 8), dtype=torch.int8), torch.rand(1, 2, 7, 1), RI(-9, 9, (1, 2, 7, 8), dtype=torch.int8), torch.rand(1, 2, 7, 1), torch.tensor([3, 4]))


@program()
def experts_without_losses():
    """Sigmoid scores with a bias that balances, groups of experts, and products of sorted rows by experts."""
    def f(m, x, bias):
        scores = m[0](x).sigmoid()
        choice = scores + bias
        groups = choice.view(-1, 2, 3).topk(2, -1).values.sum(-1)
        kept = torch.zeros_like(groups).scatter(1, groups.topk(1, -1).indices, 1.0)
        choice = choice.masked_fill(~kept.repeat_interleave(3, 1).bool(), 0.0)
        picked = choice.topk(2, -1).indices
        weight = scores.gather(1, picked)
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * 2.5
        order = picked.flatten().argsort(stable=True)
        rows = x[order // 2]
        w = m[1].weight.view(6, 5, 5)
        out = torch.einsum("ni,nio->no", rows, w[picked.flatten()[order]])
        load = torch.bincount(picked.flatten(), minlength=6)
        y = torch.zeros_like(x).index_add(0, order // 2, out * weight.flatten()[order][:, None])
        return y, bias + 1e-3 * torch.sign(load.float().mean() - load)

    return W(f, nn.Linear(5, 6, bias=False), nn.Embedding(6, 25)), (G(8, 5), R(6) * 0.1)


@program()
def state_space_duality():
    """Mamba-2: chunks by masked products, states between chunks by decays, gated norm."""
    def f(m, u):
        z, x, b, c, dt = m[0](u).split([8, 8, 4, 4, 2], -1)
        x = F.silu(F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), m[2].weight, groups=8)).transpose(1, 2)
        dt = F.softplus(dt + m[3].weight[0])
        a = -torch.exp(m[3].weight[1]) * dt
        x = (x.unflatten(-1, (2, 4)) * dt[..., None]).unflatten(1, (-1, 4))
        a, b, c = (t.unflatten(1, (-1, 4)) for t in (a, b, c))
        a = a.permute(0, 3, 1, 2)
        total = a.cumsum(-1)
        t = a[..., None].expand(*a.shape, 4).masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril(-1), 0).cumsum(-2)
        decay = t.masked_fill(~torch.ones(4, 4, dtype=torch.bool).tril(0), float("-inf")).exp()
        inside = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, decay, x)
        states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, (total[..., -1:] - total).exp(), x)
        before, state = [], torch.zeros_like(states[:, 0])
        for k in range(states.shape[1]):
            before.append(state)
            state = state * total[:, :, k, -1].exp()[..., None, None] + states[:, k]
        across = torch.einsum("bcln,bchpn,bhcl->bclhp", c, torch.stack(before, 1), total.exp())
        return m[1](F.rms_norm((inside + across).flatten(1, 2).flatten(2) * F.silu(z), (8,))), state

    return W(f, nn.Linear(6, 26), nn.Linear(8, 6), nn.Conv1d(8, 8, 3, groups=8), nn.Embedding(2, 2)), (G(2, 12, 6),)


@program()
def adapters_of_other_kinds():
    """DoRA, IA3, prefixes, a frozen table of four bits in blocks with a code book (QLoRA), and later tokens' heads."""
    def f(m, x, codes, scales, book):
        frozen = (book[codes.long()].view(-1, 8) * scales[:, None]).view(6, 8).detach()
        adapted = frozen + 2.0 * m[1].weight @ m[0].weight
        w = m[2].weight[0][:, None] * adapted / adapted.norm(dim=1, keepdim=True).detach()
        y = F.linear(x, w) * m[2].weight[1]
        key = torch.cat([m[3].weight.expand(len(x), -1, -1), y], 1)
        y = F.scaled_dot_product_attention(y, key, key)
        heads = [F.cross_entropy((y[:, :-k] @ m[3].weight.T).flatten(0, 1), codes[:1, :1].long().expand(len(x), y.shape[1] - k).flatten() % 3) for k in (1, 2)]
        return y, sum(heads)

    return W(f, nn.Linear(8, 2, bias=False), nn.Linear(2, 6, bias=False), nn.Embedding(2, 6), nn.Embedding(3, 6)), (G(2, 4, 8), RI(0, 16, (6, 8), dtype=torch.uint8), torch.rand(6), torch.linspace(-1, 1, 16))


# ---- images

@program()
def guided_unet():
    """A U-Net with embeddings of time, self- and cross-attention, group norms; guidance without a class, and v-prediction."""
    def f(m, x, t, text):
        def net(x, text):
            half = torch.exp(-math.log(10000) * torch.arange(4) / 4)
            emb = m[0](torch.cat([torch.sin(t[:, None] * half), torch.cos(t[:, None] * half)], -1))
            h0 = m[1](x)
            h = m[2](F.silu(F.group_norm(h0, 2))) + emb[..., None, None]
            down = F.avg_pool2d(h, 2)
            flat = down.flatten(2).transpose(1, 2)
            flat = flat + m[3](flat, flat, flat, need_weights=False)[0]
            flat = flat + m[4](flat, text, text, need_weights=False)[0]
            up = F.interpolate(flat.transpose(1, 2).unflatten(2, down.shape[2:]), scale_factor=2.0, mode="nearest")
            return m[5](F.silu(F.group_norm(torch.cat([up, h0], 1), 4)))

        both = torch.cat([text, torch.zeros_like(text)])
        with_text, without = net(torch.cat([x, x]), both).chunk(2) if len(t) == 2 * len(x) else (net(x, text), net(x, torch.zeros_like(text)))
        v = without + 7.5 * (with_text - without)
        scaled = v * (with_text.std((1, 2, 3), keepdim=True) / v.std((1, 2, 3), keepdim=True))
        v = 0.7 * scaled + 0.3 * v
        alpha = torch.cos(t * 1.5)[:, None, None, None]
        low = torch.quantile((alpha * x - (1 - alpha**2).sqrt() * v).flatten(1).abs(), 0.95, dim=1).clamp_min(1)
        return v, low

    return W(f, nn.Linear(8, 8), nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True),
             nn.Conv2d(16, 3, 3, padding=1)), (G(2, 3, 8, 8), torch.tensor([0.2, 0.7]), R(2, 5, 6))


@program()
def shifted_windows():
    """Swin: windows that are shifted, their mask, a table of relative positions, merged patches; CBAM behind."""
    def f(m, x):
        b, h, w, c = x.shape
        y = x.roll((-2, -2), (1, 2)).view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        delta = (at[:, :, None] - at[:, None]) + 3
        bias = m[1].weight[(delta[0] * 7 + delta[1]).view(-1)].view(16, 16, 2).permute(2, 0, 1)
        region = (torch.arange(h) >= h - 4).long() + (torch.arange(h) >= h - 2)
        region = (region[:, None] * 3 + region[None]).view(h // 4, 4, w // 4, 4).transpose(1, 2).reshape(-1, 16)
        mask = torch.where(region[:, None] != region[:, :, None], -100.0, 0.0)
        q, k, v = m[0](y).view(-1, 16, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        a = q @ k.mT * (c // 2) ** -0.5 + bias
        a = (a.view(b, -1, 2, 16, 16) + mask[None, :, None]).view(-1, 2, 16, 16).softmax(-1)
        y = (a @ v).transpose(1, 2).reshape(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c).roll((2, 2), (1, 2))
        merged = m[2](torch.cat([y[:, i::2, j::2] for j in (0, 1) for i in (0, 1)], -1)).permute(0, 3, 1, 2)
        channel = torch.sigmoid(m[3](merged.mean((2, 3))) + m[3](merged.amax((2, 3))))
        merged = merged * channel[..., None, None]
        return merged * torch.sigmoid(m[4](torch.cat([merged.mean(1, True), merged.amax(1, True)], 1)))

    return W(f, nn.Linear(8, 24), nn.Embedding(49, 2), nn.Linear(32, 6, bias=False), layers(6, 3, 6), nn.Conv2d(2, 1, 3, padding=1)), (G(2, 8, 8, 8),)


@program()
def masked_autoencoder():
    def f(m, image, noise):
        p = F.unfold(image, 4, stride=4).transpose(1, 2)
        order = noise.argsort(1)
        back = order.argsort(1)
        kept = order[:, :2]
        x = m[0](p) + m[1].weight
        h = m[2](x.gather(1, kept[..., None].expand(-1, -1, 8)))
        h = torch.cat([h, m[3].weight.expand(len(h), p.shape[1] - 2, -1)], 1).gather(1, back[..., None].expand(-1, -1, 8)) + m[1].weight
        target = (p - p.mean(-1, keepdim=True)) / (p.var(-1, keepdim=True) + 1e-6) ** 0.5
        mask = torch.ones_like(noise).scatter(1, kept, 0.0)
        loss = ((m[4](h) - target) ** 2).mean(-1)
        return (loss * mask).sum() / mask.sum(), F.fold(m[4](h).transpose(1, 2), image.shape[2:], 4, stride=4)

    return W(f, nn.Linear(48, 8), nn.Embedding(9, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True), nn.Embedding(1, 8), nn.Linear(8, 48)), (G(2, 3, 12, 12), torch.rand(2, 9))


@program()
def modulated_convolutions():
    """StyleGAN: weights of each image by groups, demodulation, blur by a filter, R1's penalty on real images."""
    def f(m, x, style, real):
        s = m[0](style) + 1
        w = m[1].weight[None] * s[:, None, :, None, None]
        w = w * (w.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        y = F.conv2d(x.view(1, -1, *x.shape[2:]), w.flatten(0, 1), padding=1, groups=len(x)).view(len(x), -1, *x.shape[2:])
        k = torch.tensor([1.0, 3, 3, 1])
        k = (k[:, None] * k / k.sum() ** 2)[None, None].repeat(y.shape[1], 1, 1, 1)
        up = torch.zeros(*y.shape[:2], 2 * y.shape[2], 2 * y.shape[3])
        up[:, :, ::2, ::2] = y
        y = F.conv2d(F.pad(up, (2, 1, 2, 1)), k * 4, groups=y.shape[1])
        y = F.leaky_relu(y, 0.2) * 2**0.5
        with torch.enable_grad():
            real = real.detach().requires_grad_()
            out = m[3](F.leaky_relu(m[2](real), 0.2).flatten(1))
            g = torch.autograd.grad(F.softplus(-out).sum(), real, create_graph=True)[0]
        return y, g.square().sum((1, 2, 3)).mean()

    return W(f, nn.Linear(5, 4), nn.Conv2d(4, 6, 3, bias=False), nn.Conv2d(3, 4, 3, 2, 1), nn.Linear(64, 1)), (G(2, 4, 6, 6), G(2, 5), R(2, 3, 8, 8))


@program()
def anchors_and_hard_negatives():
    """SSD: anchors matched by overlap, offsets encoded, negatives ranked by loss; CIoU and a focal heat map beside it."""
    def f(deltas, scores, anchors, boxes, labels, heat):
        corner = lambda b: torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)
        a, g = corner(anchors), corner(boxes)
        inter = (torch.minimum(a[:, None, 2:], g[None, :, 2:]) - torch.maximum(a[:, None, :2], g[None, :, :2])).clamp_min(0).prod(-1)
        iou = inter / (anchors[:, None, 2:].prod(-1) + boxes[None, :, 2:].prod(-1) - inter)
        best, owner = iou.max(1)
        forced = iou.argmax(0)
        best = best.index_fill(0, forced, 2.0)
        owner = owner.scatter(0, forced, torch.arange(len(boxes)))
        target = torch.where(best < 0.5, 0, labels[owner])
        positive = target > 0
        encoded = torch.cat([(boxes[owner, :2] - anchors[:, :2]) / (0.1 * anchors[:, 2:]), (boxes[owner, 2:] / anchors[:, 2:]).log() / 0.2], 1)
        place = (F.smooth_l1_loss(deltas, encoded, reduction="none").sum(1) * positive).sum()
        each = F.cross_entropy(scores, target, reduction="none")
        rank = each.detach().masked_fill(positive, 0).argsort(dim=-1, descending=True, stable=True).argsort()
        hard = rank < 3 * positive.sum()
        found = torch.cat([deltas[:, :2] * 0.1 * anchors[:, 2:] + anchors[:, :2], (deltas[:, 2:] * 0.2).exp() * anchors[:, 2:]], 1)
        mine = boxes[owner]
        v = 4 / math.pi**2 * (torch.atan(mine[:, 2] / mine[:, 3]) - torch.atan(found[:, 2] / found[:, 3])) ** 2
        outer = torch.maximum(corner(found)[:, 2:], corner(mine)[:, 2:]) - torch.minimum(corner(found)[:, :2], corner(mine)[:, :2])
        ciou = (found[:, :2] - mine[:, :2]).square().sum(1) / (outer.square().sum(1) + 1e-7) + v * (v / (v + 0.5)).detach()
        grid = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij"), -1) / 6
        truth = torch.exp(-((grid[None] - boxes[:, None, None, :2]) ** 2).sum(-1) / 0.02).amax(0)
        p = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
        focal = torch.where(truth.eq(truth.max()), -(1 - p) ** 2 * p.log(), -(1 - truth) ** 4 * p**2 * (1 - p).log()).sum()
        return (place + (each * (positive | hard)).sum()) / positive.sum().clamp_min(1), (ciou * positive).sum(), focal

    return f, (G(12, 4), G(12, 4), torch.rand(12, 4) * 0.5 + 0.2, torch.rand(3, 4) * 0.5 + 0.2, RI(1, 4, (3,)), G(6, 6))


@program()
def sampled_at_many_scales():
    """Deformable DETR's attention: offsets around references, bilinear reads of flattened levels."""
    shapes = ((6, 5), (3, 3))

    def f(m, query, memory, references):
        value = m[0](memory).unflatten(-1, (2, 4))
        offset = m[1](query).unflatten(-1, (2, 2, 3, 2))
        weight = m[2](query).unflatten(-1, (2, 6)).softmax(-1)
        size = torch.tensor([[w, h] for h, w in shapes])
        at = references[:, :, None, None, None] + offset / size[None, None, None, :, None]
        grids, sampled = 2 * at - 1, []
        for level, part in enumerate(value.split([h * w for h, w in shapes], 1)):
            h, w = shapes[level]
            v = part.flatten(2).transpose(1, 2).reshape(-1, 4, h, w)
            sampled.append(F.grid_sample(v, grids[:, :, :, level].transpose(1, 2).flatten(0, 1), mode="bilinear", padding_mode="zeros", align_corners=False))
        weight = weight.transpose(1, 2).reshape(-1, 1, query.shape[1], 6)
        out = (torch.stack(sampled, -2).flatten(-2) * weight).sum(-1)
        return m[3](out.view(len(query), 8, -1).transpose(1, 2))

    return W(f, nn.Linear(8, 8), nn.Linear(8, 24), nn.Linear(8, 12), nn.Linear(8, 8)), (G(2, 4, 8), G(2, 39, 8), torch.rand(2, 4, 2))


# ---- physics and transforms

@program()
def lagrangian_net():
    """Accelerations from a learnt Lagrangian: the inverse of a Hessian, a mixed derivative, two Euler steps."""
    def f(m, q, v):
        def lagrangian(q, v):
            return m[0](torch.cat([q, v])).squeeze() + 0.5 * v.square().sum()

        def acceleration(q, v):
            mass = hessian(lagrangian, 1)(q, v) + 0.1 * torch.eye(2)
            mixed = jacfwd(jacrev(lagrangian, 1), 0)(q, v)
            return torch.linalg.solve(mass, jacrev(lagrangian, 0)(q, v) - mixed @ v)

        for _ in range(2):
            v = v + 0.1 * vmap(acceleration)(q, v)
            q = q + 0.1 * v
        return q, v

    return W(f, nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Linear(6, 1))), (R(3, 2), R(3, 2))


@program()
def tangent_kernels():
    """The neural tangent kernel of two batches, Gauss and Newton's matrix times a vector, a Laplace approximation's variances."""
    def f(m, x, y, noise):
        weights = {k: p.detach() for k, p in m[0].named_parameters()}
        net = lambda w, x: functional_call(m[0], w, (x,))
        of = lambda x: vmap(jacrev(lambda w, x: net(w, x[None])[0]), (None, 0))(weights, x)
        a, b = of(x), of(y)
        kernel = sum(torch.einsum("naf,mbf->nmab", a[k].flatten(2), b[k].flatten(2)) for k in a)
        direction = {k: torch.cos(torch.arange(p.numel()).float()).view_as(p) for k, p in weights.items()}
        out, moved = jvp(lambda w: net(w, x), (weights,), (direction,))
        p = out.softmax(-1)
        curved = p * moved - p * (p * moved).sum(-1, keepdim=True)
        product = vjp(lambda w: net(w, x), weights)[1](curved)[0]
        diagonal = {k: v.square().sum((0, 1)) + 1 for k, v in a.items()}
        variance = sum((b[k].square() / diagonal[k]).flatten(2).sum(-1) for k in b)
        return kernel, product, variance, jvp(torch.sin, (noise,), (noise.cos(),))[1]

    return W(f, layers(3, 4, 2)), (R(3, 3), R(2, 3), G(4))


@program()
def traces_of_flows():
    """FFJORD: a trace by Hutchinson's noise inside Runge and Kutta's steps; a deep equilibrium by Anderson's mixing after."""
    def f(m, x, noise):
        def field(x, t):
            out, back = vjp(lambda x: m[0](torch.cat([x, t.expand(len(x), 1)], 1)), x)
            return out, -(back(noise)[0] * noise).sum(1)

        logp, t, h = 0, torch.zeros(1), 0.25
        for _ in range(2):
            k1, l1 = field(x, t)
            k2, l2 = field(x + h * k1 / 2, t + h / 2)
            x, logp, t = x + h * k2, logp + h * (l1 + 2 * l2) / 3, t + h
        z = torch.zeros_like(x)
        past, images = [z], [torch.tanh(m[1](z) * 0.5 + x)]
        for k in range(3):
            g = torch.stack([b - a for a, b in zip(past, images)], 1)
            gram = g @ g.mT + 1e-3 * torch.eye(len(past))
            alpha = torch.linalg.solve(gram, torch.ones(len(x), len(past), 1))
            alpha = alpha / alpha.sum(1, keepdim=True)
            past.append((alpha * torch.stack(images, 1)).sum(1))
            images.append(torch.tanh(m[1](past[-1]) * 0.5 + x))
        return logp, images[-1]

    return W(f, nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), nn.Linear(3, 3)), (G(4, 3), R(4, 3).sign())


@program()
def beams_and_plates():
    """A network of sines with its third and fourth derivatives (Euler and Bernoulli's beam, the biharmonic of a plate)."""
    def f(m, x, y):
        u = lambda x, y: m[2](torch.sin(3 * m[1](torch.sin(3 * m[0](torch.stack([x, y])))))).squeeze()
        d = lambda f, k: lambda x, y: jvp(lambda t: f(t, y) if k == 0 else f(x, t), (x if k == 0 else y,), (torch.ones(()),))[1]
        beam = vmap(d(d(d(u, 0), 0), 0))(x, y)
        mixed = vmap(d(d(d(d(u, 0), 0), 1), 1))(x, y)
        return beam, mixed

    return W(f, nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 1)), (R(4), R(4))


@program()
def deep_operator():
    """DeepONet with sensors and a trunk of Fourier features, then a spectral layer that drops high modes, in complex numbers."""
    def f(m, sensors, points, weights):
        features = torch.cat([torch.sin(points @ m[2].weight.T * 6), torch.cos(points @ m[2].weight.T * 6)], -1)
        u = torch.einsum("bk,nk->bn", m[0](sensors), m[1](features))
        modes = torch.fft.rfft(u, norm="ortho")
        out = torch.zeros(len(u), modes.shape[1], dtype=torch.complex64)
        out[:, :3] = modes[:, :3] * torch.view_as_complex(weights)
        return torch.fft.irfft(out, n=u.shape[1], norm="ortho") + u, modes.abs().square().sum(1)

    return W(f, layers(6, 8, 5), layers(8, 8, 5), nn.Linear(2, 4, bias=False)), (G(3, 6), R(10, 2), G(3, 2))


# ---- loops and branches as operators

@program()
def newton_in_a_while_loop():
    def f(x):
        def condition(i, x, step):
            return (i < 20) & (step.abs().max() > 1e-5)

        def body(i, x, step):
            step = (x**3 - 2 * x - 5) / (3 * x * x - 2)
            return i + 1, x - step, step.clone()

        return torch.ops.higher_order.while_loop(condition, body, (torch.tensor(0), x, torch.ones_like(x)), ())

    return f, (torch.rand(5) + 2,)


@program()
def branches_in_branches():
    def f(m, x, k):
        def wide(x):
            return torch.cond(x.sum() > 0, lambda x: m[0](x).sin(), lambda x: m[0](x).cos(), (x,))

        return torch.cond(k > 2, wide, lambda x: m[1](x) * 2, (x,)), torch.cond(x.mean() > 9, lambda x: x + 1, lambda x: x.clone(), (x,))

    return W(f, nn.Linear(4, 4), nn.Linear(4, 4)), (G(3, 4), torch.tensor(3))


@program()
def scanned_filter():
    """A Kalman filter as a scan over a tree of states, backwards smoothing by the reversed scan."""
    from torch._higher_order_ops.scan import scan

    def f(a, y):
        def step(carry, y):
            mean, cov = carry
            mean, cov = mean @ a.T, a @ cov @ a.T + 0.1 * torch.eye(2)
            gain = cov[:, 0] / (cov[0, 0] + 0.2)
            new = mean + gain * (y - mean[:, :1])
            return (new, cov - gain[:, None] * cov[0]), (new.clone(), cov.clone())

        _, (means, covs) = scan(step, (torch.zeros(3, 2), torch.eye(2)), y)
        total, sums = scan(lambda c, m: (c * 0.9 + m, c.clone()), torch.zeros(3, 2), means, reverse=True)
        return means, covs, total, sums

    return f, (torch.tensor([[1.0, 0.1], [0.0, 1.0]]), G(6, 3, 1))


@program()
def associated_states():
    """S5: a diagonal state by an associative scan over pairs, and a map over the leading dimension."""
    from torch._higher_order_ops import associative_scan
    from torch._higher_order_ops.map import map as each

    def f(decay, x):
        a = torch.sigmoid(decay).expand_as(x).contiguous()
        _, states = associative_scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (a, x), dim=0, combine_mode="generic")
        return states, each(lambda s, d: torch.tanh(s) @ d.diag(), states, decay[0])

    return f, (G(1, 4), G(7, 4))
