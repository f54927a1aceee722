"""Runs in a process of its own: loads coil's packages in stock PyTorch and writes what they return.

usage: torch_loader.py REQUEST.json      {"packages": [{"name": zoo name, "path": package, "out": folder}], "bad": digits package}
Prints one JSON object: {name: {tag: error text or null}, "": {what was wrong with a call: error text or null}}.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))

import numpy as np
import torch
import zoo
from case import seeded
from torch.utils._pytree import tree_leaves, tree_map


def run_all(name, path, out):
    case = seeded(name, zoo.programs()[name].make)
    loaded, errors = torch._inductor.aoti_load_package(str(path)), {}
    for tag, args in (case.inputs or {"example": case.args}).items():
        own = tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, case.kwargs))
        try:
            leaves = tree_leaves(loaded(*own[0], **own[1]))
            np.savez(out / f"{name}.{tag}.npz", **{f"out_{i}": zoo.widen(v) for i, v in enumerate(leaves)})
            errors[tag] = None
        except RuntimeError as error:
            errors[tag] = str(error)
    return errors


def wrong_calls(path):
    loaded, errors = torch._inductor.aoti_load_package(str(path)), {}
    good = torch.rand(3, 1, 8, 8)
    wrong = {"size": torch.rand(3, 1, 8, 9), "batch": torch.rand(513, 1, 8, 8), "dtype": good.double(), "rank": good[0]}
    for what, image in wrong.items():
        try:
            loaded(image)
            errors[what] = None
        except RuntimeError as error:
            errors[what] = str(error)
    logits = loaded(good)
    logits = logits if isinstance(logits, torch.Tensor) else logits[0]
    errors["then a good call"] = None if logits.shape == (3, 10) and bool(torch.isfinite(logits).all()) else "wrong result"
    return errors


request = json.loads(pathlib.Path(sys.argv[1]).read_text())
with torch.no_grad():
    answer = {row["name"]: run_all(row["name"], row["path"], pathlib.Path(row["out"])) for row in request["packages"]}
    answer[""] = wrong_calls(request["bad"])
print(json.dumps(answer))
