"""PyTorch's random numbers on a GPU, as coil's programs draw them: the operators `coil::random_state` and `coil::dropout_mask`.

PyTorch's generator of a GPU is a seed and an offset. A kernel of dropout (ATen's native/cuda/Dropout.cu) takes Philox4x32-10 with the seed as key, the number
of its thread as the counter's upper half, and the offset as its lower one, and moves the offset on. So an element's number is a function of its place: coil's
kernels compute it where they read it, and give eager's masks to the bit.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
import struct
import threading
from typing import Sequence

import torch

log = logging.getLogger("coil")

_BLOCK = 256  # threads of a block of PyTorch's kernel; each calls Philox for 4 numbers at once
_MOST_ELEMENTS = 2**31 - 1
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_PHILOX = (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Drawing:
    """How PyTorch draws the mask of one dropout."""

    vector: int
    """Consecutive elements that a thread takes at once."""
    threads: int
    offset: int
    """How far it moves the generator on."""
    below: int
    """Elements with a 32-bit number of less are kept."""


def drawing(elements: int, dtype: torch.dtype, p: float, device: torch.device) -> Drawing | None:
    """Of a tensor whose elements lie without gaps at an aligned address; None where that is not known."""
    if not 0 < elements <= _MOST_ELEMENTS or dtype not in _DTYPES or not known(dtype, device.index or 0):
        return None
    return _drawing(elements, dtype, p, device.index or 0)


def _drawing(elements: int, dtype: torch.dtype, p: float, device: int) -> Drawing:
    threads = min(-(-elements // _BLOCK) * _BLOCK, _most_threads(device))
    vector = 16 // dtype.itemsize
    while elements % vector:
        vector //= 2
    return Drawing(vector, threads, ((elements - 1) // (threads * 4) + 1) * 4, _first_not_below(1.0 - p, dtype))


@functools.lru_cache(maxsize=None)
def _most_threads(device: int) -> int:
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // _BLOCK) * _BLOCK


def _as_float(number: float) -> float:
    return struct.unpack("f", struct.pack("f", number))[0]


@functools.lru_cache(maxsize=None)
def _first_not_below(share: float, dtype: torch.dtype) -> int:
    """The first of 32-bit words that, as a float in (0, 1], is not below `share` (which is a float too, but for float64)."""
    bound = share if dtype == torch.float64 else _as_float(share)
    low, high = 0, 1 << 32
    while low < high:  # cuRAND's uniform float, which grows with the word: word * 2^-32 + 2^-33, rounded once
        word = (low + high) // 2
        if _as_float(_as_float(word) * 2.0**-32 + 2.0**-33) < bound:
            low = word + 1
        else:
            high = word
    return low


@functools.lru_cache(maxsize=None)
def kept_scale(p: float, dtype: torch.dtype) -> float:
    """What elements that are kept are multiplied with, to the bit."""
    return 1.0 / (1.0 - p) if dtype == torch.float64 else _as_float(1.0 / _as_float(1.0 - p))


# ---- The operators

_library = torch.library.Library("coil", "FRAGMENT")
_library.define("random_state(int offset, Device device) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.define("dropout_mask(Tensor state, int offset, int[] sizes, int vector, int threads, int below) -> Tensor")


def random_state(offset: int, device: torch.device) -> torch.Tensor:
    """int64[2]: the seed and the offset of the GPU's generator, which moves on by `offset`. In a CUDA graph that the user records nobody knows these:
    there it is two random numbers, other ones in each replay."""
    if torch.cuda.is_current_stream_capturing():
        return torch.empty(2, dtype=torch.int64, device=device).random_()
    generator = torch.cuda.default_generators[device.index if device.index is not None else torch.cuda.current_device()]
    with _lock:
        first = generator.get_offset()
        generator.set_offset(first + offset)
    return torch.tensor([_signed(generator.initial_seed()), first]).to(device, non_blocking=True)


def _signed(seed: int) -> int:
    """The int64 of the same bits."""
    return seed - (1 << 64) if seed >> 63 else seed


def dropout_mask(state: torch.Tensor, offset: int, sizes: Sequence[int], vector: int, threads: int, below: int) -> torch.Tensor:
    """bool[*sizes], in their order in memory: which elements a dropout keeps that PyTorch draws behind `state` and `offset`."""
    element = torch.arange(math.prod(sizes), device=state.device)
    return _mask(element, state, offset, Drawing(vector, threads, 0, below)).view(sizes)


_library.impl("random_state", random_state, "CompositeExplicitAutograd")
_library.impl("dropout_mask", dropout_mask, "CompositeExplicitAutograd")


@torch.library.register_fake("coil::random_state", lib=_library)
def _(offset: int, device: torch.device) -> torch.Tensor:
    return torch.empty(2, dtype=torch.int64, device=device)


@torch.library.register_fake("coil::dropout_mask", lib=_library)
def _(state: torch.Tensor, offset: int, sizes: Sequence[int], vector: int, threads: int, below: int) -> torch.Tensor:
    return state.new_empty(tuple(sizes), dtype=torch.bool)


def _mask(element: torch.Tensor, state: torch.Tensor, offset: int, how: Drawing) -> torch.Tensor:
    first = (state[1] + offset) // 4
    if how.vector == 1:
        thread, turn = element % how.threads, element // how.threads
        step, word = turn // 4, turn % 4
    else:
        words = min(how.vector, 4)  # of pairs, the first two of four each time
        blocks = how.vector // words
        group = element // how.vector
        thread, word = group % how.threads, element % words
        step = group // how.threads * blocks + element % how.vector // words
    drawn = _philox(state[0], first + step, thread)
    return torch.stack(drawn).gather(0, word[None])[0] < how.below


def _philox(key: torch.Tensor, counter: torch.Tensor, stream: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Four 32-bit words in int64 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011)."""

    def halves(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return value & _WORD, (value >> 32) & _WORD

    def product(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:  # the words of it, within 63 bits
        low, high = (a & 0xFFFF) * b, (a >> 16) * b
        total = low + ((high & 0xFFFF) << 16)
        return (high >> 16) + (total >> 32), total & _WORD

    c, k = (*halves(counter), *halves(stream)), halves(key)
    for _ in range(10):
        (a_high, a_low), (b_high, b_low) = product(c[0], _PHILOX[0]), product(c[2], _PHILOX[1])
        c = b_high ^ c[1] ^ k[0], b_low, a_high ^ c[3] ^ k[1], a_low
        k = (k[0] + _PHILOX[2]) & _WORD, (k[1] + _PHILOX[3]) & _WORD
    return c


# ---- Whether this PyTorch draws so


@functools.lru_cache(maxsize=None)
def known(dtype: torch.dtype, device: int) -> bool:
    """Asked once, of PyTorch itself: a later version may draw in another way. Its generator is then as before."""
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[device]):
        right = all(_agrees(elements, dtype, device) for elements in (4096, 4098, 4097, 8 * _most_threads(device) + 4096))
    if not right:
        log.warning("PyTorch %s draws masks of dropout in a way that coil does not know: they are drawn by PyTorch's kernels", torch.__version__)
    return right


def _agrees(elements: int, dtype: torch.dtype, device: int) -> bool:
    where = torch.device("cuda", device)
    generator = torch.cuda.default_generators[device]
    first = generator.get_offset()
    how = _drawing(elements, dtype, 0.25, device)
    kept = torch.ops.aten.native_dropout.default(torch.empty(elements, dtype=dtype, device=where), 0.25, True)[1]
    if generator.get_offset() - first != how.offset:
        return False
    sample = torch.linspace(0, elements - 1, 4096, dtype=torch.float64, device=where).long()
    state = torch.tensor([_signed(generator.initial_seed()), first], device=where)
    return torch.equal(kept[sample], _mask(sample, state, 0, how))
