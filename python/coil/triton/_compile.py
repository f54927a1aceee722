"""One Triton kernel, for the architectures of a package: machine code, and what coil's compiler has to know of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib
import inspect
import json
import re
from typing import Any, Sequence

from .._errors import make_error

# The types of pointers and numbers, by what PyTorch and Triton call them.
DTYPES = {"bool": "i1", "uint8": "u8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "float16": "fp16", "bfloat16": "bf16",
          "float32": "fp32", "float64": "fp64"}
_NUMBERS = {"i1", "i8", "i16", "i32", "i64", "fp32", "fp64"}
_ALIGNED = [["tt.divisibility", 16]]
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


@dataclasses.dataclass
class Value:
    """What the program passes for a parameter of the kernel."""

    kind: str
    """"tensor", "number" (passed at run time), or "constant" (known to Triton)."""
    type: str = ""
    """Of an element, or of the number: "fp32"."""
    name: str = ""
    """The argument or result of the operator."""
    begin: str = ""
    """Of a tensor: the argument that says at which element of `name` it begins."""
    value: Any = None
    """Of a constant."""
    divisible: str = "unknown"
    """Of a whole number, whether it is a multiple of 16: "always", "never", or "unknown" until the call."""


@dataclasses.dataclass
class Launch:
    """A launch of a kernel as an operator of its own: everything but the values."""

    function: Any
    """Triton's JITFunction."""
    configs: list[Any]
    """Triton's Configs."""
    values: dict[str, Value]
    """By the kernel's parameters."""
    schema: str
    """Of the operator: "(Tensor x, SymInt n) -> Tensor"."""
    grids: list[list[str]]
    """For each configuration, formulas of the operator's arguments."""
    initial: list[str]
    options: dict[str, Any]
    where: str = ""


def architectures(targets: str) -> list[tuple[int, bool]]:
    """(90, whether it is PTX) of "cpu,cuda:sm_90,cuda:compute_80"."""
    found = re.findall(r"\b(sm|compute)_(\d+)", targets)
    return [(int(number), kind == "compute") for kind, number in dict.fromkeys(found)]


def registration_of(launch: Launch, targets: str) -> dict:
    """The kernel as coil.register_kernel's JSON has it, with its machine code."""
    function = launch.function
    images = []
    for number, config in enumerate(launch.configs):
        if getattr(config, "pre_hook", None) is not None:
            raise _error(408, launch, "a configuration has a pre_hook, which runs in Python at each launch",
                         "let the program do that before the kernel, for example by torch.zeros")
        for sm, ptx in architectures(targets):
            images.extend(_images(launch, number, config, sm, ptx))
    configs = [_constants(config, number, launch.configs) for number, config in enumerate(launch.configs)]
    cuda = {"images": images, "grids": launch.grids}
    rest = {"signature": launch.schema, "configs": configs, "cuda": cuda, "initial": launch.initial}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:10]
    return {"name": f"coil_triton::{re.sub(r'[^A-Za-z0-9_]', '_', function.__name__)}_{digest}", **rest}


def _constants(config: Any, number: int, configs: Sequence[Any]) -> dict[str, int]:
    """How the configuration is called by the tuner: its whole numbers, and where these do not tell it from the others, its number."""
    def whole(c: Any) -> dict[str, int]:
        found = {k: int(v) for k, v in c.kwargs.items() if isinstance(v, (bool, int)) and all(isinstance(o.kwargs.get(k), (bool, int)) for o in configs)}
        found.update(num_warps=c.num_warps, num_stages=c.num_stages)
        return found

    if len(configs) == 1:
        return {}
    every = [whole(c) for c in configs]
    distinct = len({json.dumps(c, sort_keys=True) for c in every}) == len(every)
    return every[number] if distinct else {"CONFIG": number, **every[number]}


def _images(launch: Launch, number: int, config: Any, sm: int, ptx: bool) -> list[dict]:
    """From the one that expects most of its arguments' alignment to the one that expects nothing."""
    numbers = [v for v in launch.values.values() if v.kind == "number"]
    unknown = any(v.divisible == "unknown" for v in numbers)
    pointers = any(v.kind == "tensor" for v in launch.values.values())
    ways = [(True, True)] if unknown and pointers else []
    if pointers:
        ways.append((True, False))
    elif unknown:
        ways.append((False, True))
    ways.append((False, False))
    return [_image(launch, number, config, sm, ptx, aligned, divisible) for aligned, divisible in ways]


def _image(launch: Launch, number: int, config: Any, sm: int, ptx: bool, aligned: bool, divisible: bool) -> dict:
    triton = importlib.import_module("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", sm, 32)
    function = launch.function
    given = {name: v.value for name, v in launch.values.items() if v.kind == "constant"}
    given.update({k: v for k, v in config.kwargs.items() if k in function.arg_names})
    signature, constants, attributes, params, expected = {}, {}, {}, [], []
    for position, parameter in enumerate(function.params):
        name = parameter.name
        if name in given or name not in launch.values:
            signature[name] = "constexpr"
            constants[(position,)] = given[name] if name in given else _default(launch, parameter)
            continue
        value = launch.values[name]
        pointer = value.kind == "tensor"
        type_ = _type(parameter, value)
        signature[name] = ("*k" if getattr(parameter, "is_const", False) else "*") + type_ if pointer else type_
        unspecialised = parameter.do_not_specialize or getattr(parameter, "do_not_specialize_on_alignment", False)
        multiple = value.divisible == "always" or divisible and value.divisible == "unknown"
        if not unspecialised and (aligned if pointer else multiple and type_ in ("i32", "i64")):
            attributes[(position,)] = _ALIGNED
            if not pointer and value.divisible == "unknown":
                expected.append(value.name)
        params.append(["ptr", value.name, value.begin] if value.begin else ["ptr" if pointer else type_, value.name])
    options = {k: getattr(config, k) for k in _OPTIONS if getattr(config, k, None) is not None}
    options.update(launch.options, **{k: v for k, v in config.kwargs.items() if k not in function.arg_names})
    try:
        made = triton.compile(compiler.ASTSource(function, signature, constants, attributes), target=target, options=options)
    except Exception as error:  # noqa: BLE001 - Triton's errors have no class in common
        raise _error(409, launch, f"Triton cannot compile it for sm_{sm} with {_shown(config)}: {error}", "correct the kernel, or choose another --target") from error
    params.extend(_hidden(launch, made, len(params)))
    meta = made.metadata
    code = made.asm["ptx"].encode() if ptx else made.asm["cubin"]
    return {"config": number, "sm": sm, "ptx": ptx, "symbol": meta.name, "code": base64.b64encode(code).decode(), "threads": 32 * meta.num_warps, "shared": meta.shared,
            "cluster": getattr(meta, "num_ctas", 1), "params": params, "aligned": aligned, "divisible": expected}


def _default(launch: Launch, parameter: Any) -> Any:
    if parameter.default is inspect.Parameter.empty:
        raise _error(408, launch, f"its parameter '{parameter.name}' gets no value", "pass it at the launch, or let every configuration give it")
    return parameter.default


def _type(parameter: Any, value: Value) -> str:
    """A number has the type of its annotation, if there is one."""
    annotation = str(getattr(parameter, "annotation_type", "") or "")
    return annotation if value.kind == "number" and annotation in _NUMBERS else value.type


def _hidden(launch: Launch, made: Any, known: int) -> list[list[str]]:
    """Parameters that the kernel has beyond those that it is written with: addresses of scratch memory, of which these kernels have none."""
    head = re.search(r"\.entry\s+[\w$]+\s*\(([^)]*)\)", made.asm["ptx"])
    types = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", head.group(1)) if head else []
    if len(types) < known or any(t not in ("u64", "b64") for t in types[known:]):
        raise _error(408, launch, f"Triton made {len(types)} parameters of {known}, which coil does not understand", "please report it, with Triton's version")
    for what in ("global_scratch_size", "profile_scratch_size"):
        if getattr(made.metadata, what, 0):
            raise _error(408, launch, "it wants scratch memory in global memory (tensor descriptors that it makes itself)", "read and write through pointers")
    return [["null"]] * (len(types) - known)


def _shown(config: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}.items())


def _error(number: int, launch: Launch, problem: str, hint: str) -> Exception:
    return triton_error(number, launch.function.__name__, problem, hint, launch.where)


def triton_error(number: int, kernel: str, problem: str, hint: str, where: str = "") -> Exception:
    reason = f"Triton kernel '{kernel}': {problem}"
    return make_error(number, f"COIL-E{number}: {reason}" + (f"\n  at {where}" if where else "") + f"\n  hint: {hint}", reason)
