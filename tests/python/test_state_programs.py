"""Random programs that write to their states and inputs, call after call against eager. More of them: python tests/python/state_programs.py --programs 1000"""

import warnings

import pytest

import coil
import state_programs

# A failed call wrote the second part of a concatenation (215, 269, 338), a position from the end of index_fill (43).
FOUND = [215, 269, 338, 43]


def on_cpu(exported):
    return coil.compile(exported, options={"opt_level": 1})


# The CUDA target runs on an emulated device, in a process of its own that keeps the states.
CASES = [(seed, on_cpu) for seed in [*FOUND, *range(10000, 10040)]] + [(seed, state_programs.on_emulated_cuda) for seed in [*FOUND, *range(10040, 10052)]]


@pytest.mark.parametrize("seed,compile", CASES)
def test_equals_eager(seed, compile):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = state_programs.generate(seed)
        verdict = state_programs.judged(program, compile)
    assert not verdict.startswith("WRONG") and (seed not in FOUND or verdict == "right"), f"{verdict}\n{state_programs.source(program)}"
