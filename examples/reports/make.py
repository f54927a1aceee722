"""Writes the reports and traces of a decoder with its caches and of a training step into this folder (or the one that is given).

    PYTHONPATH=build/python python3 examples/reports/make.py [FOLDER]
"""

import pathlib
import sys

import torch

import coil

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "generate"))

from decoder import Decoder, Generation  # noqa: E402

CALLS = 20


def decoder_step(folder):
    """One token of a decoder like Llama (root mean square norms, rotary positions, gated products), with 512 rows of caches."""
    torch.manual_seed(0)
    model = Generation(Decoder(dim=512, layers=8, heads=8, inner=1376, context=512).eval())
    ids, positions = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([300])
    compiled = coil.compile(torch.export.export(model, (ids, positions)), options={"name": "decoder"}, num_threads=1)
    compiled.report(folder / "decoder.html", ids, positions, calls=CALLS)
    with compiled.profile(calls=3) as p:
        for _ in range(3):
            compiled(ids, positions)
    p.save(folder / "decoder.trace.json")


def training_step(folder):
    """Forward, backward and the optimizer's step of a network of three layers, as torch.compile hands them to coil."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    forward = torch.compile(lambda: torch.nn.functional.cross_entropy(model(x), y), backend="coil", options={"threads": 1})
    update = torch.compile(optimizer.step, backend="coil", options={"threads": 1})

    def step():
        optimizer.zero_grad()
        forward().backward()
        update()

    for _ in range(4):
        step()
    with coil.profile() as p:
        for _ in range(CALLS):
            step()
    p.report(folder / "training.html")
    with coil.profile() as p:
        for _ in range(3):
            step()
    p.save(folder / "training.trace.json")


if __name__ == "__main__":
    torch.set_num_threads(1)
    where = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    decoder_step(where)
    training_step(where)
