"""A small decoder of random weights (examples/generate/decoder.py), what eager generates with it, and packages of it."""

import importlib.util

import torch

import harness

spec = importlib.util.spec_from_file_location("decoder", harness.REPO / "examples/generate/decoder.py")
decoder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(decoder)

CONTEXT = 24
PROMPT = [72, 101, 108, 108, 111]  # "Hello"


def tiny(seed=0, context=CONTEXT):
    torch.manual_seed(seed)
    model = decoder.Decoder(dim=32, layers=2, heads=2, inner=48, context=context)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(6)  # logits that tell tokens apart
    return model.eval()


def greedy(model, prompt, count):
    """The `count` tokens that follow the prompt, the likeliest each time."""
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count:
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt):]


def compiled(module, example, dynamic, folder, name="m"):
    """The package of a module that is exported with these dynamic shapes."""
    torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=dynamic), folder / f"{name}.export.pt2")
    harness.coil_ok("compile", folder / f"{name}.export.pt2", "-q", "-o", folder / f"{name}.pt2")
    return folder / f"{name}.pt2"


def package_of(folder):
    """The package of tiny(), with its caches as states."""
    decoder.export(tiny(), folder / "decoder.export.pt2")
    harness.coil_ok("compile", folder / "decoder.export.pt2", "-q", "-o", folder / "decoder.pt2")
    return folder / "decoder.pt2"
