"""Programs of papers: samplers, reinforcement learning, losses, attention that leaves most out, optimizers by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from tutorials import layers

RI = torch.randint


# ---- samplers and generative models

@program()
def dpm_solver_two_steps():
    def f(m, x):
        times = torch.linspace(1, 0.05, 5)
        alpha, sigma = torch.cos(times * 1.5), torch.sin(times * 1.5)
        ratio = torch.log(alpha / sigma)
        before = None
        for i in range(4):
            clean = (x - sigma[i] * m[0](torch.cat([x, times[i].expand(len(x), 1)], 1))) / alpha[i]
            h = ratio[i + 1] - ratio[i]
            guess = clean if before is None else clean + 0.5 * (clean - before) * h / (ratio[i] - ratio[i - 1])
            x = sigma[i + 1] / sigma[i] * x - alpha[i + 1] * torch.expm1(-h) * guess
            before = clean
        return x

    return W(f, layers(5, 16, 4)), (G(3, 4),)


@program()
def karras_heun():
    def f(m, x):
        sigmas = torch.cat([(5 ** (1 / 7) + torch.linspace(0, 1, 4) * (0.1 ** (1 / 7) - 5 ** (1 / 7))) ** 7, torch.zeros(1)])
        for now, after in zip(sigmas[:-1], sigmas[1:]):
            slope = lambda x, s: (x - m[0](x / (s**2 + 1).sqrt())) / s
            d = slope(x, now)
            moved = x + d * (after - now)
            x = torch.where(after > 0, x + (d + slope(moved, after.clamp_min(1e-3))) / 2 * (after - now), moved)
        return x

    return W(f, layers(4, 16, 4)), (G(3, 4),)


@program()
def flow_matching_loss():
    def f(m, clean, noise, t):
        point = (1 - t) * noise + t * clean
        return (m[0](torch.cat([point, t, torch.sin(t * 6)], 1)) - (clean - noise)).square().mean(1), point

    return W(f, layers(6, 16, 4)), (R(5, 4), R(5, 4), torch.rand(5, 1))


@program()
def importance_weighted_vae():
    def f(m, x, noise):
        mean, log_scale = m[0](x).chunk(2, -1)
        z = mean + noise * log_scale.exp()
        back = m[1](z)
        prior = -0.5 * z.square().sum(-1)
        posterior = (-0.5 * noise.square() - log_scale).sum(-1)
        likelihood = -F.binary_cross_entropy_with_logits(back, x.sigmoid().expand_as(back), reduction="none").sum(-1)
        weight = likelihood + prior - posterior
        return -(torch.logsumexp(weight, 0) - math.log(len(noise))).mean(), torch.softmax(weight, 0).detach()

    return W(f, layers(6, 16, 6), layers(3, 16, 6)), (R(4, 6), R(7, 4, 3))


@program()
def planar_and_radial_flows():
    def f(x, u, w, b, centre, alpha, beta):
        total = 0
        for i in range(3):
            inner = w[i] @ u[i]
            u_hat = u[i] + (F.softplus(inner) - 1 - inner) * w[i] / w[i].square().sum()
            h = torch.tanh(x @ w[i] + b[i])
            total = total + torch.log1p(((1 - h**2)[:, None] * w[i]) @ u_hat)
            x = x + h[:, None] * u_hat
            d = x - centre[i]
            r = d.norm(dim=1, keepdim=True)
            s = 1 / (F.softplus(alpha[i]) + r)
            x = x + F.softplus(beta[i]) * s * d
        return x, total

    return f, (G(5, 3), G(3, 3), G(3, 3), G(3), R(3, 3), R(3), R(3))


@program()
def recurrent_world_model():
    """A state of numbers and one of classes, drawn straight through, step by step."""
    def f(m, seen, actions, uniform):
        h, z, kl = seen.new_zeros(2, 8), seen.new_zeros(2, 6), 0
        for t in range(seen.shape[0]):
            h = m[0](torch.cat([z, actions[t]], 1), h)
            prior = m[1](h).view(2, 2, 3).log_softmax(-1)
            post = m[2](torch.cat([h, seen[t]], 1)).view(2, 2, 3).log_softmax(-1)
            kl = kl + (post.exp() * (post - prior)).sum((1, 2)).clamp_min(0.1)
            hard = F.one_hot((post - torch.log(-torch.log(uniform[t]))).argmax(-1), 3).to(h.dtype)
            z = (hard + post.exp() - post.exp().detach()).flatten(1)
        return kl, torch.cat([h, z], 1)

    return W(f, nn.GRUCell(8, 8), nn.Linear(8, 6), nn.Linear(12, 6)), (R(4, 2, 4), R(4, 2, 2), torch.rand(4, 2, 2, 3) * 0.98 + 0.01)


# ---- reinforcement learning

@program()
def v_trace():
    def f(m, s, a, behaviour, reward):
        logits, value = m[0](s).log_softmax(-1), m[1](s).squeeze(-1)
        ratio = (logits.gather(-1, a[..., None]).squeeze(-1) - behaviour).exp()
        rho, c = ratio.clamp(max=1).detach(), ratio.clamp(max=0.95).detach()
        after = torch.cat([value[1:], value[-1:]]).detach()
        delta = rho * (reward + 0.9 * after - value.detach())
        acc, out = torch.zeros_like(reward[0]), []
        for t in reversed(range(len(reward))):
            acc = delta[t] + 0.9 * c[t] * acc
            out.append(acc)
        target = torch.stack(out[::-1]) + value.detach()
        return (value - target).square().mean() - (rho * logits.gather(-1, a[..., None]).squeeze(-1) * (target - value.detach())).mean()

    return W(f, layers(4, 3), layers(4, 1)), (R(6, 2, 4), RI(0, 3, (6, 2)), -torch.rand(6, 2) - 0.5, R(6, 2))


@program()
def quantile_regression_dqn():
    def f(m, s, a, target):
        q = m[0](s).view(len(s), 3, 8)
        chosen = q.gather(1, a[:, None, None].expand(-1, 1, 8)).squeeze(1)
        u = target[:, None, :] - chosen[:, :, None]
        taus = (torch.arange(8) + 0.5) / 8
        return ((taus[None, :, None] - (u.detach() < 0).float()).abs() * F.huber_loss(chosen[:, :, None].expand_as(u), target[:, None, :].expand_as(u), reduction="none")).mean(2).sum(1)

    return W(f, layers(4, 24)), (R(5, 4), RI(0, 3, (5,)), R(5, 8))


@program()
def tree_search_descent():
    def f(prior, value, visits, children):
        node, path = torch.zeros(len(prior), dtype=torch.long), []
        for _ in range(4):
            rows = torch.arange(len(prior))
            n = visits[rows, node]
            score = value[rows, node] / n.clamp_min(1) + prior[rows, node] * n.sum(-1, keepdim=True).sqrt() / (1 + n)
            action = score.argmax(-1)
            visits = visits.index_put((rows, node, action), torch.ones(len(prior)), accumulate=True)
            path.append(action)
            node = children[rows, node, action]
        return torch.stack(path, 1), visits

    return f, (torch.rand(3, 9, 4), R(3, 9, 4), RI(0, 5, (3, 9, 4)).float(), RI(0, 9, (3, 9, 4)))


# ---- losses

@program()
def angular_margins():
    def f(x, w, y):
        cosine = F.linear(F.normalize(x), F.normalize(w)).clamp(-1 + 1e-6, 1 - 1e-6)
        hot = F.one_hot(y, len(w)).bool()
        arc = torch.where(hot, torch.cos(torch.acos(cosine) + 0.3), cosine)
        return F.cross_entropy(8 * arc, y), F.cross_entropy(8 * (cosine - 0.2 * hot), y), F.cross_entropy(8 * (cosine * torch.where(hot, 0.9, 1.0)), y, label_smoothing=0.1)

    return f, (G(7, 5), G(4, 5), RI(0, 4, (7,)))


@program()
def hardest_triplets_and_circles():
    def f(x, y):
        d = torch.cdist(x, x)
        same = y[:, None] == y[None, :]
        far = torch.where(same, d, -torch.inf).amax(1)
        near = torch.where(same, torch.inf, d).amin(1)
        s = F.normalize(x) @ F.normalize(x).t()
        positive = torch.where(same, -(1.25 - s.detach()).relu() * (s - 0.75) * 4, -torch.inf).logsumexp(1)
        negative = torch.where(same, -torch.inf, (s.detach() + 0.25).relu() * (s - 0.25) * 4).logsumexp(1)
        return F.relu(far - near + 0.3), F.softplus(positive + negative)

    return f, (G(8, 5), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))


@program()
def distances_of_samples():
    """MMD, energy distance, sliced Wasserstein, HSIC and CKA of two sets."""
    def f(x, y, directions):
        kernel = lambda a, b: sum(torch.exp(-torch.cdist(a, b).square() / s) for s in (0.5, 1.0, 4.0))
        mmd = kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean()
        energy = 2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean()
        project = lambda v: (v @ F.normalize(directions, dim=0)).sort(0).values
        sliced = (project(x) - project(y)).abs().mean()
        centre = torch.eye(len(x)) - 1 / len(x)
        k, l = centre @ (x @ x.t()) @ centre, centre @ (y @ y.t()) @ centre
        return mmd, energy, sliced, (k * l).sum(), (k * l).sum() / (k.norm() * l.norm())

    return f, (G(9, 3), G(9, 3), R(3, 6))


@program()
def counts_and_survival():
    """Zero-inflated negative binomial, Tweedie, Cox's partial likelihood, a discrete hazard."""
    def f(mean, dispersion, zero, y, time, event, logits):
        mean, dispersion = F.softplus(mean), F.softplus(dispersion)
        nb = torch.lgamma(y + dispersion) - torch.lgamma(dispersion) - torch.lgamma(y + 1) + dispersion * (dispersion / (dispersion + mean)).log() + y * (mean / (dispersion + mean)).log()
        zinb = torch.where(y == 0, torch.logaddexp(F.logsigmoid(zero), F.logsigmoid(-zero) + nb), F.logsigmoid(-zero) + nb)
        tweedie = -y * mean.pow(1 - 1.5) / (1 - 1.5) + mean.pow(2 - 1.5) / (2 - 1.5)
        order = time.argsort(descending=True)
        risk = mean.log()[order]
        cox = -((risk - torch.logcumsumexp(risk, 0)) * event[order]).sum()
        hazard = F.binary_cross_entropy_with_logits(logits, (torch.arange(6) == time.long()[:, None]).float() * event[:, None], reduction="none")
        return zinb, tweedie, cox, (hazard * (torch.arange(6) <= time.long()[:, None])).sum(1)

    return f, (G(7), G(7), G(7), RI(0, 4, (7,)).float(), torch.rand(7) * 6, (torch.rand(7) > 0.4).float(), G(7, 6))


@program()
def self_distilled_views():
    """VICReg, SwAV's assignments and R-Drop of two views."""
    def f(m, a, b):
        x, y = m[0](a), m[0](b)
        spread = lambda v: F.relu(1 - (v.var(0) + 1e-4).sqrt()).mean()
        centred = x - x.mean(0)
        cov = centred.t() @ centred / (len(x) - 1)
        vicreg = F.mse_loss(x, y) + spread(x) + spread(y) + cov.fill_diagonal_(0).square().sum() / x.shape[1]
        q = torch.exp(x.detach() / 0.5).t()
        for _ in range(3):
            q = q / q.sum(1, keepdim=True) / q.shape[0]
            q = q / q.sum(0, keepdim=True) / q.shape[1]
        swav = -(q.t() * len(x) * F.log_softmax(y, 1)).sum(1).mean()
        p, r = F.log_softmax(x, 1), F.log_softmax(y, 1)
        return vicreg, swav, F.kl_div(p, r, reduction="batchmean", log_target=True) + F.kl_div(r, p, reduction="batchmean", log_target=True)

    return W(f, layers(5, 16, 6)), (R(8, 5), R(8, 5))


@program()
def retrieval_losses():
    """Two towers with a correction for how often items come, BPR, approximate NDCG and ListNet."""
    def f(user, item, often, scores, gains):
        logits = F.normalize(user, dim=1) @ F.normalize(item, dim=1).t() / 0.1 - often.log()
        two = F.cross_entropy(logits, torch.arange(len(user)))
        bpr = -F.logsigmoid(logits.diagonal()[:, None] - logits).triu(1).sum()
        d = scores[:, :, None] - scores[:, None, :]
        rank = 0.5 + torch.sigmoid(-d / 0.2).sum(2)
        ideal = (gains.sort(1, descending=True).values / torch.log2(torch.arange(gains.shape[1]) + 2.0)).sum(1)
        ndcg = ((gains / torch.log2(rank + 1)).sum(1) / ideal.clamp_min(1e-6))
        return two, bpr, 1 - ndcg, -(F.softmax(gains, 1) * F.log_softmax(scores, 1)).sum(1)

    return f, (G(6, 4), G(6, 4), torch.rand(6) + 0.1, G(3, 5), RI(0, 4, (3, 5)).float())


# ---- attention that leaves most out

@program("large")
def window_and_global_attention():
    def f(q, k, v):
        n, w = q.shape[-2], 8
        pad = F.pad(k, (0, 0, w, w)), F.pad(v, (0, 0, w, w))
        near_k, near_v = (p.unfold(-2, 2 * w + 1, 1) for p in pad)
        scores = torch.einsum("bhnd,bhndw->bhnw", q, near_k) / math.sqrt(q.shape[-1])
        place = torch.arange(n)[:, None] + torch.arange(-w, w + 1)
        scores = scores.masked_fill((place < 0) | (place >= n), -torch.inf)
        whole = torch.einsum("bhnd,bhgd->bhng", q, k[:, :, :2]) / math.sqrt(q.shape[-1])
        p = torch.cat([scores, whole], -1).softmax(-1)
        return torch.einsum("bhnw,bhndw->bhnd", p[..., :-2], near_v) + p[..., -2:] @ v[:, :, :2]

    return f, (G(1, 2, 64, 8), G(1, 2, 64, 8), G(1, 2, 64, 8))


@program()
def hashed_attention():
    def f(qk, v, directions):
        bucket = torch.cat([qk @ directions, -(qk @ directions)], -1).argmax(-1)
        order = (bucket * qk.shape[1] + torch.arange(qk.shape[1])).argsort(-1)
        take = lambda t: t.gather(1, order[..., None].expand_as(t)).unflatten(1, (-1, 4))
        q, values, b = take(qk), take(v), bucket.gather(1, order).unflatten(1, (-1, 4))
        back = lambda t: torch.cat([t, t.roll(1, 1)], 2)
        k = F.normalize(back(q), dim=-1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(b[..., None] != back(b)[..., None, :], -1e4)
        return torch.zeros_like(v).scatter(1, order[..., None].expand_as(v), (scores.softmax(-1) @ back(values)).flatten(1, 2))

    return f, (G(2, 16, 4), G(2, 16, 4), R(4, 3))


@program()
def random_features_and_landmarks():
    """Performer, Linformer and Nystromformer."""
    def f(q, k, v, w, shrink):
        feature = lambda x: torch.exp(x @ w - x.square().sum(-1, keepdim=True) / 2 - (x @ w).amax((-1, -2), keepdim=True).detach()) + 1e-4
        fq, fk = feature(q), feature(k)
        performer = fq @ (fk.transpose(-1, -2) @ v) / (fq @ fk.sum(-2)[..., None])
        linformer = F.scaled_dot_product_attention(q, shrink @ k, shrink @ v)
        lq, lk = q.unflatten(-2, (4, -1)).mean(-2), k.unflatten(-2, (4, -1)).mean(-2)
        a, b, c = (q @ lk.transpose(-1, -2)).softmax(-1), (lq @ lk.transpose(-1, -2)).softmax(-1), (lq @ k.transpose(-1, -2)).softmax(-1)
        z = b.transpose(-1, -2) / (b.abs().sum(-1).amax() * b.abs().sum(-2).amax())
        for _ in range(4):
            bz = b @ z
            z = 0.25 * z @ (13 * torch.eye(4) - bz @ (15 * torch.eye(4) - bz @ (7 * torch.eye(4) - bz)))
        return performer, linformer, a @ (z @ (c @ v))

    return f, (G(2, 3, 16, 5), G(2, 3, 16, 5), G(2, 3, 16, 5), R(5, 9), R(4, 16))


@program()
def latent_and_differential_attention():
    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.down, self.k, self.v, self.rope = nn.Linear(16, 24), nn.Linear(16, 6), nn.Linear(6, 16), nn.Linear(6, 16), nn.Linear(16, 4)
            self.mix = nn.Parameter(torch.tensor(0.3))

        def forward(self, x):
            b, n, _ = x.shape
            c = F.rms_norm(self.down(x), (6,))
            q, k, v = self.q(x).view(b, n, 2, 12).transpose(1, 2), self.k(c).view(b, n, 2, 8).transpose(1, 2), self.v(c).view(b, n, 2, 8).transpose(1, 2)
            angle = torch.arange(n)[:, None] / 100 ** (torch.arange(2) / 2)
            turn = lambda t: torch.cat([t[..., :2] * angle.cos() - t[..., 2:] * angle.sin(), t[..., :2] * angle.sin() + t[..., 2:] * angle.cos()], -1)
            k = torch.cat([k, turn(self.rope(x))[:, None].expand(-1, 2, -1, -1)], -1)
            q = torch.cat([q[..., :8], turn(q[..., 8:])], -1)
            both = [F.scaled_dot_product_attention(q[..., s], k[..., s], v, is_causal=True) for s in (slice(0, 6), slice(6, 12))]
            return F.rms_norm(both[0] - self.mix * both[1], (8,)).transpose(1, 2).flatten(2)

    return Latent(), (R(2, 7, 16),)


@program()
def attention_with_sinks_and_buckets():
    def f(m, q, k, v, sink):
        n = q.shape[-2]
        d = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).clamp_min(0)
        bucket = torch.where(d < 4, d, (4 + (d.float().clamp_min(1) / 4).log() / math.log(4) * 4).long().clamp_max(7))
        s = q @ k.transpose(-1, -2) / 2 + m[0](bucket).permute(2, 0, 1)
        s = 3 * torch.tanh(s / 3)
        s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        with_sink = torch.cat([s, sink.view(1, -1, 1, 1).expand(len(q), -1, n, 1)], -1).softmax(-1)[..., :-1]
        return with_sink @ v, torch.sigmoid(s - math.log(n)) @ v

    return W(f, nn.Embedding(8, 3)), (G(2, 3, 12, 4), G(2, 3, 12, 4), G(2, 3, 12, 4), G(3))


@program()
def minimal_gru_in_logs():
    def f(m, x):
        gate, candidate = m[0](x).chunk(2, -1)
        log_keep, log_take = -F.softplus(gate), -F.softplus(-gate)
        log_value = torch.where(candidate >= 0, (candidate.relu() + 0.5).log(), -F.softplus(-candidate))
        decay = F.pad(log_keep.cumsum(1), (0, 0, 1, 0))
        start = torch.full_like(log_value[:, :1], -1.0)
        return (decay + torch.logcumsumexp(torch.cat([start, log_take + log_value], 1) - decay, 1)).exp()[:, 1:]

    return W(f, nn.Linear(5, 12)), (G(2, 9, 5),)


@program()
def retention_by_chunks():
    def f(q, k, v, decay):
        g, chunk, state, out = decay.sigmoid(), 4, q.new_zeros(2, 2, 5, 5), []
        place = torch.arange(chunk)
        for i in range(0, q.shape[2], chunk):
            a, b, c = (t[:, :, i:i + chunk] for t in (q, k, v))
            mask = torch.where(place[:, None] >= place, g[:, None, None] ** (place[:, None] - place).clamp_min(0), 0)
            inner = (a @ b.transpose(-1, -2) * mask) @ c
            cross = (a @ state) * g[:, None, None] ** (place[:, None] + 1)
            state = state * g[:, None, None] ** chunk + (b * g[:, None, None] ** (chunk - 1 - place)[:, None]).transpose(-1, -2) @ c
            out.append(F.group_norm((inner + cross).transpose(1, 2).flatten(0, 1), 2).view(2, chunk, 2, 5))
        return torch.cat(out, 1), state

    return f, (G(2, 2, 12, 5), G(2, 2, 12, 5), G(2, 2, 12, 5), G(2))


# ---- optimizers by hand

@program()
def updates_by_hand():
    """Lion, LAMB, Adafactor and Sophia of one matrix."""
    def f(p, g, m, v, row, column, h):
        lion = p * 0.99 - 0.01 * torch.sign(0.9 * m + 0.1 * g)
        m2, v2 = m.lerp(g, 0.1), torch.addcmul(v * 0.99, g, g, value=0.01)
        step = m2 / 0.1 / ((v2 / 0.01).sqrt() + 1e-6) + 0.01 * p
        lamb = p - 0.01 * p.norm() / step.norm().clamp_min(1e-6) * step
        row, column = row.lerp(g.square().mean(1), 0.1), column.lerp(g.square().mean(0), 0.1)
        u = g / (torch.outer(row, column) / row.mean()).sqrt()
        factored = p - 0.01 * u / (u.square().mean().sqrt() / 1.0).clamp_min(1)
        sophia = p - 0.01 * (m2 / (h * 20).clamp_min(1e-6)).clamp(-1, 1)
        return lion, lamb, factored, sophia

    return f, (R(6, 4), R(6, 4), R(6, 4), torch.rand(6, 4), torch.rand(6) + 0.1, torch.rand(4) + 0.1, torch.rand(6, 4))


@program()
def muon_and_shampoo():
    def f(g, left, right):
        x = g / (g.norm() + 1e-7)
        for a, b, c in ((3.4445, -4.7750, 2.0315),) * 5:
            s = x @ x.t()
            x = a * x + (b * s + c * s @ s) @ x
        left, right = left + g @ g.t(), right + g.t() @ g
        root = lambda m: (lambda e: e[1] @ (e[0].clamp_min(1e-6) ** -0.25).diag() @ e[1].t())(torch.linalg.eigh(m))
        return x, root(left) @ g @ root(right)

    return f, (R(4, 6), torch.eye(4), torch.eye(6))


@program()
def line_search_and_momentum():
    def f(a, b, x):
        for _ in range(3):
            r = a @ x - b
            g, value = a.t() @ r, r.square().sum() / 2
            t = torch.ones(())
            for _ in range(5):
                bad = (a @ (x - t * g) - b).square().sum() / 2 > value - 0.5 * t * g.square().sum()
                t = torch.where(bad, t * 0.5, t)
            x = x - t * g
        return x, value

    return f, (R(7, 4), R(7), G(4))
