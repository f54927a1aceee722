"""Operators that write their result to an argument (`out=`), whose functional forms have names of their own, and sequences filled up to one length."""

import torch
from torch.nn.utils.rnn import pad_sequence

from case import F64, I64, rand, registry

PROGRAMS, add = registry(__file__)
Dim = torch.export.Dim


def of_two(name):
    function = getattr(torch, name)

    def program(x, y, out):
        result = function(x, y, out=out)
        return result + 1, out

    return program


for name in ("add", "sub", "mul", "div", "true_divide", "copysign", "ldexp", "atan2", "maximum", "pow", "fmod"):
    add(f"out_{name}", of_two(name), lambda: (rand(3, 4, low=0.5, high=2), rand(3, 4, low=0.5, high=2), rand(3, 4)))
add("out_div_mode", lambda x, y, out: (torch.div(x, y, rounding_mode="floor", out=out), out * 2), lambda: (rand(3, 4), rand(3, 4, low=0.5, high=2), rand(3, 4)))
add("out_wider", lambda x, y, out: (torch.mul(x, y, out=out), out), lambda: (rand(3, 4), rand(4), rand(3, 4, dtype=F64)))
add("out_sums", lambda x, a, b, c, d: (torch.sum(x, 1, out=a), torch.mean(x, 0, out=b), torch.prod(x, 1, out=c), torch.amax(x, 0, out=d), a, b, c, d),
    lambda: (rand(3, 4), rand(3), rand(4), rand(3), rand(4)))
add("out_of_a_part", lambda x, whole: (torch.add(x, 1, out=whole[1]), whole), lambda: (rand(4), rand(3, 4)))


def padded(*sequences):
    return (pad_sequence(sequences), pad_sequence(sequences, True, -1.5), pad_sequence(sequences, True, 2.0, "left"), pad_sequence(sequences, False, 3.0, "left"))


add("pad_sequence", padded, lambda: (rand(3, 2), rand(5, 2), rand(1, 2)))
add("pad_sequence_flat", padded, lambda: (rand(3), rand(0), rand(4)))
add("pad_sequence_whole", padded, lambda: (rand(3, 2, dtype=I64), rand(3, 2, dtype=I64)))
add("pad_sequence_dynamic", padded, lambda: (rand(6, 2), rand(3, 2)), dynamic=({0: Dim("longest", min=3, max=50)}, None), sets={"more": lambda: (rand(17, 2), rand(3, 2))})
