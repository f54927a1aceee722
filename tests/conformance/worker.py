"""A process that judges pairs: reads "name dtype" lines, writes a JSON line for each phase and each result. See run.py.

Arguments name the way: evaluate (exported, standalone; the default) compiled (torch.compile) or gradients (through it); and the device of the latter two."""

import json
import os
import sys
import time

channel = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # what libraries print is no answer

import torch

torch.set_num_threads(1)

import importlib

import samples

samples.DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
torch.backends.cudnn.allow_tf32 = False  # where cuDNN rounds and where it does not is its own choice

way = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "evaluate")


def main():
    for line in sys.stdin:
        name, dtype = line.split()
        start = time.time()
        try:
            result = way.verdict(name, dtype, lambda phase: print(json.dumps({"phase": phase}), file=channel))
        except Exception as error:  # a fault of these tests
            import traceback

            traceback.print_exc()
            result = {"status": "error", "reason": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"name": name, "dtype": dtype, **result, "seconds": round(time.time() - start, 2)}), file=channel)


main()
