"""Kernels on CUDA whose accesses are narrow (rows of odd lengths, places from data), emulated (tests/cuda_emulation): threads of several points."""

import pytest
import torch

from test_cuda_sorts import check, kernels_text

ROWS, COLUMNS = 1030, 1021  # a million: more points than threads that a machine has at once


def whole(*shape, dtype):
    return torch.randint(-9, 9, shape).to(dtype)


def test_shifted_rows(tmp_path):
    """bf16 eight at a time, floats four, int64 two; the last block is not full."""
    def shifted(halves, floats, longs):
        return halves[:, 1:].float() * 2 + 1, floats[:, :-1] + floats[:, 1:], longs[:, 3:] * 3

    inputs = (whole(ROWS, 2 * COLUMNS, dtype=torch.bfloat16), whole(ROWS, COLUMNS, dtype=torch.float32), whole(ROWS, COLUMNS, dtype=torch.int64))
    check(shifted, [inputs], tmp_path)
    assert "for (int g = 0; g < 4; ++g)" in kernels_text(shifted, inputs, tmp_path)


def test_few_points_stay_one_a_thread(tmp_path):
    def shifted(x):
        return (x[:, 1:] + 1,)

    inputs = (whole(30, 101, dtype=torch.float32),)
    check(shifted, [inputs], tmp_path)
    assert "int g = 0" not in kernels_text(shifted, inputs, tmp_path)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_rows_from_data(index, tmp_path):
    inputs = (whole(50, COLUMNS, dtype=torch.bfloat16), torch.randint(0, 50, (ROWS,)).to(index))
    check(lambda table, i: (table[i, 2:] * 2,), [inputs], tmp_path)


def test_beside_kernels_of_other_points(tmp_path):
    """One launch: blocks of 1,024 points for the one, of 256 for the others."""
    def parts(a, b, c):
        return a[:, 1:] + 1, b * 2, c[:, ::2] - 1

    inputs = (whole(ROWS, COLUMNS, dtype=torch.float32), whole(77, dtype=torch.float32), whole(30, 41, dtype=torch.float32))
    check(parts, [inputs], tmp_path)
    text = kernels_text(parts, inputs, tmp_path)
    assert "cuda/beside.h" in text and "int g = 0" in text, text
