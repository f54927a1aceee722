"""GGUF's types whose numbers stand in codebooks, or in two or three bits here and there: whole numbers with a scale for each group as any others, once they are
looked up. What the numbers of the rarer ones are, the package gguf says of the same block with all scales made one."""

from __future__ import annotations

from typing import Callable

import numpy as np


def half(block: np.ndarray, at: int) -> np.ndarray:
    """A float16 at byte `at` of each block."""
    return np.ascontiguousarray(block[..., at:at + 2]).view(np.float16)[..., 0]


def _words(block: np.ndarray, begin: int, end: int, kind: type) -> np.ndarray:
    return np.ascontiguousarray(block[..., begin:end]).view(kind)


def _low_then_high(packed: np.ndarray, count: int = 2) -> np.ndarray:
    """[..., b] bytes to [..., b * count] numbers of 8 / count bits."""
    bits = 8 // count
    return (packed[..., None] >> (bits * np.arange(count, dtype=np.uint8)) & ((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


def _one(at: int, value: float) -> Callable[[np.ndarray], None]:
    """Makes a block's float16 at byte `at` that number."""
    def put(block: np.ndarray) -> None:
        block[..., at:at + 2] = np.array([value], np.float16).view(np.uint8)

    return put


def _bytes(*pieces: tuple[int, int, int]) -> Callable[[np.ndarray], None]:
    """Fills bytes of a block: (begin, end, value)."""
    def put(block: np.ndarray) -> None:
        for begin, end, value in pieces:
            block[..., begin:end] = value

    return put


def _kept(begin: int, end: int, step: int, mask: int) -> Callable[[np.ndarray], None]:
    """Clears bits of every step'th byte of a block."""
    def put(block: np.ndarray) -> None:
        block[..., begin:end:step] &= mask

    return put


def _q2_k(b: np.ndarray) -> np.ndarray:
    return half(b, 80).astype(np.float32)[..., None] * (b[..., :16] & 15)


def least_of_q2_k(b: np.ndarray) -> np.ndarray:
    return -(half(b, 82).astype(np.float32)[..., None] * (b[..., :16] >> 4))


def _q3_k(b: np.ndarray) -> np.ndarray:
    low = np.concatenate([b[..., 96:104] & 15, b[..., 96:104] >> 4], -1)
    high = (b[..., None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(*b.shape[:-1], 16)
    return half(b, 108).astype(np.float32)[..., None] * ((low | high << 4).astype(np.int8) - np.int8(32))


def _iq4_xs(b: np.ndarray) -> np.ndarray:
    high = (_words(b, 2, 4, np.uint16) >> (2 * np.arange(8, dtype=np.uint16)) & 3).astype(np.uint8)
    return half(b, 0).astype(np.float32)[..., None] * ((_low_then_high(b[..., 4:8]) | high << 4).astype(np.int8) - np.int8(32))


def _halves_and_nibbles(b: np.ndarray, nibbles: np.ndarray, factor: float) -> np.ndarray:
    return half(b, 0).astype(np.float32)[..., None] * (np.float32(0.5) + nibbles.astype(np.float32)) * np.float32(factor)


def _iq1_s(b: np.ndarray) -> np.ndarray:
    return half(b, 0).astype(np.float32)[..., None] * (2 * (_words(b, 34, 50, np.uint16) >> 12 & 7) + 1).astype(np.float32) / 8


def _iq1_m(b: np.ndarray) -> np.ndarray:
    words = _words(b, 48, 56, np.uint16)
    scale = np.bitwise_or.reduce((words & 0xF000) >> np.array([12, 8, 4, 0], np.uint16), -1).astype(np.uint16).view(np.float16).astype(np.float32)
    parts = (words[..., None] >> np.array([0, 3, 6, 9], np.uint16) & 7).reshape(*b.shape[:-1], 16)
    return scale[..., None] * (2 * parts + 1).astype(np.float32) / 8


def _nvfp4(b: np.ndarray) -> np.ndarray:
    """Floats of four bits of exponent and three of mantissa, halved; the codes are twice what they stand for."""
    exponent, mantissa = (b[..., :4] >> 3 & 15).astype(np.int32), (b[..., :4] & 7).astype(np.float32)
    value = np.where(exponent == 0, mantissa * np.float32(2.0 ** -10), np.ldexp(1 + mantissa / 8, exponent - 8)).astype(np.float32)
    return np.where((b[..., :4] == 0) | (b[..., :4] == 0x7F), np.float32(0), value)


def _pairs_of_bits(b: np.ndarray) -> np.ndarray:
    """64 bytes of each block to 256 numbers of 2 bits, 128 after 128, [..., 8, 32]."""
    return (b.reshape(*b.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3).reshape(*b.shape[:-1], 8, 32)


def _numbers_of_q3_k(b: np.ndarray) -> np.ndarray:
    """The third bit says that 4 is not taken away."""
    high = b[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return ((_pairs_of_bits(b[..., 32:96]) | high << 2).view(np.int8) - np.int8(4)).reshape(*b.shape[:-1], 16, 16)


_OF_4_BITS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)  # IQ4_NL and IQ4_XS
_TWICE_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def _of_table(table: np.ndarray, packed: np.ndarray, count: int) -> np.ndarray:
    """[..., bytes] to numbers [..., groups, 2 * count]: of each `count` bytes the low halves, then the high ones."""
    two = np.stack([np.tile(table, 16), np.repeat(table, 16)], -1)  # both of a byte
    found = two[packed].reshape(*packed.shape[:-1], -1, count, 2)
    return np.ascontiguousarray(found.swapaxes(-1, -2)).reshape(*packed.shape[:-1], -1, 2 * count)


# The numbers of blocks that are many files' most: ten times as fast as by a dequantisation.
_NUMBERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q2_K": lambda b: _pairs_of_bits(b[..., 16:80]).view(np.int8).reshape(*b.shape[:-1], 16, 16),
    "Q3_K": _numbers_of_q3_k,
    "IQ4_NL": lambda b: _of_table(_OF_4_BITS, b[..., 2:], 16),
    "IQ4_XS": lambda b: _of_table(_OF_4_BITS, b[..., 8:], 16),
    "MXFP4": lambda b: _of_table(_TWICE_E2M1, b[..., 1:], 16),
    "NVFP4": lambda b: _of_table(_TWICE_E2M1, b[..., 4:], 8),
}


# Numbers of a group, its scales of a block's bytes, and what makes all of them one where the numbers are looked up so.
CODEBOOKS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray], tuple[Callable[[np.ndarray], None], ...]]] = {
    "Q2_K": (16, _q2_k, ()),
    "Q3_K": (16, _q3_k, ()),
    "TQ1_0": (256, lambda b: half(b, 52).astype(np.float32)[..., None], (_one(52, 1),)),
    "TQ2_0": (256, lambda b: half(b, 64).astype(np.float32)[..., None], (_one(64, 1),)),
    "MXFP4": (32, lambda b: np.ldexp(np.float32(1), b[..., :1].astype(np.int32) - 128), ()),
    "NVFP4": (16, _nvfp4, ()),
    "IQ4_NL": (32, lambda b: half(b, 0)[..., None], ()),
    "IQ4_XS": (32, _iq4_xs, ()),
    "IQ3_XXS": (32, lambda b: _halves_and_nibbles(b, b[..., 69:98:4] >> 4, 0.5), (_kept(69, 98, 4, 15), _one(0, 4))),
    "IQ3_S": (32, lambda b: half(b, 0).astype(np.float32)[..., None] * (1 + 2 * _low_then_high(b[..., 106:110])).astype(np.float32), (_bytes((106, 110, 0)), _one(0, 1))),
    "IQ2_XXS": (32, lambda b: _halves_and_nibbles(b, b[..., 9:66:8] >> 4, 0.25), (_kept(9, 66, 8, 15), _one(0, 8))),
    "IQ2_XS": (16, lambda b: _halves_and_nibbles(b, _low_then_high(b[..., 66:74]), 0.25), (_bytes((66, 74, 0)), _one(0, 8))),
    "IQ2_S": (16, lambda b: _halves_and_nibbles(b, _low_then_high(b[..., 74:82]), 0.25), (_bytes((74, 82, 0)), _one(0, 8))),
    "IQ1_S": (32, _iq1_s, (_kept(35, 50, 2, 0x8F), _one(0, 8))),
    "IQ1_M": (16, _iq1_m, (_bytes((48, 56, 0), (53, 54, 0x80), (55, 56, 0x40)),)),  # 8 in float16, four bits of it in each word
}


def looked_up(kind: str, blocks: np.ndarray) -> np.ndarray:
    """The numbers of blocks [..., bytes]: int8 [..., groups, size]."""
    import gguf

    if kind in _NUMBERS:
        return _NUMBERS[kind](blocks)
    group, _, ones = CODEBOOKS[kind]
    plain = blocks.copy()
    for put in ones:
        put(plain)
    numbers = gguf.quants.dequantize(plain.reshape(-1, plain.shape[-1]), gguf.GGMLQuantizationType[kind])
    return np.rint(numbers).astype(np.int8).reshape(*blocks.shape[:-1], -1, group)
