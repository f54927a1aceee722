"""Weights that can be replaced after compilation.

A program compiled with {"replaceable_constants": True} takes its parameters and buffers as further inputs, after the caller's; the
package holds their values beside the code (data/coil/constants.json, data/coil/constants/N), and the model that opens it passes them.
Nothing of them is folded or packed at compile time: products are slower by a little, convolutions by much.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import sys
import zipfile
from typing import Any, Mapping

from ._arguments import said
from ._arrays import DTYPES
from ._errors import make_error

INDEX = "data/coil/constants.json"


class Constants:
    """The active weights of a model, and a second set that can be filled and swapped in."""

    def __init__(self, rows: list[dict], tensors: list[Any], device: str):
        self.rows = rows
        self.device = device
        self.active = tensors
        self.inactive: list[Any] = list(tensors)
        self._index = {row["fqn"]: i for i, row in enumerate(rows)}

    def names(self) -> list[str]:
        return [row["fqn"] for row in self.rows]

    def load(self, tensors: Mapping[str, Any], full: bool, borrow: bool, move: bool, inactive: bool) -> None:
        missing = [name for name in self._index if name not in tensors]
        if full and missing:
            raise make_error(208, f"COIL-E208: the update lacks the constant '{missing[0]}' ({len(missing)} of {len(self._index)} in all)")
        made = list(self.inactive if inactive else self.active)
        for name, tensor in tensors.items():
            if name not in self._index:
                raise make_error(208, f"COIL-E208: the model has no constant '{name}'\n  hint: its constants: {', '.join(self.names()[:8])}")
            made[self._index[name]] = self._fit(name, tensor, borrow, move)
        if inactive:
            self.inactive = made
        else:
            self.active = made  # calls that run keep the list that they began with

    def swap(self) -> None:
        self.active, self.inactive = self.inactive, self.active

    def _fit(self, name: str, tensor: Any, borrow: bool, move: bool) -> Any:
        row = self.rows[self._index[name]]
        if not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
            raise make_error(202, f"COIL-E202: constant '{name}': expected a tensor, got {said(tensor)}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype != row["dtype"] or list(tensor.shape) != row["shape"]:
            raise make_error(202 if dtype != row["dtype"] else 204,
                             f"COIL-E{202 if dtype != row['dtype'] else 204}: constant '{name}': expected {row['dtype']}{row['shape']}, got {dtype}{list(tensor.shape)}")
        if not hasattr(tensor, "detach"):
            return tensor if borrow else tensor.copy()
        tensor = tensor.detach()
        if str(tensor.device) != self.device and str(tensor.device).partition(":")[0] != self.device:
            if not move or borrow:
                raise make_error(206, f"COIL-E206: constant '{name}' is on {tensor.device}, the model on {self.device}\n  hint: allow_h2d_copy=True copies it")
            tensor = tensor.to(self.device)
        # Rows in order, as the program reads them; what is borrowed has to be so already.
        return tensor if borrow else tensor.clone(memory_format=importlib.import_module("torch").contiguous_format)


def lift(document: dict) -> tuple[list[dict], list[tuple[str, str]]]:
    """Turns the constants of an exported program's JSON into inputs after the caller's. Returns rows for the index, and (kind, name)
    of each. Buffers that the program writes to stay what they are: its state."""
    graph = document["graph_module"]["graph"]
    signature = document["graph_module"]["signature"]
    written = {spec[f"{kind}_mutation"][f"{kind}_name"] for kind in ("buffer", "parameter") for spec in signature["output_specs"] if f"{kind}_mutation" in spec}
    kept, lifted, rows, sources = [], [], [], []
    for spec, value in zip(signature["input_specs"], graph["inputs"]):
        (kind, body), = spec.items()
        name = body.get("parameter_name") or body.get("buffer_name") or body.get("tensor_constant_name")
        if kind not in ("parameter", "buffer", "tensor_constant") or name in written:
            kept.append((spec, value))
            continue
        lifted.append(({"user_input": {"arg": {"as_tensor": body["arg"]}}}, {"as_tensor": body["arg"]}))
        rows.append({"fqn": name})
        sources.append((kind, name))
    signature["input_specs"], graph["inputs"] = ([pair[i] for pair in kept + lifted] for i in (0, 1))
    return rows, sources


def compile_replaceable(program: Any, settings: dict) -> tuple[bytes, dict]:
    """An ExportedProgram to the bytes of a package with its weights beside the code."""
    torch = importlib.import_module("torch")
    compiler = importlib.import_module("coil._compiler")
    ours = importlib.import_module("coil._program")
    functional = program.run_decompositions({})  # says which buffers are written to
    document = json.loads(ours.program_json(functional))
    rows, sources = lift(document)
    tensors = {**functional.constants, **functional.state_dict}
    lifted = {name for _, name in sources}
    rest = {name: t.detach().cpu() for name, t in tensors.items() if name not in lifted and isinstance(t, torch.Tensor)}
    package, report = compiler.compile_json(json.dumps(document), {n: ours.weight_row(t) for n, t in rest.items()}, None, settings)
    file = io.BytesIO()
    file.write(package)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        root = archive.namelist()[0].partition("/")[0]
        for i, row in enumerate(rows):
            tensor = tensors[row["fqn"]].detach().cpu().contiguous()
            row.update(dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape), kind=sources[i][0])
            _write(archive, f"{root}/data/coil/constants/{i}", tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
        _write(archive, f"{root}/{INDEX}", json.dumps(rows).encode())
    return file.getvalue(), report


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)  # the same bytes for the same program


def read_constants(package: Any, device: str) -> Constants | None:
    """The weights of a package (a path, or its bytes); None where they are part of the code."""
    try:
        with zipfile.ZipFile(package if isinstance(package, str) else io.BytesIO(package)) as archive:
            root = archive.namelist()[0].partition("/")[0]
            if f"{root}/{INDEX}" not in archive.namelist():
                return None
            rows = _checked_rows(json.loads(_entry(archive, f"{root}/{INDEX}")))
            tensors = [_tensor(bytearray(_entry(archive, f"{root}/data/coil/constants/{i}")), row, device) for i, row in enumerate(rows)]
    except (zipfile.BadZipFile, LookupError, ValueError, EOFError, NotImplementedError, RecursionError) as error:
        raise make_error(301, f"COIL-E301: the package's replaceable weights are damaged: {said(str(error))}\n  hint: compile the program again") from None
    return Constants(rows, tensors, device)


def _entry(archive: zipfile.ZipFile, name: str) -> bytes:
    """What coil writes is stored as it is, so that an entry is no larger than its file."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
        raise ValueError(f"{name} is compressed")
    return archive.read(info)


def _checked_rows(rows: Any) -> list[dict]:
    def is_size(n: Any) -> bool:
        return type(n) is int and 0 <= n < 2**63

    for row in rows if isinstance(rows, list) else [None]:
        if not (isinstance(row, dict) and isinstance(row.get("fqn"), str) and row.get("dtype") in DTYPES.values() and isinstance(row.get("shape"), list)
                and all(map(is_size, row["shape"]))):
            raise ValueError(f"{INDEX} is no list of weights")
    return rows


def _element_bytes(dtype: str) -> int:
    if dtype == "bool" or dtype.startswith("float8"):
        return 1
    return 2 if dtype == "bfloat16" else int("".join(filter(str.isdigit, dtype))) // 8


def _tensor(data: bytearray, row: dict, device: str) -> Any:
    elements = math.prod(row["shape"])
    if len(data) != elements * _element_bytes(row["dtype"]):
        raise ValueError(f"'{row['fqn']}' has {len(data)} bytes, which are not {elements} numbers of {row['dtype']}")
    if "torch" in sys.modules or device != "cpu":
        torch = importlib.import_module("torch")
        flat = torch.frombuffer(data, dtype=getattr(torch, row["dtype"])) if data else torch.empty(0, dtype=getattr(torch, row["dtype"]))
        return flat.reshape(row["shape"]).to(device)
    numpy = importlib.import_module("numpy")
    dtype = importlib.import_module("ml_dtypes").bfloat16 if row["dtype"] == "bfloat16" else row["dtype"]
    return numpy.frombuffer(data, dtype).reshape(row["shape"])
