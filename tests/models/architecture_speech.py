"""Networks for speech and sound, small and whole, added to architecture_networks.NETWORKS."""

import torch
import torch.nn.functional as F
from torch import nn

from architecture_networks import network, values


class ConformerBlock(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 48), nn.SiLU(), nn.Linear(48, width)) for _ in range(2))
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.before, self.wide, self.deep = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.batch, self.narrow, self.last = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x):
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = F.glu(self.wide(self.before(x).transpose(1, 2)), 1)
        x = x + self.narrow(F.silu(self.batch(self.deep(y)))).transpose(1, 2)
        return self.last(x + 0.5 * self.second(x))


@network("speech", values(2, 40, 16))
class Conformer(nn.Module):
    """Frames of 16 mel bands; a subsampling stem, two blocks, symbols."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.into, self.blocks, self.out = nn.Linear(24, 24), nn.ModuleList(ConformerBlock() for _ in range(2)), nn.Linear(24, 30)

    def forward(self, mel):
        x = self.stem(mel.unsqueeze(1)).transpose(1, 2).flatten(2)
        x = self.into(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x).log_softmax(-1)


@network("speech", values(2, 1, 16, 40))
class DeepSpeech(nn.Module):
    """Convolutions over the spectrogram, recurrent layers both ways, batch norms, clipped ReLU."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 8, (5, 7), (2, 2), (2, 3)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20), nn.Conv2d(8, 8, 3, (2, 1), 1), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.cells, self.norm, self.out = nn.GRU(32, 16, bidirectional=True, batch_first=True), nn.BatchNorm1d(32), nn.Linear(32, 29)

    def forward(self, x):
        x = self.conv(x).flatten(1, 2).transpose(1, 2)
        return self.out(self.norm(self.cells(x)[0].transpose(1, 2)).transpose(1, 2)).log_softmax(-1)


@network("speech", values(2, 1, 128))
class WaveNet(nn.Module):
    """Dilated causal convolutions, gates, skips."""

    def __init__(self):
        super().__init__()
        self.into, self.last = nn.Conv1d(1, 12, 1), nn.Sequential(nn.ReLU(), nn.Conv1d(12, 12, 1), nn.ReLU(), nn.Conv1d(12, 32, 1))
        self.layers = nn.ModuleList(nn.Conv1d(12, 24, 2, dilation=2 ** i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(12, 24, 1) for _ in range(4))

    def forward(self, x):
        x, total = self.into(x), 0
        for layer, skip in zip(self.layers, self.skips):
            a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
            both, kept = skip(a.tanh() * b.sigmoid()).chunk(2, 1)
            x, total = x + both, total + kept
        return self.last(total)


@network("speech", values(2, 16, 10))
class Vocoder(nn.Module):
    """HiFi-GAN's generator: transposed convolutions of normed weights, residual blocks of dilated ones."""

    def __init__(self):
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.into, self.last = norm(nn.Conv1d(16, 24, 7, padding=3)), norm(nn.Conv1d(6, 1, 7, padding=3))
        self.ups = nn.ModuleList(norm(nn.ConvTranspose1d(24 // 2 ** i, 12 // 2 ** i, 4, 2, 1)) for i in range(2))
        self.blocks = nn.ModuleList(nn.ModuleList(norm(nn.Conv1d(12 // 2 ** i, 12 // 2 ** i, 3, padding=d, dilation=d)) for d in (1, 3)) for i in range(2))

    def forward(self, mel):
        x = self.into(mel)
        for up, block in zip(self.ups, self.blocks):
            x = up(F.leaky_relu(x, 0.1))
            for conv in block:
                x = x + conv(F.leaky_relu(x, 0.1))
        return self.last(F.leaky_relu(x)).tanh()


@network("speech", values(2, 640))
class Spectrogram(nn.Module):
    """From samples: a short-time Fourier transform, mel bands, decibels, a classifier."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.register_buffer("bands", torch.rand(33, 12))
        self.net = nn.Sequential(nn.Conv1d(12, 16, 3, 2), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 16, 3, 2), nn.ReLU())
        self.last = nn.Linear(16, 5)

    def forward(self, samples):
        power = torch.stft(samples, 64, 32, window=self.window, return_complex=True).abs().square()
        mel = (power.transpose(1, 2) @ self.bands).clamp_min(1e-5).log10().transpose(1, 2)
        return self.last(self.net(mel).mean(-1))


@network("speech", values(2, 1, 256))
class Separation(nn.Module):
    """Conv-TasNet: a learnt transform, masks of depthwise blocks with global layer norms, back to samples."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Conv1d(1, 16, 8, 4, bias=False), nn.ConvTranspose1d(16, 1, 8, 4, bias=False)
        self.norm, self.mask = nn.GroupNorm(1, 16), nn.Conv1d(16, 32, 1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv1d(16, 24, 1), nn.PReLU(), nn.GroupNorm(1, 24), nn.Conv1d(24, 24, 3, padding=d, dilation=d, groups=24), nn.PReLU(),
                                                  nn.GroupNorm(1, 24), nn.Conv1d(24, 16, 1)) for d in (1, 2))

    def forward(self, mixture):
        coded = self.encoder(mixture).relu()
        x = self.norm(coded)
        for block in self.blocks:
            x = x + block(x)
        masks = self.mask(x).sigmoid().chunk(2, 1)
        return torch.cat([self.decoder(coded * mask) for mask in masks], 1)
