"""Programs of models with many layers that are alike: PyTorch traces one of each kind, and the others are written down after it."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import re
from typing import Any, Callable, Iterator, Mapping

import torch
from torch import nn

from .._program import TextProgram, program_json
from ._blocks import Rows
from ._model import Decoder, Weight

_LAYER = re.compile(r"(?<![a-zA-Z0-9])blk[._](\d+)(?!\d)")  # in names of weights, and of modules


def kinds_of(model: Decoder) -> list[int]:
    """For each layer the first one that is traced in the same way: of its kind, with weights of the same forms."""
    def form(module: nn.Module) -> Any:
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        groups = [w.group for w in module.modules() if isinstance(w, Weight)]
        return getattr(module, "kind", None), groups, sorted((name, t.dtype, tuple(t.shape)) for name, t in tensors.items())

    forms = [repr(form(layer)) for layer in model.blk]
    return [forms.index(f) for f in forms]


def programs_by_layer(model: Decoder, export: Callable[[Decoder], dict[str, Any]]) -> dict[str, Any]:
    """What `export` gives for the model, by a trace of the layers that differ. Where there are not many of a kind, what it gives."""
    return traced_by_layer(model, export) or export(model)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """A trace makes millions of objects that stay: looking through them for cycles again and again is a third of its time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def traced_by_layer(model: Decoder, export: Callable[[Decoder], dict[str, Any]], sources: Mapping[int, Any] | None = None) -> dict[str, TextProgram]:
    """The same; nothing where there are not many of a kind. sources: what is read in place of tensors, by their addresses."""
    kinds = kinds_of(model)
    traced = sorted(set(kinds))
    if len({layer.kind for layer in model.blk}) > 1:
        traced = sorted(i for kind in traced for i in [i for i, k in enumerate(kinds) if k == kind][:2])  # what only some layers read is told by two
    elif len(traced) == 1 and len(kinds) > 1:
        traced = [0, 1]  # what goes from layer to layer is told by two
    if len(traced) < 2 or len(traced) >= len(kinds):
        return {}
    few = copy.copy(model)
    few._modules = {**model._modules, "blk": nn.ModuleList(model.blk[i] for i in traced)}
    tensors = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    made = {}
    try:
        with _without_collection():
            for name, program in export(few).items():
                document = expanded(json.loads(program_json(program)), [traced.index(k) for k in kinds], len(traced))
                made[name] = TextProgram(json.dumps(document), {n: tensors[n].detach() for n in _weights(document)}, sources)
    except (LookupError, TypeError, ValueError):  # another PyTorch writes programs down in another way
        return {}
    return made


def _weights(document: dict) -> list[str]:
    names = []
    for spec in document["graph_module"]["signature"]["input_specs"]:
        (body,) = spec.values()
        name = body.get("parameter_name") or body.get("buffer_name") or body.get("tensor_constant_name")
        if name:
            names.append(name)
    return names


def _in_layer(text: str, number: int) -> str:
    """Names of a layer's things as those of another one's."""
    return _LAYER.sub(lambda found: re.sub(r"\d+", str(number), found[0]), text)


def _names(value: Any) -> set[str]:
    """Of the values that a part of a node mentions."""
    if isinstance(value, list):
        return set().union(*map(_names, value)) if value else set()
    if isinstance(value, dict):
        own = {value["name"]} if isinstance(value.get("name"), str) and set(value) <= {"name"} else set()
        return own.union(*(_names(v) for v in value.values()))
    return set()


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_renamed(v, names) for v in value]
    if isinstance(value, dict):
        return {k: names.get(v, v) if k == "name" and isinstance(v, str) else _renamed(v, names) for k, v in value.items()}
    return value


class _Parts:
    """A traced graph: what comes before the layers, each layer, what comes after them, and what goes from one to the next."""

    def __init__(self, nodes: list[dict], layers: int):
        places = [_LAYER.search(n["metadata"].get("nn_module_stack", "")) for n in nodes]
        numbers = [-1 if p is None else int(p[1]) for p in places]
        within = [i for i, n in enumerate(numbers) if n >= 0]
        ordered = [n for n in numbers if n >= 0]
        if ordered != sorted(ordered) or set(ordered) != set(range(layers)) or within != list(range(within[0], within[-1] + 1)):
            raise ValueError("layers that are not in order")
        if any("as_name" in json.dumps(n) for n in nodes[within[0]:within[-1] + 1]):
            raise ValueError("layers that compute sizes")
        self.before, self.after = nodes[: within[0]], nodes[within[-1] + 1:]
        self.layers = [[n for n, number in zip(nodes, numbers) if number == k] for k in range(layers)]
        self.made = [_names([n["outputs"] for n in layer]) for layer in self.layers]
        used = [_names([n["inputs"] for n in part]) for part in (*self.layers, self.after)]
        first = (used[0] & _names([n["outputs"] for n in self.before])) - set().union(*used[1:])
        between = [first, *(used[k + 1] & self.made[k] for k in range(layers))]
        if any(len(b) != 1 for b in between):
            raise ValueError("layers that give more than one tensor to the next")
        self.between = [min(b) for b in between]  # [k]: what layer k reads of what is before it; the last one: what comes after them reads


def expanded(document: dict, like: list[int], layers: int) -> dict:
    """A program of len(like) layers, of which layer k is as layer like[k] of the document's program, which has `layers`."""
    graph, signature = document["graph_module"]["graph"], document["graph_module"]["signature"]
    parts = _Parts(graph["nodes"], layers)
    nodes, values, specs, inputs = list(parts.before), {}, [], []
    current = parts.between[0]
    for k, kind in enumerate(like):
        names = {name: f"blk_{k}_{name}" for name in parts.made[kind]}
        names[parts.between[kind]] = current
        own = [(s, i) for s, i in zip(signature["input_specs"], graph["inputs"]) if (found := _LAYER.search(i["as_tensor"]["name"])) and int(found[1]) == kind]
        names.update({i["as_tensor"]["name"]: _in_layer(i["as_tensor"]["name"], k) for _, i in own})
        for spec, given in own:
            specs.append(json.loads(_in_layer(json.dumps(spec), k)))
            inputs.append(_renamed(given, names))
        for node in parts.layers[kind]:
            stack = _in_layer(node["metadata"].get("nn_module_stack", ""), k)
            nodes.append({**node, "inputs": _with_arguments(node["inputs"], names), "outputs": _renamed(node["outputs"], names),
                          "metadata": {**node["metadata"], "nn_module_stack": stack}})
        values.update({new: graph["tensor_values"][old] for old, new in names.items() if old != parts.between[kind]})
        current = names[parts.between[kind + 1]]
    nodes += [{**n, "inputs": _with_arguments(n["inputs"], {parts.between[-1]: current})} for n in parts.after]
    others = [(s, i) for s, i in zip(signature["input_specs"], graph["inputs"]) if not _LAYER.search(i.get("as_tensor", {}).get("name", ""))]
    front, callers = ([o for o in others if ("user_input" in o[0]) == wanted] for wanted in (False, True))
    kept = {n: v for n, v in graph["tensor_values"].items() if not _LAYER.search(n) and not any(n in made for made in parts.made)}
    graph.update(nodes=nodes, tensor_values={**kept, **values}, inputs=[i for _, i in front] + inputs + [i for _, i in callers])
    signature["input_specs"] = [s for s, _ in front] + specs + [s for s, _ in callers]
    return document


def _with_arguments(arguments: list[dict], names: dict[str, str]) -> list[dict]:
    """The arguments' own names are the operator's."""
    return [{**a, "arg": _renamed(a["arg"], names)} for a in arguments]
