"""Physics, rendering, flows and filters as repositories write them: differential equations, splats, splines, wavelets, complex networks."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
from sequences import G, R, W
from tutorials import layers

RI = torch.randint


@program()
def neural_ode_dopri():
    """Fixed steps of Dormand and Prince, with the error that an adaptive solver looks at."""
    a = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9), (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729), (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656))
    b = (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)

    def f(m, y):
        errors = []
        for _ in range(3):
            k = [m[0](y)]
            for row in a:
                k.append(m[0](y + 0.1 * sum(c * s for c, s in zip(row, k))))
            y = y + 0.1 * sum(c * s for c, s in zip(b, k))
            errors.append((k[0] - k[-1]).abs().max() / (1e-3 + 1e-3 * y.abs().max()))
        return y, torch.stack(errors)

    return W(f, nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))), (G(5, 3),)


@program()
def pinn_burgers():
    """Second derivatives by autograd inside the program."""

    def f(m, x, t):
        with torch.enable_grad():
            x, t = x.detach().requires_grad_(), t.detach().requires_grad_()
            u = m[0](torch.cat([x, t], 1))
            u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
            u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        return (u_t + u * u_x - 0.01 / math.pi * u_xx).square().mean()

    return W(f, nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))), (R(9, 1), torch.rand(9, 1))


@program()
def hamiltonian_net():
    def f(m, q, p):
        h = lambda q, p: m[0](torch.cat([q, p], -1)).sum()
        for _ in range(2):
            p = p - 0.05 * torch.func.grad(h, 0)(q, p)
            q = q + 0.1 * torch.func.grad(h, 1)(q, p)
        return q, p

    return W(f, nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1))), (G(5, 2), G(5, 2))


@program()
def nerf_volume():
    def f(m, origin, direction):
        t = torch.linspace(2.0, 6.0, 9)
        points = origin[:, None] + direction[:, None] * t[:, None]
        freq = 2.0 ** torch.arange(4)
        code = (points[..., None] * freq).flatten(-2)
        out = m[0](torch.cat([points, code.sin(), code.cos()], -1))
        sigma, rgb = F.relu(out[..., 0]), out[..., 1:].sigmoid()
        gaps = torch.cat([t[1:] - t[:-1], torch.tensor([1e10])]) * direction.norm(dim=-1, keepdim=True)
        alpha = 1 - torch.exp(-sigma * gaps)
        seen = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weight = alpha * seen
        # Samples where the weights are: inverse of their distribution.
        cdf = torch.cat([torch.zeros_like(weight[:, :1]), ((weight + 1e-5) / (weight + 1e-5).sum(-1, keepdim=True)).cumsum(-1)], -1).detach()
        u = torch.linspace(0.05, 0.95, 6).expand(len(cdf), 6).contiguous()
        above = torch.searchsorted(cdf, u, right=True).clamp(1, cdf.shape[1] - 1)
        low, high = cdf.gather(1, above - 1), cdf.gather(1, above)
        fine = (u - low) / (high - low).clamp_min(1e-5) + above - 1
        return (weight[..., None] * rgb).sum(1), (weight * t).sum(1), fine

    return W(f, layers(27, 16, 4)), (G(5, 3), G(5, 3))


@program()
def gaussian_splatting():
    """Projection, covariances, order by depth and blending of every splat at every pixel."""

    def f(mean, log_scale, quat, colour, opacity):
        w, x, y, z = F.normalize(quat, dim=-1).unbind(-1)
        turn = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1).view(-1, 3, 3)
        m = turn * log_scale.exp()[:, None]
        cov = m @ m.mT
        depth = mean[:, 2] + 4
        j = torch.zeros(len(mean), 2, 3)
        j[:, 0, 0] = 8 / depth
        j[:, 1, 1] = 8 / depth
        j[:, 0, 2] = -8 * mean[:, 0] / depth**2
        j[:, 1, 2] = -8 * mean[:, 1] / depth**2
        flat = j @ cov @ j.mT + 0.3 * torch.eye(2)
        centre = 8 * mean[:, :2] / depth[:, None] + 4
        order = depth.argsort()
        inverse, centre, colour, opacity = (t[order] for t in (torch.linalg.inv(flat), centre, colour, opacity.sigmoid()))
        pixels = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(7.0), indexing="xy"), -1).view(-1, 1, 2)
        d = pixels - centre
        power = -0.5 * torch.einsum("pni,nij,pnj->pn", d, inverse, d)
        alpha = (opacity * power.exp()).clamp_max(0.99)
        alpha = torch.where(alpha > 1 / 255, alpha, 0.0)
        seen = torch.cat([torch.ones_like(alpha[:, :1]), (1 - alpha).cumprod(1)[:, :-1]], 1)
        return ((alpha * seen) @ colour.sigmoid()).view(7, 8, 3), torch.linalg.eigvalsh(flat.detach()).amax(-1).sqrt().mul(3).ceil()

    return f, (G(9, 3), G(9, 3), G(9, 4), G(9, 3), G(9))


@program()
def spectral_operator_2d():
    def f(m, x, w1, w2):
        h = m[0](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        s = torch.fft.rfft2(h, norm="ortho")
        out = torch.zeros_like(s)
        out[:, :, :3, :3] = torch.einsum("bixy,ioxy->boxy", s[:, :, :3, :3], torch.view_as_complex(w1))
        out[:, :, -3:, :3] = torch.einsum("bixy,ioxy->boxy", s[:, :, -3:, :3], torch.view_as_complex(w2))
        return F.gelu(torch.fft.irfft2(out, s=h.shape[-2:], norm="ortho") + m[1](h))

    return W(f, nn.Linear(3, 4), nn.Conv2d(4, 4, 1)), (G(2, 3, 8, 9), G(4, 4, 3, 3, 2), G(4, 4, 3, 3, 2))


@program()
def lifting_wavelets():
    def f(x):
        bands = []
        for _ in range(2):
            even, odd = x[..., ::2], x[..., 1::2]
            odd = odd - 0.5 * (even + even.roll(-1, -1))
            even = even + 0.25 * (odd + odd.roll(1, -1))
            bands.append(F.softshrink(odd, 0.1))
            x = even
        for odd in reversed(bands):
            even = x - 0.25 * (odd + odd.roll(1, -1))
            odd = odd + 0.5 * (even + even.roll(-1, -1))
            x = torch.stack([even, odd], -1).flatten(-2)
        return x

    return f, (G(2, 3, 16),)


@program()
def wavelet_db2_2d():
    def f(x):
        h = torch.tensor([0.48296, 0.83652, 0.22414, -0.12941])
        g = h.flip(0) * torch.tensor([1.0, -1, 1, -1])
        k = torch.stack([torch.outer(a, b) for a in (h, g) for b in (h, g)])[:, None]
        c = x.shape[1]
        y = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), k.repeat(c, 1, 1, 1), stride=2, groups=c)
        return y, F.conv_transpose2d(y, k.repeat(c, 1, 1, 1), stride=2, groups=c, padding=1)

    return f, (G(2, 3, 8, 10),)


@program()
def extended_kalman():
    def f(x, p, z, q):
        motion = lambda s: torch.stack([s[0] + 0.1 * s[2] * s[3].cos(), s[1] + 0.1 * s[2] * s[3].sin(), s[2], s[3] + 0.01])
        look = lambda s: torch.stack([(s[0] ** 2 + s[1] ** 2 + 1e-3).sqrt(), torch.atan2(s[1], s[0])])
        out = []
        for t in range(z.shape[0]):
            a = torch.func.jacrev(motion)(x)
            x, p = motion(x), a @ p @ a.T + q.exp() * torch.eye(4)
            h = torch.func.jacrev(look)(x)
            s = h @ p @ h.T + 0.1 * torch.eye(2)
            k = torch.linalg.solve(s, h @ p).T
            x = x + k @ (z[t] - look(x))
            p = (torch.eye(4) - k @ h) @ p
            out.append(x)
        return torch.stack(out), p.diagonal()

    return f, (G(4), torch.eye(4), R(3, 2), G(1))


@program()
def hmm_forward_backward():
    def f(start, move, emit, seen):
        start, move, emit = start.log_softmax(0), move.log_softmax(1), emit.log_softmax(1)
        a = [start + emit[:, seen[:, 0]].T]
        for t in range(1, seen.shape[1]):
            a.append(torch.logsumexp(a[-1][:, :, None] + move, 1) + emit[:, seen[:, t]].T)
        b = [torch.zeros_like(a[0])]
        for t in range(seen.shape[1] - 1, 0, -1):
            b.insert(0, torch.logsumexp(move + (emit[:, seen[:, t]].T + b[0])[:, None], 2))
        joint = torch.stack(a, 1) + torch.stack(b, 1)
        return torch.logsumexp(a[-1], 1), joint.log_softmax(-1).exp()

    return f, (G(4), G(4, 4), G(4, 6), RI(0, 6, (3, 5)))


@program()
def coupling_flow_batchnorm():
    def f(m, x):
        total = x.new_zeros(len(x))
        for i in range(2):
            a, b = x.chunk(2, -1) if i == 0 else reversed(x.chunk(2, -1))
            s, t = m[i](a).chunk(2, -1)
            s = torch.tanh(s)
            b = b * s.exp() + t
            x = torch.cat([a, b], -1)
            total = total + s.sum(-1)
            mean, var = x.mean(0), x.var(0, unbiased=False) + 1e-5
            x = (x - mean) / var.sqrt()
            total = total - 0.5 * var.log().sum()
        return -(torch.distributions.Normal(0.0, 1.0).log_prob(x).sum(-1) + total).mean()

    return W(f, layers(3, 8, 6), layers(3, 8, 6)), (G(7, 6),)


@program()
def invertible_conv_lu():
    def f(x, lower, upper, log_s):
        low = torch.tril(lower, -1) + torch.eye(5)
        up = torch.triu(upper, 1) + torch.diag(log_s.exp())
        w = torch.eye(5)[[3, 1, 4, 0, 2]] @ low @ up
        z = F.conv2d(x, w[:, :, None, None])
        back = torch.linalg.solve_triangular(low, torch.eye(5)[[3, 1, 4, 0, 2]].T @ z.flatten(2), upper=False, unitriangular=True)
        return z, log_s.sum() * 16, back, torch.slogdet(w)[1]

    return f, (G(2, 5, 4, 4), G(5, 5), G(5, 5), G(5))


@program()
def autoregressive_flow():
    """MADE: masked weights."""

    def f(m, x):
        order = torch.arange(5)
        inner = torch.arange(12) % 4
        h = F.relu(F.linear(x, m[0].weight * (inner[:, None] >= order), m[0].bias))
        mask = (order[:, None] > inner).repeat(2, 1)
        mu, a = F.linear(h, m[1].weight * mask, m[1].bias).chunk(2, -1)
        u = (x - mu) * torch.exp(-a)
        return (0.5 * u.square() + a).sum(-1) + 2.5 * math.log(2 * math.pi)

    return W(f, nn.Linear(5, 12), nn.Linear(12, 10)), (G(6, 5),)


class ComplexBatchNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(2).repeat(n, 1, 1) / math.sqrt(2))
        self.bias = nn.Parameter(torch.zeros(n, dtype=torch.cfloat))

    def forward(self, z):
        z = z - z.mean((0, 2), keepdim=True)
        parts = torch.view_as_real(z)
        v = torch.einsum("bcli,bclj->cij", parts, parts) / (z.shape[0] * z.shape[2]) + 1e-5 * torch.eye(2)
        s = (v[:, 0, 0] * v[:, 1, 1] - v[:, 0, 1] ** 2).sqrt()
        t = (v[:, 0, 0] + v[:, 1, 1] + 2 * s).sqrt()
        root = (torch.linalg.inv((v + s[:, None, None] * torch.eye(2)) / t[:, None, None])) @ self.weight
        return torch.view_as_complex(torch.einsum("cij,bclj->bcli", root, parts).contiguous()) + self.bias[:, None]


@program("train")
def complex_network():
    def f(m, z):
        z = m[1](m[0](z))
        z = torch.complex(F.relu(z.real), F.relu(z.imag))
        modulus, angle = z.abs(), torch.angle(z + 0.1)
        return torch.polar(F.relu(modulus - 0.1), angle), (z * z.conj()).real.sum(-1)

    return W(f, nn.Conv1d(2, 3, 3, dtype=torch.cfloat), ComplexBatchNorm(3)), (torch.randn(4, 2, 9, dtype=torch.cfloat).requires_grad_(),)


@program()
def molecular_forces():
    """Periodic images, a cutoff, forces as a gradient inside of the program."""

    def f(x, log_eps):
        with torch.enable_grad():
            r = x.detach().requires_grad_() if not x.requires_grad else x
            i, j = torch.triu_indices(len(r), len(r), 1)
            d = r[i] - r[j]
            d = d - 3.0 * torch.round(d / 3.0)
            r2 = d.square().sum(-1) + 0.1
            s6 = (1 / r2) ** 3
            e = (4 * log_eps.exp() * (s6 * s6 - s6) * (r2 < 2.25)).sum()
            force = -torch.autograd.grad(e, r, create_graph=True)[0]
        return e, force

    return f, (G(6, 3), G(1))


@program()
def lattice_boltzmann():
    def f(n):
        c = torch.tensor([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
        w = torch.tensor([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
        wall = torch.zeros(n.shape[1:], dtype=torch.bool)
        wall[:, 0] = wall[:, -1] = True
        for _ in range(2):
            n = torch.stack([n[i].roll((int(a), int(b)), (0, 1)) for i, (a, b) in enumerate(((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)))])
            rho = n.sum(0)
            u = torch.einsum("qd,qxy->dxy", c.float(), n) / rho
            cu = torch.einsum("qd,dxy->qxy", c.float(), u)
            eq = w[:, None, None] * rho * (1 + 3 * cu + 4.5 * cu**2 - 1.5 * (u * u).sum(0))
            n = torch.where(wall, n[[0, 3, 4, 1, 2, 7, 8, 5, 6]], n + (eq - n) / 0.8)
        return n, u

    return f, ((torch.rand(9, 6, 7) + 0.5).requires_grad_(),)


@program()
def marching_signed_distance():
    def f(m, origin, ray):
        t = torch.zeros(len(origin))
        for _ in range(4):
            d = m[0](origin + t[:, None] * ray).squeeze(-1) + (origin + t[:, None] * ray).norm(dim=-1) - 1
            t = torch.where(d.abs() > 1e-3, t + d.clamp(-0.5, 0.5), t)
        p = origin + t[:, None] * ray
        normal = F.normalize(torch.func.grad(lambda p: m[0](p).sum() + p.norm(dim=-1).sum())(p), dim=-1)
        return t, normal, F.relu((normal * F.normalize(torch.tensor([1.0, 2, -1]), dim=0)).sum(-1))

    return W(f, nn.Sequential(nn.Linear(3, 8), nn.Softplus(10), nn.Linear(8, 1))), (G(6, 3), R(6, 3))
