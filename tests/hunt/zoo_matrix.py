"""The architectures of tests/models, of which tests/matrix judges the doors of its table. `make(name)`: (module, keyword arguments)."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from architecture_list import ARCHITECTURES  # noqa: E402


class ByKeyword(torch.nn.Module):
    """A module called by keyword: its positional arguments have names by their places."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **arguments):
        places = [arguments.pop(f"arg_{i}") for i in range(sum(k.startswith("arg_") for k in arguments))]
        return self.module(*places, **arguments)


def names():
    return list(ARCHITECTURES)


def make(name):
    torch.manual_seed(0)
    module, args, kwargs = ARCHITECTURES[name][1]()
    return ByKeyword(module.eval()), {**{f"arg_{i}": a for i, a in enumerate(args)}, **kwargs}
