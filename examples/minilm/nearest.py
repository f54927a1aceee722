"""Embeds the lines of sentences.txt with coil, compares with eager PyTorch, and prints each query's nearest neighbours.

usage: python examples/minilm/nearest.py [--model minilm.pt2] [--coil build/coil] [QUERY...]

Tokenising happens here, in Python; the model runs in `coil run`, which knows nothing of PyTorch.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from encoder import SentenceEncoder, tokenizer

HERE = pathlib.Path(__file__).resolve().parent
QUERIES = ["my cat is having a rest", "how do I cook spaghetti?", "space exploration", "software crashed again", "will it rain tomorrow?"]
REQUIRED_COSINE = 0.99999


def embed(coil, package, tokens, folder):
    np.savez(folder / "in.npz", in_0=tokens["input_ids"].numpy(), in_1=tokens["attention_mask"].numpy())
    done = subprocess.run([coil, "run", package, "--input", folder / "in.npz", "--output", folder / "out.npz"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    with np.load(folder / "out.npz") as outputs:
        return outputs[outputs.files[0]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=HERE / "minilm.pt2", help="what export.py wrote")
    parser.add_argument("--coil", type=pathlib.Path, default=HERE.parents[1] / "build" / "coil")
    parser.add_argument("queries", nargs="*", default=QUERIES)
    options = parser.parse_args()
    if not options.model.exists():
        sys.exit(f"{options.model} is missing: run {HERE / 'export.py'} first")
    sentences = (HERE / "sentences.txt").read_text().splitlines()
    words = tokenizer()

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        package = folder / "minilm.coil.pt2"
        done = subprocess.run([options.coil, "compile", options.model, "-o", package], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        # One package for both: 41 sentences, then a handful of queries of another length.
        known = words(sentences, padding=True, return_tensors="pt")
        asked = words(options.queries, padding=True, return_tensors="pt")
        vectors, queries = (embed(options.coil, package, tokens, folder) for tokens in (known, asked))

    with torch.no_grad():
        eager = SentenceEncoder()(known["input_ids"], known["attention_mask"])[0].numpy()
    cosine = (vectors * eager).sum(1) / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(eager, axis=1))
    print(f"{len(sentences)} sentences, smallest cosine with eager PyTorch: {cosine.min():.8f}\n")

    scores = queries @ vectors.T
    width = max(map(len, sentences))
    for query, row in zip(options.queries, scores):
        print(f"{query}")
        for i in np.argsort(-row)[:3]:
            print(f"    {sentences[i]:{width}}  {row[i]:5.2f}  {'█' * max(0, round(20 * row[i]))}")
        print()
    return 0 if cosine.min() > REQUIRED_COSINE else 1


if __name__ == "__main__":
    sys.exit(main())
