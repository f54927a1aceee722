"""The two functions by which AOTInductor is used today, with coil behind them."""

from __future__ import annotations

import logging
import os
import tempfile
from typing import Any, Mapping

import torch

from ._arguments import mapping_of, path_of
from ._compile import compile as compile_program, option_names
from ._errors import option_error
from ._model import Model, load

log = logging.getLogger("coil")

REPLACEABLE = "aot_inductor.use_runtime_constant_folding"
_IGNORED: set[str] = set()


def aoti_compile_and_package(exported_program: Any, _deprecated_unused_args: Any = None, _deprecated_unused_kwargs: Any = None, *,
                             package_path: Any = None, inductor_configs: Mapping[str, Any] | None = None) -> Any:
    """Compiles an ExportedProgram to a package, as `torch._inductor.aoti_compile_and_package` does; returns the package's path (or
    the stream that was given). It loads with `coil.aoti_load_package`, `coil.load`, and `torch._inductor.aoti_load_package`.

    `inductor_configs`: coil's own options ("opt_level", "threads", "dims", "target", ...), and
    "aot_inductor.use_runtime_constant_folding": True for weights that `load_constants` can replace; such a package needs coil to
    load it. Inductor's other options are ignored, with a note in the log of "coil".
    """
    if not isinstance(exported_program, torch.export.ExportedProgram):
        raise ValueError("Only ExportedProgram is supported")
    path = package_path
    if path is None:
        path = os.path.join(tempfile.mkdtemp(prefix="coil_"), "model.pt2")
    is_stream = hasattr(path, "write")
    if not is_stream and not path_of(path, "package_path").endswith(".pt2"):
        raise option_error(f"the package's path {path_of(path, 'package_path')!r} does not end in .pt2")
    options, target = _options({} if inductor_configs is None else mapping_of(inductor_configs, "inductor_configs"), exported_program)
    model = compile_program(exported_program, None if is_stream or options.get("replaceable_constants") else path, target=target, options=options)
    if is_stream:
        path.write(model.package_bytes())
    elif options.get("replaceable_constants"):
        model.save(path)
    return path if is_stream else path_of(path, "package_path")


def _options(configs: dict[str, Any], program: Any) -> tuple[dict[str, Any], str | None]:
    target = configs.pop("target", None)
    options: dict[str, Any] = {}
    for key, value in configs.items():
        if key == REPLACEABLE:
            options["replaceable_constants"] = bool(value)
        elif key in option_names():
            options[key] = value
        elif key not in _IGNORED:
            _IGNORED.add(key)
            log.warning("inductor_configs: coil has no '%s'; ignored", key)
    if target is None and any(t.is_cuda for t in program.state_dict.values() if isinstance(t, torch.Tensor)):
        major, minor = torch.cuda.get_device_capability()
        target = f"cuda:sm_{major}{minor}"
    return options, target


class Loader:
    """What PyTorch's loaded model keeps as `.loader`."""

    def __init__(self, model: Model):
        self._model = model

    def run(self, inputs: list, stream: Any = None) -> list:
        """Flat inputs to flat results, numbers as 0-d tensors. `stream` is PyTorch's current one."""
        del stream
        return self._model.run_flat(list(inputs))

    def boxed_run(self, inputs: list) -> list:
        results = self._model.run_flat(list(inputs))
        inputs.clear()
        return results

    def get_call_spec(self) -> list[str]:
        runtime = self._model._runtime
        return [runtime.in_spec, runtime.out_spec]

    def get_metadata(self) -> dict[str, str]:
        return {"AOTI_DEVICE_KEY": self._model.device.partition(":")[0]}

    def get_constant_fqns(self) -> list[str]:
        return self._model.constant_names()

    def load_constants(self, constants_map: Mapping[str, torch.Tensor], use_inactive: bool, check_full_update: bool, user_managed: bool = False,
                       allow_h2d_copy: bool = False) -> None:
        self._model.load_constants(constants_map, check_full_update=check_full_update, user_managed=user_managed,
                                   allow_h2d_copy=allow_h2d_copy, inactive=use_inactive)

    update_constant_buffer = load_constants

    def swap_constant_buffer(self) -> None:
        self._model.swap_constants()


class AotiModel:
    """A loaded package with the methods of PyTorch's `AOTICompiledModel`. `model` is the `coil.Model` behind it."""

    def __init__(self, model: Model):
        self.model = model
        self.loader = Loader(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.model(*args, **kwargs)

    def get_metadata(self) -> dict[str, str]:
        return self.loader.get_metadata()

    def get_constant_fqns(self) -> list[str]:
        """The weights that `load_constants` can replace: none, unless the package was compiled for it."""
        return self.loader.get_constant_fqns()

    def load_constants(self, constants_map: Mapping[str, torch.Tensor], *, check_full_update: bool, user_managed: bool = False,
                       allow_h2d_copy: bool = False) -> None:
        """Replaces weights by name. See `coil.Model.load_constants`."""
        self.loader.load_constants(constants_map, False, check_full_update, user_managed, allow_h2d_copy)

    def __deepcopy__(self, memo: Any) -> "AotiModel":
        return AotiModel(self.model)


def aoti_load_package(path: Any, run_single_threaded: bool = False, device_index: int = -1, *, num_runners: int = 1,
                      use_stream_affinity: bool = False) -> AotiModel:
    """Loads a package of coil's, as `torch._inductor.aoti_load_package` does. Any number of threads may call the model, whatever
    `num_runners`, `run_single_threaded` and `use_stream_affinity` say."""
    del run_single_threaded, num_runners, use_stream_affinity
    model = load(path)
    if device_index >= 0 and model.device.startswith("cuda") and model.device != f"cuda:{device_index}":
        model = load(path, f"cuda:{device_index}")
    return AotiModel(model)



