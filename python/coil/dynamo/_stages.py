"""The stages of a compile, for those who look: folders of texts while a program compiles, and what logs and traces take from them (coil.logs)."""

from __future__ import annotations

import itertools
import logging
import os
import pathlib
import re
import shutil
import tempfile
from typing import Any

import torch
from torch._dynamo.utils import get_debug_dir

from ..logs import fusion, graphs, output_code, perf_hints, recompiles, schedule
from ._decompositions import operator_name
from ._split import Split, is_number

_numbers = itertools.count()  # of the programs of this process
_CODE = (".cc", ".cu")


def _traced() -> bool:
    """Whether TORCH_TRACE names a folder."""
    return any(getattr(handler, "root_dir", None) for handler in torch._logging._internal.trace_log.handlers)


def _debugged() -> bool:
    return os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1"


def _kept_in(settings: dict) -> str:
    """The folder where programs' texts stay; "": nobody wants that."""
    return os.path.join(get_debug_dir(), "coil") if _debugged() else settings.get("dump") or os.environ.get("COIL_DUMP", "")


def folder_for(settings: dict) -> str:
    """Where the next program's stages are to be written as texts, a folder for each; "" if nobody wants them."""
    name = f"{next(_numbers):03}_{settings['name']}"
    if kept := _kept_in(settings):
        return os.path.join(kept, name)
    if _traced() or any(artifact.log.isEnabledFor(logging.INFO) for artifact in (fusion, schedule, output_code)):
        return os.path.join(tempfile.mkdtemp(prefix="coil-stages-"), name)
    return ""


def program_compiled(folder: str, settings: dict, report: dict | None) -> None:
    """Logs and traces what a compile has left in its folder, which ends here unless it was asked for. `report`: None where it was refused."""
    if not folder:
        return
    name = os.path.basename(folder)
    texts = {path.name: path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).glob("*")) if path.is_file()}
    if not _kept_in(settings):
        shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
    if report is None:
        return
    for stage, text in texts.items():
        if re.match(r"\d+_plan", stage):
            fusion.show(name, text)
            schedule.show(name, text)
    output_code.show(name, {stage: text for stage, text in texts.items() if stage.endswith(_CODE)})
    perf_hints.show(name, report["hints"])
    for stage, text in texts.items():
        _trace(f"coil_{name}_{stage}", text)


def graph_split(gm: torch.fx.GraphModule, split: Split, reasons: dict[torch.fx.Node, str], kind: str) -> None:
    """Logs which operators of a graph became whose."""
    if not _traced() and not graphs.log.isEnabledFor(logging.INFO) and not _debugged():
        return
    numbers = {level: i for i, level in enumerate(sorted(split.programs))}
    rows = []
    for node in gm.graph.nodes:
        if node not in split.level or node.op != "call_function" or is_number(node) or not (split.is_torch(node) or split.is_coil(node)):
            continue
        place = f"PyTorch: {reasons.get(node) or 'free'}" if split.is_torch(node) else f"program {numbers[split.level[node]]}"
        rows.append((node.name, operator_name(node.target), place))
    text = graphs.show(kind, rows, len(split.programs), {n: r for n, r in reasons.items() if r and n in split.level})
    _trace(f"coil_{kind}_graph", text)


def graph_begun(gm: torch.fx.GraphModule, kind: str) -> None:
    if recompiles.log.isEnabledFor(logging.INFO):
        values = (node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder")
        recompiles.show(kind, ", ".join(f"{str(v.dtype).rpartition('.')[2]}{list(v.shape)}" if isinstance(v, torch.Tensor) else str(v) for v in values))


def _trace(name: str, text: Any) -> None:
    if _traced():
        torch._logging.trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=lambda: text)
