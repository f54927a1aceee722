"""Models of transformers to coil's packages: traced by transformers' own exporter, compiled by coil."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, MutableMapping

import torch
from transformers.exporters import DynamoConfig, DynamoExporter, ExportedComponent, ExportedModel
from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model

from .. import _runtime
from .._compile import _compile_any, settings_of
from .._errors import make_error
from .._model import Model, load
from ._encoders import encoder_steps, from_one_row_on
from ._windows import forget_windows
from ._written import without_written_inputs

PACKAGE_FILE = "model.coil.pt2"  # of all programs, beside a small file for each component


@dataclasses.dataclass
class CoilConfig(DynamoConfig):
    """What `export` and `export_for_generation` take: the fields of transformers' DynamoConfig (`dynamic`, `dynamic_shapes`, `strict`, ...), and

    `target`: "cpu" (the default), "cuda:sm_90", several with commas; `options`: those of `coil.compile`.
    """

    export_format: str = "coil"
    target: str | None = None
    options: dict[str, Any] | None = None


class Package:
    """A package in memory or in a file, opened once for each device."""

    def __init__(self, data: Any = None, path: str | None = None):
        self._data, self.path = data, path
        self._opened: dict[tuple, Model] = {}

    def data(self) -> Any:
        if self._data is None:
            with open(self.path, "rb") as file:  # type: ignore[arg-type]
                self._data = file.read()
        return self._data

    def open(self, device: Any, num_threads: int) -> Model:
        key = (str(device), num_threads)
        if key not in self._opened:
            if self.path is not None:
                self._opened[key] = load(self.path, device, num_threads=num_threads)
            else:
                self._opened[key] = Model(_runtime.Model.open_memory(self._data, "" if device is None else str(device), num_threads), package=self._data)
        return self._opened[key]


@dataclasses.dataclass
class Program:
    """One program of a package, and where the results of the module that was traced come from.

    `results[i]`: for leaf i of the module's results, the program's result of that number, or -1 - n for the tensor that came as input n, which
    the program has changed in place. `name` is None where the package has a single program.
    """

    package: Package
    name: str | None
    results: list[int]


@dataclasses.dataclass
class Traced:
    """A program between tracing and compiling: components of one model are compiled together."""

    program: Any
    results: list[int]


class CoilExporter(DynamoExporter):
    """`AutoHfExporter` finds it as "coil". Components of a model become programs of one package, which holds equal weights once."""

    export_format = "coil"
    config_class = CoilConfig
    program_suffix = ".coil.json"

    required_packages = ["torch"]
    tested_versions: dict[str, str] = {}

    def _trace(self, model: Any, sample_inputs: MutableMapping[str, Any], config: CoilConfig) -> tuple[Traced, Any]:
        forget_windows(sample_inputs.get("past_key_values"))
        # A cache with a window may be a view; its strides would become a condition of the program.
        register_cache_pytrees_for_model(model)
        contiguous = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.contiguous(), dict(sample_inputs))
        program, metadata = super().export_program(model, contiguous, config)
        return Traced(*without_written_inputs(program)), metadata

    def export_program(self, model: Any, sample_inputs: MutableMapping[str, Any], config: CoilConfig) -> tuple[Any, Any]:
        traced, metadata = self._trace(model, sample_inputs, config)
        if self._together is not None:
            return traced, metadata  # the caller compiles
        package, _ = _compile_any(traced.program, None, None, None, None, settings_of(config.options, config.target or "cpu"))
        return Program(Package(package), None, traced.results), metadata

    _together: list[CoilConfig] | None = None  # of the components of an export that is under way

    def _export_component(self, model: Any, sample_inputs: Any, config: Any) -> ExportedComponent:
        if self._together is not None:
            self._together.append(config if isinstance(config, CoilConfig) else CoilConfig(**config))
        return super()._export_component(model, sample_inputs, config)

    def export_for_generation(self, model: Any, sample_inputs: MutableMapping[str, Any], config: Any, **options: Any) -> ExportedModel:
        """As transformers documents it. Models with an encoder and a decoder have a component "encoder" beside the two of the decoder."""
        self._together = []
        try:
            if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
                exported = self._export_encoder_and_decoder(model, sample_inputs, config, **options)
            else:
                exported = super().export_for_generation(model, sample_inputs, config, **options)
            configs = self._together
        finally:
            self._together = None
        chosen = {json.dumps([c.target, c.options], sort_keys=True, default=repr) for c in configs}
        if len(chosen) != 1:
            raise make_error(402, "COIL-E402: the components have different targets or options, and one package\n  hint: give all of them the same")
        programs = {name: component.program.program for name, component in exported.components.items()}
        package, _ = _compile_any(programs, None, None, None, None, settings_of(configs[0].options, configs[0].target or "cpu"))
        if exported.generation_config is None:
            exported.generation_config = getattr(model, "generation_config", None)
        shared = Package(package)
        for name, component in exported.components.items():
            component.program = Program(shared, name, component.program.results)
        return exported

    def _export_encoder_and_decoder(self, model: Any, sample_inputs: Any, config: Any, generation_config: Any = None, multi_token_decode: bool = False) -> ExportedModel:
        if multi_token_decode:
            raise make_error(402, "COIL-E402: models with an encoder and a decoder decode single tokens\n  hint: leave out multi_token_decode")
        parts = encoder_steps(model, sample_inputs, generation_config)
        components = {}
        for name, (part, inputs) in parts.items():
            components[name] = self._export_component(part, inputs, config[name] if isinstance(config, dict) else config)
        from_one_row_on(components["decode"].program.program, parts["decode"][1])
        return ExportedModel(components, self.export_format, config=model.config, generation_config=generation_config)

    @classmethod
    def save_program(cls, program: Program, path: Any) -> None:
        folder = os.path.dirname(os.path.abspath(path))
        package = os.path.join(folder, PACKAGE_FILE)
        if not os.path.exists(package):  # the first of a model's components; the folder is one that transformers made for this
            _runtime.write_file(package, program.package.data())
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"package": PACKAGE_FILE, "program": program.name, "results": program.results}, file)

    @classmethod
    def load_program(cls, path: Any) -> Program:
        try:
            with open(path, encoding="utf-8") as file:
                row = json.load(file)
            name, results = row["program"], row["results"]
            if not (name is None or isinstance(name, str)) or not all(isinstance(r, int) for r in results):
                raise ValueError("it has other fields")
        except (ValueError, KeyError, TypeError) as error:
            raise make_error(15, f"COIL-E015: '{os.fspath(path)}' does not describe a program of coil: {error}") from None
        return Program(Package(path=os.path.join(os.path.dirname(os.path.abspath(path)), PACKAGE_FILE)), name, results)

    @classmethod
    def program_files(cls, filename: str) -> list[str]:
        folder = os.path.dirname(filename)
        return [filename, os.path.join(folder, PACKAGE_FILE)]
