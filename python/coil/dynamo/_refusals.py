"""Calls whose numbers eager refuses, where what AOTAutograd makes of them would be answered: whole numbers in formulas that eager has for fractions alone.

PyTorch takes many operators apart before a backend sees them (resizing, losses of margins, `hardshrink`): the pieces take integers and booleans, the
operators do not. Whether eager's kernel is there is asked of eager, once for each such call of the graph, with zeros in place of the data.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from .._errors import make_error
from ._places import file_and_line

_NO_KERNEL = re.compile(r"""not implemented for '(Long|Int|Short|Char|Byte|Bool)'""")
_MOST_ELEMENTS = 1 << 24  # of a call that is tried
# Without arithmetic, or of integers anyway: no need to try.
_PLAIN = {"getitem", "setitem", "size", "shape", "view", "reshape", "permute", "transpose", "unsqueeze", "squeeze", "expand", "contiguous", "to", "type", "clone", "detach",
          "cat", "stack", "split", "chunk", "add", "sub", "mul", "iadd", "isub", "imul", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "invert", "arange",
          "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "embedding", "float", "long", "int", "bool", "double", "half", "bfloat16", "item", "dim", "numel"}


class _NotTried(Exception):
    """The call has something that zeros do not stand for."""


def refuse_what_eager_refuses(gm: GraphModule) -> None:
    """Raises COIL-E103 for a call on the CPU whose tensors are all of integers or booleans, and for which eager has no kernel."""
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method") and _is_suspect(node):
            said = _eager_says(node)
            if said and _NO_KERNEL.search(said):
                raise make_error(103, f"COIL-E103: PyTorch has no such operator for these numbers: {said}{_place(node)}\n  hint: convert the tensor in the model")


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _is_suspect(node: Node) -> bool:
    if _name(node) in _PLAIN or not (node.op == "call_method" or _is_of_torch(node.target)):
        return False
    tensors = [v for v in _values(node) if isinstance(v, torch.Tensor)]
    return bool(tensors) and all(t.device.type == "cpu" and not (t.is_floating_point() or t.is_complex()) for t in tensors)


def _is_of_torch(target: Any) -> bool:
    """PyTorch's own functions alone: a user's may do anything when they are called once more."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims")
    if isinstance(target, (torch._ops.HigherOrderOperator, torch._ops.OpOverloadPacket)):
        return False
    return (getattr(target, "__module__", None) or "torch").startswith(("torch._C", "torch.nn.functional", "torch.functional", "torch._VF", "torch.special")) or target is getattr(
        torch, getattr(target, "__name__", ""), None)


def _values(node: Node) -> list[Any]:
    return [n.meta.get("example_value", n.meta.get("val")) for n in node.all_input_nodes]


def _zeros(node: Node) -> Any:
    value = node.meta.get("example_value", node.meta.get("val"))
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        sizes = [_number(n) for n in value.shape]
        if torch.Size(sizes).numel() > _MOST_ELEMENTS:
            raise _NotTried
        return torch.zeros(sizes, dtype=value.dtype)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _number(value)
    if isinstance(value, (bool, int, float)):
        return value
    raise _NotTried


def _number(size: Any) -> Any:
    """A size, or what a symbolic one was in the example; that asks nothing of the program's shapes."""
    if not isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size
    hint = size.node.hint
    if hint is None:
        raise _NotTried
    return hint


def _eager_says(node: Node) -> str:
    """The error of the call with zeros; "": there is none, or it was not tried."""
    with _disable_current_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), _zeros)
            if node.op == "call_method":
                getattr(args[0], node.target)(*args[1:], **kwargs)  # type: ignore[arg-type]
            else:
                node.target(*args, **kwargs)  # type: ignore[operator]
        except (RuntimeError, NotImplementedError) as error:
            return str(error).strip().partition("\n")[0]
        except Exception:  # of zeros, not of their type
            return ""
    return ""


def _place(node: Node) -> str:
    found = file_and_line(node)
    return f" ({found[0]}:{found[1]})" if found else ""
