"""coil from Python, start to end: a small classifier is trained with torch.compile, compiled to a package, and used without PyTorch.

    PYTHONPATH=build/python python examples/python/spirals.py
"""

import subprocess
import sys
import tempfile

import torch
from torch import nn

import coil


def spirals(points):
    """Two arms that wind around each other: [n, 2] -> 0 or 1."""
    label = torch.arange(points) % 2
    turn = torch.rand(points).sqrt() * 3 * torch.pi
    radius = turn / (3 * torch.pi) + 0.02 * torch.randn(points)
    angle = turn + label * torch.pi
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), label


USE = """
import sys, numpy as np, coil
model = coil.load(sys.argv[1])
print(model)
probability = model(np.array([[0.5, 0.1], [-0.5, -0.1]], np.float32))
print("probabilities of the second arm:", probability.round(3), "- PyTorch loaded:", "torch" in sys.modules)
"""


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
    step = torch.compile(model, backend="coil")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(301):
        x, label = spirals(512)
        loss = nn.functional.binary_cross_entropy_with_logits(step(x), label.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 100 == 0:
            print(f"step {epoch}: loss {loss.item():.3f}")
    print(coil.compile_stats())

    x, label = spirals(1000)
    batch = torch.export.Dim("batch", min=1, max=4096)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/spirals.coil.pt2"
        compiled = coil.compile(nn.Sequential(model, nn.Sigmoid()).eval(), path, args=(x,), dynamic_shapes=({0: batch},),
                                options={"dims": {"batch": "input:0"}})
        accuracy = ((compiled(x) > 0.5) == label).float().mean()
        print(f"accuracy {accuracy:.3f}")
        subprocess.run([sys.executable, "-c", USE, path], check=True)


if __name__ == "__main__":
    main()
