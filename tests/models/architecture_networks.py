"""Networks of kinds that no model library in our environment has, small and whole: recommenders, graph networks, recurrent and state-space models;
those for speech are in architecture_speech.py. NETWORKS: {name: (family, function)}, as architecture_list.py has them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

NETWORKS = {}


def network(family, *inputs):
    """Registers a class of a module; `inputs` make its arguments."""
    def add(kind):
        NETWORKS[f"{family.split()[0]}/{kind.__name__.lower()}"] = (family, lambda: (kind(), tuple(make() for make in inputs), {}))
        return kind

    return add


def mlp(*sizes, last=None):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


def ids(*shape, high):
    return lambda: torch.randint(0, high, shape)


def values(*shape):
    return lambda: torch.randn(*shape)


# ---- recommenders

@network("recommender", values(4, 13), ids(4, 6, 3, high=50))
class Dlrm(nn.Module):
    """Bags of sparse features, a tower of dense ones, all pairs of products."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, 16, mode="sum") for _ in range(6))
        self.bottom, self.top = mlp(13, 32, 16), mlp(16 + 21, 32, 1)
        self.register_buffer("pairs", torch.tril_indices(7, 7, -1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        all_ = torch.stack([x, *[bag(sparse[:, i]) for i, bag in enumerate(self.bags)]], 1)
        products = torch.bmm(all_, all_.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], 1)).sigmoid()


@network("recommender", ids(4, 8, high=80))
class DeepFM(nn.Module):
    """A factorisation machine beside a deep tower."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.deep = nn.Embedding(80, 1), nn.Embedding(80, 8), mlp(64, 32, 16, 1)

    def forward(self, x):
        e = self.second(x)
        pairs = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1, keepdim=True)
        return (self.first(x).sum(1) + pairs + self.deep(e.flatten(1))).sigmoid()


@network("recommender", ids(4, 5, high=60), ids(4, 5, high=60), values(4, 5))
class TwoTowers(nn.Module):
    """Weighted bags of both sides, normalised, scored in the batch."""

    def __init__(self):
        super().__init__()
        self.users, self.items = nn.EmbeddingBag(60, 16, mode="sum", padding_idx=0), nn.EmbeddingBag(60, 16, mode="mean")
        self.left, self.right, self.scale = mlp(16, 24, 8), mlp(16, 24, 8), nn.Parameter(torch.tensor(2.0))

    def forward(self, users, items, weights):
        u, v = self.left(self.users(users, per_sample_weights=weights)), self.right(self.items(items))
        return F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).t() * self.scale.exp()


@network("recommender", ids(3, 12, high=70))
class SelfAttentiveHistory(nn.Module):
    """The next item from a padded history, causal."""

    def __init__(self):
        super().__init__()
        self.items, self.places = nn.Embedding(70, 24, padding_idx=0), nn.Embedding(12, 24)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(24, 2, 48, 0.0, batch_first=True, norm_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(24)

    def forward(self, history):
        x = self.items(history) * 24 ** 0.5 + self.places(torch.arange(history.shape[1]))
        x = x * (history != 0).unsqueeze(-1)
        mask = torch.ones(history.shape[1], history.shape[1], dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, src_mask=mask)
        return self.norm(x) @ self.items.weight.t()


@network("recommender", ids(4, 6, high=40), ids(4, high=40))
class InterestNetwork(nn.Module):
    """Attention of the candidate over what was seen before, by a small network (DIN), with PReLU and batch norm."""

    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(40, 12)
        self.score = nn.Sequential(nn.Linear(48, 16), nn.PReLU(), nn.Linear(16, 1))
        self.top = nn.Sequential(nn.Linear(24, 16), nn.BatchNorm1d(16), nn.PReLU(), nn.Linear(16, 2))

    def forward(self, seen, candidate):
        s, c = self.items(seen), self.items(candidate)
        each = c.unsqueeze(1).expand_as(s)
        weight = self.score(torch.cat([s, each, s - each, s * each], -1)).masked_fill((seen == 0).unsqueeze(-1), 0.0)
        return self.top(torch.cat([(weight * s).sum(1), c], -1)).log_softmax(-1)


# ---- graphs: 20 nodes, 60 edges, a few graphs

def edges():
    return torch.randint(0, 20, (2, 60))


def degrees(target, count):
    return torch.zeros(count).index_add(0, target, torch.ones(target.shape[0])).clamp_min(1)


@network("graph network", values(20, 8), edges)
class Convolutional(nn.Module):
    """GCN: symmetric normalisation, two layers."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)

    def pass_on(self, x, edge):
        source, target = edge
        norm = degrees(target, x.shape[0]).rsqrt().to(x.dtype)
        return torch.zeros_like(x).index_add(0, target, x[source] * (norm[source] * norm[target]).unsqueeze(-1)) + x

    def forward(self, x, edge):
        return self.two(self.pass_on(F.relu(self.one(self.pass_on(x, edge))), edge))


@network("graph network", values(20, 8), edges)
class Attentional(nn.Module):
    """GAT: a softmax over the edges that meet in a node, by scatter_reduce."""

    def __init__(self):
        super().__init__()
        self.project, self.left, self.right = nn.Linear(8, 24), nn.Parameter(torch.randn(3, 8)), nn.Parameter(torch.randn(3, 8))

    def forward(self, x, edge):
        source, target = edge
        h = self.project(x).view(-1, 3, 8)
        score = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target], 0.2)
        index = target.unsqueeze(-1).expand_as(score)
        top = torch.full((x.shape[0], 3), float("-inf"), dtype=score.dtype).scatter_reduce(0, index, score, "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros(x.shape[0], 3, dtype=weight.dtype).scatter_add(0, index, weight)
        message = h[source] * (weight / (total[target] + 1e-9)).unsqueeze(-1)
        return F.elu(torch.zeros(x.shape[0], 3, 8, dtype=message.dtype).index_add(0, target, message).flatten(1))


@network("graph network", values(20, 8), edges)
class Sage(nn.Module):
    """Mean of the neighbours and their largest, concatenated."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(24, 16), nn.Linear(48, 4)

    def around(self, x, edge):
        source, target = edge
        index = target.unsqueeze(-1).expand(-1, x.shape[1])
        mean = torch.zeros_like(x).scatter_reduce(0, index, x[source], "mean", include_self=False)
        most = torch.zeros_like(x).scatter_reduce(0, index, x[source], "amax", include_self=False)
        return torch.cat([x, mean, most], -1)

    def forward(self, x, edge):
        return F.normalize(self.two(self.around(F.relu(self.one(self.around(x, edge))), edge)), dim=-1)


@network("graph network", values(20, 8), edges, lambda: torch.arange(20) // 5)
class Isomorphism(nn.Module):
    """GIN with batch norm, and sums over each graph."""

    def __init__(self):
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(2))
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(w, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16)) for w in (8, 16))
        self.last = nn.Linear(16, 3)

    def forward(self, x, edge, graph):
        for i, part in enumerate(self.parts):
            x = part((1 + self.epsilon[i]) * x + torch.zeros_like(x).index_add(0, edge[1], x[edge[0]])).relu()
        return self.last(torch.zeros(4, 16, dtype=x.dtype).index_add(0, graph, x))


@network("graph network", lambda: torch.randint(0, 9, (20,)), lambda: torch.randn(20, 3) * 2, edges)
class Distances(nn.Module):
    """SchNet: filters of distances between atoms, a sum of energies."""

    def __init__(self):
        super().__init__()
        self.atoms, self.out = nn.Embedding(9, 16), mlp(16, 16, 1)
        self.filters = nn.ModuleList(nn.Sequential(nn.Linear(10, 16), nn.Softplus(), nn.Linear(16, 16)) for _ in range(2))
        self.mixes = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.register_buffer("centres", torch.linspace(0, 6, 10))

    def forward(self, kinds, places, edge):
        source, target = edge
        x, far = self.atoms(kinds), ((places[source] - places[target]).square().sum(-1) + 1e-3).sqrt()
        waves = torch.exp(-2 * (far.unsqueeze(-1) - self.centres).square())
        cut = 0.5 * ((far / 6).clamp(max=1) * math.pi).cos() + 0.5
        for filter_, mix in zip(self.filters, self.mixes):
            message = x[source] * filter_(waves) * cut.unsqueeze(-1)
            x = x + mix(torch.zeros_like(x).index_add(0, target, message.to(x.dtype)))
        return self.out(x).sum()


# ---- recurrent networks

@network("recurrent", ids(3, 9, high=50))
class LstmLanguage(nn.Module):
    """Two layers, tied weights."""

    def __init__(self):
        super().__init__()
        self.words, self.cells = nn.Embedding(50, 24), nn.LSTM(24, 24, 2, batch_first=True)

    def forward(self, tokens):
        return F.linear(self.cells(self.words(tokens))[0], self.words.weight)


@network("recurrent", ids(3, 9, high=50))
class LstmTagger(nn.Module):
    """Both directions."""

    def __init__(self):
        super().__init__()
        self.words, self.cells, self.tags = nn.Embedding(50, 16), nn.LSTM(16, 12, bidirectional=True, batch_first=True), nn.Linear(24, 7)

    def forward(self, tokens):
        return self.tags(self.cells(self.words(tokens))[0]).log_softmax(-1)


@network("recurrent", ids(3, 7, high=40), ids(3, 5, high=40))
class GruTranslation(nn.Module):
    """An encoder, and a decoder that attends to it, step by step."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder, self.cell = nn.Embedding(40, 16), nn.GRU(16, 16, batch_first=True), nn.GRUCell(32, 16)
        self.query, self.last = nn.Linear(16, 16), nn.Linear(32, 40)

    def forward(self, source, target):
        keys, state = self.encoder(self.words(source))
        state, found = state[0], []
        for word in self.words(target).unbind(1):
            near = (torch.einsum("bd,bsd->bs", self.query(state), keys) / 4).softmax(-1)
            seen = torch.einsum("bs,bsd->bd", near, keys)
            state = self.cell(torch.cat([word, seen], -1), state)
            found.append(self.last(torch.cat([state, seen], -1)))
        return torch.stack(found, 1)


@network("recurrent", values(2, 6, 5))
class PlainRnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.RNN(5, 12, 2, nonlinearity="relu", batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        y, state = self.cells(x)
        return self.last(y[:, -1]), state


@network("recurrent", values(2, 4, 3, 8, 8))
class ConvolutionalLstm(nn.Module):
    """Frames of a film; gates are convolutions."""

    def __init__(self):
        super().__init__()
        self.gates, self.last = nn.Conv2d(3 + 6, 24, 3, padding=1), nn.Conv2d(6, 3, 1)

    def forward(self, film):
        h = c = film.new_zeros(film.shape[0], 6, *film.shape[-2:])
        for frame in film.unbind(1):
            i, f, o, g = self.gates(torch.cat([frame, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return self.last(h)


# ---- state spaces

@network("state space", values(2, 16, 12))
class DiagonalStates(nn.Module):
    """S4D: a convolution as long as the sequence, through Fourier transforms."""

    def __init__(self):
        super().__init__()
        self.steps, self.real = nn.Parameter(torch.rand(12, 1) * 0.1 + 0.01), nn.Parameter(torch.log(torch.full((12, 4), 0.5)))
        self.imaginary, self.c = nn.Parameter(math.pi * torch.arange(4.0).repeat(12, 1)), nn.Parameter(torch.randn(12, 4, 2) * 0.5)
        self.d, self.out = nn.Parameter(torch.randn(12)), nn.Linear(12, 24)

    def forward(self, x):
        length, a = x.shape[1], torch.complex(-self.real.float().exp(), self.imaginary.float())
        dt = self.steps.float()
        powers = (a * dt).unsqueeze(-1) * torch.arange(length)
        c = torch.view_as_complex(self.c.float()) * ((a * dt).exp() - 1) / a
        kernel = 2 * torch.einsum("dn,dnl->dl", c, powers.exp()).real
        u = x.transpose(1, 2)
        y = torch.fft.irfft(torch.fft.rfft(u.float(), n=2 * length) * torch.fft.rfft(kernel, n=2 * length), n=2 * length)[..., :length]
        y = F.gelu(y.to(x.dtype) + u * self.d.unsqueeze(-1)).transpose(1, 2)
        return F.glu(self.out(y), -1) + x


@network("state space", values(2, 10, 16))
class SelectiveStates(nn.Module):
    """Mamba's layer, its scan as a loop."""

    def __init__(self):
        super().__init__()
        self.into, self.conv, self.parts = nn.Linear(16, 48), nn.Conv1d(24, 24, 4, groups=24, padding=3), nn.Linear(24, 2 * 6 + 2)
        self.dt, self.a, self.d, self.out = nn.Linear(2, 24), nn.Parameter(torch.log(torch.arange(1.0, 7).repeat(24, 1))), nn.Parameter(torch.ones(24)), nn.Linear(24, 16)

    def forward(self, x):
        u, gate = self.into(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        b, c, dt = self.parts(u).split([6, 6, 2], -1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(dt.unsqueeze(-1) * -self.a.exp())
        drive = (dt * u).unsqueeze(-1) * b.unsqueeze(2)
        state, found = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + drive[:, t]
            found.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return self.out((torch.stack(found, 1) + u * self.d) * F.silu(gate))


@network("state space", values(2, 12, 16))
class Retention(nn.Module):
    """RetNet's parallel form: decays instead of a softmax, a group norm over heads."""

    def __init__(self):
        super().__init__()
        self.qkv, self.gate, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 16), nn.GroupNorm(4, 16)
        self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(4.0))))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
        places = torch.arange(n)
        far = (places.unsqueeze(1) - places).to(self.decay.dtype)
        mask = torch.where(far >= 0, (far * self.decay.view(4, 1, 1)).exp(), 0.0)
        y = ((q @ k.transpose(-1, -2)) * mask * 0.5) @ v
        y = self.norm(y.transpose(1, 2).reshape(b * n, 16)).view(b, n, 16)
        return self.out(F.silu(self.gate(x)) * y)


@network("state space", values(2, 12, 16))
class MinimalGru(nn.Module):
    """minGRU: a first-order recurrence in logarithms, by a running log-sum of exponentials."""

    def __init__(self):
        super().__init__()
        self.both, self.out = nn.Linear(16, 32), nn.Linear(16, 16)

    def forward(self, x):
        hidden, gate = self.both(x).chunk(2, -1)
        keep, take = -F.softplus(gate), -F.softplus(-gate)
        new = torch.where(hidden >= 0, (F.relu(hidden) + 0.5).log(), -F.softplus(-hidden))
        total = keep.cumsum(1)
        return self.out((total + (take + new - total).logcumsumexp(1)).exp())


# ---- speech and sound
