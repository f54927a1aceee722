"""What coil can take of a graph, told before it is asked."""

from __future__ import annotations

import operator
from typing import Any, Callable, Collection

import sympy
import torch
from torch.fx import Node

from ._control import control_reason, is_control
from ._decompositions import draws, operator_name
from ._effects import is_check
from ._layout import convolutions_in_tf32
from ._results import attention_kernel, read_nodes, read_results
from ._serialize import TAKEN
from ._split import ASSERTION, STRIDED, base_of, can_write_input, data_sizes, is_number, is_view, size_sources, tensors_of, writes_input

# Operators that coil was found to have no code for, whatever their arguments.
unknown_operators: dict[str, str] = {}

FREE = ""  # the reason of nodes that nobody counts
aten = torch.ops.aten
_EMPTY = {torch.ops.aten.empty_strided.default, torch.ops.aten.empty.memory_format}
_CONVOLUTIONS = {torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default}

# What coil computes by a library for the CPU; the second list begins alike, but is loops.
_LIBRARIES = tuple(f"aten.{name}" for name in ("linalg_", "_linalg_", "cholesky", "lu_", "geqrf", "ormqr", "orgqr", "triangular_solve", "matrix_exp",
                                               "inverse", "det.", "slogdet", "logdet", "svd", "_fft_", "fft_"))
_LOOPS = tuple(f"aten.linalg_{name}" for name in ("vector_norm", "cross", "vecdot", "matmul", "diagonal", "vander", "multi_dot"))
# Of the libraries, those whose calls by PyTorch only launch kernels, whatever the sizes. The others may wait for the GPU, or copy numbers to it.
_ONLY_LAUNCHED = ("aten._fft_", "aten.fft_", "aten.linalg_solve_triangular", "aten.triangular_solve")


def graph_device(graph: torch.fx.Graph) -> torch.device:
    """The one device of the graph's tensors; a GPU where there is one among them."""
    found = torch.device("cpu")
    for node in graph.nodes:
        for tensor in tensors_of(node.meta.get("val")):
            if tensor.device.type == "cuda":
                return tensor.device
            if tensor.device.type != "cpu":
                found = tensor.device
    return found


def torch_nodes(graph: torch.fx.Graph, device: torch.device, has_kernel: Callable[[str], bool] = lambda name: False,
                of_pytorch: Collection[str] = ()) -> dict[Node, str]:
    """The operators that stay in PyTorch whatever the compiler says, with the reason. `has_kernel`: whether the user may have given a kernel for
    "namespace::operator", which may have been unknown before. `of_pytorch`: whose kernels are taken from PyTorch on CUDA, "attention" (where it keeps what its gradient
    needs) and "convolutions" (whose weights come with the call)."""
    reasons: dict[Node, str] = {}
    inputs = size_sources(graph)
    told = {*inputs, *data_sizes(graph.nodes, inputs)}
    for node in graph.nodes:
        if node.op != "call_function" or is_number(node) or node.target is operator.getitem:
            continue
        reason = FREE if node.target in (ASSERTION, torch.ops.coil.random_state.default) else _reason(node, device, told)
        if reason and reason == unknown_operators.get(operator_name(node.target)) and has_kernel(node.target._schema.name):  # type: ignore[union-attr]
            reason = _values_reason(node, device, told)
        if reason is None and device.type == "cuda":
            reason = _kept_in_pytorch(node, of_pytorch)
        if reason is not None and not is_view(node):
            reasons[node] = reason
    # What only the random ones read and costs nothing (empty tensors) need not come from coil.
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.target in _EMPTY and all(user in reasons or user.op == "output" for user in node.users):
            reasons[node] = FREE
    return reasons


def _kept_in_pytorch(node: Node, of_pytorch: Collection[str]) -> str | None:
    kernel = attention_kernel(node)
    if "attention" in of_pytorch and (kernel == "backward" or (kernel == "forward" and 1 in (read_results(node) or ()))):
        return "training takes PyTorch's attention"
    if "convolutions" in of_pytorch and node.target in _CONVOLUTIONS and base_of(node.args[1]).op != "get_attr" and not _is_slow_in_pytorch(node):  # type: ignore[arg-type]
        return "training takes PyTorch's convolutions"
    return None


def _is_slow_in_pytorch(node: Node) -> bool:
    """Groups for each of which cuDNN starts kernels of its own, up to hundreds of them: as measured on an H200 (bench/log/torch_compile_gpu.md), 1.3 to 3.4
    times coil's time, forward and both gradients. Where each image channel has one result, and in 16 bits several to a group, its kernels are good."""
    place = 0 if node.target is torch.ops.aten.convolution.default else 1
    x, w = (node.args[place + i].meta["val"] for i in range(2))  # type: ignore[union-attr]
    groups = node.args[place + 8]
    if groups == 1 or node.args[place + 6]:
        return False
    if w.shape[1] == 1:
        return bool(w.shape[0] > groups)
    return x.dtype == torch.float32 and not convolutions_in_tf32()


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the strides are some order of the dimensions without gaps or overlaps."""
    return torch._prims_common.is_non_overlapping_and_dense_or_false(tensor)


def _reason(node: Node, device: torch.device, told: Collection[sympy.Symbol]) -> str | None:
    """`told`: the sizes that the graph's inputs or its values tell."""
    if device.type not in ("cpu", "cuda"):
        return f"device {device.type}"
    if is_control(node):
        return control_reason(node, lambda inner: None if is_number(inner) else _reason(inner, device, told)) or _values_reason(node, device, told)
    if not isinstance(node.target, torch._ops.OpOverload):
        return "not an operator"
    if draws(node):
        return "random numbers are PyTorch's"
    name = operator_name(node.target)
    known = unknown_operators.get(name)
    if known:
        return known
    if device.type == "cuda" and _is_by_library(name):
        return "coil computes it by a library for the CPU"
    if node.target._schema.is_mutable and not can_write_input(node):
        return "it writes to its arguments"
    if _strides_elsewhere(node):
        return "an offset in the storage of an input or a view"
    if not (is_check(node) and device.type == "cpu") and not any(True for _ in tensors_of(node.meta.get("val"))):
        return "it has no tensor result"
    value = node.meta.get("val")
    lists = [item for item in value if isinstance(item, (list, tuple))] if isinstance(value, (list, tuple)) else []
    if not all(isinstance(item, torch.Tensor) for whole in lists for item in whole):
        return "lists of other things than tensors among its results"
    if any(user.target is operator.getitem and not any(True for _ in tensors_of(user.meta.get("val"))) for user in node.users):
        return "a result that is no tensor is read"
    if not is_view(node) and not writes_input(node) and any(not is_dense(t) for t in tensors_of(value)):
        return "a result with gaps"
    return _values_reason(node, device, told)


def _is_by_library(name: str) -> bool:
    return name.startswith(_LIBRARIES) and not name.startswith(_LOOPS)


def host_takes_part(node: Node) -> bool:
    """Whether a node of a graph of the GPU, which stays in PyTorch, is computed in a way that no CUDA graph records: torchvision's kernels read what data says on
    the host, or give other results when they are replayed (gradients of deform_conv2d)."""
    name = operator_name(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""
    return name.startswith("torchvision.") or _is_by_library(name) and not name.startswith(_ONLY_LAUNCHED)


def _strides_elsewhere(node: Node) -> bool:
    place = STRIDED.get(node.target)  # type: ignore[arg-type]
    if place is None or (node.args[place] if len(node.args) > place else node.kwargs.get("storage_offset")) is None:
        return False
    base = node.args[0]
    return is_view(base) or base.op != "call_function" or not _is_whole_storage(base)  # type: ignore[arg-type, union-attr]


def _is_whole_storage(node: Node) -> bool:
    """Whether a computed value begins where its storage does, and fills it. What is written into a strided view lies as its first argument does."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not is_dense(value) or value.storage_offset() != 0 or node.target is torch.ops.aten.as_strided.default:
        return False
    if node.target is not torch.ops.aten.as_strided_scatter.default:
        return True
    written = node.args[0].meta["val"]  # type: ignore[union-attr]
    return is_dense(written) and written.storage_offset() == 0


def _values_reason(node: Node, device: torch.device, told: Collection[sympy.Symbol]) -> str | None:
    value, read = node.meta.get("val"), read_results(node)
    results = [value] if read is None else [item for i, item in enumerate(value) if i in read]
    for value in [*results, *(n.meta.get("val") for n in read_nodes(node))]:
        reason = _value_reason(value, device, told)
        if reason:
            return reason
    return None


def _value_reason(value: Any, device: torch.device, told: Collection[sympy.Symbol]) -> str | None:
    if isinstance(value, (torch.SymFloat, torch.SymBool)) and not value.node.is_constant():
        return "a number that is known at run time only"
    if isinstance(value, torch.SymInt):
        return _unbacked(value, told)
    for tensor in tensors_of(value):
        if tensor.layout != torch.strided:
            return f"layout {tensor.layout}"
        if tensor.dtype not in TAKEN:
            return f"dtype {str(tensor.dtype).removeprefix('torch.')}"
        if tensor.device != device:
            return "tensors on several devices"
        if type(tensor).__name__ != "FakeTensor":
            return f"a {type(tensor).__name__}"
        for size in (*tensor.shape, *tensor.stride()):
            reason = _unbacked(size, told)
            if reason:
                return reason
    return None


def _unbacked(size: Any, told: Collection[sympy.Symbol]) -> str | None:
    """A size of data that no value of the graph tells by itself."""
    if not isinstance(size, torch.SymInt) or not size.node.expr.free_symbols:
        return None
    if any(not s.name.startswith("s") and s not in told for s in size.node.expr.free_symbols):
        return "a size that depends on data"
    return None

