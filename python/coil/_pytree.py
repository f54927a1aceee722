"""The nesting of a program's arguments and results, from the JSON that torch.export wrote; without PyTorch for tuples, lists,
dicts and the like, with PyTorch's registry for types of one's own."""

from __future__ import annotations

import collections
import functools
import importlib
import json
from typing import Any, Callable

from ._errors import make_error

Flatten = Callable[[Any, list], None]
Unflatten = Callable[[Any], Any]  # takes an iterator of leaves


def _fail(message: str) -> Exception:
    return make_error(201, f"COIL-E201: {message}")


class Spec:
    """A pytree specification: `flatten(value)` to the list of its leaves, `unflatten(leaves)` back."""

    def __init__(self, text: str):
        self.text = text
        self.num_leaves = 0
        document = json.loads(text)
        if not (isinstance(document, list) and len(document) == 2 and document[0] == 1):
            raise _fail("the package's pytree is of a version that coil does not know")
        self.tree = document[1]
        self._by_torch: Any = None
        try:
            self._flatten, self._unflatten = self._compile(self.tree, "")
        except _Foreign as foreign:
            pytree = importlib.import_module("torch.utils._pytree")
            _name_known_classes(self.tree)
            try:
                self._by_torch = pytree.treespec_loads(text)
            except (NotImplementedError, ValueError, KeyError):
                raise _fail(f"the program's arguments or results are of the type '{foreign}', which this process does not know\n"
                            "  hint: import the module that defines and registers it first") from None
            self.num_leaves = self._by_torch.num_leaves

    def flatten(self, value: Any) -> list:
        leaves: list = []
        if self._by_torch is not None:
            pytree = importlib.import_module("torch.utils._pytree")
            leaves, found = pytree.tree_flatten(value)
            if found != self._by_torch:
                raise _fail(f"the arguments are nested as {found}, expected {self._by_torch}")
            return leaves
        self._flatten(value, leaves)
        return leaves

    def unflatten(self, leaves: list) -> Any:
        if self._by_torch is not None:
            return importlib.import_module("torch.utils._pytree").tree_unflatten(leaves, self._by_torch)
        return self._unflatten(iter(leaves))

    def _compile(self, node: dict, where: str) -> tuple[Flatten, Unflatten]:
        kind, children = node["type"], node["children_spec"]
        if kind is None:
            self.num_leaves += 1
            return lambda value, leaves: leaves.append(value), next
        if kind in ("builtins.tuple", "builtins.list", "collections.namedtuple", "collections.deque"):
            parts = [self._compile(child, f"{where}[{i}]") for i, child in enumerate(children)]
            return _sequence(kind, node["context"], parts, where)
        if kind in ("builtins.dict", "collections.OrderedDict"):
            keys = json.loads(node["context"])
            parts = [self._compile(child, f"{where}[{key!r}]") for key, child in zip(keys, children)]
            return _mapping(kind, keys, parts, where)
        raise _Foreign(kind)


class _Foreign(Exception):
    pass


def _sequence(kind: str, context: str, parts: list, where: str) -> tuple[Flatten, Unflatten]:
    makers: dict[str, Callable[[Any], Any]] = {"builtins.tuple": tuple, "builtins.list": list, "collections.deque": collections.deque}
    accepted: Any = {"builtins.tuple": tuple, "builtins.list": list, "collections.deque": collections.deque}.get(kind, tuple)
    make = makers.get(kind) or _named_tuple(context)
    flatteners = [flatten for flatten, _ in parts]
    unflatteners = [unflatten for _, unflatten in parts]

    def flatten(value: Any, leaves: list) -> None:
        if not isinstance(value, accepted) or len(value) != len(flatteners):
            raise _fail(f"argument {where or 'list'} is {_describe(value)}, expected a {accepted.__name__} of {len(flatteners)}")
        for part, item in zip(flatteners, value):
            part(item, leaves)

    return flatten, lambda leaves: make([part(leaves) for part in unflatteners])


def _named_tuple(context: str) -> Callable[[Any], Any]:
    name = json.loads(context) if context.startswith('"') else context
    found = _class_named(name)
    if not hasattr(found, "_make"):
        raise _Foreign(name)
    return found._make


def _class_named(name: str) -> Any:
    """What Python finds under this name; None: nothing."""
    module, *path = name.split(".")
    while path:  # a class may stand inside of another one
        try:
            return functools.reduce(getattr, path, importlib.import_module(module))
        except (ImportError, AttributeError, ValueError):
            module, path = f"{module}.{path[0]}", path[1:]
    return None


def name_class(made: type) -> None:
    """Gives a class of the user's the name that PyTorch asks for before it is written to a file: where Python finds it. Named tuples need no registration to be
    arguments and results, and that of other classes (torch.export.register_dataclass) may leave the name out."""
    pytree = importlib.import_module("torch.utils._pytree")
    known = pytree.SUPPORTED_SERIALIZED_TYPES.get(made)
    if known is not None and known.serialized_type_name != pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
        return
    name = place = f"{made.__module__}.{made.__qualname__}"
    number = 1
    while name in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:  # functions define a class of this name in each call
        number += 1
        name = f"{place}#{number}"
    if known is not None:
        pytree.SUPPORTED_SERIALIZED_TYPES[made] = known._replace(serialized_type_name=name)
        pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE[name] = made
    elif issubclass(made, tuple) and hasattr(made, "_fields"):
        pytree._register_namedtuple(made, serialized_type_name=name)


def _name_known_classes(tree: dict) -> None:
    """Those that this process has registered without a name, as the one that wrote the package had."""
    made = _class_named(tree["type"]) if tree["type"] else None
    if isinstance(made, type):
        name_class(made)
    for child in tree["children_spec"]:
        _name_known_classes(child)


def _mapping(kind: str, keys: list, parts: list, where: str) -> tuple[Flatten, Unflatten]:
    make = dict if kind == "builtins.dict" else collections.OrderedDict
    known = set(keys)

    def flatten(value: Any, leaves: list) -> None:
        if not isinstance(value, dict) or value.keys() != known:
            found = f"a dict with keys {sorted(map(str, value))}" if isinstance(value, dict) else _describe(value)
            raise _fail(f"argument {where or 'dict'} is {found}, expected a dict with keys {sorted(map(str, keys))}")
        for key, (part, _) in zip(keys, parts):
            part(value[key], leaves)

    return flatten, lambda leaves: make((key, part(leaves)) for key, (_, part) in zip(keys, parts))


def _describe(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, (tuple, list, collections.deque)) else ""
    return f"a {type(value).__name__}{size}"
