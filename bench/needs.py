"""What a benchmark cannot do without: said in a sentence, and the program ends with exit code 0, since nothing is wrong."""

import importlib.util
import sys


def missing(what):
    print(f"nothing was measured: {what}", flush=True)
    sys.exit(0)


def gpu(device="cuda:0"):
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        missing(f"{device} is asked for, and PyTorch ({torch.__version__}) sees no NVIDIA GPU here")


def modules(*names):
    """Python modules of peers."""
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        missing(f"{', '.join(absent)} is not installed in {sys.prefix}")
