"""Exports the MiniLM sentence encoder: python examples/minilm/export.py [OUT.pt2]   (87 MB, by default minilm.pt2 beside this file)"""

import pathlib
import sys

import torch
from encoder import SentenceEncoder, dynamic_shapes, example_inputs


def main(path):
    with torch.no_grad():
        program = torch.export.export(SentenceEncoder(), example_inputs(), dynamic_shapes=dynamic_shapes())
    torch.export.save(program, path)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB; {', '.join(f'{k} {v}' for k, v in program.range_constraints.items())}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "minilm.pt2")
