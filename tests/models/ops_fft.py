"""Small programs of Fourier transforms: every function, norm and length (powers of two, smooth, prime, 1), batches, short-time transforms."""

import torch
from torch.export import Dim

from case import F32, F64, rand, registry

PROGRAMS, add = registry(__file__)
C64, C128 = torch.complex64, torch.complex128
fft = torch.fft


def op(name, function, inputs, tolerance=5e-6, **options):
    add(f"fft_{name}", function, inputs, tolerance=tolerance, **options)


def crand(*shape, dtype=C64):
    part = F32 if dtype is C64 else F64
    return torch.complex(rand(*shape, dtype=part), rand(*shape, dtype=part))


for n in (1, 2, 7, 16, 30, 97, 240, 509):
    op(f"lines_{n}", lambda z, x: (fft.fft(z), fft.ifft(z), fft.rfft(x), fft.irfft(z, n=x.shape[-1]), fft.fft(x), fft.ifft(x)), lambda n=n: (crand(3, n), rand(3, n)))
op("norms", lambda z, x: tuple(f(v, norm=norm) for norm in ("forward", "backward", "ortho")
                               for f, v in ((fft.fft, z), (fft.ifft, z), (fft.rfft, x), (fft.irfft, z), (fft.hfft, z), (fft.ihfft, x), (fft.fft2, z), (fft.irfft2, z))),
   lambda: (crand(5, 12), rand(5, 12)))
op("lengths", lambda z, x: (fft.fft(z, 5), fft.fft(z, 20), fft.rfft(x, 9), fft.rfft(x, 20), fft.irfft(z, 7), fft.irfft(z, 30), fft.hfft(z, 9), fft.ihfft(x, 5)),
   lambda: (crand(4, 12), rand(4, 12)))
op("dimensions", lambda z, x: (fft.fft(z, dim=0), fft.fft(z, dim=1), fft.rfft(x, dim=1), fft.irfft(z, dim=0), fft.ifft(x, dim=0)), lambda: (crand(9, 10, 11), rand(9, 10, 11)))
op("planes", lambda z, x: (fft.fft2(z), fft.ifft2(z), fft.rfft2(x), fft.irfft2(z), fft.hfft2(z), fft.ihfft2(x), fft.fft2(x, s=(4, 9)), fft.rfft2(x, s=(8, 5), dim=(0, 2))),
   lambda: (crand(3, 6, 8), rand(3, 6, 8)), tolerance=2e-5)
op("n_dims", lambda z, x: (fft.fftn(z), fft.ifftn(z, dim=(0, 2)), fft.rfftn(x), fft.irfftn(z), fft.hfftn(z), fft.ihfftn(x), fft.fftn(z, s=(3, -1), dim=(0, 1)), fft.fftn(x, s=(5, 7))),
   lambda: (crand(3, 6, 8), rand(3, 6, 8)), tolerance=2e-5)
op("doubles", lambda z, x: (fft.fft(z), fft.rfft(x), fft.irfft(z), fft.fftn(z)), lambda: (crand(4, 45, dtype=C128), rand(4, 45, dtype=F64)), tolerance=1e-13)
op("integers", lambda n: (fft.fft(n), fft.rfft(n), fft.ifft(n)), lambda: (torch.arange(12).reshape(2, 6),))
op("shifts", lambda z, x: (fft.fftshift(z), fft.ifftshift(z), fft.fftshift(x, dim=1), fft.fftfreq(9), fft.rfftfreq(8, 0.5)), lambda: (crand(4, 7), rand(4, 7)))
op("strided", lambda z, x: (fft.fft(z.mT), fft.rfft(x[:, ::2]), fft.ifft(z[1:, 2:])), lambda: (crand(6, 8), rand(5, 16)))
op("large_batch", lambda z, x: (fft.fft(z), fft.irfft(fft.rfft(x), n=100)), lambda: (crand(130, 64), rand(67, 100)))
op("empty_batch", lambda z: fft.fft(z), lambda: (crand(0, 8),))
op("one_line", lambda x: fft.rfft(x), lambda: (rand(33),))
op("convolution", lambda x, k: fft.irfft(fft.rfft(x, n=64) * fft.rfft(k, n=64), n=64)[:, :40], lambda: (rand(3, 33), rand(8)))
op("dynamic", lambda x: (fft.rfft(x), fft.irfft(fft.rfft(x), n=x.shape[1]), fft.fft(x, dim=0)), lambda: (rand(3, 24),), dynamic=({0: Dim("batch", min=1, max=9), 1: Dim("length", min=2, max=600)},),
   sets={"short": lambda: (rand(1, 2),), "prime": lambda: (rand(9, 599),)})
op("special", lambda x: fft.rfft(x), lambda: (torch.tensor([[1.0, float("nan"), 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]]),))
op("stft", lambda x, w: (torch.stft(x, 16, 4, window=w, return_complex=True), torch.stft(x[0], 16, 8, 12, window=w[:12], return_complex=True, normalized=True),
                         torch.stft(x, 16, 5, window=w, center=False, onesided=False, return_complex=True)), lambda: (rand(2, 80), torch.hann_window(16)))
op("istft", lambda z, w: (torch.istft(z, 16, 4, window=w), torch.istft(z[0], 16, 4, window=w, length=50), torch.istft(z, 16, 4, window=w, normalized=True)),
   lambda: (crand(2, 9, 14), torch.hamming_window(16)), tolerance=2e-5)
op("windowed_stft", lambda x: torch.stft(x, 40, 16, window=torch.hann_window(40), return_complex=True).abs(), lambda: (rand(3, 500),))
