"""A kernel of one's own in a network: registered, checked, exported, tuned, packaged. Run it as `python rms_norm.py [PACKAGE]`."""

import pathlib
import sys

import torch

import coil

HERE = pathlib.Path(__file__).parent

rms_norm = coil.register_kernel(
    "example::rms_norm",
    signature="(Tensor x, Tensor weight, float eps=1e-6) -> Tensor",
    cpu=HERE / "rms_norm.cc",
    range="x.numel() // x.size(-1)",
    cuda=HERE / "rms_norm.cu",
    grid="x.numel() // x.size(-1)",
    block="THREADS",
    configs=[{"LANES": lanes, "THREADS": threads} for lanes, threads in ((8, 128), (16, 256), (64, 512))],
    reference=lambda x, weight, eps=1e-6: torch.nn.functional.rms_norm(x, weight.shape, weight, eps),
)


class Block(torch.nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width) + 0.5)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(rms_norm(x, self.weight))))


def main() -> None:
    torch.manual_seed(0)
    block, x = Block(256).eval(), torch.randn(8, 128, 256)
    rms_norm.check(x, block.weight.detach())  # every configuration against the reference
    rms_norm.check(x.bfloat16(), block.weight.detach().bfloat16(), rtol=2e-2, atol=2e-2)
    with torch.no_grad():
        expected = block(x)
    program = torch.export.export(block, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    package = sys.argv[1] if len(sys.argv) > 1 else None
    model = coil.compile(program, package, options={"tune": "fast", "tune_budget": "2s", "dims": {"batch": "x:0"}})
    for batch in (8, 1, 3):
        torch.testing.assert_close(model(x[:batch]), expected[:batch], rtol=1e-4, atol=1e-4)
    print(f"{len(rms_norm.configs)} configurations agree with the reference; the program agrees with PyTorch")
    for config, milliseconds in rms_norm.benchmark(x, block.weight.detach(), warmup=2, rep=10):
        print(f"  {config}: {milliseconds * 1e3:.0f} us")
    print(f"a call of the program: {coil.do_bench(lambda: model(x), warmup=2, rep=10) * 1e3:.0f} us")


if __name__ == "__main__":
    main()
