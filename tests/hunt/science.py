"""Physics, filters, linear algebra of small matrices, transforms, derivatives of derivatives."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from registry import program
R = torch.randn

def G(*s):
    return R(*s).requires_grad_()


@program()
def kalman():

    def f(x0, P0, Fm, H, Q, Rm, zs):
        x, P = (x0, P0)
        out = []
        for z in zs.unbind(0):
            x = Fm @ x
            P = Fm @ P @ Fm.mT + Q
            S = H @ P @ H.mT + Rm
            K = torch.linalg.solve(S, H @ P).mT
            x = x + K @ (z - H @ x)
            P = P - K @ H @ P
            out.append(x)
        return (torch.stack(out), P)
    return (f, (R(4, 1).requires_grad_(), torch.eye(4), torch.eye(4) + 0.1 * R(4, 4), R(2, 4), torch.eye(4) * 0.1, torch.eye(2) * 0.2, R(6, 2, 1)))


@program()
def particle_filter():

    def f(p, w, z):
        for i in range(3):
            p = p + 0.1 * torch.sin(p)
            w = w * torch.exp(-0.5 * (z[i] - p) ** 2).sum(-1)
            w = w / w.sum()
            c = w.cumsum(0)
            u = (torch.arange(p.shape[0], device=p.device) + 0.5) / p.shape[0]
            idx = torch.searchsorted(c, u).clamp_max(p.shape[0] - 1)
            p = p[idx]
            w = torch.full_like(w, 1 / p.shape[0])
        return (p.mean(0), p)
    return (f, (R(100, 2), torch.full((100,), 0.01), R(3, 2)))


@program()
def small_inverse():
    return (lambda a: (torch.linalg.inv(a), torch.linalg.det(a), torch.linalg.slogdet(a)[1]), ((R(50, 4, 4) + 4 * torch.eye(4)).requires_grad_(),))


@program()
def small_chol():

    def f(a):
        c = torch.linalg.cholesky(a @ a.mT + torch.eye(3))
        return (torch.cholesky_solve(a, c), torch.linalg.solve_triangular(c, a, upper=False), c.diagonal(dim1=-2, dim2=-1).log().sum(-1))
    return (f, (G(20, 3, 3),))


@program()
def small_eigh():

    def f(a):
        l, v = torch.linalg.eigh(a + a.mT)
        return (l, v.abs())
    return (f, (G(20, 3, 3),))


@program()
def small_svd():

    def f(a):
        u, s, v = torch.linalg.svd(a, full_matrices=False)
        return (s, u * s.unsqueeze(-2) @ v)
    return (f, (G(10, 4, 3),))


@program()
def procrustes():

    def f(x, y):
        xc, yc = (x - x.mean(1, True), y - y.mean(1, True))
        u, s, vh = torch.linalg.svd(xc.mT @ yc)
        d = torch.det(u @ vh)
        D = torch.diag_embed(torch.stack([torch.ones_like(d), torch.ones_like(d), d], -1))
        r = u @ D @ vh
        return (r, (xc @ r - yc).square().sum((1, 2)))
    return (f, (R(5, 20, 3), R(5, 20, 3)))


@program()
def quaternion():

    def f(q):
        q = F.normalize(q, dim=-1)
        w, x, y, z = q.unbind(-1)
        m = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w), 2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w), 2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)], -1).view(*q.shape[:-1], 3, 3)
        return (m, torch.linalg.matrix_exp(m))
    return (f, (G(7, 4),))


@program()
def gp_regression():

    def f(x, y, xs, l):
        k = lambda a, b: torch.exp(-torch.cdist(a, b).square() / (2 * l.exp() ** 2))
        K = k(x, x) + 0.1 * torch.eye(x.shape[0], dtype=x.dtype)
        L = torch.linalg.cholesky(K)
        al = torch.cholesky_solve(y, L)
        mu = k(xs, x) @ al
        v = torch.linalg.solve_triangular(L, k(x, xs), upper=False)
        cov = k(xs, xs) - v.mT @ v
        nll = 0.5 * (y * al).sum() + L.diagonal().log().sum()
        return (mu, cov, nll)
    d = torch.float64
    return (f, (R(30, 2, dtype=d), R(30, 1, dtype=d), R(9, 2, dtype=d), torch.zeros((), dtype=d).requires_grad_()))


@program()
def lstsq():
    return (lambda a, b: torch.linalg.lstsq(a, b).solution, (R(20, 4), R(20, 2)))


@program()
def lstsq_batch():
    return (lambda a, b: torch.linalg.lstsq(a, b).solution, (G(3, 20, 4), R(3, 20, 2)))


@program()
def pinv_rank():
    return (lambda a: (torch.linalg.pinv(a), torch.linalg.matrix_rank(a), torch.linalg.cond(a)), (R(3, 6, 4),))


@program()
def qr_orth():

    def f(a):
        q, r = torch.linalg.qr(a)
        return (q @ r, r.diagonal(dim1=-2, dim2=-1).abs())
    return (f, (G(3, 6, 4),))


@program()
def power_iteration():

    def f(a, v):
        for _ in range(10):
            v = F.normalize(a @ v, dim=0)
        return (v, v @ (a @ v))
    a = R(30, 30)
    return (f, (a @ a.T, G(30)))


@program()
def conjugate_gradient():

    def f(A, b):
        x = torch.zeros_like(b)
        r = b - A @ x
        p = r
        rs = r @ r
        for _ in range(8):
            Ap = A @ p
            al = rs / (p @ Ap)
            x = x + al * p
            r = r - al * Ap
            rn = r @ r
            p = r + rn / rs * p
            rs = rn
        return x
    a = R(20, 20)
    return (f, (a @ a.T + 20 * torch.eye(20), G(20)))


@program()
def newton_schulz():

    def f(g):
        x = g / (g.norm() + 1e-07)
        for _ in range(5):
            A = x @ x.mT
            B = -4.775 * A + 2.0315 * A @ A
            x = 3.4445 * x + B @ x
        return x
    return (f, (G(16, 32),))


@program()
def sinkhorn():

    def f(c):
        u = torch.zeros(c.shape[0])
        v = torch.zeros(c.shape[1])
        K = -c / 0.1
        for _ in range(10):
            u = -torch.logsumexp(K + v[None], 1)
            v = -torch.logsumexp(K + u[:, None], 0)
        return torch.exp(K + u[:, None] + v[None])
    return (f, (G(12, 15),))


@program()
def hmc_step():

    def f(q, p):
        U = lambda q: (q ** 4 / 4 - q ** 2 / 2).sum()
        for _ in range(3):
            g = torch.func.grad(U)(q)
            p = p - 0.05 * g
            q = q + 0.1 * p
            p = p - 0.05 * torch.func.grad(U)(q)
        return (q, p)
    return (f, (R(10), R(10)))


@program()
def pde_residual():
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def f(xt):
        u = lambda z: net(z)[0]
        H = torch.func.vmap(torch.func.hessian(u))(xt)
        g = torch.func.vmap(torch.func.grad(u))(xt)
        return g[:, 1] - 0.1 * H[:, 0, 0]
    return (f, (R(20, 2),))


@program()
def jacrev_fwd():

    def f(w, x):
        g = lambda w: torch.tanh(w @ x)
        return (torch.func.jacrev(g)(w), torch.func.jacfwd(g)(w), torch.func.jvp(g, (w,), (torch.ones_like(w),))[1])
    return (f, (R(4, 5), R(5)))


@program()
def maml():
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    params = {k: v.detach() for k, v in net.named_parameters()}

    def f(xs, ys, xq, yq):

        def loss(p, x, y):
            return F.mse_loss(torch.func.functional_call(net, p, (x,)), y)

        def task(x, y, x2, y2):
            g = torch.func.grad(loss)(params, x, y)
            p2 = {k: params[k] - 0.1 * g[k] for k in params}
            return loss(p2, x2, y2)
        return torch.func.vmap(task)(xs, ys, xq, yq)
    return (f, (R(4, 5, 3), R(4, 5, 1), R(4, 6, 3), R(4, 6, 1)))


@program()
def per_sample_grads():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    params = {k: v.detach() for k, v in net.named_parameters()}

    def f(x, y):

        def loss(p, x, y):
            return F.cross_entropy(torch.func.functional_call(net, p, (x[None],)), y[None])
        return torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(params, x, y)
    return (f, (R(5, 1, 8, 8), torch.randint(3, (5,))))


@program()
def ensemble_vmap():
    nets = [nn.Linear(3, 4) for _ in range(3)]
    p, b = torch.func.stack_module_state(nets)
    base = nn.Linear(3, 4)
    return (lambda x: torch.func.vmap(lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), (0, 0, None))(p, b, x), (R(7, 3),))


@program()
def natural_hvp():

    def f(w, x, v):
        g = lambda w: torch.logsumexp(x @ w, 0).sum()
        return torch.func.jvp(torch.func.grad(g), (w,), (v,))[1]
    return (f, (R(5, 4), R(9, 5), R(5, 4)))


@program()
def implicit_sde():

    def f(x, n):
        for i in range(5):
            x = x + 0.1 * -x + 0.3 * math.sqrt(0.1) * n[i] * x.abs().sqrt()
        return x
    return (f, (R(10).abs().requires_grad_(), R(5, 10)))


@program()
def rk4_lorenz():

    def f(s):

        def d(s):
            x, y, z = s.unbind(-1)
            return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], -1)
        for _ in range(5):
            k1 = d(s)
            k2 = d(s + 0.005 * k1)
            k3 = d(s + 0.005 * k2)
            k4 = d(s + 0.01 * k3)
            s = s + 0.01 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return s
    return (f, (G(8, 3),))


@program()
def nbody():

    def f(p, m):
        d = p[:, None] - p[None]
        r2 = (d ** 2).sum(-1) + 0.01
        acc = -(d * (m[None, :, None] / r2[..., None] ** 1.5)).sum(1)
        e = -(m[:, None] * m[None] / r2.sqrt()).triu(1).sum()
        return (acc, e)
    return (f, (G(15, 3), torch.rand(15)))


@program()
def heat_fft():

    def f(u):
        k = torch.fft.fftfreq(32) * 32 * 2 * math.pi
        return (torch.fft.ifft(torch.fft.fft(u) * torch.exp(-0.001 * k ** 2)).real, torch.fft.irfft(torch.fft.rfft(u, dim=-1)[..., :9], n=32))
    return (f, (G(3, 32),))


@program()
def fno_block():

    class M(nn.Module):

        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.randn(4, 4, 5, 5, dtype=torch.cfloat) * 0.1)
            s.c = nn.Conv2d(4, 4, 1)

        def forward(s, x):
            X = torch.fft.rfft2(x)
            o = torch.zeros_like(X)
            o[:, :, :5, :5] = torch.einsum('bixy,ioxy->boxy', X[:, :, :5, :5], s.w)
            return F.gelu(torch.fft.irfft2(o, s=x.shape[-2:]) + s.c(x))
    return (M(), (G(2, 4, 16, 16),))


@program()
def complex_layer():

    def f(z, w):
        y = z @ w.mT.conj()
        return (y.abs(), torch.view_as_real(y), torch.angle(y), y / (y.abs() + 0.001))
    return (f, (torch.randn(4, 6, dtype=torch.cfloat).requires_grad_(), torch.randn(5, 6, dtype=torch.cfloat)))


@program()
def complex_quantum():

    def f(psi, th):
        c, s = (torch.cos(th / 2), torch.sin(th / 2))
        for i in range(3):
            u = torch.stack([torch.stack([c[i], -s[i]]), torch.stack([s[i], c[i]])]).to(torch.cfloat)
            psi = torch.tensordot(u, psi, dims=([1], [i])).movedim(0, i)
        p = psi.abs() ** 2
        return (p, psi.reshape(-1).conj() @ psi.reshape(-1))
    return (f, (torch.randn(2, 2, 2, dtype=torch.cfloat), G(3)))


@program()
def transforms_of_whole_operators():
    """Operators that coil keeps whole (_whole.py), inside transforms, which know PyTorch's operators alone, and after one."""

    def f(x):
        curved = torch.func.grad(lambda a: F.interpolate(a.cumprod(2), size=(3, 3), mode='bilinear').sin().sum())(x)
        rows = torch.func.vmap(lambda a: F.interpolate(a[None], scale_factor=2, mode='nearest')[0].cumprod(0))(x)
        value, slope = torch.func.jvp(lambda a: a.cumprod(1), (x,), (x.cos(),))
        return (curved, rows, value, slope, curved.cumprod(3))
    return (f, (G(2, 3, 4, 4),))


@program()
def linearized():
    """Forward mode copies a tangent to memory that lies like its primal."""

    def f(x):
        value, slope = torch.func.linearize(lambda a: a.tanh() @ a.mT, x)
        return (value, slope(torch.ones_like(x)))
    return (f, (G(3, 4),))


@program()
def vmap_of_numbers():
    """vmap makes tensors of the numbers that stand beside those of no dimensions."""

    def f(x, n):
        each = lambda g: torch.func.vmap(torch.func.vmap(g))
        angles = torch.func.vmap(torch.func.vmap(lambda a, b: torch.atan2(a, b + 2), (0, None)), (0, 0))(x, x[:, 0])
        return (angles, each(lambda a: a * 3 + 2.5)(n), each(lambda a: (a + True, a.bool() | True))(n), each(lambda a: a + 0.1)(x.bfloat16()))
    return (f, (G(3, 4), torch.arange(12).view(3, 4) % 5))


@program()
def imaginary_numbers():
    """The gradients multiply by the conjugates of numbers."""

    def f(x, z):
        return ((x * 1j).exp().real, (z * (2 - 1j)).imag, z / (1 + 2j), (2j - z) ** 2)
    return (f, (G(4, 3), torch.randn(4, 3, dtype=torch.complex64).requires_grad_()))
