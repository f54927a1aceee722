"""Writes all reports and traces of this folder anew, of models with random weights: python3 examples/reports/make.py [FOLDER] [--device cuda]

It needs PyTorch, torchvision and transformers: PYTHONPATH=build/python. On the CPU the calls have one thread. Names end in .gpu with --device cuda.
"""

import argparse
import pathlib
import sys

import torch

import coil

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "generate"))

from decoder import Decoder, Generation  # noqa: E402

CALLS = 20


class Maker:
    def __init__(self, folder, device):
        self.folder, self.device, self.end = folder, device, ".gpu" if device == "cuda" else ""
        self.threads = {} if device == "cuda" else {"num_threads": 1}

    def files(self, name):
        return self.folder / f"{name}{self.end}.html", self.folder / f"{name}{self.end}.trace.json"

    def exported(self, name, model, *inputs):
        """A report of calls of the compiled model, and a trace of three."""
        page, trace = self.files(name)
        model, inputs = model.to(self.device).eval(), [x.to(self.device) for x in inputs]
        with torch.no_grad():
            compiled = coil.compile(torch.export.export(model, tuple(inputs)), device=self.device, options={"name": name}, **self.threads)
        compiled.report(page, *inputs, calls=CALLS)
        self.traced(compiled, lambda: compiled(*inputs), trace)

    def traced(self, source, call, trace):
        with source.profile(all_calls=True) as p:
            for _ in range(3):
                call()
            if self.device == "cuda":
                torch.cuda.synchronize()
        p.save(trace)


def resnet50(maker):
    import torchvision

    maker.exported("resnet50", torchvision.models.resnet50(weights=None), torch.randn(1, 3, 224, 224))


def minilm(maker):
    """The network of all-MiniLM-L6-v2."""
    import transformers

    config = transformers.BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    network = transformers.BertModel(config)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, ids):
            return torch.nn.functional.normalize(self.network(ids).last_hidden_state.mean(1), dim=-1)

    maker.exported("minilm", Encoder(), torch.randint(0, 30000, (1, 128)))


def decoder_step(maker):
    """One token of a decoder like Llama (root mean square norms, rotary positions, gated products), with 512 rows of caches."""
    model = Generation(Decoder(dim=512, layers=8, heads=8, inner=1376, context=512))
    maker.exported("decoder", model, torch.zeros(1, 1, dtype=torch.int64), torch.tensor([300]))


def training_step(maker):
    """Forward, backward and the optimizer's step of a network of three layers, as torch.compile hands them to coil."""
    page, trace = maker.files("training")
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)).to(maker.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 256, device=maker.device), torch.randint(0, 10, (64,), device=maker.device)
    options = {} if maker.device == "cuda" else {"threads": 1}
    forward = torch.compile(lambda: torch.nn.functional.cross_entropy(model(x), y), backend="coil", options=options)
    update = torch.compile(optimizer.step, backend="coil", options=options)

    def step():
        optimizer.zero_grad()
        forward().backward()
        update()

    for _ in range(4):
        step()
    with coil.profile(all_calls=True) as p:
        for _ in range(CALLS):
            step()
    p.report(page)
    maker.traced(coil, step, trace)


MODELS = {"resnet50": resnet50, "minilm": minilm, "decoder": decoder_step, "training": training_step}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=HERE)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=tuple(MODELS), help="one of the models")
    a = parser.parse_args()
    torch.set_num_threads(1)
    maker = Maker(a.folder, a.device)
    for make in [MODELS[a.only]] if a.only else MODELS.values():
        torch.manual_seed(0)
        make(maker)


if __name__ == "__main__":
    main()
