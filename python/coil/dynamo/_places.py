"""Where a node of a graph comes from: the line of the program and the module that it stands in."""

from __future__ import annotations

import ast
import itertools
import re

from torch.fx import Node

_KEY = re.compile(r"""\._modules\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def file_and_line(node: Node) -> tuple[str, str] | None:
    """The innermost frame that PyTorch noted."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "")
    return frames[-1] if frames else None


def short_place(node: Node) -> str:
    """"model.py:12"; empty: nobody knows."""
    found = file_and_line(node)
    return f"{found[0].rpartition('/')[2]}:{found[1]}" if found else ""


def origin_of(node: Node) -> dict:
    """What says where a node comes from, for one that is made in its place."""
    return {key: node.meta[key] for key in ("stack_trace", "nn_module_stack", "fwd_nn_module_stack") if key in node.meta}


def module_path(node: Node) -> str:
    """"layers.0.attention", as `named_modules` has it; empty: in no module. A gradient's node is in the module of what it is the gradient of."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not isinstance(stack, dict) or not stack:
        return ""
    innermost = next(reversed(stack.values()))
    path = innermost[0] if isinstance(innermost, (tuple, list)) and innermost and isinstance(innermost[0], str) else ""
    # Dynamo writes how the module was reached: "L['self'].layers[0]._modules['attention']"; one of PyTorch's own classes by its wrapper, "L['fn']".
    path = re.sub(r"^[LG]\['(?:self|fn)'\]\.?", "", path)
    path = re.sub(r"^[LG]\[['\"](\w+)['\"]\]", r"\1", path)
    pieces = _KEY.split(path)  # every second one is a key, as Python writes it
    plain = [_plain(piece) for piece in pieces[::2]]
    if any(re.search(r"[\[\]()]", piece) for piece in plain):  # reached in another way
        return ""
    return ".".join(part for pair in itertools.zip_longest(plain, map(ast.literal_eval, pieces[1::2])) for part in pair if part)


def _plain(path: str) -> str:
    """"layers[0].attention" with dots alone."""
    path = re.sub(r"\.?_(?:modules|orig_mod)\b", "", path)
    return re.sub(r"\[['\"]?([^\]'\"]+)['\"]?\]", r".\1", path).strip(".")
