"""Which convolutions of quantised programs are computed with bytes. (That they are right, test_differential.py says.)"""

import os

import pytest

import harness
import zoo


def zoo_names(name, integers, form):
    return [name]


@pytest.mark.parametrize("name,integers", [("quantised_conv_3x3_zero", True), ("quantised_conv_depthwise", True), ("quantised_conv_lines", True),
                                           ("quantised_conv_groups_signed", True), ("quantised_conv_of_bytes", True), ("quantised_conv_turned", True),
                                           ("quantised_conv_zero_of_data", False)])
@pytest.mark.parametrize("form", ["aten", "core"])
def test_convolutions_of_bytes(name, integers, form, tmp_path):
    program = zoo.make(name, form) / f"{name}.{form}.pt2"
    harness.coil_ok("compile", program, "-o", tmp_path / "p.coil.pt2", env={**os.environ, "COIL_DUMP": str(tmp_path / "dump")})
    (loops,) = (tmp_path / "dump").glob("*_loops.txt")
    convolutions = [line for line in loops.read_text().splitlines() if " = conv2d " in line]
    assert len(convolutions) == 1
    assert (": i32[" in convolutions[0]) == integers, convolutions[0]
