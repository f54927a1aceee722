"""coil.compile: programs in, models out."""

from __future__ import annotations

import functools
import importlib
import io
import os
import sys
from typing import Any, Mapping

from . import _runtime
from ._arguments import buffer_of, flag_of, mapping_of, number_of, path_of, said, text_of, texts_of
from ._errors import option_error
from ._memory import with_free_memory
from ._model import Model, _device_text
from ._registry import registrations

# What only Python has, beside the compiler's own options.
_PYTHON_OPTIONS: dict[str, Any] = {"dims": {}, "name": "", "replaceable_constants": False, "kernels": None}


@functools.cache
def _compiler_options() -> dict[str, Any]:
    return importlib.import_module("coil._compiler").option_defaults()


def option_names() -> list[str]:
    return sorted({*_compiler_options(), *_PYTHON_OPTIONS} - {"target"})


def settings_of(options: Mapping[str, Any] | None, target: str) -> dict:
    """The options of the command line as the compiler takes them; unknown ones are refused."""
    names = option_names()
    options = {} if options is None else mapping_of(options, "options")
    for key in options:
        if key not in names:
            raise option_error(f"there is no option {said(key)}", "options: " + ", ".join(names))
    given = {**_compiler_options(), **_PYTHON_OPTIONS, **options, "target": target}
    # {"batch": [1, 8, 64]} is --warm batch=1,8,64.
    if isinstance(given["warm"], Mapping):
        given["warm"] = [f"{text_of(name, 'warm')}={','.join(map(str, _sizes_of(name, sizes)))}" for name, sizes in given["warm"].items()]
    if isinstance(given["tf32"], bool):
        given["tf32"] = "all" if given["tf32"] else "no"
    for key, default in _compiler_options().items():
        given[key] = _as_option(key, default, given[key])
    # {"batch": "x:0"} as on the command line; the reader takes it the other way round.
    given["dims"] = {text_of(where, "dims"): text_of(name, "dims") for name, where in mapping_of(given["dims"], "dims").items()}
    given["name"] = text_of(given["name"], "name")
    given["replaceable_constants"] = flag_of(given["replaceable_constants"], "replaceable_constants")
    given["kernels"], given["kernel_files"] = registrations(given["kernels"])
    return given


def _sizes_of(name: str, sizes: Any) -> list[int]:
    if not isinstance(sizes, (list, tuple, range)):
        raise option_error(f"'warm' has {said(sizes)} for '{name}'", "a list of sizes")
    return [number_of(size, "warm") for size in sizes]


def _as_option(key: str, default: Any, value: Any) -> Any:
    """A value in the type of the option's default: text of paths and numbers, a list of a single text."""
    if isinstance(default, str):
        if isinstance(value, (str, os.PathLike)):
            return text_of(os.fspath(value), key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        raise option_error(f"'{key}' is {said(value)}", "a text or a path")
    if isinstance(default, list):
        return texts_of(value, key)
    if isinstance(default, bool):
        return flag_of(value, key)
    return number_of(value, key, least=-(2**31))


def host_target(device: str) -> str:
    """What to compile for to run on a device of this machine."""
    if not device.startswith("cuda"):
        return "cpu"
    index = int(device.partition(":")[2] or 0)
    devices = _runtime.cuda_devices()
    if index >= len(devices):
        raise option_error(f"there is no device {device}; the process sees {len(devices)} CUDA device(s)")
    return f"cuda:sm_{devices[index][1]}"


def compile(  # noqa: A001
    program: Any,
    output: str | os.PathLike | None = None,
    *,
    args: tuple | None = None,
    kwargs: dict | None = None,
    dynamic_shapes: Any = None,
    target: str | None = None,
    device: Any = None,
    options: Mapping[str, Any] | None = None,
    num_threads: int = 0,
    kernels: Any = None,
) -> Model:
    """Compiles a program and returns it as a callable.

    `program`: the path of a file of `torch.export.save` (or its bytes), an `ExportedProgram`, or an `nn.Module` (or a function),
    which is exported with `args`, `kwargs` and `dynamic_shapes` first. Or several programs by their names, {"prefill": program, "decode": "decode.pt2"}
    (paths, bytes, ExportedPrograms): one package, in which equal weights are stored once; `model["decode"]` chooses.
    `output`: where to write the package as well; `Model.save` writes it later.
    `target`: what the package holds code for: "cpu", "cpu:x86-64-v3", "cuda:sm_90", several with commas. None: what `device` says; without one, too,
    the GPU on which all tensors of an ExportedProgram or of a module and its arguments lie, else "cpu" (also of files).
    `device`: where to run it; None: the first target that this machine can run. With a CUDA device and no target, the code is
    for that device.
    `options`: what the command line has (docs/options.md): {"dims": {"batch": "x:0"}, "opt_level": 0..3, "threads": N, "skip": ["pass"],
    "libraries": False, "graphs": False, "tf32": True (or "products", "convolutions"), "winograd": False, "name": "of the package", "tune": "fast" or "max", "tune_budget": "30s",
    "warm": {"batch": [1, 8, 64]}, "record": "tuning.json", "replay": "tuning.json"}; {"dump": "folder"} for the texts of every stage;
    {"debug_info": "folder"} for line tables in the code, and the generated texts that they name in the folder;
    and {"replaceable_constants": True}, for weights that `Model.load_constants` can replace (needs PyTorch to compile, and calls are slower).
    `num_threads`: of a call; 0: what this process may use.
    `kernels`: kernels of the user's operators in the program: what `coil.register_kernel` gave, or files or folders of registrations; None: all
    that are registered.

    Nothing is written unless `output` asks for it. Errors are `coil.Error`s, with the command line's texts.
    """
    device = _device_text(_own_gpu(program, args, kwargs) if device is None and target is None else device)
    target = None if target is None else text_of(target, "target")
    options = {} if options is None else mapping_of(options, "options")
    settings = settings_of(options if kernels is None else dict(options, kernels=kernels), target or host_target(device))
    output = None if output is None else path_of(output, "output")
    num_threads = number_of(num_threads, "num_threads")
    if args is not None and not isinstance(args, (tuple, list)):
        raise option_error(f"'args' is {said(args)}", "a tuple of the arguments to export with")
    kwargs = None if kwargs is None else mapping_of(kwargs, "kwargs")
    package, report = _compile_any(program, output, args, kwargs, dynamic_shapes, settings)
    if output is not None:
        return Model(with_free_memory(_runtime.Model.open, output, device, num_threads), path=output, report=report)
    return Model(with_free_memory(_runtime.Model.open_memory, package, device, num_threads), package=package, report=report)


def _own_gpu(program: Any, args: Any, kwargs: Any) -> str | None:
    """The GPU on which a program of this process lies; None: it is a file, or on the CPU, or on several devices."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    parts = [*program.values()] if isinstance(program, Mapping) else [program]
    found = []
    for part in parts:
        if isinstance(part, torch.export.ExportedProgram):
            found += [*part.state_dict.values(), *part.constants.values(), *(node.meta.get("val") for node in part.graph.nodes if node.op == "placeholder")]
        elif isinstance(part, torch.nn.Module):
            found += [*part.parameters(), *part.buffers()]
    found += torch.utils._pytree.tree_leaves((args, kwargs))
    devices = {str(t.device) for t in found if isinstance(t, torch.Tensor) and (t.dim() or t.is_cuda)}  # numbers may stay on the CPU
    return devices.pop() if len(devices) == 1 and next(iter(devices)).startswith("cuda") and _runtime.cuda_devices() else None


def _compile_several(programs: Mapping[str, Any], output: str | None, settings: dict) -> tuple[Any, dict]:
    compiler = importlib.import_module("coil._compiler")
    settings["name"] = settings["name"] or (_stem(output) if output else "model")
    torch = sys.modules.get("torch")
    sources, kept = [], []
    for name, program in programs.items():
        text_of(name, "program")
        if isinstance(program, (str, os.PathLike)):
            sources.append((name, path_of(program, "program")))
        elif isinstance(program, (bytes, bytearray, memoryview)):
            sources.append((name, buffer_of(program, "program")))
        elif torch is not None and isinstance(program, (torch.export.ExportedProgram, importlib.import_module("coil._program").TextProgram)):
            source, owner = importlib.import_module("coil._program").exported_source(program)
            sources.append((name, source))
            kept.append(owner)
        else:
            raise TypeError(f"program '{name}': expected a path, the bytes of a .pt2 or an ExportedProgram, got {type(program)}")
    return compiler.compile_programs(sources, output, settings)


def _compile_any(program: Any, output: str | None, args: Any, kwargs: Any, dynamic_shapes: Any, settings: dict) -> tuple[Any, dict]:
    compiler = importlib.import_module("coil._compiler")
    replaceable = settings.pop("replaceable_constants")
    if isinstance(program, Mapping):
        if replaceable or args is not None or kwargs is not None or dynamic_shapes is not None:
            raise option_error("args, kwargs, dynamic_shapes and replaceable_constants are for a single program", "export each program first")
        return _compile_several(program, output, settings)
    if replaceable and isinstance(program, (str, os.PathLike, bytes, bytearray, memoryview)):
        program = _load_program(program)
    if isinstance(program, (str, os.PathLike)):
        path = path_of(program, "program")
        settings["name"] = settings["name"] or _stem(output or path)
        return compiler.compile_file(path, output, settings)
    settings["name"] = settings["name"] or (_stem(output) if output else "model")
    if isinstance(program, (bytes, bytearray, memoryview)):
        return compiler.compile_archive(buffer_of(program, "program"), output, settings)
    torch = sys.modules.get("torch")
    if torch is None:
        raise TypeError(f"expected a path, the bytes of a .pt2, an ExportedProgram or an nn.Module, got {type(program)}")
    if not isinstance(program, torch.export.ExportedProgram):
        if not isinstance(program, torch.nn.Module):
            if not callable(program):
                raise TypeError(f"expected a path, the bytes of a .pt2, an ExportedProgram or an nn.Module, got {type(program)}")
            program = _as_module(torch, program)
        if args is None and kwargs is None:
            raise option_error("an nn.Module is compiled with args or kwargs to export it with", "coil.compile(model, args=(x,))")
        program = torch.export.export(program, tuple(args or ()), kwargs, dynamic_shapes=dynamic_shapes)
        if not settings["dims"]:
            settings["dims"] = _dim_names(torch, program, args, kwargs, dynamic_shapes)
    elif args is not None or kwargs is not None or dynamic_shapes is not None:
        raise option_error("args, kwargs and dynamic_shapes are for an nn.Module; an ExportedProgram has its own")
    triton = importlib.import_module("coil.triton")
    if triton.has_triton(program):
        program, kernels = triton.prepare(program, settings["target"])
        settings["kernels"] = [*settings["kernels"], *kernels]
    if replaceable:
        package, report = importlib.import_module("coil._constants").compile_replaceable(program, settings)
        if output is not None:
            _runtime.write_file(output, package)
        return package, report
    return importlib.import_module("coil._program").compile_exported(program, output, settings)


def _dim_names(torch: Any, program: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> dict[str, str]:
    """{"x:0": "batch"}, for the dimensions that the caller named: an export knows them as s31."""
    if kwargs or not dynamic_shapes:
        return {}
    arguments = tuple(args or ())
    specs = tuple(dynamic_shapes.values()) if isinstance(dynamic_shapes, dict) else tuple(dynamic_shapes)
    names: dict[str, str] = {}
    inputs = iter(program.graph_signature.user_inputs)

    def visit(value: Any, spec: Any) -> None:
        if isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                visit(item, spec[i] if isinstance(spec, (tuple, list)) and i < len(spec) else None)
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, spec.get(key) if isinstance(spec, dict) else None)
        else:
            name = next(inputs, None)
            if not isinstance(value, torch.Tensor) or not spec:
                return
            for dim, size in spec.items() if isinstance(spec, dict) else enumerate(spec):
                if type(size) is torch.export.Dim and size.__name__ not in names.values():
                    names[f"{name}:{dim}"] = size.__name__

    visit(arguments, specs)
    return names


def _load_program(program: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.export.load(io.BytesIO(program) if isinstance(program, (bytes, bytearray, memoryview)) else path_of(program, "program"))


def _as_module(torch: Any, function: Any) -> Any:
    class Function(torch.nn.Module):
        forward = staticmethod(function)

    return Function()


def _stem(path: str) -> str:
    """A plain word for the package's folder, from a file's name."""
    stem = os.path.basename(path)
    for suffix in (".pt2", ".coil"):
        stem = stem[: -len(suffix)] if stem.endswith(suffix) else stem
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in stem)
    return plain or "model"
