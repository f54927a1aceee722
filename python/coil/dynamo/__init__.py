"""torch.compile(model, backend="coil"): inference and training on the CPU and on CUDA.

PyTorch's Dynamo captures, AOTAutograd makes functional forward and backward graphs of ATen operators; each comes here, goes to
coil's compiler in the form of a `.pt2`'s program (in memory, without a torch.export), and runs in coil's runtime. Operators that
coil has no code for, and random ones, run in PyTorch between coil's programs: `coil.compile_stats()` counts and names them.
"""

from ._backend import compile_fx

__all__ = ["compile_fx"]
