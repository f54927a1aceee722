"""Programs of a package as transformers calls them."""

from __future__ import annotations

from typing import Any

import torch
from transformers.exporters import ModelRunner
from transformers.exporters.metadata import ExportMetadata, load_treespec

from .._errors import InputError, make_error
from .._model import Model, _check_fixed
from .._strides import run_with_copies
from ._exporter import Program


class CoilRunner(ModelRunner):
    """Runs one program: `runner(**kwargs)` returns what the traced module returns. Inputs are read where they are; results are new tensors, but for
    caches of a fixed size, which are changed in place and given back."""

    def __init__(self, model: Model, results: list[int], metadata: ExportMetadata):
        super().__init__(metadata)
        self.model, self.results = model, results
        kwargs = load_treespec(metadata.in_spec).children_specs[1]
        self.order = list(kwargs.context)
        self.leaves = [child.num_leaves for child in kwargs.children_specs]

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @classmethod
    def from_program(cls, program: Program, metadata: ExportMetadata, device: Any = None, num_threads: int = 0) -> "CoilRunner":
        model = program.package.open(None if device is None else torch.device(device), num_threads)
        return cls(model if program.name is None else model[program.name], program.results, metadata)

    def flat(self, kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of the arguments, in the program's order. Raises COIL-E201 where there are more or fewer than it was traced with."""
        unknown = [name for name in kwargs if name not in self.order]
        if unknown:
            raise make_error(201, f"COIL-E201: the program was not traced with {', '.join(map(repr, unknown))}, only with {', '.join(map(repr, self.order))}")
        flat: list[Any] = []
        for name, count in zip(self.order, self.leaves):
            if name not in kwargs and name not in self.metadata.in_constants:
                raise make_error(201, f"COIL-E201: the call has no '{name}', which the program was traced with")
            leaves = torch.utils._pytree.tree_leaves(kwargs[name] if name in kwargs else self.metadata.in_constants[name])
            if len(leaves) != count:
                raise make_error(201, f"COIL-E201: '{name}' has {len(leaves)} tensors, the program was traced with {count}"
                                 + ("\n  hint: an empty cache is for the program of prompts, one with rows for that of single tokens" if name == "past_key_values" else ""))
            flat += leaves
        return flat

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any) -> Any:
        leaves = self.flat(kwargs)
        model = self.model
        for position, (name, value) in model._fixed.items():
            _check_fixed(name, position, leaves[position], value)
        flat = [leaf for position, leaf in enumerate(leaves) if position not in model._fixed]
        try:
            made = model.run_flat(flat)
        except InputError as error:
            if error.number != 205:
                raise
            made = run_with_copies(model.run_flat, flat, model._may_copy, model._is_written)
        return self.unflatten([leaves[-1 - r] if r < 0 else made[r] for r in self.results])

