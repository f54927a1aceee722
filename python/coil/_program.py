"""An ExportedProgram to the compiler without a file: its JSON text, and its tensors where they are."""

from __future__ import annotations

import collections
import importlib
import io
from typing import Any, Mapping

import torch

from ._errors import make_error
from ._pytree import name_class

# Where the calls are that torch.export leaves in a program of torch.func's transforms (vmap): they change what the operators between them mean.
_TRANSFORMS = "torch._functorch.predispatch"


class TextProgram:
    """A program by its JSON (models/model.json of a .pt2) and the tensors that this names, on the CPU. sources: by a tensor's address, what is read in its
    place."""

    def __init__(self, text: str, tensors: dict[str, torch.Tensor], sources: Mapping[int, Any] | None = None):
        self.text, self.tensors, self.sources = text, tensors, sources or {}


def weight_row(tensor: torch.Tensor, source: Any = None) -> tuple[int, int, str, list[int], list[int], Any]:
    """(address, bytes from there, dtype, sizes, strides, source) of a tensor on the CPU. source: what its bytes are read from in place of its memory."""
    reach = 0 if tensor.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return (tensor.data_ptr(), reach * tensor.element_size(), str(tensor.dtype).removeprefix("torch."), list(tensor.shape),
            list(tensor.stride()), source)


def _plain(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _refuse_open_transforms(program: Any) -> None:
    """torch.export keeps as a constant what torch.func.jacrev and its like wrap: without its transform such a tensor has no numbers to read."""
    wrapped = getattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda tensor: False)
    for name, tensor in program.constants.items():
        if isinstance(tensor, torch.Tensor) and wrapped(tensor):
            what = f"the program's constant '{name}' belongs to a transform of torch.func that torch.export did not finish"
            raise make_error(105, f"COIL-E105: {what}\n  hint: torch.compile(backend=\"coil\") takes functions with such transforms")


def exported_source(program: Any) -> Any:
    """What `_compiler.compile_programs` takes for an ExportedProgram or a TextProgram: (JSON, weights), or the bytes of torch.export.save; and what keeps it alive."""
    if isinstance(program, TextProgram):
        return (program.text, {name: weight_row(t, program.sources.get(t.data_ptr())) for name, t in program.tensors.items()}), program
    _refuse_open_transforms(program)
    if any(getattr(node.target, "__module__", None) == _TRANSFORMS for node in program.graph.nodes if node.op == "call_function"):
        program = program.run_decompositions({})
    tensors = {**program.constants, **program.state_dict}
    if not all(_plain(t) for t in tensors.values()):  # objects, tensor subclasses: PyTorch's own form says what they are
        file = io.BytesIO()
        torch.export.save(program, file)
        return file.getbuffer(), file
    # One copy on the CPU for each storage that is elsewhere; those on the CPU are read where they are.
    local = {name: tensor.detach().resolve_neg().resolve_conj().cpu() for name, tensor in tensors.items()}
    return (program_json(program), {name: weight_row(tensor) for name, tensor in local.items()}), local


def compile_exported(program: Any, output: str | None, settings: dict) -> tuple[Any, dict]:
    """(package or None, report)."""
    compiler = importlib.import_module("coil._compiler")
    source, kept = exported_source(program)
    if isinstance(source, tuple):
        return compiler.compile_json(source[0], source[1], output, settings)
    return compiler.compile_archive(source, output, settings)


def _name_classes(program: Any) -> None:
    """Those of the user's among arguments and results get a name in files."""
    signatures = [entry.signature for entry in program.module_call_graph if entry.signature is not None]
    todo = [spec for signature in signatures for spec in (signature.in_spec, signature.out_spec)]
    while todo:
        spec = todo.pop()
        todo += spec.children() if hasattr(spec, "children") else spec.children_specs  # the latter before PyTorch 2.10
        made = spec.context if spec.type is collections.namedtuple else spec.type  # type: ignore[comparison-overlap]
        if isinstance(made, type):
            name_class(made)


def program_json(program: Any) -> str:
    """models/model.json of what torch.export.save would write."""
    serialize = importlib.import_module("torch._export.serde.serialize").serialize
    _name_classes(program)
    try:
        artifact = serialize(program, serialize_state_dict=False, serialize_constants=False, serialize_example_inputs=False)
    except TypeError:  # before PyTorch 2.12 the three do not exist
        artifact = serialize(program)
    return artifact.exported_program.decode()
