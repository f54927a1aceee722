"""Exports the MiniLM sentence encoder: python examples/minilm/export.py [OUT.pt2]   (87 MB, by default minilm.pt2 beside this file)"""

import json
import pathlib
import sys

import torch
from encoder import SentenceEncoder, dynamic_shapes, example_inputs


def main(path):
    with torch.no_grad():
        program = torch.export.export(SentenceEncoder(), example_inputs(), dynamic_shapes=dynamic_shapes())
    # The export calls the dimensions by symbols of its own (s43): this entry keeps our words for them, for coil's messages.
    names = {f"{name}:{i}": word for name in ("input_ids", "attention_mask") for i, word in enumerate(("batch", "seq"))}
    torch.export.save(program, path, extra_files={"coil_dims.json": json.dumps(names)})
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB; {', '.join(f'{k} {v}' for k, v in program.range_constraints.items())}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "minilm.pt2")
