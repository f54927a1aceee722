"""What the tests of the tuner tune: a small network of convolutions, and products of any number of rows."""

import numpy as np


def exported_programs(folder):
    """name -> (path, module)."""
    import torch

    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = torch.nn.Conv2d(16, 48, 3, padding=1), torch.nn.Conv2d(48, 48, 3, padding=1), torch.nn.Conv2d(48, 32, 1)

        def forward(self, x):
            return self.c(self.b(self.a(x).relu()).relu()).mean((2, 3))

    batch = torch.export.Dim("batch", min=1, max=64)
    mlp = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.GELU(), torch.nn.Linear(200, 40), torch.nn.Softmax(-1))
    made = {}
    for name, module, x, dims in (("net", Net(), torch.randn(2, 16, 24, 24), None), ("mlp", mlp, torch.randn(8, 300), ({0: batch},))):
        path = folder / f"{name}.pt2"
        torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=dims), path)
        made[name] = (path, module)
    return made


def inputs(name, batch):
    shape = (2, 16, 24, 24) if name == "net" else (batch, 300)
    return np.random.default_rng(batch).standard_normal(shape).astype(np.float32)
