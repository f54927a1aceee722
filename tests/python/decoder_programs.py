"""Programs of one small decoder (tiny_decoder.py) for prompts and for single tokens, and packages of several of them."""

import pytest
import torch

import harness
from tiny_decoder import CONTEXT, decoder, tiny

N = torch.export.Dim("n", min=2, max=CONTEXT)


def exported(n, dynamic=False, context=CONTEXT):
    """A step of n tokens, or of 2 and more."""
    example = (torch.zeros(1, n, dtype=torch.int64), torch.arange(n))
    return torch.export.export(decoder.Generation(tiny(context=context)), example, dynamic_shapes=({1: N}, {0: N}) if dynamic else None)


def saved_programs(folder):
    """The folder, with programs for any prompt, one token, four, and one token of a longer context."""
    torch.export.save(exported(5, True), folder / "prefill.pt2")
    torch.export.save(exported(1), folder / "decode.pt2")
    torch.export.save(exported(4), folder / "four.pt2")
    torch.export.save(exported(1, context=CONTEXT + 8), folder / "longer.pt2")
    return folder


def packed(folder, *files, name="model", options=()):
    path = folder / f"{name}.coil.pt2"
    harness.coil_ok("compile", *[folder / f if isinstance(f, str) and "=" not in f else f for f in files], "-q", "-o", path, *options)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def package(folder):
    return packed(folder, "prefill.pt2", "decode.pt2")
