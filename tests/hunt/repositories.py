"""Programs of repositories: sound, time series, recommenders, graphs, heads of language models with their losses."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from tutorials import layers

RI = torch.randint


# ---- sound

@program()
def conv_tasnet():
    """Encoder, dilated separable blocks with a global norm, masks, decoder, and SI-SNR of the better permutation."""
    def global_norm(x):
        return (x - x.mean((1, 2), keepdim=True)) / (x.var((1, 2), keepdim=True, correction=0) + 1e-8).sqrt()

    def si_snr(estimate, target):
        target, estimate = target - target.mean(-1, keepdim=True), estimate - estimate.mean(-1, keepdim=True)
        along = (estimate * target).sum(-1, keepdim=True) * target / (target.square().sum(-1, keepdim=True) + 1e-8)
        return 10 * torch.log10(along.square().sum(-1) / ((estimate - along).square().sum(-1) + 1e-8) + 1e-8)

    def f(m, mixture, sources):
        coded = F.relu(m[0](mixture[:, None]))
        x = m[1](global_norm(coded))
        for i in range(2):
            y = global_norm(F.prelu(m[2 + 3 * i](x), torch.tensor([0.25])))
            x = x + m[4 + 3 * i](global_norm(F.prelu(m[3 + 3 * i](y), torch.tensor([0.25]))))
        masks = torch.sigmoid(m[8](x)).unflatten(1, (2, 8))
        waves = m[9]((coded[:, None] * masks).flatten(0, 1)).view(len(mixture), 2, -1)
        length = min(waves.shape[-1], sources.shape[-1])
        score = si_snr(waves[:, :, None, :length], sources[:, None, :, :length])
        orders = torch.tensor([[0, 1], [1, 0]])
        each = torch.stack([score[:, [0, 1], order].mean(1) for order in orders], 1)
        return -each.max(1).values.mean(), each.argmax(1)

    blocks = [c for i in range(2) for c in (nn.Conv1d(6, 10, 1), nn.Conv1d(10, 10, 3, padding=2**i, dilation=2**i, groups=10), nn.Conv1d(10, 6, 1))]
    return W(f, nn.Conv1d(1, 8, 8, 4, bias=False), nn.Conv1d(8, 6, 1), *blocks, nn.Conv1d(6, 16, 1), nn.ConvTranspose1d(8, 1, 8, 4, bias=False)), (G(2, 80), R(2, 2, 80))


@program()
def wav2vec_contrast():
    """Features of a wave, masked spans, codes by a straight-through softmax over groups, and the loss against distractors."""
    def f(m, wave, masked, picks):
        x = F.layer_norm(m[1](F.gelu(m[0](wave[:, None]))).transpose(1, 2), (8,))
        logits = m[2](x).unflatten(-1, (2, 5))
        soft = logits.softmax(-1)
        hard = F.one_hot(soft.argmax(-1), 5).to(soft) + soft - soft.detach()
        codes = torch.einsum("btgv,gvd->btgd", hard, m[3].weight.view(2, 5, 4)).flatten(2)
        x = torch.where(masked[..., None], m[4].weight[0], x)
        x = m[5](x)
        candidates = torch.cat([codes[:, :, None], codes.gather(1, picks.flatten(1)[..., None].expand(-1, -1, 8)).unflatten(1, picks.shape[1:])], 2)
        similar = F.cosine_similarity(x[:, :, None].float(), candidates.float(), dim=-1) / 0.1
        same = (candidates[:, :, 1:] == codes[:, :, None]).all(-1)
        similar = torch.cat([similar[..., :1], similar[..., 1:].masked_fill(same, float("-inf"))], -1)
        use = soft.mean((0, 1))
        perplexity = torch.exp(-(use * (use + 1e-7).log()).sum(-1)).sum()
        each = F.cross_entropy(similar.flatten(0, 1), torch.zeros(masked.numel(), dtype=torch.long), reduction="none")
        return (each * masked.flatten()).sum() / masked.sum(), perplexity

    encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    wave = G(2, 64)
    frames = ((64 - 8) // 4 + 1 - 3) // 2 + 1
    masked = torch.zeros(2, frames, dtype=torch.bool)
    masked[0, 1:3] = masked[1, 2:5] = True
    return W(f, nn.Conv1d(1, 6, 8, 4), nn.Conv1d(6, 8, 3, 2), nn.Linear(8, 10), nn.Embedding(10, 4), nn.Embedding(1, 8), encoder), (wave, masked, RI(0, frames, (2, frames, 3)))


@program()
def conformer_block():
    def f(m, x, lengths):
        pad = torch.arange(x.shape[1])[None] >= lengths[:, None]
        x = x + 0.5 * m[1](F.silu(m[0](F.layer_norm(x, (8,)))))
        y = F.layer_norm(x, (8,))
        x = x + m[2](y, y, y, key_padding_mask=pad, need_weights=False)[0]
        y = F.glu(m[3](F.layer_norm(x, (8,)).masked_fill(pad[..., None], 0).transpose(1, 2)), 1)
        x = x + m[6](F.silu(m[5](m[4](y)))).transpose(1, 2)
        return F.layer_norm(x + 0.5 * m[1](F.silu(m[0](x))), (8,)).masked_fill(pad[..., None], 0)

    return W(f, nn.Linear(8, 16), nn.Linear(16, 8), nn.MultiheadAttention(8, 2, batch_first=True), nn.Conv1d(8, 16, 1), nn.Conv1d(8, 8, 5, padding=2, groups=8), nn.BatchNorm1d(8),
             nn.Conv1d(8, 8, 1)), (G(3, 7, 8), torch.tensor([7, 4, 1]))


@program()
def wavenet_mu_law():
    def f(m, wave):
        mu = 15
        coded = ((torch.sign(wave) * torch.log1p(mu * wave.abs().clamp_max(1)) / math.log1p(mu) + 1) / 2 * mu + 0.5).long()
        x, skips = m[0](coded).transpose(1, 2), 0
        for i in range(3):
            a, b = m[1 + i](F.pad(x, (2**i, 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            x = x + m[4 + i](h)
            skips = skips + h
        logits = m[7](F.relu(skips))
        back = (logits.detach().argmax(1).float() / mu) * 2 - 1
        return F.cross_entropy(logits[..., :-1], coded[:, 1:]), back.sign() * ((1 + mu) ** back.abs() - 1) / mu

    return W(f, nn.Embedding(16, 6), *(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3)), *(nn.Conv1d(6, 6, 1) for _ in range(3)), nn.Conv1d(6, 16, 1)), (R(2, 20) * 0.5,)


@program()
def vocoder_losses():
    """HiFi-GAN: fields of several dilations, discriminators of periods with weight norm, matching of features, mel distance."""
    norm = torch.nn.utils.parametrizations.weight_norm

    def f(m, mel, real):
        x = m[0](F.leaky_relu(mel, 0.1))
        x = sum(c(F.leaky_relu(x, 0.1)) for c in m[1:3]) / 2
        fake = torch.tanh(m[3](x))
        losses = []
        for period in (2, 3):
            features = []
            for wave in (real, fake):
                wave = F.pad(wave, (0, (-wave.shape[-1]) % period), "reflect") if wave.shape[-1] % period else wave
                h = wave.unflatten(-1, (-1, period))
                maps = []
                for layer in m[4:6]:
                    h = F.leaky_relu(layer(h), 0.1)
                    maps.append(h)
                features.append(maps)
            losses += [(a.detach() - b).abs().mean() for a, b in zip(*features)] + [(1 - features[1][-1]).square().mean()]
        spectra = [torch.stft(w.squeeze(1), 16, 4, window=torch.hann_window(16), return_complex=True).abs().clamp_min(1e-5).log() for w in (real, fake)]
        return sum(losses) + 45 * F.l1_loss(*spectra), fake

    return W(f, norm(nn.ConvTranspose1d(5, 6, 8, 4, 2)), norm(nn.Conv1d(6, 6, 3, padding=1)), norm(nn.Conv1d(6, 6, 3, padding=3, dilation=3)), nn.Conv1d(6, 1, 7, padding=3),
             norm(nn.Conv2d(1, 4, (5, 1), (3, 1), (2, 0))), norm(nn.Conv2d(4, 1, (3, 1), 1, (1, 0)))), (G(2, 5, 11), R(2, 1, 44))


@program()
def spec_augment_and_deltas():
    def f(mel, starts, widths):
        at = torch.arange(mel.shape[-1])
        hidden = ((at >= starts[:, :, None]) & (at < (starts + widths)[:, :, None])).any(1)
        mel = mel.masked_fill(hidden[:, None], 0.0)
        n = torch.arange(-2.0, 3.0)
        delta = F.conv1d(F.pad(mel.flatten(0, 1)[:, None], (2, 2), mode="replicate"), n[None, None]).view_as(mel) / n.square().sum()
        mean, std = delta.mean(-1, keepdim=True), delta.std(-1, keepdim=True)
        return torch.cat([mel, (delta - mean) / (std + 1e-5)], 1).unfold(-1, 3, 2).flatten(-2)

    return f, (G(2, 4, 13), RI(0, 10, (2, 2)), RI(0, 4, (2, 2)))


# ---- time series

@program()
def n_beats():
    def f(m, x):
        forecast, t, ahead = 0, torch.linspace(-1, 0, 12), torch.linspace(0, 1, 4)
        powers = torch.arange(3)
        bases = [(t[None] ** powers[:, None], ahead[None] ** powers[:, None]), tuple(torch.cat([torch.cos(math.pi * powers[1:, None] * s), torch.sin(math.pi * powers[1:, None] * s)]) for s in (t, ahead))]
        for block, (back, front) in zip(m, bases):
            a, b = block(x).split([len(back), len(front)], -1)
            x = x - a @ back
            forecast = forecast + b @ front
        return forecast, x

    return W(f, layers(12, 16, 6), layers(12, 16, 8)), (G(3, 12),)


@program()
def patch_tst():
    """Channels apart, reversible normalisation, patches, an encoder, a flat head."""
    def f(m, x):
        mean, std = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt().detach()
        x = ((x - mean) / std).transpose(1, 2)
        p = F.pad(x, (0, 4), mode="replicate").unfold(-1, 8, 4)
        h = m[0](p) + m[1].weight[: p.shape[2]]
        h = m[2](h.flatten(0, 1)).unflatten(0, p.shape[:2])
        return m[3](h.transpose(-1, -2).flatten(2)).transpose(1, 2) * std + mean

    return W(f, nn.Linear(8, 8), nn.Embedding(8, 8), nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, activation="gelu"), 1), nn.Linear(48, 5)), (G(2, 24, 3),)


@program()
def autoformer_correlation():
    """Trend by a moving average with repeated ends; attention by the strongest delays of an FFT correlation."""
    def f(m, x):
        padded = torch.cat([x[:, :1].repeat(1, 2, 1), x, x[:, -1:].repeat(1, 2, 1)], 1)
        trend = F.avg_pool1d(padded.transpose(1, 2), 5, 1).transpose(1, 2)
        q, k, v = (t.transpose(1, 2) for t in m[0](x - trend).chunk(3, -1))
        agreement = torch.fft.irfft(torch.fft.rfft(q) * torch.fft.rfft(k).conj(), n=q.shape[-1]).mean(1)
        weights, delays = agreement.topk(3, -1)
        n = v.shape[-1]
        at = (torch.arange(n)[None, None] + delays[..., None]) % n
        rolled = v[:, None].expand(-1, 3, -1, -1).gather(-1, at[:, :, None].expand(-1, -1, v.shape[1], -1))
        return (rolled * weights.softmax(-1)[..., None, None]).sum(1).transpose(1, 2) + trend

    return W(f, nn.Linear(4, 12)), (G(2, 16, 4),)


@program()
def times_net_periods():
    def f(m, x):
        spectrum = torch.fft.rfft(x, dim=1).abs()
        power = spectrum.mean(-1)
        out = []
        for period in (4, 6):
            y = F.pad(x.transpose(1, 2), (0, (-x.shape[1]) % period)).unflatten(-1, (-1, period))
            out.append(m[1](F.gelu(m[0](y))).flatten(2)[..., : x.shape[1]])
        weight = power[:, [4, 3]].softmax(-1)
        return x + (torch.stack(out, -1) * weight[:, None, None]).sum(-1).transpose(1, 2)

    return W(f, nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 3, (1, 3), padding=(0, 1))), (G(2, 17, 3),)


@program()
def exponential_smoothing():
    """Holt and Winters, with multiplicative seasons, and the loss of quantiles."""
    def f(x, alpha, beta, gamma):
        a, b, g = alpha.sigmoid(), beta.sigmoid(), gamma.sigmoid()
        level, trend, seasons, out = x[:, 0], x[:, 1] - x[:, 0], [torch.ones_like(x[:, 0])] * 4, []
        for t in range(1, x.shape[1]):
            ahead = (level + trend) * seasons[t % 4]
            out.append(ahead)
            new = a * x[:, t] / seasons[t % 4] + (1 - a) * (level + trend)
            trend = b * (new - level) + (1 - b) * trend
            seasons = [g * x[:, t] / new + (1 - g) * s if i == t % 4 else s for i, s in enumerate(seasons)]
            level = new
        e = x[:, 1:] - torch.stack(out, 1)
        q = torch.tensor([0.1, 0.5, 0.9])[:, None, None]
        return torch.maximum(q * e, (q - 1) * e).mean((1, 2))

    return f, (torch.rand(3, 14) + 1, G(3), G(3), G(3))


# ---- recommenders

@program()
def crossed_networks():
    """DCN-v2 of low rank, compressed interactions, and gates of two tasks over shared experts, after bags of ids."""
    def f(m, ids, offsets, dense):
        x = torch.cat([m[0](ids, offsets), m[1](ids, offsets), dense], 1)
        crossed = x
        for i in range(2):
            crossed = x * m[2 + i](crossed) + crossed
        maps = x.unflatten(1, (3, 4))
        inner = torch.einsum("bhd,bmd->bhmd", maps, maps).flatten(1, 2)
        compressed = F.relu(m[4](inner)).sum(-1)
        h = torch.cat([crossed, compressed], 1)
        experts = torch.stack([e(h) for e in m[5:7]], 1)
        return [torch.sigmoid((gate(h).softmax(-1)[..., None] * experts).sum(1).sum(-1)) for gate in m[7:9]]

    low = lambda: nn.Sequential(nn.Linear(12, 3, bias=False), nn.Linear(3, 12))
    return W(f, nn.EmbeddingBag(20, 4, mode="mean"), nn.EmbeddingBag(20, 4, mode="sum"), low(), low(), nn.Conv1d(9, 5, 1), layers(17, 6), layers(17, 6), nn.Linear(17, 2), nn.Linear(17, 2)), (
        RI(0, 20, (11,)), torch.tensor([0, 3, 3, 8]), G(4, 4))


@program()
def interests_of_users():
    """DIN: activation units over a history with padding, Dice, and a loss with sampled negatives."""
    def f(m, history, target, negatives):
        keys, mask = m[0](history), history != 0

        def score(item):
            q = m[0](item)[:, None].expand_as(keys)
            z = m[1](torch.cat([q, keys, q - keys, q * keys], -1))
            p = torch.sigmoid((z - z.mean(0)) / (z.var(0, correction=0) + 1e-9).sqrt())
            w = m[2](p * z + (1 - p) * 0.1 * z).squeeze(-1).masked_fill(~mask, 0)
            return ((w[:, None] @ keys).squeeze(1) * m[0](item)).sum(-1)

        positive = score(target)
        others = torch.stack([score(n) for n in negatives.unbind(1)], 1)
        return -F.logsigmoid(positive).mean() - F.logsigmoid(-others).mean(), F.softplus(others - positive[:, None]).mean()

    history = RI(1, 15, (3, 5))
    history[1, 3:] = 0
    return W(f, nn.Embedding(15, 4, padding_idx=0), nn.Linear(16, 6), nn.Linear(6, 1)), (history, RI(1, 15, (3,)), RI(1, 15, (3, 2)))


@program()
def next_items():
    """SASRec, and a softmax over the batch with the items' frequencies taken out."""
    def f(m, items, frequency):
        x = m[0](items) * 8**0.5 + m[1].weight[: items.shape[1]]
        x = x * (items != 0)[..., None]
        x = m[2](x, src_mask=torch.ones(items.shape[1], items.shape[1], dtype=torch.bool).triu(1), is_causal=True)
        users, after = x[:, :-1].flatten(0, 1), items[:, 1:].flatten()
        logits = users @ m[0](after).T - frequency[after].log()
        same = (after[:, None] == after[None]) & ~torch.eye(len(after), dtype=torch.bool)
        logits = logits.masked_fill(same, torch.finfo(logits.dtype).min)
        loss = F.cross_entropy(logits, torch.arange(len(after)), reduction="none")
        kept = (after != 0).float()
        hits = (logits.topk(3, -1).indices == torch.arange(len(after))[:, None]).any(-1)
        return (loss * kept).sum() / kept.sum().clamp_min(1), (hits * kept).sum()

    items = RI(1, 12, (2, 6))
    items[0, :2] = 0
    return W(f, nn.Embedding(12, 8, padding_idx=0), nn.Embedding(6, 8), nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)), (items, torch.rand(12) + 0.1)


@program()
def light_gcn_bpr():
    def f(m, users, items, triples):
        degree_u = torch.bincount(users, minlength=5).clamp_min(1).float().rsqrt()
        degree_i = torch.bincount(items, minlength=6).clamp_min(1).float().rsqrt()
        weight = (degree_u[users] * degree_i[items])[:, None]
        u, i = m[0].weight, m[1].weight
        all_u, all_i = [u], [i]
        for _ in range(2):
            u, i = torch.zeros_like(u).index_add(0, users, i[items] * weight), torch.zeros_like(i).index_add(0, items, u[users] * weight)
            all_u.append(u)
            all_i.append(i)
        u, i = torch.stack(all_u, 1).mean(1), torch.stack(all_i, 1).mean(1)
        a, p, n = u[triples[:, 0]], i[triples[:, 1]], i[triples[:, 2]]
        scores = (a * p).sum(-1) - (a * n).sum(-1)
        ranks = (u @ i.T).argsort(dim=-1, descending=True, stable=True).argsort(-1)
        gain = 1 / torch.log2(ranks.float() + 2)
        return F.softplus(-scores).mean() + 1e-2 * (a.square().sum() + p.square().sum()), gain

    return W(f, nn.Embedding(5, 4), nn.Embedding(6, 4)), (RI(0, 5, (14,)), RI(0, 6, (14,)), RI(0, 5, (7, 3)))


# ---- graphs

@program()
def relations_with_bases():
    """RGCN: weights of relations from bases, mean over the neighbours of each relation."""
    def f(m, x, edges, kinds):
        w = torch.einsum("rb,bio->rio", m[0].weight, m[1].weight.view(2, 4, 5))
        messages = torch.bmm(x[edges[0]][:, None], w[kinds]).squeeze(1)
        place = edges[1] * 3 + kinds
        count = torch.zeros(len(x) * 3).scatter_add(0, place, torch.ones(len(place)))
        return F.relu(torch.zeros(len(x), 5).index_add_(0, edges[1], messages / count[place][:, None]) + m[2](x))

    return W(f, nn.Embedding(3, 2), nn.Embedding(2, 20), nn.Linear(4, 5)), (G(7, 4), RI(0, 7, (2, 15)), RI(0, 3, (15,)))


@program()
def continuous_filters():
    """SchNet: distances in a Gaussian basis with a cosine cutoff, and forces as the energy's gradient."""
    def f(m, kinds, places):
        n = len(kinds)
        with torch.enable_grad():
            r = places.detach().requires_grad_()
            i, j = torch.combinations(torch.arange(n)).unbind(1)
            distance = (r[i] - r[j]).norm(dim=-1)
            basis = torch.exp(-10 * (distance[:, None] - torch.linspace(0, 3, 6)) ** 2)
            cut = 0.5 * (torch.cos(distance * math.pi / 4) + 1) * (distance < 4)
            filters = m[1](basis) * cut[:, None]
            h = m[0](kinds)
            for _ in range(2):
                moved = torch.zeros_like(h).index_add(0, i, h[j] * filters).index_add(0, j, h[i] * filters)
                h = h + m[2](moved)
            energy = m[3](h).sum()
            force = -torch.autograd.grad(energy, r, create_graph=True)[0]
        return energy, force

    soft = nn.Sequential(nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 5))
    return W(f, nn.Embedding(4, 5), soft, nn.Sequential(nn.Linear(5, 5), nn.Tanh()), layers(5, 4, 1)), (RI(0, 4, (6,)), R(6, 3))


@program()
def edge_networks():
    """MPNN: matrices of edges, a GRU over nodes, Set2Set's readout by segments."""
    def f(m, x, edges, features, graph):
        h = F.relu(m[0](x))
        for _ in range(2):
            w = m[1](features).view(-1, 5, 5)
            message = torch.zeros_like(h).scatter_reduce(0, edges[1][:, None].expand(-1, 5), (h[edges[0]][:, None] @ w).squeeze(1), "mean", include_self=False)
            h = m[2](F.relu(message), h)
        q, state = torch.zeros(3, 10), (torch.zeros(3, 5), torch.zeros(3, 5))
        for _ in range(2):
            state = m[3](q, state)
            e = (h * state[0][graph]).sum(-1)
            top = torch.full((3,), float("-inf")).scatter_reduce(0, graph, e, "amax")
            a = (e - top[graph]).exp()
            a = a / torch.zeros(3).index_add(0, graph, a)[graph]
            q = torch.cat([state[0], torch.zeros(3, 5).index_add(0, graph, a[:, None] * h)], 1)
        return q

    return W(f, nn.Linear(4, 5), nn.Linear(3, 25), nn.GRUCell(5, 5), nn.LSTMCell(10, 5)), (G(8, 4), RI(0, 8, (2, 13)), R(13, 3), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]))


@program()
def edge_convolution():
    """DGCNN: neighbours in the features' space, differences, the strongest answer; then PointNet's transform with its penalty."""
    def f(m, x):
        for layer in m[:2]:
            far = torch.cdist(x, x)
            near = far.topk(4, largest=False).indices
            neighbours = x[torch.arange(len(x))[:, None, None], near]
            centre = x[:, :, None].expand_as(neighbours)
            x = layer(torch.cat([centre, neighbours - centre], -1)).amax(2)
        t = m[2](x.amax(1)).view(-1, 3, 3) + torch.eye(3)
        return x, ((t @ t.mT - torch.eye(3)) ** 2).sum((1, 2)).sqrt()

    return W(f, layers(6, 8), layers(16, 6), nn.Linear(6, 9)), (G(2, 9, 3),)


@program()
def jumping_and_personal_ranks():
    """APPNP on a dense normalised matrix, layers joined by an LSTM's attention, walks' matrices as positions."""
    def f(m, x, adjacency):
        a = ((adjacency + adjacency.T) > 0).float() + torch.eye(len(x))
        d = a.sum(1)
        a = a * d.rsqrt()[:, None] * d.rsqrt()[None]
        h = z = m[0](x)
        kept = []
        for _ in range(3):
            z = 0.9 * a @ z + 0.1 * h
            kept.append(z)
        seq = torch.stack(kept, 1)
        weight = m[2](m[1](seq)[0]).softmax(1)
        walk, power = adjacency / adjacency.sum(1, keepdim=True).clamp_min(1), []
        p = torch.eye(len(x))
        for _ in range(3):
            p = p @ walk
            power.append(p.diagonal())
        return (weight * seq).sum(1), torch.stack(power, 1)

    return W(f, nn.Linear(4, 6), nn.LSTM(6, 3, batch_first=True, bidirectional=True), nn.Linear(6, 1, bias=False)), (G(7, 4), (torch.rand(7, 7) > 0.6).float())


# ---- heads of language models

@program()
def answers_in_spans():
    """SQuAD: positions outside are ignored, and the best span of at most four words."""
    def f(m, h, mask, start, end):
        a, b = m[0](h).masked_fill(~mask[..., None], -1e4).unbind(-1)
        outside = h.shape[1]
        loss = sum(F.cross_entropy(s, t.clamp(0, outside), ignore_index=outside) for s, t in ((a, start), (b, end))) / 2
        joint = a.log_softmax(-1)[:, :, None] + b.log_softmax(-1)[:, None]
        allowed = torch.ones(outside, outside, dtype=torch.bool).triu().tril(3)
        best = joint.masked_fill(~allowed, float("-inf")).flatten(1).max(1)
        return loss, best.values, best.indices // outside, best.indices % outside

    mask = torch.ones(3, 7, dtype=torch.bool)
    mask[1, 5:] = False
    return W(f, nn.Linear(6, 2)), (G(3, 7, 6), mask, torch.tensor([1, 9, 2]), torch.tensor([3, 9, 4]))


@program()
def biaffine_parser():
    """Arcs and labels by biaffine forms, and the log partition of trees by Kirchhoff's matrix."""
    def f(m, h, heads, labels):
        ones = torch.ones_like(h[..., :1])
        d, g = torch.cat([F.leaky_relu(m[0](h), 0.1), ones], -1), F.leaky_relu(m[1](h), 0.1)
        arcs = torch.einsum("bid,de,bje->bij", d, m[2].weight, g)
        forms = torch.einsum("bid,lde,bje->bijl", d, m[3].weight.view(3, 6, 5), g)
        mine = forms.gather(2, heads[:, :, None, None].expand(-1, -1, 1, 3)).squeeze(2)
        a = arcs.exp() * (1 - torch.eye(h.shape[1]))
        laplacian = torch.diag_embed(a.sum(2)) - a
        log_z = torch.linalg.slogdet(laplacian[:, 1:, 1:]).logabsdet
        return F.cross_entropy(arcs.flatten(0, 1), heads.flatten()) + F.cross_entropy(mine.flatten(0, 1), labels.flatten()), log_z

    return W(f, nn.Linear(5, 5), nn.Linear(5, 5), nn.Embedding(6, 5), nn.Embedding(18, 5)), (G(2, 6, 5), RI(0, 6, (2, 6)), RI(0, 3, (2, 6)))


@program()
def late_interaction():
    """ColBERT's sums of maxima, passages of the batch as negatives, and a teacher's margins."""
    def f(m, q, d, words, teacher):
        q, d = F.normalize(m[0](q), dim=-1), F.normalize(m[0](d), dim=-1)
        score = torch.einsum("qid,pjd->qpij", q, d).masked_fill(~words[None, :, None], float("-inf")).amax(-1).sum(-1)
        target = torch.arange(len(q))
        margins = score.diagonal()[:, None] - score
        return F.cross_entropy(score / 0.05, target), F.mse_loss(margins, teacher[:, :1] - teacher), F.kl_div(score.log_softmax(-1), teacher.log_softmax(-1), log_target=True, reduction="batchmean")

    words = torch.ones(3, 6, dtype=torch.bool)
    words[2, 2:] = False
    return W(f, nn.Linear(5, 4, bias=False)), (G(3, 4, 5), G(3, 6, 5), words, R(3, 3))


@program()
def replaced_tokens():
    """ELECTRA: a generator with tied embeddings over the masked places, samples by Gumbel noise, a discriminator over all."""
    def f(m, tokens, masked, noise):
        shown = tokens.masked_fill(masked, 1)
        logits = F.linear(m[1](m[0](shown)), m[0].weight, m[3].bias)
        loss = F.cross_entropy(logits.transpose(1, 2), tokens.masked_fill(~masked, -100))
        drawn = torch.where(masked, (logits.detach() - (-noise.log()).log()).argmax(-1), tokens)
        replaced = drawn != tokens
        scores = m[2](m[0](drawn)).squeeze(-1)
        return loss + 50 * F.binary_cross_entropy_with_logits(scores, replaced.float(), weight=(tokens != 0).float()), replaced.sum()

    return W(f, nn.Embedding(11, 6, padding_idx=0), layers(6, 8, 6), layers(6, 8, 1), nn.Linear(6, 11)), (RI(0, 11, (3, 7)), torch.rand(3, 7) < 0.4, torch.rand(3, 7, 11).clamp_min(1e-6))


@program()
def segments_with_memory():
    """Transformer-XL: keys of the segment before, positions relative by a shift, and an adaptive softmax."""
    def f(m, x, memory, targets):
        both = torch.cat([memory.detach(), x], 1)
        n, k = x.shape[1], both.shape[1]
        q = m[0](x).unflatten(-1, (2, 4)).transpose(1, 2)
        keys, values = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in m[1](both).chunk(2, -1))
        at = torch.arange(k - 1, -1, -1.0)[:, None] / 10 ** torch.arange(0, 4.0)
        place = m[2](torch.cat([at.sin(), at.cos()], -1)).unflatten(-1, (2, 4)).transpose(0, 1)
        bias = m[3].weight.view(2, 2, 1, 4)
        shifted = F.pad((q + bias[1]) @ place.mT, (1, 0)).view(len(x), 2, k + 1, n)[:, :, 1:].reshape(len(x), 2, n, k)
        score = ((q + bias[0]) @ keys.mT + shifted) / 2
        score = score.masked_fill(torch.ones(n, k, dtype=torch.bool).triu(1 + k - n), float("-inf"))
        h = (score.softmax(-1) @ values).transpose(1, 2).flatten(2)
        return m[4](h.flatten(0, 1), targets.flatten()), both[:, -5:]

    return W(f, nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(8, 8), nn.Embedding(2, 8), nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 12])), (G(2, 4, 8), R(2, 5, 8), RI(0, 20, (2, 4)))
