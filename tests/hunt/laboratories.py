"""Programs of laboratories: geometry, sound, simulations, dynamic programming, networks of other kinds, integers and text."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from tutorials import layers

RI = torch.randint


# ---- geometry

@program()
def rigid_motions():
    """exp and log of rotations, and a point cloud aligned to another (ICP's step by SVD)."""
    def f(w, points, targets):
        angle = w.norm(dim=-1, keepdim=True)[..., None].clamp_min(1e-8)
        zero = torch.zeros_like(w[:, 0])
        k = torch.stack([zero, -w[:, 2], w[:, 1], w[:, 2], zero, -w[:, 0], -w[:, 1], w[:, 0], zero], -1).view(-1, 3, 3)
        rotation = torch.eye(3) + torch.sin(angle) / angle * k + (1 - torch.cos(angle)) / angle**2 * (k @ k)
        trace = rotation.diagonal(dim1=-2, dim2=-1).sum(-1)
        theta = torch.acos(((trace - 1) / 2).clamp(-1 + 1e-6, 1 - 1e-6))
        log = theta[:, None] / (2 * theta.sin()[:, None]) * torch.stack([rotation[:, 2, 1] - rotation[:, 1, 2], rotation[:, 0, 2] - rotation[:, 2, 0], rotation[:, 1, 0] - rotation[:, 0, 1]], -1)
        moved = points @ rotation.transpose(-1, -2)
        near = torch.cdist(moved, targets).argmin(-1)
        matched = targets.gather(1, near[..., None].expand_as(moved))
        a, b = moved - moved.mean(1, keepdim=True), matched - matched.mean(1, keepdim=True)
        u, _, v = torch.linalg.svd((a.transpose(1, 2) @ b).detach())
        sign = torch.det(u @ v).sign()
        fit = u @ torch.diag_embed(torch.stack([torch.ones(2), torch.ones(2), sign], -1)) @ v
        return log, (moved @ fit - matched).square().sum(-1)

    return f, (G(2, 3), R(2, 9, 3), R(2, 11, 3))


@program()
def camera_with_distortion():
    def f(points, focal, k, pose):
        p = points @ pose[:, :3].transpose(-1, -2) + pose[:, 3]
        xy = p[..., :2] / p[..., 2:].clamp_min(0.1)
        r = xy.square().sum(-1, keepdim=True)
        bent = xy * (1 + k[0] * r + k[1] * r**2) + torch.stack([2 * k[2] * xy[..., 0] * xy[..., 1], k[2] * (r.squeeze(-1) + 2 * xy[..., 1] ** 2)], -1)
        straight = bent
        for _ in range(4):
            q = straight.square().sum(-1, keepdim=True)
            straight = bent / (1 + k[0] * q + k[1] * q**2)
        return bent * focal + 32, straight, (p[..., 2] > 0.1) & (bent.abs() < 1).all(-1)

    return f, (R(5, 3) + torch.tensor([0, 0, 4.0]), torch.tensor(30.0, requires_grad=True), R(3) * 0.05, torch.cat([torch.eye(3), R(3, 1) * 0.1], 1))


@program()
def curves_and_splines():
    """Bezier's curves by de Casteljau, B-splines by Cox and de Boor, Catmull and Rom's, arc lengths."""
    def f(control, t):
        points = control.expand(len(t), -1, -1)
        for _ in range(control.shape[0] - 1):
            points = points[:, :-1] * (1 - t)[:, None, None] + points[:, 1:] * t[:, None, None]
        knots = torch.arange(control.shape[0] + 4).float() / (control.shape[0] + 3)
        basis = ((t[:, None] >= knots[:-1]) & (t[:, None] < knots[1:])).to(control.dtype)
        for p in range(1, 4):
            left, right = (t[:, None] - knots[:-p - 1]) / (knots[p:-1] - knots[:-p - 1]), (knots[p + 1:] - t[:, None]) / (knots[p + 1:] - knots[1:-p])
            basis = left * basis[:, :-1] + right * basis[:, 1:]
        at = t * (control.shape[0] - 3)
        i = at.floor().long().clamp(0, control.shape[0] - 4)
        u = (at - i)[:, None]
        a, b, c, d = (control[i + j] for j in range(4))
        rom = 0.5 * (2 * b + (c - a) * u + (2 * a - 5 * b + 4 * c - d) * u**2 + (3 * b - a - 3 * c + d) * u**3)
        length = (rom[1:] - rom[:-1]).norm(dim=1).cumsum(0)
        return points[:, 0], basis @ control, rom, length

    return f, (G(6, 2), torch.linspace(0.02, 0.97, 9))


@program()
def polygons():
    """Areas, points inside, signed distances, convex clipping's half planes."""
    def f(corners, points):
        after = corners.roll(-1, 0)
        area = 0.5 * (corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum()
        e, w = after - corners, points[:, None] - corners
        along = ((w * e).sum(-1) / e.square().sum(-1)).clamp(0, 1)
        distance = (w - e * along[..., None]).norm(dim=-1).amin(1)
        crosses = ((corners[:, 1] > points[:, None, 1]) != (after[:, 1] > points[:, None, 1])) & (points[:, None, 0] < e[:, 0] * w[..., 1] / e[:, 1] + corners[:, 0])
        inside = crosses.sum(1) % 2 == 1
        return area, torch.where(inside, -distance, distance), (e[:, 0] * w[..., 1] - e[:, 1] * w[..., 0]).amin(1)

    angle = torch.arange(7) / 7 * 6.28318 + 0.1
    return f, (torch.stack([angle.cos(), angle.sin() * 1.5], 1).requires_grad_(), R(11, 2))


@program()
def rays_and_shapes():
    def f(origin, direction, centre, radius, triangles):
        direction = F.normalize(direction, dim=-1)
        oc = origin[:, None] - centre
        b, c = (oc * direction[:, None]).sum(-1), oc.square().sum(-1) - radius**2
        disc = b**2 - c
        t = torch.where(disc > 0, -b - disc.clamp_min(1e-8).sqrt(), torch.inf)
        hit = torch.where(t > 0, t, torch.inf).min(1)
        e1, e2 = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
        h = torch.linalg.cross(direction[:, None].expand(-1, len(e2), -1), e2.expand(len(direction), -1, -1))
        det = (e1 * h).sum(-1)
        s = (origin[:, None] - triangles[:, 0]) / det[..., None]
        u = (s * h).sum(-1)
        v = (torch.linalg.cross(s, e1.expand_as(s)) * direction[:, None]).sum(-1)
        inside = (u >= 0) & (v >= 0) & (u + v <= 1)
        normal = F.normalize(origin + hit.values.clamp_max(100)[:, None] * direction - centre[hit.indices], dim=-1)
        return hit.values.clamp_max(100), normal, inside

    return f, (R(6, 3), R(6, 3), G(4, 3), torch.rand(4) + 0.5, R(5, 3, 3))


@program()
def hyperbolic_embeddings():
    def f(u, v, w):
        ball = lambda x: x / (1 + x.norm(dim=-1, keepdim=True))
        u, v = ball(u), ball(v)
        d = torch.acosh(1 + 2 * (u - v).square().sum(-1) / ((1 - u.square().sum(-1)) * (1 - v.square().sum(-1))))
        uv, u2, v2 = (u * v).sum(-1, keepdim=True), u.square().sum(-1, keepdim=True), v.square().sum(-1, keepdim=True)
        added = ((1 + 2 * uv + v2) * u + (1 - u2) * v) / (1 + 2 * uv + u2 * v2)
        n = added.norm(dim=-1, keepdim=True)
        log = torch.atanh(n.clamp(1e-6, 1 - 1e-5)) / n.clamp_min(1e-6) * added
        m = log @ w
        return d, torch.tanh(m.norm(dim=-1, keepdim=True)) * F.normalize(m, dim=-1)

    return f, (G(5, 4), G(5, 4), G(4, 4))


# ---- sound

@program()
def linear_prediction():
    def f(x):
        n, order = x.shape[-1], 5
        r = torch.stack([(x[:, :n - k] * x[:, k:]).sum(1) for k in range(order + 1)], 1)
        a, error = x.new_zeros(len(x), order + 1).index_fill(1, torch.tensor([0]), 1.0), r[:, 0]
        for i in range(1, order + 1):
            k = -(a[:, :i] * r[:, 1:i + 1].flip(1)).sum(1) / error
            a = a + F.pad(k[:, None] * a[:, :i].flip(1), (1, order - i))
            error = error * (1 - k**2)
        return a, error

    return f, (G(3, 40),)


@program()
def pitch_and_loudness():
    """YIN's difference function, mu-law, a compressor's envelope, pre-emphasis."""
    def f(x):
        frames = x.unfold(-1, 64, 32)
        spectrum = torch.fft.rfft(frames, n=128)
        auto = torch.fft.irfft(spectrum * spectrum.conj(), n=128)[..., :32]
        energy = frames.square().cumsum(-1)
        d = energy[..., -1:] + energy[..., -1:] - F.pad(energy, (1, 0))[..., :32] - 2 * auto
        mean = F.pad(d[..., 1:] * torch.arange(1, 32) / d[..., 1:].cumsum(-1).clamp_min(1e-6), (1, 0), value=1.0)
        coded = torch.sign(x) * torch.log1p(255 * x.abs().clamp_max(1)) / math.log(256)
        level, out = torch.zeros_like(x[:, 0]), []
        for i in range(0, 96, 8):
            loud = x[:, i:i + 8].abs().amax(1)
            level = torch.where(loud > level, 0.5, 0.95) * level + torch.where(loud > level, 0.5, 0.05) * loud
            out.append(level)
        return mean, mean.argmin(-1), ((coded + 1) / 2 * 255 + 0.5).long(), torch.stack(out, 1), x[:, 1:] - 0.97 * x[:, :-1]

    return f, (R(2, 256) * 0.4,)


@program()
def cepstra_and_chroma():
    def f(x, bank):
        s = torch.stft(x, 64, 16, window=torch.hann_window(64), return_complex=True).abs().square()
        mel = (bank @ s).clamp_min(1e-5).log()
        n = torch.arange(12.0)
        dct = torch.cos(math.pi / 12 * (n + 0.5) * n[:, None]) * math.sqrt(2 / 12)
        mfcc = dct[:8] @ mel
        delta = (F.pad(mfcc, (2, 2), mode="replicate").unfold(-1, 5, 1) * torch.arange(-2.0, 3)).sum(-1) / 10
        pitch = (12 * torch.log2(torch.arange(1, 33) / 4.0)).round().long() % 12
        chroma = torch.zeros(len(x), 12, s.shape[-1]).index_add(1, pitch, s[:, 1:])
        flux = F.relu(s[..., 1:] - s[..., :-1]).sum(1)
        return mfcc, delta, F.normalize(chroma, dim=1), flux, (torch.arange(33.0)[:, None] * s).sum(1) / s.sum(1).clamp_min(1e-6)

    return f, (G(2, 160), torch.rand(12, 33))


@program()
def phases_from_magnitudes():
    def f(magnitude):
        window = torch.hann_window(32)
        phase = torch.ones_like(magnitude) * (1 + 0j)
        for _ in range(3):
            x = torch.istft(magnitude * phase, 32, 8, window=window, length=120)
            again = torch.stft(x, 32, 8, window=window, return_complex=True)
            phase = again / again.abs().clamp_min(1e-6)
        return x

    return f, (torch.rand(2, 17, 16).requires_grad_(),)


# ---- simulations

@program()
def springs_and_cloth():
    def f(x, stiffness):
        v = torch.zeros_like(x)
        for _ in range(4):
            force = torch.zeros_like(x)
            for dim in (0, 1):
                d = x.diff(dim=dim)
                length = d.norm(dim=-1, keepdim=True)
                pull = stiffness * (length - 1) * d / length.clamp_min(1e-6)
                first = (slice(None, -1), slice(None)) if dim == 0 else (slice(None), slice(None, -1))
                second = (slice(1, None), slice(None)) if dim == 0 else (slice(None), slice(1, None))
                force[first] += pull
                force[second] -= pull
            force[..., 2] -= 9.8
            force[0] = 0
            v = (v + 0.01 * force) * 0.99
            x = x + 0.01 * v
        return x, v

    grid = torch.stack(torch.meshgrid(torch.arange(5.0), torch.arange(6.0), indexing="ij"), -1)
    return f, (torch.cat([grid, torch.zeros(5, 6, 1)], -1), torch.tensor(20.0, requires_grad=True))


@program()
def smoothed_particles():
    def f(x, v):
        d = x[:, None] - x[None]
        r = (d.square().sum(-1) + 1e-8).sqrt()
        q = (r / 0.8).clamp_max(1)
        density = ((1 - q**2) ** 3).sum(1)
        pressure = F.relu(density - 2)
        grad = torch.where(r < 0.8, (1 - q) ** 2, 0)[..., None] * d / r[..., None]
        force = ((pressure[:, None] + pressure[None]) / (2 * density[None]))[..., None] * grad
        viscosity = ((v[None] - v[:, None]) * torch.where(r < 0.8, 1 - q, 0)[..., None] / density[None, :, None]).sum(1)
        v = v + 0.05 * (force.sum(1) + 0.1 * viscosity)
        x = x + 0.05 * v
        out = (x < 0) | (x > 3)
        return x.clamp(0, 3), torch.where(out, -0.5 * v, v), density

    return f, ((torch.rand(20, 2) * 3).requires_grad_(), R(20, 2))


@program()
def reaction_and_diffusion():
    def f(u, v, feed):
        kernel = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1, 0.2], [0.05, 0.2, 0.05]]).view(1, 1, 3, 3)
        for _ in range(4):
            lap = lambda a: F.conv2d(F.pad(a[:, None], (1, 1, 1, 1), mode="circular"), kernel)[:, 0]
            uvv = u * v * v
            u, v = u + lap(u) - uvv + feed * (1 - u), v + 0.5 * lap(v) + uvv - (feed + 0.06) * v
        return u, v

    return f, (torch.rand(2, 12, 12), torch.rand(2, 12, 12) * 0.3, torch.tensor(0.04, requires_grad=True))


@program()
def tridiagonal_heat():
    """Crank and Nicolson's steps by Thomas' algorithm."""
    def f(u, c):
        n = u.shape[1]
        for _ in range(3):
            right = u + c / 2 * (F.pad(u, (1, 0))[:, :-1] - 2 * u + F.pad(u, (0, 1))[:, 1:])
            cs, ds = [-c / 2 / (1 + c)], [right[:, 0] / (1 + c)]
            for i in range(1, n):
                m = 1 + c + c / 2 * cs[-1]
                cs.append(-c / 2 / m)
                ds.append((right[:, i] + c / 2 * ds[-1]) / m)
            x = [ds[-1]]
            for i in reversed(range(n - 1)):
                x.append(ds[i] - cs[i] * x[-1])
            u = torch.stack(x[::-1], 1)
        return u

    return f, (G(3, 10), torch.tensor(0.3, requires_grad=True))


@program()
def electromagnetic_waves():
    def f(eps):
        e, hx, hy = torch.zeros(14, 14), torch.zeros(14, 13), torch.zeros(13, 14)
        for t in range(6):
            hx = hx - 0.5 * e.diff(dim=1)
            hy = hy + 0.5 * e.diff(dim=0)
            e = F.pad(e[1:-1, 1:-1] + 0.5 / eps[1:-1, 1:-1] * (hy[:, 1:-1].diff(dim=0) - hx[1:-1].diff(dim=1)), (1, 1, 1, 1))
            e = e.index_put((torch.tensor([7]), torch.tensor([6])), torch.tensor([math.sin(t / 2)]), accumulate=True)
        return e, hx

    return f, ((torch.rand(14, 14) + 1).requires_grad_(),)


@program("random")
def option_prices():
    def f(spot, vol, rate, noise):
        steps = torch.exp((rate - vol**2 / 2) / 8 + vol * noise / math.sqrt(8))
        path = spot * steps.cumprod(1)
        asian = F.relu(path.mean(1) - 1).mean()
        barrier = (F.relu(path[:, -1] - 1) * torch.sigmoid((1.5 - path.amax(1)) * 50)).mean()
        value = F.relu(1 - path[:, -1])
        for t in reversed(range(7)):
            now = F.relu(1 - path[:, t])
            basis = torch.stack([torch.ones_like(now), path[:, t], path[:, t] ** 2], 1).detach()
            keep = basis @ torch.linalg.solve(basis.t() @ basis + 1e-3 * torch.eye(3), basis.t() @ value.detach())
            value = torch.where(now > keep, now, value * torch.exp(-rate / 8))
        return asian, barrier, value.mean()

    return f, (torch.tensor(1.0, requires_grad=True), torch.tensor(0.3, requires_grad=True), torch.tensor(0.02), R(64, 8))


@program()
def spins_on_a_checkerboard():
    def f(spins, uniform):
        parity = (torch.arange(8)[:, None] + torch.arange(8)) % 2
        for i in range(4):
            near = sum(spins.roll(s, d) for s in (1, -1) for d in (-1, -2))
            flips = (uniform[i] < torch.exp(-2 * 0.4 * spins * near)) & (parity == i % 2)
            spins = torch.where(flips, -spins, spins)
        return spins, spins.mean((-1, -2)), (spins * spins.roll(1, -1)).sum((-1, -2))

    return f, ((R(2, 8, 8) > 0).float() * 2 - 1, torch.rand(4, 2, 8, 8))


# ---- dynamic programming

@program()
def inside_of_a_grammar():
    """log-probabilities of all trees over a sentence (CKY), and their gradients, which are the spans'."""
    def f(rules, words):
        n, s = words.shape
        chart = {(i, i + 1): words[i] for i in range(n)}
        for width in range(2, n + 1):
            for i in range(n - width + 1):
                parts = torch.stack([chart[i, k][:, None] + chart[k, i + width][None, :] for k in range(i + 1, i + width)])
                chart[i, i + width] = torch.logsumexp((rules[None] + parts[:, None]).permute(1, 0, 2, 3).flatten(1), 1)
        return torch.logsumexp(chart[0, n], 0)

    return f, (G(3, 3, 3), G(5, 3))


@program()
def soft_alignment():
    """Soft-DTW and Needleman and Wunsch's scores with a smooth maximum, by diagonals."""
    def f(x, y):
        d = torch.cdist(x, y).square()
        n, m = d.shape
        before, last = torch.full((n + 1,), torch.inf), torch.full((n + 1,), torch.inf)
        before = before.clone()
        before[0] = 0.0
        for k in range(1, n + m):
            rows = torch.arange(max(0, k - m), min(n, k))
            best = -torch.logsumexp(-torch.stack([before[rows], last[rows], last[rows + 1]]).clamp_max(1e6), 0)
            now = torch.full((n + 1,), torch.inf)
            now[rows + 1] = d[rows, k - 1 - rows] + best
            before, last = last, now
        return last[n]

    return f, (G(5, 2), G(6, 2))


@program()
def shortest_paths():
    """Bellman and Ford's relaxations, Floyd and Warshall's, the smooth ones too."""
    def f(w):
        d = torch.full((len(w),), torch.inf).index_fill(0, torch.tensor([0]), 0.0)
        for _ in range(4):
            d = torch.minimum(d, (d[:, None] + w).amin(0))
        every = w.clone()
        for k in range(len(w)):
            every = torch.minimum(every, every[:, k:k + 1] + every[k:k + 1])
        smooth = -w
        for _ in range(2):
            smooth = torch.logsumexp(smooth[:, :, None] + smooth[None], 1)
        return d, every, -smooth

    return f, ((torch.rand(7, 7) + 0.1).requires_grad_(),)


@program()
def semi_markov_segments():
    def f(score, lengths):
        n = len(score)
        total = F.pad(score.cumsum(0), (0, 0, 1, 0))
        alpha = [torch.zeros(score.shape[1])]
        for t in range(1, n + 1):
            ways = torch.stack([alpha[t - k].logsumexp(0) + total[t] - total[t - k] + lengths[k - 1] for k in range(1, min(t, 4) + 1)])
            alpha.append(ways.logsumexp(0))
        return torch.stack(alpha[1:]).logsumexp(1)

    return f, (G(8, 3), G(4, 3))


@program()
def knapsack_and_edit_counts():
    def f(value, text, pattern):
        best = torch.zeros(16)
        for w, v in zip((3, 5, 7), value):
            best = torch.maximum(best, F.pad(best[:-w] + v, (w, 0)))
        same = text[:, None] == pattern[None, :]
        row = torch.arange(len(pattern) + 1)
        for i in range(len(text)):
            cost = torch.minimum(row[1:] + 1, row[:-1] + (~same[i]).long())
            shifted = torch.cat([row[:1] + 1, cost]) - torch.arange(len(pattern) + 1)
            row = shifted.cummin(0).values + torch.arange(len(pattern) + 1)
        return best, row

    return f, (R(3).abs().requires_grad_(), RI(0, 4, (9,)), RI(0, 4, (7,)))


# ---- networks of other kinds

@program()
def spiking_neurons():
    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x > 0).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g / (1 + 10 * x.abs()) ** 2

    def f(m, x):
        v, trace, spikes = x.new_zeros(len(x), 8), x.new_zeros(len(x), 8), []
        for t in range(x.shape[1]):
            v = 0.9 * v + m[0](x[:, t])
            s = Spike.apply(v - 1)
            v = v - s.detach()
            trace = 0.8 * trace + s
            spikes.append(s)
        return m[1](trace), torch.stack(spikes, 1).mean((0, 1))

    return W(f, nn.Linear(5, 8), nn.Linear(8, 3)), (G(3, 6, 5),)


@program()
def spline_network():
    """Kolmogorov and Arnold's: each edge a B-spline of its own."""
    class Layer(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.base, self.spline = nn.Parameter(R(o, i) * 0.3), nn.Parameter(R(o, i, 7) * 0.2)
            self.register_buffer("grid", torch.arange(-3, 8) * 0.5 - 1)

        def forward(self, x):
            g, t = self.grid, x[..., None]
            b = ((t >= g[:-1]) & (t < g[1:])).to(x.dtype)
            for k in range(1, 4):
                b = (t - g[:-k - 1]) / (g[k:-1] - g[:-k - 1]) * b[..., :-1] + (g[k + 1:] - t) / (g[k + 1:] - g[1:-k]) * b[..., 1:]
            return F.linear(F.silu(x), self.base) + F.linear(b.flatten(-2), self.spline.flatten(1))

    return nn.Sequential(Layer(4, 5), Layer(5, 2)), (G(6, 4),)


@program()
def networks_that_make_weights():
    def f(m, x, code):
        w1, b1, w2 = m[0](code).split([4 * 8, 8, 8 * 2], -1)
        h = torch.sin(30 * (torch.einsum("bi,boi->bo", x, w1.view(-1, 8, 4)) + b1) / 30)
        scale, shift = code[:, :8].chunk(2, -1)
        return torch.einsum("bi,boi->bo", h, w2.view(-1, 2, 8)) * (1 + scale[:, :2]) + shift[:, :2]

    return W(f, layers(8, 16, 56)), (G(5, 4), G(5, 8))


@program()
def liquid_and_echo_states():
    def f(m, x, reservoir):
        h, e = x.new_zeros(len(x), 6), x.new_zeros(len(x), 6)
        radius = torch.linalg.eigvals(reservoir).abs().amax()
        for t in range(x.shape[1]):
            for _ in range(3):
                gate = torch.sigmoid(m[0](torch.cat([x[:, t], h], 1)))
                h = (h + 0.1 * gate) / (1 + 0.1 * (1 / 2 + gate))
            e = 0.7 * e + 0.3 * torch.tanh(e @ (0.9 / radius * reservoir) + x[:, t].sum(1, keepdim=True))
        return h, e

    return W(f, nn.Linear(9, 6)), (G(2, 5, 3), R(6, 6))


@program()
def equivariant_graph():
    """EGNN's layer and SchNet's filter over a molecule's edges."""
    def f(m, h, x, src, dst):
        d = x[src] - x[dst]
        r2 = d.square().sum(1, keepdim=True)
        message = F.silu(m[0](torch.cat([h[src], h[dst], r2], 1)))
        moved = x + torch.zeros_like(x).index_add(0, dst, d / (r2.sqrt() + 1) * m[1](message)) / 4
        rbf = torch.exp(-4 * (r2.clamp_min(1e-8).sqrt() - torch.linspace(0, 3, 6)) ** 2)
        cut = 0.5 * (torch.cos(r2.clamp_min(1e-8).sqrt().clamp_max(3) * math.pi / 3) + 1)
        near = h[src] * (m[2](rbf) * cut)
        out = h + m[3](torch.cat([h, torch.zeros(len(h), 8).index_add(0, dst, message)], 1)) + torch.zeros_like(h).index_add(0, dst, near)
        most = torch.full_like(h, -1e9).scatter_reduce(0, dst[:, None].expand(-1, h.shape[1]), near, "amax", include_self=False)
        return out, moved, most

    return W(f, nn.Linear(11, 8), nn.Linear(8, 1), nn.Linear(6, 5), nn.Linear(13, 5)), (G(6, 5), G(6, 3), RI(0, 6, (15,)), RI(0, 6, (15,)))


@program()
def spectral_graphs():
    """Positions from a Laplacian's eigenvectors, Chebyshev's filters, personalised PageRank, label propagation."""
    def f(adjacency, x, labels, weights):
        a = (adjacency + adjacency.t()) / 2
        degree = a.sum(1)
        norm = a / (degree[:, None] * degree[None]).sqrt()
        laplacian = torch.eye(len(a)) - norm
        _, vectors = torch.linalg.eigh(laplacian)
        before, now = x, (laplacian - torch.eye(len(a))) @ x
        out = before @ weights[0] + now @ weights[1]
        for w in weights[2:]:
            before, now = now, 2 * (laplacian - torch.eye(len(a))) @ now - before
            out = out + now @ w
        rank = 0.15 * torch.linalg.solve(torch.eye(len(a)) - 0.85 * norm, x)
        spread = labels
        for _ in range(4):
            spread = (0.8 * norm @ spread + 0.2 * labels).clamp(0, 1)
        return out, rank, spread, vectors[:, 1:3].abs()

    return f, (torch.rand(8, 8) + 0.05, G(8, 3), F.one_hot(RI(0, 3, (8,)), 3).float(), G(4, 3, 2))


@program()
def mixture_by_expectation():
    def f(x, mean, scale, weight):
        for _ in range(4):
            log = weight.log() - 0.5 * ((x[:, None] - mean) / scale).square().sum(-1) - scale.log().sum(-1)
            r = log.softmax(1)
            n = r.sum(0) + 1e-6
            mean = r.t() @ x / n[:, None]
            scale = (torch.einsum("nk,nkd->kd", r, (x[:, None] - mean).square()) / n[:, None] + 1e-4).sqrt()
            weight = n / n.sum()
        return mean, scale, weight, torch.logsumexp(log, 1).mean()

    return f, (R(20, 2), R(3, 2), torch.ones(3, 2), torch.full((3,), 1 / 3))


@program()
def sparse_gaussian_process():
    def f(x, y, z, log_length, log_noise):
        kernel = lambda a, b: torch.exp(-0.5 * torch.cdist(a / log_length.exp(), b / log_length.exp()).square())
        l = torch.linalg.cholesky(kernel(z, z) + 1e-4 * torch.eye(len(z)))
        a = torch.linalg.solve_triangular(l, kernel(z, x), upper=False) / log_noise.exp()
        b = torch.linalg.cholesky(torch.eye(len(z)) + a @ a.t())
        c = torch.linalg.solve_triangular(b, (a @ y)[:, None], upper=False)[:, 0] / log_noise.exp()
        bound = -b.diagonal().log().sum() - len(x) * log_noise - 0.5 * (y / log_noise.exp()).square().sum() + 0.5 * c.square().sum()
        return bound - 0.5 * (len(x) - (a * log_noise.exp()).square().sum()) / log_noise.exp() ** 2

    return f, (R(12, 2), R(12), G(4, 2), torch.zeros(2, requires_grad=True), torch.tensor(-1.0, requires_grad=True))


# ---- integers and text

@program()
def codes_of_integers():
    """Morton's order, Gray's code, bits counted, a checksum by a table, calendars."""
    def f(x, y, days):
        def spread(v):
            for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
                v = (v | (v << shift)) & mask
            return v

        morton = spread(x) | (spread(y) << 1)
        gray = x ^ (x >> 1)
        count = sum((x >> i) & 1 for i in range(16))
        table = torch.arange(256)
        for _ in range(8):
            table = torch.where(table & 1 == 1, (table >> 1) ^ 0xEDB8, table >> 1)
        crc = torch.full_like(x, 0xFFFF)
        for shift in (0, 8):
            crc = table[(crc ^ (x >> shift)) & 255] ^ (crc >> 8)
        era = torch.div(days, 146097, rounding_mode="floor")
        doe = days - era * 146097
        yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
        return morton, gray, count, crc, yoe + era * 400, torch.gcd(x, y), torch.lcm(x + 1, y + 1)

    return f, (RI(0, 65536, (9,)), RI(0, 65536, (9,)), RI(-800000, 800000, (9,)))


@program()
def text_as_bytes():
    """Starts of UTF-8's characters, words as segments, n-grams by hashes, runs and their lengths."""
    def f(m, text):
        starts = (text & 0xC0) != 0x80
        number = starts.long().cumsum(1) - 1
        space = text == 32
        word = (space & ~F.pad(space, (1, 0))[:, :-1]).long().cumsum(1)
        grams = text.unfold(1, 3, 1)
        hashed = (grams * torch.tensor([961, 31, 1])).sum(-1) % 50
        bag = m[0](hashed).mean(1)
        changes = F.pad(text[:, 1:] != text[:, :-1], (1, 0), value=True)
        place = torch.arange(text.shape[1]).expand_as(text)
        begun = torch.where(changes, place, 0).cummax(1).values
        return number, word, bag, place - begun + 1

    return W(f, nn.Embedding(50, 4)), (RI(30, 40, (3, 20)),)
