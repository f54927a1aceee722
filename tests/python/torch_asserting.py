"""Runs in a process of its own: calls packages in stock PyTorch with inputs that their programs refuse, then with good ones.

usage: torch_asserting.py REQUEST.json     [[zoo name, package], ...]
Prints {name: {"errors": [text or null, ...], "worst": error of the good calls relative to eager}}.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))

import ops_checks
import ops_control
import ops_data_sizes
import torch
import zoo
from case import seeded
from torch.utils._pytree import tree_leaves

FAILING = ops_checks.FAILING | ops_data_sizes.FAILING | ops_control.FAILING


def call(function, inputs):
    try:
        return [v for v in tree_leaves(function(*inputs)) if v is not None], None
    except (RuntimeError, ValueError, IndexError, AssertionError, ZeroDivisionError) as error:
        return None, str(error)


answer = {}
with torch.no_grad():
    for name, package in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        case = seeded(name, zoo.programs()[name].make)
        loaded, errors, worst = torch._inductor.aoti_load_package(package), [], 0.0
        for inputs, _, _ in FAILING[name]:
            assert call(zoo.fresh(case), inputs)[1], f"{name}: eager computes what the test holds to be refused"
            errors.append(call(loaded, inputs)[1])
        expected, error = call(zoo.fresh(case), case.args)
        got, problem = call(loaded, case.args)
        assert error is None and problem is None, (name, error, problem)
        for a, b in zip(got, expected, strict=True):
            b = torch.as_tensor(b)
            assert a.shape == b.shape, (name, a.shape, b.shape)
            worst = max(worst, float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30)))
        answer[name] = {"errors": errors, "worst": worst}
print(json.dumps(answer))
