"""What training scripts do around a model: losses, averages of weights, adapters, parametrizations, hooks, quantisation, replay, ragged batches."""

import copy
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from tutorials import layers

RI = torch.randint


@program()
def dqn_update():
    """A double DQN's loss, with a target network that follows by lerp."""

    class Learner(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = layers(4, 16, 3)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        def forward(self, s, a, r, after, done):
            with torch.no_grad():
                for slow, fast in zip(self.target.parameters(), self.online.parameters()):
                    slow.lerp_(fast, 0.05)
                best = self.online(after).argmax(1, keepdim=True)
                y = r + 0.99 * (1 - done.float()) * self.target(after).gather(1, best).squeeze(1)
            q = self.online(s).gather(1, a[:, None]).squeeze(1)
            return F.smooth_l1_loss(q, y), (q - y).abs().detach()

    return Learner(), (G(6, 4), RI(0, 3, (6,)), R(6), R(6, 4), R(6) > 0)


@program()
def a2c_loss():
    def f(m, s, a, reward, done):
        h = m[0](s)
        logits, value = m[1](h), m[2](h).squeeze(-1)
        returns, acc = [], value[-1].detach()
        for t in range(len(s) - 1, -1, -1):
            acc = reward[t] + 0.9 * acc * (~done[t])
            returns.insert(0, acc)
        adv = torch.stack(returns) - value
        dist = torch.distributions.Categorical(logits=logits)
        return -(dist.log_prob(a) * ((adv - adv.mean()) / (adv.std() + 1e-8)).detach()).mean() + 0.5 * adv.square().mean() - 0.01 * dist.entropy().mean()

    return W(f, layers(4, 16), nn.Linear(16, 3), nn.Linear(16, 1)), (G(7, 2, 4), RI(0, 3, (7, 2)), R(7, 2), R(7, 2) > 1)


@program()
def lora_merge():
    class Adapter(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = nn.Linear(6, 5).requires_grad_(False)
            self.a, self.b = nn.Parameter(R(2, 6) * 0.1), nn.Parameter(R(5, 2) * 0.1)
            self.m = nn.Parameter(self.base.weight.norm(dim=1, keepdim=True))

        def forward(self, x):
            plain = self.base(x) + (x @ self.a.T @ self.b.T) * 2.0
            w = self.base.weight + 2.0 * self.b @ self.a
            dora = self.m * w / w.norm(dim=1, keepdim=True).detach()
            return plain, F.linear(x, w, self.base.bias), F.linear(x, dora, self.base.bias)

    return Adapter(), (G(3, 6),)


@program()
def mixup_cutmix():
    def f(m, x, y, lam):
        perm = torch.arange(len(x) - 1, -1, -1)
        target = F.one_hot(y, 4).float() * 0.9 + 0.1 / 4
        mixed = lam.view(-1, 1, 1, 1) * x + (1 - lam.view(-1, 1, 1, 1)) * x[perm]
        mixed[:, :, 2:5, 1:4] = x[perm][:, :, 2:5, 1:4]
        soft = lam[:, None] * target + (1 - lam[:, None]) * target[perm]
        return F.cross_entropy(m[0](mixed).mean((2, 3)), soft), F.cross_entropy(m[0](x).mean((2, 3)), y, label_smoothing=0.1, reduction="none")

    return W(f, nn.Conv2d(3, 4, 3)), (G(5, 3, 8, 8), RI(0, 4, (5,)), torch.rand(5))


@program()
def detection_losses():
    def f(cls, box, target, gt, positive):
        p = cls.sigmoid()
        bce = F.binary_cross_entropy_with_logits(cls, target, reduction="none")
        focal = (bce * (1 - torch.where(target > 0, p, 1 - p)) ** 2 * torch.where(target > 0, 0.25, 0.75)).sum() / positive.sum().clamp_min(1)
        a, b = box.cumsum(-1).sort(-1)[0], gt
        inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp_min(0).prod(-1)
        area = lambda t: (t[:, 2:] - t[:, :2]).clamp_min(0).prod(-1)
        union = area(a) + area(b) - inner + 1e-7
        hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1) + 1e-7
        giou = 1 - inner / union + (hull - union) / hull
        inter = (p * target).sum(0)
        tversky = 1 - (inter + 1) / (inter + 0.3 * (p * (1 - target)).sum(0) + 0.7 * ((1 - p) * target).sum(0) + 1)
        return focal, torch.where(positive, giou, 0).sum(), tversky

    gt = torch.rand(8, 4).sort(-1)[0]
    return f, (G(8, 3), G(8, 4), (R(8, 3) > 0.5).float(), gt, R(8) > 0)


@program()
def quantile_and_crps():
    def f(pred, y, samples):
        tau = torch.tensor([0.1, 0.5, 0.9])
        e = y[:, None] - pred
        pinball = torch.maximum(tau * e, (tau - 1) * e).mean()
        ordered = pred.sort(-1).values
        crps = (samples - y[:, None]).abs().mean(-1) - 0.5 * (samples[:, :, None] - samples[:, None]).abs().mean((-1, -2))
        cover = ((y >= ordered[:, 0]) & (y <= ordered[:, -1])).float().mean()
        return pinball, crps, cover, torch.nanquantile(samples, tau, dim=1)

    return f, (G(6, 3), R(6), G(6, 7))


@program("train", "random")
def gumbel_softmax_draws():
    return lambda x: (F.gumbel_softmax(x, tau=0.7, hard=True) @ torch.arange(5.0), F.gumbel_softmax(x, tau=2.0)), (G(4, 5),)


@program("train", "random")
def dropout_every_kind():
    def f(m, x):
        y = F.dropout(m[0](x), 0.3) + F.alpha_dropout(x, 0.2, True) + F.feature_alpha_dropout(x, 0.2, True)
        return F.dropout1d(y, 0.5), F.dropout2d(y[..., None], 0.5), F.rrelu(x, training=True), nn.functional.dropout3d(x[..., None, None], 0.2)

    return W(f, nn.Linear(6, 6)), (G(3, 4, 6),)


@program("train", "random")
def stochastic_depth():
    def f(m, x):
        for layer in m:
            keep = x.new_empty(len(x), 1).bernoulli_(0.8).div_(0.8)
            x = x + keep * layer(x)
        return x + torch.randn_like(x) * 0.01, torch.randperm(5)[:2]

    return W(f, layers(6, 8, 6), layers(6, 8, 6)), (G(5, 6),)


@program()
def parametrized_modules():
    m = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 6)), nn.utils.parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="cayley"), nn.utils.parametrizations.spectral_norm(nn.Conv1d(1, 2, 3)))

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    nn.utils.parametrize.register_parametrization(m[1], "bias", nn.Softplus())
    last = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(last, "weight", Symmetric())
    m.append(last)
    return m, (G(1, 5),)


@program()
def hooked_modules():
    """Hooks of modules and of tensors, in both directions."""
    m = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    m[0].register_forward_hook(lambda module, args, out: out * 1.5)
    m[2].register_forward_pre_hook(lambda module, args: (args[0] + 0.1,))

    def f(m, x):
        h = m[0](x)
        h.register_hook(lambda g: g.clamp(-0.05, 0.05)) if h.requires_grad else None
        return h.sin()

    return W(f, m), (G(4, 5),)


@program()
def backward_hooked_modules():
    m = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    m[1].register_full_backward_hook(lambda module, into, out: (into[0] * 2,))
    return m, (G(4, 5),)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return -ctx.weight * g * (ctx.saved_tensors[0].abs() < 2), None


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        values, places = (x * y).max(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(x, y, places)
        ctx.set_materialize_grads(False)
        return values, places

    @staticmethod
    def backward(ctx, g, _):
        x, y, places = ctx.saved_tensors
        if g is None:
            return None, None
        at = torch.zeros_like(x).scatter_(-1, places[..., None], g[..., None])
        return at * y, at * x if ctx.needs_input_grad[1] else None


@program()
def custom_functions():
    def f(m, x):
        a = Reversed.apply(m[0](x), 0.3)
        v, i = TwoResults.apply(a, torch.sigmoid(a))
        return v, i, TwoResults.apply(x, x.detach())[0]

    return W(f, nn.Linear(5, 4)), (G(3, 5),)


@program()
def checkpointed_blocks():
    def f(m, x):
        x = checkpoint(m[0], x, use_reentrant=False)
        x = checkpoint(lambda a, b: (m[1](a) * b).sin(), x, x.detach(), use_reentrant=False)
        return checkpoint_sequential(m[2], 2, x, use_reentrant=False)

    return W(f, layers(5, 8, 5), layers(5, 8, 5), nn.Sequential(layers(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU())), (G(4, 5),)


@program("train", "random")
def checkpointed_dropout():
    def f(m, x):
        return checkpoint(m[0], x, use_reentrant=False) + checkpoint(m[1], x, use_reentrant=False, preserve_rng_state=True)

    return W(f, nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.4), nn.Linear(8, 5)), nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.2))), (G(4, 5),)


@program()
def selective_checkpoint():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    keep = lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE
    context = functools.partial(create_selective_checkpoint_contexts, keep)
    return W(lambda m, x: checkpoint(lambda y: m[1](m[0](y).sin()).exp(), x, use_reentrant=False, context_fn=context), nn.Linear(5, 6), nn.Linear(6, 4)), (G(3, 5),)


@program("train")
def quantisation_aware():
    """Observers that follow ranges, fake quantisation by tensor and by channel."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)
            self.register_buffer("low", torch.tensor(0.0))
            self.register_buffer("high", torch.tensor(1.0))

        def forward(self, x):
            if self.training:
                self.low.lerp_(x.detach().amin(), 0.1)
                self.high.lerp_(x.detach().amax(), 0.1)
            scale = ((self.high - self.low) / 255).clamp_min(1e-8)
            zero = (-self.low / scale).round().clamp(0, 255).to(torch.int32)
            x = torch.fake_quantize_per_tensor_affine(x, scale, zero, 0, 255)
            w = self.inner.weight
            s = w.detach().abs().amax((1, 2, 3)) / 127
            w = torch.fake_quantize_per_channel_affine(w, s, torch.zeros(4, dtype=torch.int32), 0, -128, 127)
            return F.relu6(self.norm(F.conv2d(x, w, self.inner.bias)))

    return Quantised(), (G(2, 3, 6, 7),)


@program()
def ternary_and_bitlinear():
    def f(x, w):
        scale = w.abs().mean().clamp_min(1e-5)
        q = (w / scale).round().clamp(-1, 1) * scale
        w = w + (q - w).detach()
        s = 127 / x.abs().amax(-1, keepdim=True).clamp_min(1e-5)
        y = x + ((x * s).round().clamp(-128, 127) / s - x).detach()
        return F.linear(F.rms_norm(y, (6,)), w)

    return f, (G(4, 6), G(5, 6))


@program()
def packed_every_way():
    """Packed sequences as data: sorted, concatenated, through a GRU, and padded back."""

    def f(m, x, n):
        p = nn.utils.rnn.pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False)
        data = torch.tanh(m[1](p.data))
        out, h = m[0](nn.utils.rnn.PackedSequence(data, p.batch_sizes, p.sorted_indices, p.unsorted_indices))
        padded, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True, padding_value=-1.0)
        return padded, lengths, h

    return W(f, nn.GRU(6, 5, 2, bidirectional=True), nn.Linear(4, 6)), (G(3, 6, 4), torch.tensor([3, 6, 1]))


@program()
def ragged_bags():
    def f(m, ids, offsets, weights):
        return m[0](ids, offsets), m[1](ids, offsets, per_sample_weights=weights), F.embedding_bag(ids, m[0].weight, offsets, mode="max", include_last_offset=False)

    return W(f, nn.EmbeddingBag(20, 4, mode="mean", padding_idx=0), nn.EmbeddingBag(20, 3, mode="sum")), (RI(0, 20, (11,)), torch.tensor([0, 3, 3, 8]), G(11))


@program()
def sparse_features():
    def f(m, rows, cols, values):
        s = torch.sparse_coo_tensor(torch.stack([rows, cols]), values, (4, 20))
        return torch.sparse.mm(s, m[0].weight)

    return W(f, nn.Embedding(20, 5)), (torch.tensor([0, 0, 1, 3, 3]), torch.tensor([3, 19, 0, 7, 7]), G(5))


@program()
def jagged_nested():
    def f(m, values, offsets):
        n = torch.nested.nested_tensor_from_jagged(values, offsets)
        h = F.gelu(m[0](n))
        return h.to_padded_tensor(0.0), h.values()

    return W(f, nn.Linear(5, 6)), (G(9, 5), torch.tensor([0, 2, 6, 9]))


@program()
def swa_and_clip():
    """Averages of weights, and gradients clipped by their norm, as functions of lists."""

    def f(weights, average, grads, n):
        average = [a + (w - a) / (n + 1) for a, w in zip(average, weights)]
        torch._foreach_lerp_(average, weights, 0.1)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        scale = (1.0 / (norm + 1e-6)).clamp_max(1.0)
        return average, torch._foreach_mul(grads, scale), norm, nn.utils.get_total_norm(grads)

    shapes = ((5, 4), (4,), (2, 3, 3))
    return f, ([G(*s) for s in shapes], [R(*s) for s in shapes], [R(*s) for s in shapes], torch.tensor(3))


@program()
def distillation():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = layers(6, 8, 4), layers(6, 16, 4).requires_grad_(False)

        def forward(self, x, y):
            s = self.student(x)
            with torch.no_grad():
                t = self.teacher(x)
            soft = F.kl_div(F.log_softmax(s / 3, -1), F.log_softmax(t / 3, -1), log_target=True, reduction="batchmean") * 9
            return 0.5 * soft + 0.5 * F.cross_entropy(s, y), (s.argmax(-1) == y).float().mean(), s.topk(2, -1).indices.eq(y[:, None]).any(-1)

    return Pair(), (G(5, 6), RI(0, 4, (5,)))


@program()
def byol_predictor():
    def f(m, a, b):
        online = lambda v: F.normalize(m[1](m[0](v)), dim=-1)
        with torch.no_grad():
            ta, tb = (F.normalize(m[2](v), dim=-1) for v in (a, b))
        return (2 - 2 * (online(a) * tb).sum(-1) + 2 - 2 * (online(b) * ta).sum(-1)).mean()

    return W(f, nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)), layers(4, 8, 4), nn.Linear(6, 4)), (G(5, 6), G(5, 6))


@program("train")
def gan_penalty():
    """The gradient penalty of a critic: a gradient of a gradient."""

    def f(m, real, fake, mix):
        with torch.enable_grad():
            x = (mix * real + (1 - mix) * fake).detach().requires_grad_()
            g = torch.autograd.grad(m[0](x).sum(), x, create_graph=True)[0]
        return m[0](fake).mean() - m[0](real).mean() + 10 * (g.norm(2, 1) - 1).square().mean()

    return W(f, nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1))), (R(5, 6), R(5, 6), torch.rand(5, 1))


@program("train")
def batch_norms_in_training():
    def f(m, x):
        y = m[1](m[0](x))
        return m[2](y.flatten(2)), m[3](y[:, :, None]), F.batch_norm(x, None, None, training=True)

    return W(f, nn.BatchNorm2d(3, momentum=None), nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.BatchNorm1d(3, affine=False), nn.BatchNorm3d(3, track_running_stats=False)), (G(4, 3, 5, 6),)


@program()
def ordinal_and_survival():
    def f(score, cuts, time, event):
        bounds = torch.cumsum(F.softplus(cuts), 0)
        prob = torch.sigmoid(bounds - score[:, None]).diff(dim=-1, prepend=torch.zeros(len(score), 1), append=torch.ones(len(score), 1))
        order = time.argsort(descending=True)
        risk = score[order].logcumsumexp(0)
        return prob, -((score[order] - risk) * event[order]).sum() / event.sum().clamp_min(1)

    return f, (G(9), G(3), torch.rand(9), (R(9) > 0).float())


@program()
def metric_learning():
    def f(x, y, proxies):
        d = torch.cdist(x, x)
        same = y[:, None] == y[None]
        hard_positive = (d * same).amax(1)
        hard_negative = d.masked_fill(same, torch.inf).amin(1)
        triplet = F.relu(hard_positive - hard_negative + 0.2)
        cos = F.normalize(x) @ F.normalize(proxies).T
        phi = torch.cos(torch.acos(cos.clamp(-1 + 1e-6, 1 - 1e-6)) + 0.5)
        arc = F.cross_entropy(16 * torch.where(F.one_hot(y, 3).bool(), phi, cos), y)
        return triplet.mean(), arc

    return f, (G(8, 4), torch.arange(8) % 3, G(3, 4))
